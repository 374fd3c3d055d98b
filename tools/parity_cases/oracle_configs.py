"""A reduced config for each model type without a closed form, as its config class writes it."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import transformers
from support.bert_configs import config_of
from transformers import CONFIG_MAPPING

from auditor.analytic import Expectation, catalogue
from auditor.errors import AuditError
from auditor.oracle.build import build_expectation
from auditor.oracle.transformers_classes import installed_library
from parity_cases.library import quiet

MOST_TENSORS = 2500  # of a class: more would show nothing new

_LAYERS = re.compile(r"layers$|_layer$|^n_layer|depth$|num_blocks$|num_hidden_groups$")
_LISTS = re.compile(r"depths$|layers_per_block|num_blocks$")
_EXPERTS = re.compile(r"^(moe_)?num_(local_|routed_)?experts$|^n_routed_experts$")
_VOCAB = re.compile(r"vocab_size$")
_WIDTHS = re.compile(
    r"(hidden|intermediate|embedding|ffn|inner)_(size|dim)$|^d_model$|^d_ff$|_ffn_dim$"
)
_TOKENS = re.compile(r"_token_(id|index)$")

# How much is reduced, the most first: what cannot be built so may be built from less.
_LEVELS = (
    (_LAYERS, _LISTS, _EXPERTS, _VOCAB, _WIDTHS),
    (_LAYERS, _LISTS, _EXPERTS, _VOCAB, _WIDTHS),
    (_LAYERS, _LISTS, _EXPERTS, _VOCAB),
    (_LAYERS, _LISTS, _EXPERTS),
    (_LAYERS,),
    (),
)


def model_types() -> tuple[str, ...]:
    """Those of the auto mappings that have no closed form."""
    known = set(catalogue.model_types())
    return tuple(sorted(each for each in installed_library().listed if each not in known))


def classes_of(model_type: str) -> tuple[str, ...]:
    """The classes that are listed for a type and are built from its own config class."""
    own = CONFIG_MAPPING[model_type]
    names = installed_library().listed[model_type]
    found = ((name, getattr(transformers, name, None)) for name in names)
    models = ((name, one) for name, one in found if isinstance(one, type))
    return tuple(
        name
        for name, one in models  # what lacks its library is no model
        if issubclass(one, transformers.PreTrainedModel) and one.config_class is own
    )


def reduced(
    model_type: str, rng: Random, only: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Expectation]]:
    """A config and what it implies for each class that can be built from it.

    LookupError, with the reason of the last, where none can.
    """
    classes = [name for name in classes_of(model_type) if not only or name in only]
    if not classes:
        raise LookupError("no class that is built from its config class alone")
    reason = ""
    for level in _LEVELS:
        try:
            values = _written(model_type, _reduced(_defaults(model_type), level, rng))
        except Exception as error:  # noqa: BLE001 - a config class can raise anything at a size
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
            continue
        built: dict[str, Expectation] = {}
        for name in classes:
            try:
                found = build_expectation(config_of(**values).values, name)
            except (AuditError, MemoryError) as error:
                reason = str(error)[:160]
                continue
            if _small(found):
                built[name] = found
            else:
                reason = f"{name} has {len(found.tensors):,} tensors"
        if built:
            return values, built
    raise LookupError(reason)


def _small(found: Expectation) -> bool:
    return 0 < len(found.tensors) <= MOST_TENSORS


def _defaults(model_type: str) -> dict[str, Any]:
    with quiet():
        values: dict[str, Any] = CONFIG_MAPPING[model_type]().to_dict()
    return values


def _reduced(
    values: Mapping[str, Any], level: tuple[re.Pattern[str], ...], rng: Random
) -> dict[str, Any]:
    """Of the defaults only what is reduced: what follows from it is worked out anew."""
    divisor = rng.choice([4, 8, 16])
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            own = _reduced(value, level, rng)
            if own and "model_type" in value:
                found[key] = {"model_type": value["model_type"], **own}
        elif (smaller := _smaller(key, value, level, rng, divisor)) != value:
            found[key] = smaller
    return found


def _smaller(
    key: str, value: Any, level: tuple[re.Pattern[str], ...], rng: Random, divisor: int
) -> Any:
    kind = next((one for one in level if one.search(key)), None)
    if kind is _LISTS and isinstance(value, list | tuple):
        return [min(each, rng.choice([1, 2])) for each in value]
    if type(value) is not int:
        return value
    if _VOCAB in level and _TOKENS.search(key):
        return min(value, 2)
    sizes = {
        _LAYERS: rng.choice([1, 2, 3]) if value > 2 else value,
        _EXPERTS: min(value, 4),
        _VOCAB: rng.randrange(100, 200) if value > 200 else value,
        _WIDTHS: value // divisor if value >= 64 and not value % divisor else value,
    }
    return sizes.get(kind, value)


def _written(model_type: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The config as save_pretrained writes it, but for whose it is."""
    with quiet(), TemporaryDirectory() as folder:
        CONFIG_MAPPING[model_type].from_dict({"model_type": model_type, **changes}).save_pretrained(
            folder
        )
        values: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
    return {"model_type": model_type} | {
        key: value for key, value in values.items() if key not in {"architectures", "dtype"}
    }

"""What packed forms describe: the types with a formula in letters, the decoders with a cache."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditor.analytic import Config, Expectation, cache_rule, generated
from auditor.analytic.config_keys import changed
from auditor.analytic.generated.form import Form
from auditor.analytic.kv_cache import generates
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.build import build_cache

_DEPTHS = frozenset({"n_layer", "n_layers", "num_hidden_layers", "num_layers"})
_COMPARED = (3, 5)  # layers: a full model takes seconds


def described(types: Mapping[str, Sequence[str]]) -> tuple[int, list[str]]:
    """Return the number of types with letters, and the classes whose cache the rule computes."""
    lettered = sum(any(map(has_letters, names)) for names in types.values())
    decoders = {name for names in types.values() for name in names if generates(name)}
    return lettered, sorted(name for name in decoders if has_rule(name))


def has_letters(target: str) -> bool:
    """Return whether the formula of a class's default config has letters."""
    [model_type, *_] = generated.types(target)
    form = generated.forms(model_type)[target]
    expected = _expected(form, {})
    return bool(expected and expected.legend)


def has_rule(target: str) -> bool:
    """Return whether the rule equals what transformers keeps, for each config that it measures."""
    [model_type, *_] = generated.types(target)
    form = generated.forms(model_type)[target]
    compared = [
        (measured, cache_rule.computed_cache(expected))
        for values in _configs(form)
        if (expected := _expected(form, values)) and (measured := _measured(values, target))
    ]
    return bool(compared) and all(measured == computed for measured, computed in compared)


def _configs(form: Form) -> Iterator[dict[str, Any]]:
    depths = [key for key in form.defaults if key.rpartition(".")[2] in _DEPTHS]
    for layers in _COMPARED if depths else (None,):
        parts = {
            f"{path}.model_type": form.part_types[path]
            for key in depths
            if (path := key.rpartition(".")[0]) in form.part_types
        }
        config = {"model_type": form.model_type}
        yield changed(config, {**parts, **dict.fromkeys(depths, layers)})


def _expected(form: Form, values: dict[str, Any]) -> Expectation | None:
    declared = {"model_type": form.model_type} if form.model_type else {"_class_name": form.target}
    try:
        return generated.expect(Config(values=declared | values), form.target)
    except (CheckpointError, SourceError):
        return None


def _measured(values: dict[str, Any], target: str) -> Any:
    try:
        return build_cache(values, target)
    except (CheckpointError, SourceError):
        return None

"""Build a model of transformers on torch's meta device, and list its tensors, without weights.

torch and transformers take seconds and 340 MB to import, so only audits that need them load them,
through `oracle.client`, whose process runs `oracle.server`. Nothing is downloaded, and only code of
the installed library runs.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import ERROR
from math import prod
from types import MappingProxyType
from typing import Any

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.kv_cache import KVCache
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.extras import install
from auditor.messages import described, named, quoted
from auditor.oracle import loading_rules
from auditor.oracle.measured_cache import measured_cache

# Keys that shape no tensor, but can make the library fetch code or weights, or pack tensors.
_DROPPED = re.compile(r"implementation|pretrained_backbone|^quantization_config$|^(torch_)?dtype$")

# Keys with a number of modules, which are Python objects even on the meta device: a BERT layer
# takes 1 ms.
_MOST = MappingProxyType(
    {
        re.compile(r"layers|_layer$|blocks|depth|experts|stages"): 4096,
        re.compile("num_labels"): 1_000_000,
    }
)

# Loading applies this rename to all models. Saving reverses it only for ESM, whose own conversions
# contain it: transformers 5 saves ESM's norms under older names than the Hub's files have.
_OLDER = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))

# A buffer that is computed from the config, whose absence loading does not report:
# `rotary_emb.inv_freq`, or ESM's `rotary_embeddings.inv_freq`.
_FREQUENCIES = r"(^|\.)rotary_emb\w*\.inv_freq$"

_HALF = 150  # characters from either end of a message of transformers

_NO_MEMORY = "can't allocate memory"  # the message of torch's RuntimeError


def build_expectation(config: Mapping[str, Any], target: str) -> Expectation:
    """Return the tensors that `save_pretrained` writes for a model of this class and config.

    The expectation has parameters and persistent buffers under their names on disk, in the model's
    order, followed by tied tensors, which are not stored. Raise UsageError without the `oracle`
    extra, SourceError for a class that transformers does not have or cannot build here, and
    CheckpointError for a config from which the class cannot be built.
    """
    library = _library()
    with _quiet():
        model = _build(_model_class(library, target), checked_config(config))
        shapes = loading_rules.untied_shapes(model)
        model.tie_weights()
        tensors = tuple(_tensors(model))
        loading = loading_rules.loading_of_model(model, shapes, (tensor.name for tensor in tensors))
    return summed_expectation(
        target,
        model_type=type(model.config).model_type,
        prefix=model.base_model_prefix or "",
        tensors=tensors,
        loading=loading,
    )


def build_cache(config: Mapping[str, Any], target: str) -> KVCache | None:
    """Return the cache that a model of this class and config fills; None if it is not known."""
    with _quiet():
        return measured_cache(_build(_model_class(_library(), target), checked_config(config)))


def _library() -> Any:
    try:
        # torch is imported first: without it, transformers can be imported but builds no model.
        import torch  # noqa: F401, PLC0415 - see the module's docstring
        import transformers  # noqa: PLC0415 - see the module's docstring
    except ImportError as error:
        raise UsageError(
            f"the oracle needs torch and transformers ({error}): {install('oracle')}"
        ) from None
    return transformers


def _model_class(transformers: Any, target: str) -> Any:
    loaded_class: Any = getattr(transformers, target, None)
    model_class = isinstance(loaded_class, type) and issubclass(
        loaded_class, transformers.PreTrainedModel
    )
    if not model_class or loaded_class.config_class is None or target.endswith("PreTrainedModel"):
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"transformers {transformers.__version__} has no model class {quoted(target)}",
        )
    return loaded_class


def checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the keys that shape tensors; raise CheckpointError for too large a number of modules."""
    shaping_values = {}
    for key, value in config.items():
        for many, most in _MOST.items():
            if type(value) is int and value > most and many.search(key):
                raise CheckpointError(
                    f"{named(key)} is {described(value)}; the oracle builds {most:,} at most"
                )
        if not _DROPPED.search(key):
            shaping_values[key] = checked_config(value) if isinstance(value, Mapping) else value
    return shaping_values


def _build(model_class: Any, config: dict[str, Any]) -> Any:
    """Build the model as from_pretrained does before loading: without weights and ties."""
    import torch  # noqa: PLC0415 - see the module's docstring
    from transformers.initialization import (  # noqa: PLC0415 - likewise
        no_init_weights,
        no_tie_weights,
    )

    config_class = model_class.config_class
    with (
        building("transformers", model_class.__name__),
        torch.device("meta"),
        no_init_weights(),
        no_tie_weights(),
    ):
        return model_class(config_class.from_dict(own_config(config_class, config)))


@contextmanager
def building(library: str, target: str) -> Iterator[None]:
    """Turn what a library raises while it builds a model into the errors of `inventory`."""
    try:
        yield
    except (ImportError, OSError) as error:  # a missing library, or a backbone on the Hub
        detail = f"{target} needs what is not here: {one_line(error)}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail) from None
    except Exception as error:  # noqa: BLE001 - a modeling file can raise anything at a config
        if isinstance(error, MemoryError) or _NO_MEMORY in str(error):
            raise MemoryError from None
        unsaid = "" if _refuses(error) else ", and does not say what is wrong with it"
        raise CheckpointError(
            f"{library} cannot build {target} from this config{unsaid}: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from None


def _refuses(error: Exception) -> bool:
    """Return whether the error is about the config; other errors may be faults of the library."""
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415 - as transformers has

    return isinstance(error, ValueError | StrictDataclassError)


def own_config(config_class: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return the nested config for this class in a composite config, as from_pretrained does."""
    part = config.get(config_class.base_config_key)
    if isinstance(part, dict):
        return part
    parts = [value for value in config.values() if isinstance(value, dict)]
    own = [part for part in parts if part.get("model_type") == config_class.model_type]
    return own[-1] if own and config.get("model_type") != config_class.model_type else config


def _tensors(model: Any) -> Iterator[ExpectedTensor]:
    """Yield the tensors after the three steps of save_pretrained: ignore, untie, convert."""
    from transformers.modeling_utils import (  # noqa: PLC0415 - see the module's docstring
        remove_tied_weights_from_state_dict,
    )

    ignored = set(model._keys_to_ignore_on_save or ())  # noqa: SLF001 - as save_pretrained does
    state = {name: value for name, value in model.state_dict().items() if name not in ignored}
    stored = remove_tied_weights_from_state_dict(dict(state), model)
    learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    unlearned = {name: stored[name] for name in stored if name not in learned}
    buffers = _on_disk(model, unlearned) if unlearned else {}
    ignored_missing = model._keys_to_ignore_on_load_missing or ()  # noqa: SLF001 - as loading does
    unmissed = (*ignored_missing, _FREQUENCIES)
    for name, value in _on_disk(model, stored).items():
        role = Role.BUFFER if name in buffers else Role.PARAMETER
        if role is Role.BUFFER and any(re.search(pattern, name) for pattern in unmissed):
            role = Role.LEGACY
        yield tensor_of(name, value, role)
    all_tied = [name for name in state if name not in stored]
    if not all_tied:
        return
    stored_name_by_id = {id(model.get_parameter_or_buffer(name)): name for name in stored}
    for tied in all_tied:
        source = stored_name_by_id[id(model.get_parameter_or_buffer(tied))]
        (name, value), (tied_to, _) = (
            next(iter(_on_disk(model, {key: state[key]}).items())) for key in (tied, source)
        )
        yield tensor_of(name, value, Role.TIED, tied_to)


def tensor_of(name: str, value: Any, role: Role, tied_to: str | None = None) -> ExpectedTensor:
    shape = tuple(value.shape)
    return ExpectedTensor(name, shape, prod(shape), role, tied_to)


def _on_disk(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state dict with the names and shapes that it has on disk."""
    from transformers.core_model_loading import (  # noqa: PLC0415 - see the module's docstring
        revert_weight_conversion,
    )

    return {
        _younger(name): value
        for name, value in revert_weight_conversion(model, dict(state)).items()
    }


def _younger(name: str) -> str:
    for older, younger in _OLDER:
        name = name.replace(older, younger)
    return name


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' advice on configs: this package reports their faults."""
    from transformers.utils import logging  # noqa: PLC0415 - see the module's docstring

    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)


def one_line(error: Exception) -> str:
    """Return an error's message without its middle, where transformers prints modules."""
    text = " ".join(str(error).split())
    return text if len(text) <= 2 * _HALF else f"{text[:_HALF]} ... {text[-_HALF:]}"

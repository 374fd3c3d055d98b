"""Classes in the code of model repositories that transformers has taken over under another name.

The files of both store the same tensors: under the same names, as conversion_mapping.py of
transformers states, or under names of their own, which a published conversion script maps. The
configs differ in keys. A twin covers a config that states every key that shapes a tensor and no
option that the class of transformers lacks; the code itself is never run.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config
from auditor.audit.own_names import OwnNames
from auditor.audit.twin_table import TWINS, Twin
from auditor.bounded.json_text import is_identical

_KEPT = frozenset({"auto_map", "dtype", "quantization_config", "torch_dtype"})  # of nested configs


class NativeTwin(NamedTuple):
    """The config that transformers' class reads, and the names in the files of the code."""

    config: Config
    names: OwnNames | None
    package: str | None  # that has the class, if no repository does


def as_native_twin(config: Config, custom: str | None) -> NativeTwin | None:
    """Return the twin of a class of custom code with this config; None if no twin covers it.

    `custom` is the name of the class in auto_map; None if auto_map names no class.
    """
    name = (custom or next(iter(config.architectures), "")).rpartition(".")[2]
    for twin in TWINS:
        is_of_class = twin.stated == config.model_type and name in twin.classes
        is_of_code = not (twin.package or twin.is_library)
        if is_of_class and is_of_code == (custom is not None):
            return _covered(twin, config, twin.classes[name])
    return None


def _covered(twin: Twin, config: Config, target: str) -> NativeTwin | None:
    """Return the config and the names for transformers' class; None if the twin lacks an option."""
    values = config.values
    sizes = {key: _value(values, key) for key in twin.keys}
    names = twin.names
    if names is not None and twin.adapters:
        adapters, rank = (values.get(key) for key in twin.adapters)
        if not (isinstance(adapters, list) and adapters and isinstance(rank, int) and rank > 0):
            return None
        names = names._replace(adapters=(len(adapters), rank))
    is_covered = (
        all(_is_size(size) for size in sizes.values())
        and all(_equal(_value(values, key), only) for key, only in twin.fixed.items())
        and all(sizes[key] % unit == 0 for key, unit in twin.multiples.items())
        and all(isinstance(values.get(key), Mapping) for key in twin.taken)
    )
    if not is_covered:
        return None
    native: dict[str, Any] = {
        **{key: value for key, value in values.items() if not twin.parts or key in _KEPT},
        **{part: {"model_type": kind} for part, kind in twin.parts.items()},
        **{part: values[key] for key, part in twin.taken.items()},
        "architectures": [target],
        "model_type": twin.model_type,
    }
    squared = {key: [size] * 2 if key in twin.squares else size for key, size in sizes.items()}
    stated = {its: squared[key] for key, its in twin.keys.items()}
    for key, value in {**stated, **twin.implied}.items():
        part, _, name = key.rpartition(".")
        (native[part] if part else native)[name] = value
    return NativeTwin(replace(config, values=MappingProxyType(native)), names, twin.package)


def _value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key with dots; None if it is absent."""
    part, _, rest = key.partition(".")
    value = values.get(part)
    if not rest:
        return value
    return _value(value, rest) if isinstance(value, Mapping) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) or (
        isinstance(value, list) and all(isinstance(item, int) for item in value)
    )


def _equal(value: object, only: object) -> bool:
    """Return whether an option has the only value, or one of a set of values."""
    if isinstance(only, frozenset):
        return any(_equal(value, each) for each in only)
    return is_identical(value, only)

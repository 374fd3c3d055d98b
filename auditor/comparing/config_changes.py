"""The config keys with different values in two checkpoints, and the tensors that they explain.

A key that a config lacks has the default of its class in transformers, if the class is known.
"""

import re
from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from auditor.analytic.config_classes.declarations import ConfigClass, of_model_type
from auditor.comparing.records import Changed, ConfigChange
from auditor.comparing.sides import Side

_NOT_COMPARED = frozenset({"_name_or_path", "_from_model_config", "transformers_version"})
_NO_CLASS = ConfigClass("", "", {}, {}, {}, frozenset())


def config_changes(
    before: Side, after: Side, names: tuple[str, ...], reshaped: tuple[Changed, ...]
) -> Iterator[ConfigChange]:
    """Yield the keys that differ; `names` are the names of removed and added tensors.

    The metadata of GGUF files lack most keys: only keys that both sides state are compared then.
    """
    first, second = _flat(before.config), _flat(after.config)
    first_class, second_class = _class_of(before.config), _class_of(after.config)
    is_partial = before.is_gguf or after.is_gguf
    for key in dict.fromkeys((*first, *second)):
        if is_partial and not (key in first and key in second):
            continue
        old = first[key] if key in first else _default(first_class, key)
        new = second[key] if key in second else _default(second_class, key)
        if old != new and not (is_partial and _are_close(old, new)):
            explains = _explained(key.rpartition(".")[2], (old, new), names, reshaped)
            yield ConfigChange(key=key, before=old, after=new, explains=explains)
    if before.companions is None or after.companions is None:
        return
    for key in dict.fromkeys((*before.companions, *after.companions)):
        old, new = before.companions.get(key), after.companions.get(key)
        if old != new and key.rpartition(" ")[2] not in _NOT_COMPARED:
            yield ConfigChange(key=key, before=old, after=new, explains=0)


def _are_close(old: Any, new: Any) -> bool:
    """Return whether two numbers are equal in the single precision that GGUF files store."""
    are_numbers = isinstance(old, float) and isinstance(new, int | float)
    return are_numbers and isclose(old, new, rel_tol=1e-6)


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values by dotted path, with the keys that newer versions of transformers write.

    `torch_dtype` is `dtype`; `rope_parameters` contains what were `rope_theta` and `rope_scaling`.
    """
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and key in {"rope_parameters", "rope_scaling"}:
            values |= {
                f"{path}rope_{name.removeprefix('rope_')}": setting
                for name, setting in value.items()
                if (name, setting) != ("rope_type", "default")
            }
        elif isinstance(value, Mapping):
            values |= _flat(value, f"{path}{key}.")
        elif path or key not in _NOT_COMPARED:
            values[path + ("dtype" if key == "torch_dtype" else key)] = value
    return values


def _class_of(config: Mapping[str, Any]) -> ConfigClass:
    model_type = config.get("model_type")
    return (of_model_type(model_type) if isinstance(model_type, str) else None) or _NO_CLASS


def _default(kind: ConfigClass, key: str) -> Any:
    field = kind.fields.get(key)
    return None if field is None else field.default


def _explained(
    key: str, values: tuple[Any, Any], names: tuple[str, ...], reshaped: tuple[Changed, ...]
) -> int:
    """Count the tensors that differ because of the two values of a key: a size or a layer count."""
    if any(type(value) is not int for value in values):
        return 0
    if "layer" in key:
        fewer, more = sorted(values)
        layers = (re.search(r"\.(\d{1,6})\.", name) for name in names)
        return sum(match is not None and fewer <= int(match[1]) < more for match in layers)
    axes = ((one.before.split(" x "), one.after.split(" x ")) for one in reshaped)
    old, new = values
    sizes = (str(old), str(new))
    return sum(sizes in zip(before, after, strict=False) for before, after in axes)

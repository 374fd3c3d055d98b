"""Rebuild auditor/data/config_classes.jsonl: `python tools/rebuild_config_classes.py`.

The file holds what the config classes of the installed transformers declare, for every model type
of the catalogue and the configs inside them: the type and the default of each field, the attribute
maps, the sub-configs. A test compares the file with the library.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin, is_typeddict

import transformers
from transformers import CONFIG_MAPPING, GenerationConfig
from transformers.activations import ACT2FN
from transformers.configuration_utils import (
    _LEGACY_LAYER_TYPE_REMAP,
    ALLOWED_ATTN_LAYER_TYPES,
    ALLOWED_MLP_LAYER_TYPES,
    PreTrainedConfig,
)

from auditor.analytic import catalogue

FILE = Path(__file__).resolve().parent.parent / "auditor" / "data" / "config_classes.jsonl"

_NAMES = {int: "int", float: "float", bool: "bool", str: "str", NoneType: "null", Any: "any"}


def rebuilt() -> dict[str, Any]:
    """All that the file holds."""
    classes = dict(sorted([(PreTrainedConfig.__name__, PreTrainedConfig), *_classes()]))
    kinds: dict[str, Any] = {}
    listed = {name: _class(found, kinds) for name, found in classes.items()}
    named = {each: CONFIG_MAPPING[each].__name__ for each in _model_types()}
    return {
        "library": f"transformers {transformers.__version__}",
        "activations": sorted(ACT2FN),
        "layer_types": sorted(ALLOWED_ATTN_LAYER_TYPES),
        "mlp_layer_types": sorted(ALLOWED_MLP_LAYER_TYPES),
        "older_layer_types": _LEGACY_LAYER_TYPE_REMAP,
        "generation": _generation(),
        "model_types": named,
        "kinds": dict(sorted(kinds.items())),
        "classes": listed,
    }


def _generation() -> list[str]:
    return sorted(GenerationConfig._get_default_generation_params())


def text(found: dict[str, Any]) -> str:
    """The file's text: first a line of what holds for all classes, then a line for each."""
    head = {key: value for key, value in found.items() if key != "classes"}
    rows = [{"class": name} | said for name, said in found["classes"].items()]
    return "".join(f"{json.dumps(row)}\n" for row in (head, *rows))


def _model_types() -> list[str]:
    return [each for each in catalogue.model_types() if each in CONFIG_MAPPING]


def _classes() -> Iterator[tuple[str, type[PreTrainedConfig]]]:
    """Every config class of the catalogue by its name, and those inside them."""
    waiting = [CONFIG_MAPPING[each] for each in _model_types()]
    while waiting:
        found = waiting.pop()
        yield found.__name__, found
        waiting += [_own(spec) for spec in found.sub_configs_defaults.values()]
        for field in fields(found):
            waiting += filter(_is_config, (_resolved(each, found) for each in get_args(field.type)))


def _own(spec: Any) -> type[PreTrainedConfig]:
    """The class of a config inside another; of one that any class may be, that of its default."""
    return spec.config_class if _is_config(spec.config_class) else CONFIG_MAPPING[spec.model_type]


def _resolved(kind: Any, within: type) -> Any:
    """The class that an annotation names by a string, in the module of the class around it."""
    if isinstance(kind, ForwardRef):
        return getattr(sys.modules[within.__module__], kind.__forward_arg__)
    return kind


def _is_config(found: Any) -> bool:
    config = isinstance(found, type) and issubclass(found, PreTrainedConfig)
    return config and found is not PreTrainedConfig


def _class(found: type[PreTrainedConfig], kinds: dict[str, Any]) -> dict[str, Any]:
    base = set() if found is PreTrainedConfig else {each.name for each in fields(PreTrainedConfig)}
    said = {
        "model_type": found.model_type,
        "fields": {
            field.name: [_kind(field, kinds), _default(field)]
            for field in fields(found)
            if field.name not in base or not isinstance(field.type, str)
        },
        "attribute_map": found.attribute_map,
        "sub_configs": {key: _sub(spec) for key, spec in found.sub_configs_defaults.items()},
        "read_only": sorted(_read_only(found)),
    }
    return {key: value for key, value in said.items() if value not in ({}, [])}


def _sub(spec: Any) -> dict[str, Any]:
    own = spec.config_class.__name__ if _is_config(spec.config_class) else None
    said = {"class": own, "model_type": spec.model_type, "values": spec.init_kwargs}
    return said | {"optional": spec.optional}


def _read_only(found: type) -> set[str]:
    """The properties that cannot be set."""
    every = {name: getattr(found, name, None) for name in dir(found) if not name.startswith("__")}
    return {name for name, value in every.items() if isinstance(value, property) and not value.fset}


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _kind(field: Field[Any], kinds: dict[str, Any]) -> str:
    """The type as people write it; `kinds` gets what a program reads."""
    written, read = _written(field.type)
    kinds[written] = read
    return written


def _written(kind: Any) -> tuple[str, Any]:  # noqa: C901, PLR0911 - one for each kind of type
    """A type as huggingface_hub's `type_validator` tells them apart."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, str | ForwardRef):  # never evaluated, and so never checked
        return "any", "any"
    if kind in _NAMES:
        return _NAMES[kind], _NAMES[kind]
    if is_typeddict(kind):  # isinstance refuses to look at one
        return "", "never"
    if origin in {Union, UnionType}:
        sides = dict.fromkeys(_written(each)[0] for each in inner)
        parts = [each for each in map(_written, inner) if each[1] != "never"]
        texts = [text for text in sides if text]
        return " | ".join(texts), ["or", *dict(parts).values()]
    if origin is Literal:
        return " | ".join(map(repr, inner)), ["one of", *inner]
    if kind is list or kind is dict or kind is tuple:
        return kind.__name__, [kind.__name__]
    if origin is list:
        text, read = _written(inner[0])
        return f"list[{text}]", ["list", read]
    if origin is dict:
        (key, read_key), (text, read) = map(_written, inner)
        return f"dict[{key}, {text}]", ["dict", read_key, read]
    if origin is tuple:  # JSON has none
        return "", "never"
    if _is_config(kind) or kind is PreTrainedConfig:  # nor instances of a class
        return "", "never"
    raise TypeError(f"a type that this program does not know: {kind}")


def main() -> None:
    FILE.write_text(text(rebuilt()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The declarations of transformers' config classes: fields, types, defaults, synonyms.

They are read from auditor/data/config_classes.jsonl, which tools/rebuild_config_classes.py writes
and a test compares with the installed library. The file is read when a class is first needed; only
its first line and the lines of needed classes are parsed.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).parents[2] / "data" / "config_classes.jsonl"
_BASE = "PreTrainedConfig"  # all other classes inherit its fields

# A type: "int", "float", "bool", "str", "null", "any"; or a list: ["or", *kinds], ["list", kind],
# ["dict", kind of keys, kind of values], ["one of", *values]; ["list"] and ["dict"] of anything.
Kind = Any


class Field(NamedTuple):
    """A field of a config class."""

    kind: Kind
    default: Any


class SubConfig(NamedTuple):
    """The declaration of a config inside another config."""

    class_name: str | None  # None: the class follows from the nested model_type
    model_type: str  # the model type if the config does not state one
    values: Mapping[str, Any]  # the nested config's contents if it is absent
    optional: bool  # whether an absent nested config stays absent


class ConfigClass(NamedTuple):
    """The declarations of one config class of transformers."""

    name: str  # "BertConfig"
    model_type: str  # "bert"
    fields: Mapping[str, Field]
    attribute_map: Mapping[str, str]  # the name that other classes use -> the class's own
    parts: Mapping[str, SubConfig]  # by key
    read_only: frozenset[str]  # properties that a config cannot set


class ConfigClassLibrary(NamedTuple):
    """The facts that are common to the config classes of one version of transformers."""

    name: str  # "transformers 5.23.0"
    activations: frozenset[str]
    layer_types: frozenset[str]
    mlp_layer_types: frozenset[str]
    older_layer_types: Mapping[str, str]
    generation: frozenset[str]  # keys for generate(), which configs do not keep
    class_names: Mapping[str, str]  # model type -> the name of its config class
    kinds: Mapping[str, Kind]

    @property
    def short(self) -> str:
        """The short name of the library: "transformers 5.23"."""
        return self.name.rpartition(".")[0]


@cache
def _lines() -> tuple[str, ...]:
    return tuple(_FILE.read_text(encoding="utf-8").splitlines())


@cache
def library() -> ConfigClassLibrary:
    record = json.loads(_lines()[0])
    sets = ("activations", "layer_types", "mlp_layer_types", "generation")
    return ConfigClassLibrary(
        name=record["library"],
        **{name: frozenset(record[name]) for name in sets},
        older_layer_types=record["older_layer_types"],
        class_names=record["model_types"],
        kinds=record["kinds"],
    )


def of_model_type(model_type: str) -> ConfigClass | None:
    """Return the config class of a model type; None if the file lacks it."""
    name = library().class_names.get(model_type)
    return None if name is None else of_name(name)


def of_family(model_type: str) -> ConfigClass | None:
    """Return the config class of a model type; the type may be only nested: blip_text_model."""
    stated = f'"model_type": "{model_type}"'
    inside = (line for line in _lines()[1:] if model_type and line.split(", ", 2)[1] == stated)
    return of_model_type(model_type) or next(
        (of_name(line.split('"', 4)[3]) for line in inside), None
    )


@cache
def of_name(name: str) -> ConfigClass | None:
    """Return the config class with the name; None if the file lacks it."""
    beginning = f'{{"class": "{name}", '
    line = next((line for line in _lines() if line.startswith(beginning)), None)
    return None if line is None else _read(name, json.loads(line))


def is_key_of_any_class(key: str) -> bool:
    """Return whether any config class of transformers declares the key."""
    return any(f"{json.dumps(key)}: " in line for line in _lines()[1:])


def words_of_any_class(key: str) -> frozenset[str]:
    """Return the words that config classes declare as a key's default."""
    field = re.compile(rf'{re.escape(json.dumps(key))}: \[[^\]\[]*?, "([^"]*)"\]')
    return frozenset(word for line in _lines()[1:] for word in field.findall(line))


def other_activations(word: str) -> tuple[str, ...]:
    """Return the word with other activations: `gated-silu` for `gated-gelu`."""
    start, dash, name = word.rpartition("-")
    known = name in library().activations
    return tuple(f"{start}{dash}{other}" for other in ("gelu", "relu", "silu")) if known else ()


def _read(name: str, record: Mapping[str, Any]) -> ConfigClass:
    base = of_name(_BASE) if name != _BASE else None
    own = {
        key: Field(library().kinds[words], default)
        for key, (words, default) in record.get("fields", {}).items()
    }
    return ConfigClass(
        name=name,
        model_type=record["model_type"],
        fields={**(base.fields if base else {}), **own},
        attribute_map=record.get("attribute_map", {}),
        parts={
            key: SubConfig(part["class"], part["model_type"], part["values"], part["optional"])
            for key, part in record.get("sub_configs", {}).items()
        },
        read_only=frozenset(record.get("read_only", ())),
    )

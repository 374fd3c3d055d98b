"""The keys of a config that may be wrong: their paths as the config spells them, their values."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, Final, NamedTuple

from auditor.analytic import catalogue
from auditor.analytic.config_classes import (
    CompletedConfig,
    ConfigClass,
    complete,
    derived_keys,
    of_model_type,
)
from auditor.analytic.generated.form import IGNORED

_INDEXED = re.compile(r"(.*)\[(\d+)\]")
_LABELS = "num_labels"

# Objects of a config that contain no sizes of the model.
_LEFT_OUT = frozenset(
    {"id2label", "label2id", "pretrained_cfg", "quantization_config", "task_specific_params"}
)
_NOT_SHAPING = IGNORED | _LEFT_OUT
_MOST_PARTS = 6  # nested configs of one model; published ones have up to four
_MOST = 400  # keys of one config; published configs have up to 150


class _Null:
    """The type of NULL, which stands for an explicit null in a config."""

    def __repr__(self) -> str:
        return "null"


NULL: Final = _Null()  # an explicit null; None removes a key


class Key(NamedTuple):
    """A key of a config, with its path and its value."""

    path: str  # dotted, as the config spells it: "text_config.vocab_size"
    value: Any  # the config's value, or the default of its class
    default: bool  # whether the config omits the key

    @property
    def name(self) -> str:
        """The last part of the path."""
        return name_of(self.path)

    @property
    def parent(self) -> str:
        """The path of the config object that contains the key; "" for the outermost one."""
        return parent_of(self.path)


def name_of(path: str) -> str:
    """Return the last part of a dotted path."""
    return path.rpartition(".")[2]


def parent_of(path: str) -> str:
    """Return the path of the config object that contains a key; "" for the outermost one."""
    return path.rpartition(".")[0]


def path_of(parent: str, name: str) -> str:
    """Return the dotted path of a key in the config object at the path `parent`."""
    return f"{parent}.{name}" if parent else name


def object_at(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the config object at a dotted path; an empty one if there is no object."""
    value = value_at(config, path)
    return value if isinstance(value, Mapping) else {}


def typed_parts(config: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (path, model type, part) of the first nested configs that state a model type."""
    parts = ((path, part) for path, part in config.items() if isinstance(part, Mapping))
    typed = ((path, part.get("model_type"), part) for path, part in parts)
    yield from islice((one for one in typed if isinstance(one[1], str)), _MOST_PARTS)


def completed(values: Mapping[str, Any]) -> CompletedConfig | None:
    """Return the config with its class's defaults; None if transformers has no class for it."""
    kind = _class_of(values)
    return None if kind is None else complete(kind, values)


def _class_of(values: Mapping[str, Any]) -> ConfigClass | None:
    model_type = values.get("model_type")
    return of_model_type(model_type) if isinstance(model_type, str) else None


def every_key(values: Mapping[str, Any], *, shaping: bool = True) -> tuple[Key, ...]:
    """Return the keys that shape tensors, nested ones too; all keys if not `shaping`.

    All keys of a model type without a closed form may shape tensors, except those of every class.
    """
    keys = dict[str, Key]()
    for key in _keys(values, completed(values), "", shaping=shaping):
        keys.setdefault(key.path, key)
        if len(keys) >= _MOST:
            break
    return tuple(keys.values())


def _keys(
    values: Mapping[str, Any], whole: CompletedConfig | None, within: str, *, shaping: bool
) -> Iterator[Key]:
    read = _shaping(whole) if shaping else None
    if read is not None:  # a flag that follows from a word is a key only if it contradicts the word
        derived = _derived(values)
        read |= {key for key, value in derived.items() if value != values[key]}

    def is_left_out(name: str) -> bool:
        return shaping and (name in _NOT_SHAPING if read is None else name not in read)

    for name, value in values.items():
        if isinstance(value, Mapping):
            if name not in _LEFT_OUT:
                part = whole.part(name) if whole else None
                yield from _keys(value, part, f"{within}{name}.", shaping=shaping)
        elif not is_left_out(_own(whole, name)):
            yield Key(f"{within}{name}", value, default=False)
    for name, value in _omitted(values, whole):
        if isinstance(value, CompletedConfig):
            yield from _keys({}, value, f"{within}{name}.", shaping=shaping)
        elif not is_left_out(name):
            yield Key(f"{within}{name}", value, default=True)


def _omitted(values: Mapping[str, Any], whole: CompletedConfig | None) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of the keys that a config omits, nested configs too.

    Some keys have a default only in the code of the family: `conv_kernel_size` of DeBERTa.
    """
    if whole is None:
        of_class = _of_component(values) if "_class_name" in values else {}
        yield from ((name, value) for name, value in of_class.items() if name not in values)
        return
    for name, value in whole.values.items():
        is_part = isinstance(value, CompletedConfig)
        stated = name in values or any(alias in values for alias in _aliases(whole, name))
        if not (isinstance(values.get(name), Mapping) if is_part else stated):
            yield name, value
    of_code = _family_defaults(whole).items()
    yield from ((name, value) for name, value in of_code if name not in {*values, *whole.values})


def _of_component(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of a component of a pipeline, with the defaults of its class."""
    from auditor.analytic.diffusion import with_defaults  # noqa: PLC0415 - few are of diffusers

    return with_defaults(values)


def _family_defaults(whole: CompletedConfig) -> Mapping[str, Any]:
    if not catalogue.siblings(whole.kind.model_type):
        return {}
    defaults = catalogue.family(whole.kind.model_type).defaults.items()
    return {name: one for name, one in defaults if name != _LABELS}


def _shaping(whole: CompletedConfig | None) -> frozenset[str] | None:
    """Return the keys that the model type's closed form reads; None without a closed form."""
    model_type = whole.kind.model_type if whole else ""
    if not catalogue.siblings(model_type):
        return None
    return frozenset(catalogue.family(model_type).defaults) | {"tie_word_embeddings", _LABELS}


def _own(whole: CompletedConfig | None, name: str) -> str:
    return whole.own(name) if whole else name


def _aliases(whole: CompletedConfig | None, name: str) -> tuple[str, ...]:
    """Return the other names of a key, as its config class declares them."""
    aliases = whole.kind.attribute_map.items() if whole else ()
    return tuple(alias for alias, own in aliases if own == name)


def _older(whole: CompletedConfig | None, name: str) -> Iterator[str]:
    """Yield a key's older names, which the family's code reads before the current name."""
    model_type = whole.kind.model_type if whole else ""
    if catalogue.siblings(model_type):
        older = catalogue.family(model_type).older.items()
        yield from (old for old, own in older if own == name)


def key_at(values: Mapping[str, Any], path: str, value: Any) -> Key:
    """Return the key that a symbol of a formula stands for, as the config spells it."""
    parent, name = parent_of(path), name_of(path)
    within = object_at(values, parent)
    whole = completed(values)
    for part in parent.split(".") if parent else ():
        whole = whole.part(part) if whole else None
    spelt = (*_aliases(whole, name), *_older(whole, name), name)
    name = next((one for one in spelt if one in within), name)
    is_stated = name in within or (name == _LABELS and "id2label" in within)
    return Key(path_of(parent, name), value, default=not is_stated)


def stated_keys(paths: Iterable[str], config: Mapping[str, Any]) -> dict[str, Key]:
    """Return the keys at these paths, with the config's values or the defaults of its class."""
    known = {key.path: key.value for key in every_key(config)}
    keys = {path: key_at(config, path, known.get(path, value_at(config, path))) for path in paths}
    for path, key in keys.items():
        names = object_at(config, path_of(parent_of(path), "id2label"))
        if name_of(path) == _LABELS and key.value is None and names:
            keys[path] = key._replace(value=len(names))
    return keys


def keys_with(config: Mapping[str, Any], value: int, word: str) -> list[str]:
    """Return the paths of stated keys with this value whose names contain the word."""
    nested = {f"{key}.": one for key, one in config.items() if isinstance(one, Mapping)}
    keys = [
        f"{path}{key}"
        for path, values in {"": config, **nested}.items()
        for key, other in values.items()
        if word in key and other == value and type(other) is int
    ]
    return sorted(keys, key=lambda key: "hidden" not in key)


def indexed(path: str) -> tuple[str, int | None]:
    """Split a symbol's key such as `depths[1]` into list and index; other keys have no index."""
    match = _INDEXED.fullmatch(path)
    return (match[1], int(match[2])) if match else (path, None)


def number_at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at the path of a symbol, which may be an item of a list: `depths[1]`."""
    path, index = indexed(path)
    value = value_at(config, path)
    if index is None:
        return value
    return value[index] if isinstance(value, list) and index < len(value) else None


def with_item(items: Sequence[Any], index: int, item: Any) -> list[Any]:
    """Return a copy of the list with another item."""
    return [*items[:index], item, *items[index + 1 :]]


def beside(keys: Iterable[Key], within: str) -> list[Key]:
    """Return the keys of the config object at the path `within`."""
    return [key for key in keys if key.parent == within]


def changed(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the config with these values, by dotted path; None removes a key."""
    return set_values(deepcopy(dict(config)), written(config, values))


def written(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values to write in a config; a number of labels also changes the label names."""
    pairs = (config_with(config, path, value) for path, value in values.items())
    return {path: value for pair in pairs for path, value in pair.items()}


def config_with(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the values to write for one key, and for the keys that state it again.

    A number of labels changes the label names, and the word "gated-gelu" the flag `is_gated_act`.
    """
    parent = parent_of(path)
    if isinstance(value, str):
        return {path: value, **_restated(values, path, value)}
    names = value_at(values, path_of(parent, "id2label"))
    if name_of(path) != _LABELS or type(value) is not int or not names:
        return {path: value}
    stated = {path: value} if value_at(values, path) is not None else {}
    return {**stated, **_with_labels(parent, names, value)}


def _restated(values: Mapping[str, Any], path: str, word: str) -> dict[str, Any]:
    """Return the stated keys that the config class derives from a word, with their new values."""
    parent, stated = parent_of(path), object_at(values, parent_of(path))
    before, after = _derived(stated), _derived({**stated, name_of(path): word})
    return {path_of(parent, key): after[key] for key in before if after[key] != before[key]}


def _derived(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stated keys that the config class derives from others, with the derived values."""
    kind = _class_of(stated)
    keys = derived_keys(kind.name) & stated.keys() if kind else ()
    if kind is None or not keys:
        return {}
    values = complete(kind, {key: one for key, one in stated.items() if key not in keys}).values
    return {key: values[key] for key in keys}


def _with_labels(parent: str, names: Any, count: int) -> dict[str, Any]:
    """Return `count` labels: the known names first, then names as transformers generates them."""
    known = names if isinstance(names, Mapping) else {}
    labels = {str(number): known.get(str(number), f"LABEL_{number}") for number in range(count)}
    numbers = {str(label): number for number, label in enumerate(labels.values())}
    return {path_of(parent, "id2label"): labels, path_of(parent, "label2id"): numbers}


def set_values(config: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Set values of a config by dotted path, and return the config.

    None removes a key, NULL sets it to null. A path through a value that is not an object is
    skipped.
    """
    for path, value in values.items():
        *folders, key = path.split(".")
        within: Any = config
        for folder in folders:
            within = within.setdefault(folder, {}) if isinstance(within, dict) else None
        if isinstance(within, dict) and value is None:
            within.pop(key, None)
        elif isinstance(within, dict):
            # A copy: the next path may lead into the value.
            within[key] = None if value is NULL else deepcopy(value)
    return config


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or the config at ""; None if there is no such path."""
    value: Any = config
    for key in path.split(".") if path else ():
        value = value.get(key) if isinstance(value, Mapping) else None
    return value

"""The values that a release of transformers takes from config.json, compared with another's."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from auditor.engines.knowledge import value_at
from auditor.engines.release_data import Entry, Releases
from auditor.messages import described

Config = Mapping[str, Any]

READ, UNREAD = "=", "-"  # before a key in an entry: whether the code of the models reads it
_MISSING: Any = object()
_PATTERN = re.compile(r"every_n|pattern")
_DEEPEST = 3
_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct")
# Keys of rope_parameters that are no part of the scaling.
_NOT_SCALING = frozenset({"rope_theta", "partial_rotary_factor", "type", "rope_type"})
_NO_SCALING = frozenset({None, "default", "mrope"})


class NestedConfig(NamedTuple):
    """A config, or one that is nested in it, with its model type."""

    path: str  # `text_config.`; empty for the whole
    config: Config
    model_type: str


class Rope(NamedTuple):
    """The values that decide the rotary frequencies of some layers."""

    theta: float | None
    partial: float
    scaling: tuple[tuple[str, str], ...]


class OtherValue(NamedTuple):
    """A value that a release reads otherwise than the writer."""

    path: str
    meant: Any
    read: Any
    is_ignored: bool = False  # the release does not know the key at all


def parts_of(
    records: Releases, release: str, config: Config, model_type: str
) -> list[NestedConfig]:
    """Return a config and the nested ones, each with its model type."""
    found: list[NestedConfig] = []

    def add(path: str, inner: Config, type_: str, depth: int) -> None:
        found.append(NestedConfig(path, inner, type_))
        entry = records.type(type_, release) or {}
        subs: Config = entry.get("subs", {})
        for key, value in inner.items() if depth < _DEEPEST else ():
            if isinstance(value, Mapping) and (key in subs or key.endswith("_config")):
                own = subs.get(key) or value.get("model_type")
                if isinstance(own, str) and key != "quantization_config":
                    add(f"{path}{key}.", value, own, depth + 1)

    add("", config, model_type, 0)
    return found


def value_of(entry: Entry, config: Config, key: str) -> Any:
    """Return the value of an attribute in one release; _MISSING if the release lacks it."""
    names = _names_of(entry, key)
    for name in names:
        if name in config:
            return _plain(config[name])
    places = (f"{mark}{name}" for name in names for mark in (READ, UNREAD))
    return next((entry[place] for place in places if place in entry), _MISSING)


def is_recorded(entry: Entry) -> bool:
    """Whether the keys of a type's config are known."""
    return any(key[0] in {READ, UNREAD} for key in entry)


def _names_of(entry: Entry, key: str) -> tuple[str, ...]:
    """Return the names of an attribute in a config, the one that the release writes first."""
    aliases: Config = entry.get("aliases", {})
    stored = aliases.get(key, key)
    return (stored, key, *(old for old, new in aliases.items() if new == stored))


def _plain(value: Any) -> Any:
    """Return a value with numbers that JSON lacks as the records have them: inf."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and "__float__" in value:
        return str(value["__float__"]).lower().replace("infinity", "inf")
    return value


def refuses_null(entry: Entry, key: str) -> bool:
    """Whether a release refuses null as a key's value."""
    if key in entry.get("not_null", ()):
        return True
    default = entry.get(READ + key, entry.get(UNREAD + key))
    return default is not None and "strict" in entry and key not in entry.get("nullable", ())


def differences(writer: Entry, reader: Entry, part: NestedConfig) -> Iterator[OtherValue]:
    """Yield each value that one release reads otherwise than another one."""
    config = part.config
    keys = {key[1:] for key in reader if key[0] == READ}
    for key in sorted(keys):
        meant, read = value_of(writer, config, key), value_of(reader, config, key)
        if meant is _MISSING or None in (meant, read) or "..." in (meant, read):
            continue
        source = next((name for name in _names_of(writer, key) if name in config), key)
        is_derived = source != key and (READ + source in reader or UNREAD + source in reader)
        if not is_derived and not _is_same(meant, read):
            yield OtherValue(part.path + key, meant, read)
    known = {*keys, *reader.get("also", ()), *reader.get("aliases", {})}
    for key in sorted(key[1:] for key in writer if key[0] == READ):
        value = _plain(config.get(key))
        if value is None or key in known or UNREAD + key in reader:
            continue
        if not _is_default_value(value, writer[READ + key]):
            yield OtherValue(part.path + key, value, None, is_ignored=True)


def other_layers(reader: Entry, config: Config) -> str:
    """Return a key of a pattern of layers that a release reads in place of layer_types; "" if none.

    The release takes its default for the key, from which other types of layers follow.
    """
    types = config.get("layer_types")
    if not isinstance(types, list):
        return ""
    for key, step in reader.items():
        is_pattern = key[0] == READ and _PATTERN.search(key) and key[1:] not in config
        if not is_pattern or type(step) is not int or step < 1:
            continue
        derived = [
            [
                "full_attention" if (at + start) % step == 0 else "sliding_attention"
                for at in range(len(types))
            ]
            for start in (0, 1)
        ]
        if types not in derived:
            return key[1:]
    return ""


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list) and len(one) != len(other):
        return True  # defaults of a list follow from the depth
    return bool(one == other)


def _is_default_value(value: Any, default: Any) -> bool:
    """Whether a value is the default; a list is, if the default's list begins or goes on so."""
    if isinstance(value, list) and isinstance(default, list) and default:
        count = min(len(value), len(default))
        return value[:count] == default[:count]
    return default == "..." or bool(value == default)


# --- rope ---------------------------------------------------------------------------------------


def has_rope_keys(part: NestedConfig) -> bool:
    """Whether a config has keys of rotary frequencies."""
    return any(part.config.get(key) is not None for key in _ROPE_KEYS)


def ropes(entry: Entry, config: Config) -> frozenset[Rope] | None:
    """Return the rotary frequencies of a config's layers; None if nothing was recorded."""
    slots = entry.get("rope")
    return frozenset(_rope(slot, entry, config) for slot in slots) if slots else None


def _rope(slot: Entry, entry: Entry, config: Config) -> Rope:
    defaults: Config = entry.get("rope_defaults", {})
    paths = sorted(slot["theta"], key=lambda path: ("." in path) is slot["top_wins"])
    theta = next(filter(_is_number, (value_at(config, path) for path in paths)), slot["default"])
    found = (value_at(config, path) for path in sorted(slot["partial"], key=len, reverse=True))
    partial = next(filter(_is_number, found), None)
    if partial is None:
        inner = (f"rope_parameters.{key}" for key in ("partial_rotary_factor",))
        keys = ("partial_rotary_factor", "rotary_pct", *inner)
        partial = next(filter(_is_number, (value_at(defaults, key) for key in keys)), 1.0)
    return Rope(_number(theta), float(partial), _scaling(slot, defaults, config))


def _is_number(value: Any) -> bool:
    return type(value) in {int, float}


def _number(value: Any) -> float | None:
    return float(f"{value:.6g}") if value is not None else None


def _scaling(slot: Entry, defaults: Config, config: Config) -> tuple[tuple[str, str], ...]:
    """Return the scaling of the frequencies, sorted; () without one."""
    values = [value_at(config, path) for path in sorted(slot["scaling"], key=len, reverse=True)]
    stated = [one for one in values if isinstance(one, Mapping)]
    if not stated:
        stated = [
            one for path in slot["scaling"] if isinstance(one := value_at(defaults, path), Mapping)
        ]
    if not stated:
        return ()
    found = stated[0]
    kind = found.get("rope_type", found.get("type"))
    if kind in _NO_SCALING:
        return ()
    longest = config.get("max_position_embeddings")
    rest = {
        key: described(float(value) if _is_number(value) else value)
        for key, value in found.items()
        if key not in _NOT_SCALING and value is not None
        if not (key == "original_max_position_embeddings" and value == longest)
    }
    return tuple(sorted({**rest, "rope_type": str(kind)}.items()))


def rope_additions(entry: Entry, config: Config, wanted: frozenset[Rope]) -> Mapping[str, Any]:
    """Return the top-level keys with which a release reads these frequencies; {} if none do."""
    inner = config.get("rope_parameters")
    if not isinstance(inner, Mapping):
        return {}
    full, sliding = inner.get("full_attention", inner), inner.get("sliding_attention", {})
    if not isinstance(full, Mapping) or not isinstance(sliding, Mapping):
        return {}
    kind = full.get("rope_type", full.get("type"))
    scaling = {key: value for key, value in full.items() if key not in _NOT_SCALING}
    values: dict[str, Any] = {}
    for slot in entry.get("rope") or ():
        for path in slot["theta"]:
            values[path] = (sliding if "local" in path else full).get("rope_theta")
        values |= dict.fromkeys(slot["partial"], full.get("partial_rotary_factor"))
        if "rope_scaling" in slot["scaling"] and (scaling or kind not in _NO_SCALING):
            values["rope_scaling"] = {**scaling, "rope_type": kind or "default"}
    added = {
        key: value
        for key, value in sorted(values.items())
        if value is not None and "." not in key and config.get(key) is None
    }
    return added if added and ropes(entry, {**config, **added}) == wanted else {}

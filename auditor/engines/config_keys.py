"""The outcomes of the keys of config.json: what an engine requires, derives or ignores."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from auditor.engines.knowledge import EngineEntry, SoundVariant, value_at, value_by_rule
from auditor.messages import described

_ROPE = "rope_base"
_HEADS = ("num_attention_heads", "num_key_value_heads")


class Judgement(NamedTuple):
    """The outcome of one change."""

    reason: str
    loads: bool | None = None  # None: unknown
    additions: Mapping[str, Any] = {}


def required_keys(
    entry: EngineEntry, config: Mapping[str, Any], variants: Sequence[SoundVariant]
) -> Iterator[tuple[str, Judgement]]:
    """Yield each key that a config lacks and that saves of these variants need."""
    for path in entry.requires:
        if value_at(config, path) is None:
            is_null = _is_null(config, path)
            spared = {_spares(one, path, is_null=is_null) for one in variants if one.loads is True}
            if spared - {False}:
                if spared != {True}:
                    yield path, Judgement(f"config.json lacks {path}, which some saves need")
                continue
            value = entry.fills.get(path)
            if isinstance(value, str):
                value = value_by_rule(value, config)
            loads, why = _without(entry, config, path, value)
            what = f": write {value!r}, as the class takes it" if value is not None else ""
            added = {path: value} if value is not None and "." not in path else {}
            if not loads:
                yield path, Judgement(f"{why}{what}", loads, added)
    for path in entry.unclear:
        if value_at(config, path) is None:
            detail = f"config.json lacks {path}, without which it was not tried"
            yield path, Judgement(detail)


def absent_keys(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[Judgement]:
    """Yield each key that a config lacks and without which a save was refused.

    The engine has a value of its own for it, which another config may agree with.
    """
    is_older = "rope_theta" in config and entry.outcome("config4") is True
    for probe in entry.tried("without "):
        path = probe.removeprefix("without ")
        is_here = value_at(config, path) is not None or _is_null(config, path)
        if is_here or path in entry.requires or (is_older and path == "rope_parameters"):
            continue
        yield Judgement(f"config.json lacks {path}, without which a save was refused")


def uneven_heads(config: Mapping[str, Any]) -> Iterator[Judgement]:
    """Yield heads that cannot share keys and values evenly; no save with such heads was tried."""
    for level in ("", "text_config."):
        heads, shared = (value_at(config, level + key) for key in _HEADS)
        if type(heads) is int and type(shared) is int and (shared <= 0 or heads % shared):
            detail = f"{heads} attention heads on {shared} key-value heads: not tried"
            yield Judgement(detail)


def _spares(variant: SoundVariant, path: str, *, is_null: bool) -> bool | None:
    """Return whether such a save loads without a value of a key; None if null was not tried."""
    if not is_null:
        return path in variant.spares
    if variant.when.get(path, ...) is None:
        return True
    return None if path in variant.spares else False


def _is_null(config: Mapping[str, Any], path: str) -> bool:
    outer, _, key = path.rpartition(".")
    inside = value_at(config, outer) if outer else config
    return isinstance(inside, Mapping) and key in inside


def _without(
    entry: EngineEntry, config: Mapping[str, Any], path: str, value: Any
) -> tuple[bool | None, str]:
    """Return what becomes of a config without a key, and why; `value` is what the class takes."""
    if _is_null(config, path):
        return entry.outcome(f"null {path}"), f"config.json has null as {path}"
    lacks = f"config.json lacks {path}"
    default = entry.defaults.get(path)
    if default is None:
        return False, f"{lacks}, which it requires"
    loads = entry.outcome(_compared(value, default, path)) if type(value) is int else None
    return loads, f"{lacks}, for which it takes {default}"


def _compared(value: int, other: int, key: str) -> str:
    """Return the probe of a value that is less than another one, the same or more."""
    return f"{'less' if value < other else 'more' if value > other else 'same'} {key}"


def readings(
    entry: EngineEntry, config: Mapping[str, Any], kinds: Container[str]
) -> Iterator[Judgement]:
    """Yield what the engine reads otherwise than transformers; none of it is a refusal.

    `kinds` are those of the tensors that the class expects.
    """
    for key, reading in entry.reads.items():
        if key == _ROPE:
            yield from _rope_base(entry, config)
        elif reading.tensor:
            if key not in config and reading.tensor in kinds:
                why = f"config.json lacks {key}, so it ignores {reading.tensor} and ties the head"
                yield Judgement(f"{why}: write {key}: false", loads=True, additions={key: False})
        elif reading.top == "ignored" and config.get(key) not in {None, reading.default}:
            value = described(config[key])
            yield Judgement(f"it ignores {key}, which config.json sets to {value}", loads=True)
    for key in entry.ignores:
        if key not in entry.reads and config.get(key) is not None:
            yield Judgement(f"it ignores {key} of config.json", loads=True)


def _rope_base(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[Judgement]:
    reading = entry.reads[_ROPE]
    inner, top = value_at(config, "rope_parameters.rope_theta"), config.get("rope_theta")
    if inner is not None and top is not None:
        is_read = "read" in {reading.rope_parameters, reading.top}
        value, by = inner, "read" if is_read else reading.top
    elif inner is not None:
        value, by = inner, reading.rope_parameters
    else:
        value, by = top, reading.top
    if type(value) not in {int, float} or by != "ignored" or value == reading.default:
        return
    instead = "its default" if reading.default is None else f"{reading.default:g}, its default,"
    added = {"rope_theta": value} if top is None and reading.top == "read" else {}
    how = ": write rope_theta at the top level of config.json as well" if added else ""
    reason = f"it takes {instead} as the rope base, not {value:g}{how}"
    yield Judgement(reason, loads=True, additions=added)


def guards(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[Judgement]:
    """Yield each value that differs from the one that the engine derives from other keys."""
    for key, rule in entry.guards.items():
        value = value_at(config, key)
        if rule == "":
            yield Judgement(f"how it takes {key} from other keys was not found")
            continue
        derived = rule if isinstance(rule, bool) else value_by_rule(rule, config)
        if value is None or value == derived:
            continue
        loads = None
        if isinstance(rule, bool):
            loads = entry.outcome(f"other {key}")
        elif type(value) is int and derived is not None:
            loads = entry.outcome(_compared(value, derived, key))
        taken = str(rule).lower() if isinstance(rule, bool) else f"{rule} = {derived}"
        stated = described(value)
        yield Judgement(f"it takes {taken} as {key}, which config.json sets to {stated}", loads)

"""The differences between stored tensors and those that a class expects, as probes of an engine."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from auditor.engines.knowledge import EngineEntry

Shapes = Mapping[str, tuple[int, ...]]

# Projections that some software stores as one tensor: the fused name, and the names in its place.
_FUSED = {
    "qkv_proj": ("fused qkv", ("q_proj", "k_proj", "v_proj")),
    "gate_up_proj": ("fused gate_up", ("gate_proj", "up_proj")),
}
_MATRIX = 2  # dimensions
_NUMBER = re.compile(r"(?<![^.])[0-9]{1,6}(?![^.])")  # as auditor.names.number_of reads it

# Projections of experts, which are stacked in one tensor or stored one by one.
_STACKED = re.compile(r".*\.experts\.(?:gate_up_proj|down_proj)(?:\.weight)?", re.DOTALL)
_SEPARATE = re.compile(r".*\.experts\.\d+\.(?:gate_proj|up_proj|down_proj)\.weight", re.DOTALL)


class _OtherForm(NamedTuple):
    """Tensors that are stored in another form than expected."""

    probe: str
    stored: frozenset[str]
    replaced: frozenset[str]  # the expected names


class Difference(NamedTuple):
    """A difference between stored and expected tensors."""

    probe: str  # "missing", "extra", "rows+", "layer", "strip model.", ...; "" if no probe has it
    kind: str  # "" if the probe concerns no kind
    names: tuple[str, ...]


def kind_of(name: str) -> str:
    """Return a tensor's name with each number replaced by a star."""
    return _NUMBER.sub("*", name)


def differences(stored: Shapes, expected: Shapes, entry: EngineEntry) -> Iterator[Difference]:
    """Yield the differences, each tensor in one of them."""
    if stored == expected:
        return
    prefixes = (*entry.tried("strip "), *entry.tried("add "))
    if (renaming := _renaming(stored, expected, prefixes)) is not None:
        forms = {_with_prefix(name, renaming): name for name in expected}
        yield Difference(
            renaming, "", tuple(sorted(stored.keys() & forms.keys() - expected.keys()))
        )
        stored = {forms.get(name, name): shape for name, shape in stored.items()}
    missing = expected.keys() - stored.keys()
    extra = stored.keys() - expected.keys()
    for form in (*_fused(missing, extra, entry), *_experts(missing, extra)):
        missing -= form.replaced
        extra -= form.stored
        yield Difference(form.probe, "", tuple(sorted(form.stored)))
    total = _by_kind(expected)
    for layer_names in _whole_layers(missing, expected):
        missing -= layer_names
        yield Difference("layer missing", "", tuple(sorted(layer_names)))
    for kind, names in _by_kind(missing).items():
        yield Difference("missing" if len(names) == len(total[kind]) else "some", kind, names)
    yield from _extra(extra, total)
    mismatched: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(
        name for name in expected if stored.get(name, expected[name]) != expected[name]
    ):
        for change in _changes(stored[name], expected[name]):
            mismatched[change, kind_of(name)].append(name)
    for (change, kind), differing in mismatched.items():
        yield Difference(change, kind, tuple(differing))


def _renaming(stored: Shapes, expected: Shapes, probes: Iterable[str]) -> str | None:
    """Return the probe that changes a prefix and makes most names meet; None if none is needed."""
    best, most = None, max(len(stored.keys() & expected.keys()), len(expected) // 2)
    for probe in probes:
        room = len(expected) - most
        unmet = (name for name in expected if _with_prefix(name, probe) not in stored)
        count = sum(1 for _ in islice(unmet, room))
        if count < room:
            best, most = probe, len(expected) - count
    return best


def _with_prefix(name: str, probe: str) -> str:
    verb, _, prefix = probe.partition(" ")
    return prefix + name if verb == "add" else name.removeprefix(prefix)


def _by_kind(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        kinds[kind_of(name)].append(name)
    return {kind: tuple(of_kind) for kind, of_kind in kinds.items()}


def _fused(
    missing: Iterable[str], extra: Iterable[str], entry: EngineEntry
) -> Iterator[_OtherForm]:
    """Yield the projections that are stored as one tensor, if all of its parts are missing."""
    absent = frozenset(missing)
    for fused, (probe, parts) in _FUSED.items():
        places = {
            name: frozenset(name.replace(f".{fused}.", f".{part}.") for part in parts)
            for name in extra
            if f".{fused}." in name
        }
        complete = {name: replaced for name, replaced in places.items() if replaced <= absent}
        if complete:
            is_tried = set(map(kind_of, complete)) == _fused_kinds(entry, fused, parts)
            named = probe if is_tried else f"{probe} otherwise"
            yield _OtherForm(named, frozenset(complete), frozenset().union(*complete.values()))


def _fused_kinds(entry: EngineEntry, fused: str, parts: tuple[str, ...]) -> set[str]:
    """Return the fused kinds of the recorded save, the first one that has such projections."""
    for variant in entry.variants:
        kinds = {entry.kinds[at] for at in variant.kinds} if variant.loads is True else set()
        found = {
            kind.replace(f".{parts[0]}.", f".{fused}.")
            for kind in kinds
            if f".{parts[0]}." in kind and ".experts." not in kind
            if all(kind.replace(f".{parts[0]}.", f".{part}.") in kinds for part in parts)
        }
        if found:
            return found
    return set()


def _experts(missing: Iterable[str], extra: Iterable[str]) -> Iterator[_OtherForm]:
    """Yield the experts that are stored one by one instead of stacked, or the reverse."""
    for probe, expected, found in (
        ("split experts", _STACKED, _SEPARATE),
        ("fused experts", _SEPARATE, _STACKED),
    ):
        stored = frozenset(filter(found.fullmatch, extra))
        replaced = frozenset(filter(expected.fullmatch, missing))
        if stored and replaced:
            yield _OtherForm(probe, stored, replaced)


def _extra(extra: Iterable[str], expected: Mapping[str, tuple[str, ...]]) -> Iterator[Difference]:
    """Yield the tensors that the class lacks: layers beyond its depth, and others by kind."""
    for kind, names in _by_kind(extra).items():
        if kind not in expected:
            yield Difference("extra", kind, names)
            continue
        depth = max(map(_layer, expected[kind]))
        deeper = tuple(name for name in names if _layer(name) > depth)
        if deeper:
            yield Difference("layer", "", deeper)
        if len(deeper) < len(names):
            yield Difference("", kind, tuple(name for name in names if name not in deeper))


def _whole_layers(missing: Iterable[str], expected: Iterable[str]) -> Iterator[frozenset[str]]:
    """Yield the names of each layer that is missing as a whole, if another one is stored."""
    absent = frozenset(missing)
    lists: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in expected if absent else ():
        if number := _NUMBER.search(name):
            lists[name[: number.start()]][number[0]].add(name)
    for layers in lists.values():
        lost = [frozenset(names) for names in layers.values() if names <= absent]
        if len(lost) < len(layers):
            yield from lost


def _layer(name: str) -> int:
    """Return the first number in a name; -1 for a name without numbers."""
    number = _NUMBER.search(name)
    return int(number[0]) if number else -1


def _changes(stored: tuple[int, ...], expected: tuple[int, ...]) -> Iterator[str]:
    """Yield the probes for a shape that differs; "" for a change that no probe makes."""
    if stored == expected:
        return
    if len(stored) != len(expected):
        yield ""
        return
    sides = {0: "rows"} | ({len(expected) - 1: "columns"} if len(expected) >= _MATRIX else {})
    for side, (found, needed) in enumerate(zip(stored, expected, strict=True)):
        if found != needed:
            yield f"{sides[side]}{'+' if found > needed else '-'}" if side in sides else ""

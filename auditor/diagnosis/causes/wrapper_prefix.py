"""wrapper-prefix: names behind the prefix of whatever the model was wrapped in when saved."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_names
from auditor.messages import quoted

CAUSE = "wrapper-prefix"
_SAVED_FROM = {
    "_orig_mod": "the state dict of a compiled model was saved",
    "module": "the state dict of a DistributedDataParallel model was saved",
    "_fsdp_wrapped_module": "the state dict of an FSDP model was saved",
    "_fpw_module": "the state dict of a FairScale FSDP model was saved",
    "_checkpoint_wrapped_module": "checkpointed modules were saved with their wrappers",
    "_forward_module": "the state dict of a Lightning model was saved",
    "base_model.model": "the state dict of a PEFT model was saved",
}
_LONGEST = 4  # parts of a prefix that all names share
_ASKED = 24  # missing names whose ends are looked for, from both ends of the list
_PROPOSED = 4


class _Way(NamedTuple):
    """A way to rename, and how many of the names that it makes are missing ones."""

    prefix: str
    renames: Mapping[str, str]
    found: int
    added: bool = False


def undoings(case: Case) -> Iterator[Undoing]:
    """Wrappers inside names, prefixes that are too much and those that lack; the most apt first."""
    if not (case.unexpected and case.missing):
        return
    near = _near(case)
    ways = [_way(case, prefix, renames, near) for prefix, renames in _stripped(case)]
    ways += [
        _way(case, prefix, renames, near)._replace(added=True) for prefix, renames in _added(case)
    ]
    apt = sorted((way for way in ways if way.found), key=lambda way: -way.found)
    for way in islice(apt, _PROPOSED):
        yield _undoing(case, way)


def _near(case: Case) -> frozenset[str]:
    """Missing names, with and without their first part, which loading may add or remove."""
    return frozenset((*case.missing, *(name.partition(".")[2] for name in case.missing)))


def _way(case: Case, prefix: str, renames: Mapping[str, str], near: frozenset[str]) -> _Way:
    """What a rename of stored names comes to; nothing where two would become one."""
    if len({renames.get(name, name) for name in case.shapes}) < len(case.shapes):
        renames = {name: other for name, other in renames.items() if name in _unexpected(case)}
        if len({renames.get(name, name) for name in case.shapes}) < len(case.shapes):
            return _Way(prefix, {}, 0)
    if not all(renames.values()):
        return _Way(prefix, {}, 0)
    ends = (other in near or other.partition(".")[2] in near for other in renames.values())
    return _Way(prefix, renames, sum(ends))


def _unexpected(case: Case) -> frozenset[str]:
    return frozenset(case.unexpected)


# --- too much ----------------------------------------------------------------------------------


def _stripped(case: Case) -> Iterator[tuple[str, Mapping[str, str]]]:
    wrappers = _wrappers(case)
    if len(wrappers) > 1:
        yield " and ".join(f"{part}." for part in wrappers), _without_parts(case, set(wrappers))
    for part in wrappers:
        yield f"{part}.", _without_parts(case, {part})
    for prefix in (*_shared(case.unexpected), *_before(case.missing, case.unexpected)):
        length = len(prefix)
        yield prefix, {name: name[length:] for name in case.shapes if name.startswith(prefix)}


def _wrappers(case: Case) -> list[str]:
    """Parts that wrappers are known by, and those of all unexpected names; of no missing one."""
    wanted = {part for name in case.missing for part in name.split(".")}
    first, *others = (name.split(".") for name in case.unexpected)
    common, every = set(first), set(first)
    for parts in others:
        common.intersection_update(parts)
        every.update(parts)
    known = [part for part in _SAVED_FROM if part in every and part not in wanted]
    return [*known, *(p for p in dict.fromkeys(first) if p in common - wanted and p not in known)]


def _without_parts(case: Case, parts: set[str]) -> Mapping[str, str]:
    renames = {
        name: ".".join(part for part in name.split(".") if part not in parts)
        for name in case.shapes
        if any(part in name for part in parts)
    }
    return {name: other for name, other in renames.items() if name != other}


def _shared(names: tuple[str, ...]) -> Iterator[str]:
    """The prefixes that all of the names have, longest last."""
    shared = [name.split(".")[:-1] for name in (min(names), max(names))]
    common: list[str] = []
    for one, other in zip(*shared, strict=False):
        if one != other or one.isdecimal():
            break
        common.append(one)
    for length in range(1, min(len(common), _LONGEST) + 1):
        yield ".".join(common[:length]) + "."


def _before(ends: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """What stands before some of the ends in some of the names, the most frequent first."""
    asked = dict.fromkeys((*ends[: _ASKED // 2], *ends[-_ASKED // 2 :]))
    found = Counter(
        name[: -len(end)] for end in asked for name in names if name.endswith(end) and name != end
    )
    return [prefix for prefix, _ in found.most_common(_PROPOSED)]


# --- too little --------------------------------------------------------------------------------


def _added(case: Case) -> Iterator[tuple[str, Mapping[str, str]]]:
    unexpected = _unexpected(case)
    for prefix in (*_shared(case.missing), *_before(case.unexpected, case.missing)):
        yield prefix, {name: f"{prefix}{name}" for name in unexpected}


# --- what it means -----------------------------------------------------------------------------


def _undoing(case: Case, way: _Way) -> Undoing:
    count, every = len(way.renames), len(case.shapes)
    prefix = way.prefix
    if way.added:
        summary = f"{count:,} names lack the prefix {quoted(prefix)}, that of a part of the model "
        summary += "that was saved alone"
        fix = f"put {prefix} before the {count:,} names"
    else:
        why = _SAVED_FROM.get(prefix.partition(" ")[0].removesuffix("."), _WRAPPED)
        inside = not all(name.startswith(prefix) for name in way.renames)
        one, many = ("contains", "contain") if inside else ("begins with", "begin with")
        whose = f"every name {one}" if count == every else f"{count:,} of {every:,} names {many}"
        summary = f"{whose} {prefix} ({why})"
        fix = f"strip {prefix} from the {count:,} names, or save the model that is inside"
    return Undoing(
        cause=CAUSE,
        snapshot=with_names(case.snapshot, way.renames),
        renames=way.renames,
        summary=summary,
        fix=fix,
        evidence=(f"{count:,} of {every:,} names",),
    )


_WRAPPED = "the model was saved from within a wrapper"

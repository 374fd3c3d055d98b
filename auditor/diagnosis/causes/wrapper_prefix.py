"""wrapper-prefix: names behind the prefix of whatever the model was wrapped in when saved.

So are those of a state dict below a key of a training checkpoint, which loaders take whole.

To do: Strip the prefix from the names, or save the model that is inside the wrapper.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from operator import add, methodcaller
from typing import NamedTuple

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import _of_adapters
from auditor.diagnosis.changes import with_names
from auditor.diagnosis.name_kinds import NameKind, name_pattern
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
_LONGEST = 4  # parts of a prefix that is shared by all names
_SAMPLED = 24  # names whose ends are searched for, from both ends of the list
_PROPOSED = 4  # ways that become undoings
_RARE = 20  # a way must serve more than one in this many names
_MOST_COUNTED = 2_000  # unexpected names by which ways are compared


Rename = Callable[[str], str]


class _Way(NamedTuple):
    """A way to rename, and how many of the new names are missing ones."""

    prefix: str
    rename: Rename
    found: int  # new names that are missing ones, with or without their first part
    exactly: int  # new names that are missing ones as they are
    added: bool = False  # whether the prefix is added instead of stripped


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield names without extra prefixes or wrappers, or with a lacking prefix; the best first."""
    if not (case.unexpected and case.missing):
        return
    sample = case.unexpected[:: 1 + len(case.unexpected) // _MOST_COUNTED]
    ways = [
        _Way(prefix, rename, *_count_missing(case, sample, rename), added)
        for added, renamings in ((False, _stripped(case)), (True, _added(case)))
        for prefix, rename in renamings
    ]
    least = len(sample) // _RARE
    best = [way for way in ways if way.found > least]
    best.sort(key=lambda way: (-way.found, -way.exactly))
    for way in islice(best, _PROPOSED):
        if renames := _renames(case, way):
            yield _undoing(case, way, renames)


def _count_missing(case: Case, names: Iterable[str], rename: Rename) -> tuple[int, int]:
    """Count the new names that are missing: with or without their first part, and exactly."""
    new_names = [new for name in names if (new := rename(name)) != name]
    near = sum(new in case.near or new.partition(".")[2] in case.near for new in new_names)
    return near, sum(new in case.missing_names for new in new_names)


def _renames(case: Case, way: _Way) -> Mapping[str, str]:
    """Return the renames of all stored or all unexpected names; empty if names would collide."""
    unexpected = frozenset(case.unexpected)
    names = unexpected.union(case.shapes)
    for candidates in (unexpected,) if way.added else (case.shapes, unexpected):
        renames = {name: new for name in candidates if (new := way.rename(name)) != name}
        after = {renames.get(name, name) for name in names}
        if len(after) == len(names) and all(after):
            return renames
    return {}


# --- extra prefixes ----------------------------------------------------------------------------


def _stripped(case: Case) -> Iterator[tuple[str, Rename]]:
    shared = tuple(_shared(case.unexpected))
    for prefix in dict.fromkeys((*shared, *_before(case.missing, case.unexpected_kinds))):
        yield prefix, methodcaller("removeprefix", prefix)
    wrappers = _wrappers(case)
    for part in wrappers:
        yield f"{part}.", partial(_without_parts, frozenset((part,)))
    if len(wrappers) > 1:
        yield (
            " and ".join(f"{part}." for part in wrappers),
            partial(_without_parts, frozenset(wrappers)),
        )


def _without_parts(parts: frozenset[str], name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in parts)


def _wrappers(case: Case) -> list[str]:
    """Return wrappers in some unexpected names, and parts in all; none is in a missing name."""
    wanted = {part for kind in case.missing_kinds for part in kind.parts}
    parts = [dict.fromkeys(kind.parts) for kind in case.unexpected_kinds]
    known = [part for part in _SAVED_FROM if part not in wanted and any(part in p for p in parts)]
    others = (part for part in parts[0] if part not in wanted and not part.isdecimal())
    return [*known, *(one for one in others if one not in known and all(one in p for p in parts))]


def _shared(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the prefixes that all names share, shortest first."""
    extremes = [name.split(".")[:-1] for name in (min(names), max(names))]
    common: list[str] = []
    for one, other in zip(*extremes, strict=False):
        if one != other or one.isdecimal():
            break
        common.append(one)
    for length in range(1, min(len(common), _LONGEST) + 1):
        yield ".".join(common[:length]) + "."


def _before(ends: tuple[str, ...], kinds: Iterable[NameKind]) -> list[str]:
    """Return the text before some of the ends in some of the names, the most frequent first."""
    sample = tuple(dict.fromkeys((*ends[: _SAMPLED // 2], *ends[-_SAMPLED // 2 :])))
    patterns = tuple(set(map(name_pattern, sample)))
    prefixes = Counter(
        name[: -len(end)]
        for kind in kinds
        if kind.pattern.endswith(patterns)
        for name in kind.names
        if name.endswith(sample)
        for end in sample
        if name.endswith(end) and name != end
    )
    return [prefix for prefix, _ in prefixes.most_common(_PROPOSED)]


# --- lacking prefixes --------------------------------------------------------------------------


def _added(case: Case) -> Iterator[tuple[str, Rename]]:
    before = _before(case.unexpected, case.missing_kinds)
    for prefix in dict.fromkeys((*_shared(case.missing), *before)):
        yield prefix, partial(add, prefix)


# --- explanations ------------------------------------------------------------------------------


def _undoing(case: Case, way: _Way, renames: Mapping[str, str]) -> Undoing:
    count, every = len(renames), len(case.shapes)
    prefix = way.prefix
    if prefix.startswith("("):
        keys = ".".join(part.strip("()") for part in prefix.split(".") if part.startswith("("))
        summary = f"the state dict lies under {quoted(keys)} in its file, as training scripts save "
        summary += "it, and from_pretrained takes the whole file for the state dict"
        fix = f"save what lies under {quoted(keys)} alone"
        fix += f", without {inner} before its names" if (inner := _inner(prefix)) else ""
    elif way.added:
        summary = f"{count:,} names lack the prefix {quoted(prefix)}, that of a part of the model "
        summary += "that was saved alone"
        fix = f"put {prefix} before the {count:,} names"
    else:
        why = _saved_from(prefix.partition(" ")[0].removesuffix("."))
        inside = not all(name.startswith(prefix) for name in renames)
        one, many = ("contains", "contain") if inside else ("begins with", "begin with")
        whose = f"every name {one}" if count == every else f"{count:,} of {every:,} names {many}"
        summary = f"{whose} {prefix} ({why})"
        fix = f"strip {prefix} from the {count:,} names, or save the model that is inside"
        if inside and why == _WRAPPED and _of_adapters.is_adapter(case):
            name = quoted(prefix.removesuffix("."))
            summary = f"{whose} {prefix} (as a PeftModel has them in memory: PEFT takes the file "
            summary += f"for an adapter called {name} at most, and transformers for none)"
            fix = f"strip {prefix} from the {count:,} names, or save by PeftModel.save_pretrained"
    return Undoing(
        cause=CAUSE,
        snapshot=with_names(case.snapshot, renames),
        renames=renames,
        summary=summary,
        fix=fix,
        evidence=(f"{count:,} of {every:,} names",),
    )


def _saved_from(wrappers: str) -> str:
    """Return the explanation of a wrapper, or of each of nested wrappers if all are known."""
    parts = (wrappers,) if wrappers in _SAVED_FROM else wrappers.split(".")
    known = [_SAVED_FROM[part] for part in parts if part in _SAVED_FROM]
    return " and ".join(known) if len(known) == len(parts) else _WRAPPED


def _inner(prefix: str) -> str:
    """Return the prefix that the file's names contain: `(state_dict).model.` -> `model.`."""
    parts = [part for part in prefix.split(".") if not part.startswith("(")]
    return ".".join(parts)


_WRAPPED = "the model was saved from within a wrapper"

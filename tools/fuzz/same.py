"""Whether what follows of a pickle here is what CPython's unpickler makes of it."""

import math
from typing import Any

from auditor.containers.pickle_values import (
    Call,
    Global,
    Octets,
    Persistent,
    PickledDict,
    PickledSet,
)
from fuzz.judges import Kept, Made


def same(ours: object, theirs: Any) -> bool:
    """Compares records with values, cycles included."""
    seen: set[tuple[int, int]] = set()
    waiting: list[tuple[object, Any]] = [(ours, theirs)]
    while waiting:
        one, other = waiting.pop()
        if (id(one), id(other)) in seen:
            continue
        pairs = _inside(one, other)
        if pairs is None:
            return False
        if not isinstance(one, int | float | str | bytes | None):
            seen.add((id(one), id(other)))
        waiting += pairs
    return True


def _inside(ours: object, theirs: Any) -> list[tuple[object, Any]] | None:  # noqa: C901, PLR0911 - a kind each
    """What remains to be compared of two values; None: they differ."""
    match ours:
        case Global(module=module, name=name):
            return [] if getattr(theirs, "of", None) == (module, name) else None
        case Persistent(key=("module", of, *_)):
            return [(of, theirs)]
        case Persistent(key=key):
            return [(key, theirs.key)] if isinstance(theirs, Kept) else None
        case Call():
            return _call(ours, theirs)
        case PickledDict(pairs=pairs):
            return _dict(pairs, theirs)
        case PickledSet(items=items, frozen=frozen):
            kind = frozenset if frozen else set
            return [] if type(theirs) is kind and len(theirs) <= len(items) else None
        case Octets(length=length):
            return [] if type(theirs) is bytearray and len(theirs) == length else None
        case list() | tuple():
            if type(theirs) is not type(ours) or len(theirs) != len(ours):
                return None
            return list(zip(ours, theirs, strict=True))
        case float() if math.isnan(ours):
            return [] if isinstance(theirs, float) and math.isnan(theirs) else None
        case _:
            return [] if type(ours) is type(theirs) and ours == theirs else None


def _call(ours: Call, theirs: Any) -> list[tuple[object, Any]] | None:
    if not isinstance(theirs, Made) or ours.built != theirs.built:
        return None
    args: Any = ours.args
    given: Any = theirs.args
    if ours.how == "NEWOBJ_EX":
        args, given = (args[0], args[1]), (given, theirs.keywords)
    callee = (ours.callee, theirs.of if isinstance(theirs.of, Made) else type(theirs))
    inside = [callee, (ours.state, theirs.state), (ours.pairs or [], theirs.pairs)]
    return [*inside, (args, given)] if isinstance(args, tuple) else inside


def _dict(pairs: list[tuple[object, object]], theirs: Any) -> list[tuple[object, Any]] | None:
    if type(theirs) is not dict:
        return None
    keys = [key for key, _ in pairs]
    if all(isinstance(key, str | int) for key in keys):
        held = dict(pairs)
        if list(held) != list(theirs):
            return None
        return list(zip(held.values(), theirs.values(), strict=True))
    return [] if len(theirs) <= len(pairs) else None

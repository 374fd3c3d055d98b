"""What loading says of a checkpoint."""

from typing import Any, NamedTuple

Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # stored, expected


class Word(NamedTuple):
    """What loading does with a checkpoint; names as in memory."""

    missing: frozenset[str]
    unexpected: frozenset[str]
    mismatched: frozenset[tuple[str, Shapes]]


class Raised(NamedTuple):
    """Loading ends with an error, whatever the flags."""

    error: str


class Silent(NamedTuple):
    """There is no load report, and why."""

    reason: str


class Difference(NamedTuple):
    """How far two words on one load are the same."""

    same: str  # yes, no, silent
    only_ours: int  # names that only we report
    only_theirs: int  # names that only the library reports
    reason: str  # of what is not the same


def ours(outcome: dict[str, Any]) -> Word | Raised | Silent:
    """The load report in the JSON of an audit."""
    report = outcome["load_report"]
    if report is None:
        said = outcome["detail"] or "; ".join(one["reason"] for one in outcome["findings"])
        return Silent(f"no load report: {said[:200]}")
    if report["raises"] is not None:
        return Raised(report["raises"])
    return Word(
        frozenset(report["missing_keys"]),
        frozenset(report["unexpected_keys"]),
        frozenset((key, (tuple(a), tuple(b))) for key, a, b in report["mismatched_keys"]),
    )


def compared(ours: Word | Raised | Silent, theirs: Word | Raised) -> Difference:
    """The same are equal words, and errors whatever they say: the library's is a traceback."""
    match ours, theirs:
        case Word(), Word():
            if ours == theirs:
                return Difference("yes", 0, 0, "")
            only_ours = sum(len(a - b) for a, b in zip(ours, theirs, strict=True))
            only_theirs = sum(len(b - a) for a, b in zip(ours, theirs, strict=True))
            return Difference("no", only_ours, only_theirs, _example(ours, theirs))
        case Raised(), Raised():
            return Difference("yes", 0, 0, "")
        case Silent(reason), _:
            return Difference("silent", 0, 0, reason)
        case Word(), Raised(error):
            return Difference("no", sum(map(len, ours)), 0, f"the library raises {error}")
        case _:
            return Difference("no", 0, sum(map(len, theirs)), f"we say that it raises: {ours[0]}")


def finer(outcome: dict[str, Any]) -> bool:
    """Whether findings name what is missing of a tensor that the report has as another fault.

    One expert that is not stored is missing; the library reports that the experts' tensor has
    another shape, or that it cannot be made.
    """
    report = outcome["load_report"]
    if report is None:
        return False
    missing = frozenset(report["missing_keys"])
    return any(
        report["raises"] is not None or missing.isdisjoint(names)
        for finding in outcome["findings"]
        if finding["kind"] in {"missing", "newly-initialized"}
        for names, silent in zip(finding["in_memory"], finding["silent"], strict=True)
        if not silent
    )


def alarms(outcome: dict[str, Any]) -> str:
    """The kinds of findings that alarm, in their order."""
    loud = (one["kind"] for one in outcome["findings"] if one["severity"] != "info")
    return " ".join(dict.fromkeys(loud))


def _example(ours: Word, observed: Word) -> str:
    """The kinds of names that differ, with one example each."""
    said = []
    for kind, a, b in zip(Word._fields, ours, observed, strict=True):
        for who, only in (("ours", a - b), ("theirs", b - a)):
            if only:
                said.append(f"{kind} only {who}: {min(map(str, only))}")
    return "; ".join(said)

"""What loading says of a checkpoint."""

from typing import NamedTuple

Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # stored, expected


class Word(NamedTuple):
    """What loading does with a checkpoint; names as in memory."""

    missing: frozenset[str]
    unexpected: frozenset[str]
    mismatched: frozenset[tuple[str, Shapes]]


class Raised(NamedTuple):
    """The library ends with an error, whatever the flags."""

    error: str


class Difference(NamedTuple):
    """How far two words on one load are the same."""

    identical: str  # yes, no; finer: the same tensors, and ours says more exactly what is wrong
    only_ours: int  # names that only we report
    only_theirs: int  # names that only the library reports
    reason: str  # of what is not identical


def compared(ours: Word, theirs: Word | Raised, *, fused: bool) -> Difference:
    """Ours is finer where tensors that are fused in memory are wrong, and it names which."""
    if isinstance(theirs, Raised):
        finer = "finer" if fused and any(ours) else "no"
        return Difference(finer, sum(map(len, ours)), 0, f"the library raises {theirs.error}")
    if ours == theirs:
        return Difference("yes", 0, 0, "")
    only_ours = sum(len(a - b) for a, b in zip(ours, theirs, strict=True))
    only_theirs = sum(len(b - a) for a, b in zip(ours, theirs, strict=True))
    if fused and _touched(ours) == _touched(theirs) and ours.unexpected == theirs.unexpected:
        reason = "one of the tensors that are fused in memory"
        return Difference("finer", only_ours, only_theirs, reason)
    return Difference("no", only_ours, only_theirs, _example(ours, theirs))


def _touched(word: Word) -> frozenset[str]:
    return word.missing | frozenset(name for name, _ in word.mismatched)


def _example(ours: Word, observed: Word) -> str:
    """The kinds of names that differ, with one example each."""
    said = []
    for kind, a, b in zip(Word._fields, ours, observed, strict=True):
        for who, only in (("ours", a - b), ("theirs", b - a)):
            if only:
                said.append(f"{kind} only {who}: {min(map(str, only))}")
    return "; ".join(said)

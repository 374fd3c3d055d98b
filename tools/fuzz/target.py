"""What a fuzzer is: how a case is made, and how it differs from what a judge makes of it."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

READ, REFUSED, UNSAFE = "read", "refused", "unsafe"


class Verdict(NamedTuple):
    """What came of one case."""

    kind: str  # what is said of it here: READ, REFUSED or UNSAFE
    fault: str | None = None  # how that breaks the law


class Target(NamedTuple):
    """One law; `case` of a number gives the same bytes whenever it is asked."""

    name: str
    law: str
    case: Callable[[Random], bytes]
    judge: Callable[[bytes], Verdict]


def case_of(target: Target, seed: int, number: int) -> bytes:
    return target.case(Random(f"{target.name} {seed} {number}"))

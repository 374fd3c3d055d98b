"""A fuzzer: how a case is made, and how it is judged."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

READ, REFUSED, UNSAFE = "read", "refused", "unsafe"


class Verdict(NamedTuple):
    """The result of one case."""

    kind: str  # what is said of it here: READ, REFUSED or UNSAFE
    fault: str | None = None  # how that breaks the law


class Target(NamedTuple):
    """One law; `case` always gives the same bytes for a number."""

    name: str
    law: str
    case: Callable[[Random], bytes]
    judge: Callable[[bytes], Verdict]


def case_of(target: Target, seed: int, number: int) -> bytes:
    return target.case(Random(f"{target.name} {seed} {number}"))

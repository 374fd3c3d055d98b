"""What is measured of a run, and how many runs are printed: medians, ratios of pairs."""

from collections.abc import Callable
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from benching.measure import Run

_Run = TypeVar("_Run")


class Figure(NamedTuple, Generic[_Run]):
    """One thing that is measured of a run, and how it is printed."""

    name: str
    of: Callable[[_Run], float]
    shown: Callable[[float], str]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _count(number: float) -> str:
    return f"{number:,.0f}"


WALL = Figure[Run]("wall time", lambda run: run.wall, milliseconds)
FIGURES = (
    Figure[Run]("CPU time", lambda run: run.cpu, milliseconds),
    Figure[Run]("peak memory", lambda run: run.memory, _megabytes),
    Figure[Run]("requests", lambda run: run.requests, _count),
    Figure[Run]("body bytes", lambda run: run.bytes, _count),
)


def ratio(ratios: list[float]) -> str:
    """The median of the sorted ratios, and their range where they have one."""
    if not ratios:
        return "-"
    least, middle, most = (f"{one:.2f}" for one in (ratios[0], median(ratios), ratios[-1]))
    return middle if least == most else f"{middle} ({least} to {most})"

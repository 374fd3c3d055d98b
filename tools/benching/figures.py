"""What many runs say: medians of both sides, and the ratio of each pair."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from benching.measure import Run, ours, peer, run
from benching.server import Served

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


FIGURES = (
    Figure("wall time", lambda run: run.wall, milliseconds),
    Figure("CPU time", lambda run: run.cpu, milliseconds),
    Figure("peak memory", lambda run: run.memory, _megabytes),
    Figure("HTTP requests", lambda run: run.requests, _count),
    Figure("of them redirects", lambda run: run.redirects, _count),
    Figure("body bytes", lambda run: run.bytes, _count),
)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The runs of both sides on one model, pair by pair."""

    headings = ("", "audit", "huggingface_hub", "ratio, median (min to max)")

    title: str
    model: str
    ours: tuple[Run, ...]
    peer: tuple[Run, ...]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Figure, ours, the peer's, and the ratio: its median, and its range where it has one."""
        return [
            (
                figure.name,
                figure.shown(median(map(figure.of, self.ours))),
                figure.shown(median(map(figure.of, self.peer))),
                ratio(self.ratios(figure)),
            )
            for figure in FIGURES
        ]

    def ratios(self, figure: Figure[Run]) -> list[float]:
        """Ours by the peer's, sorted; empty where the peer has none of it."""
        both = zip(map(figure.of, self.ours), map(figure.of, self.peer), strict=True)
        return sorted(mine / theirs for mine, theirs in both if theirs)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "model": self.model,
            "ours": [asdict(run) for run in self.ours],
            "peer": [asdict(run) for run in self.peer],
            "ratios": {
                figure.name: dict(zip(("min", "median", "max"), spread, strict=True))
                for figure in FIGURES
                if (spread := _spread(self.ratios(figure)))
            },
        }


def compare(served: Served, title: str, model: str, runs: int, bytecode: Path) -> Measured:
    """Both sides in turn, after one warm-up each; the same server, the same id."""
    pairs = [
        (run(ours(model), bytecode, served), run(peer(model), bytecode, served))
        for _ in range(runs + 1)
    ][1:]
    return Measured(
        title=title,
        model=model,
        ours=tuple(mine for mine, _ in pairs),
        peer=tuple(theirs for _, theirs in pairs),
    )


def _spread(ratios: list[float]) -> tuple[float, float, float] | None:
    return (ratios[0], median(ratios), ratios[-1]) if ratios else None


def ratio(ratios: list[float]) -> str:
    """The median of the sorted ratios, and their range where they have one."""
    spread = _spread(ratios)
    if spread is None:
        return "-"
    least, middle, most = (f"{ratio:.2f}" for ratio in spread)
    return middle if least == most else f"{middle} ({least} to {most})"

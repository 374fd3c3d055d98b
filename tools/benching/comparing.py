"""audit beside other tools on one checkpoint: what each says of it, and what it took.

Whole processes in turn, at several distances: so long every answer of the server waits. Tools that
count elements as they are stored are wrong on packed weights, and that is printed as it is.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benching.checkpoints import Checkpoint
from benching.figures import FIGURES, WALL, Figure, milliseconds, ratio
from benching.measure import Run, ours, run
from benching.peers import Peer
from benching.server import Served

# The verdict of a report that is clean, and its account of what is stored.
_CLEAN = re.compile(r"^OK  .*?\b([\d,]+)\s+parameters\s+stored", re.MULTILINE | re.DOTALL)

Seconds = float


@dataclass(frozen=True, kw_only=True)
class Side:
    """One tool on one checkpoint."""

    name: str
    says: int | None  # parameters; None: it read nothing
    runs: tuple[tuple[Run, ...], ...]  # at each distance; empty where it read nothing
    refusal: str = ""  # the last line that it printed then


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All tools on one checkpoint, `audit` first; their runs went in turn."""

    checkpoint: Checkpoint
    distances: tuple[Seconds, ...]
    sides: tuple[Side, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        walls = (
            heading
            for distance in self.distances
            for heading in (f"at {milliseconds(distance)}", "audit by it")
        )
        return "", "says", *walls, *(figure.name for figure in FIGURES)

    def rows(self) -> list[tuple[str, ...]]:
        """Of each tool that read it the parameters that it prints, and medians of what it took."""
        return [self._row(side) for side in self.sides if side.says is not None]

    def _row(self, side: Side) -> tuple[str, ...]:
        walls = (
            cell
            for at, runs in enumerate(side.runs)
            for cell in (WALL.shown(_median(WALL, runs)), ratio(self._ratios(side, WALL, at)))
        )
        rest = (one.shown(max(_median(one, runs) for runs in side.runs)) for one in FIGURES)
        return side.name, f"{side.says:,}", *walls, *rest

    def _ratios(self, side: Side, figure: Figure[Run], at: int) -> list[float]:
        """Audit's by the tool's, pair by pair, sorted; none for audit itself."""
        if side is self.sides[0]:
            return []
        both = zip(self.sides[0].runs[at], side.runs[at], strict=True)
        return sorted(figure.of(mine) / figure.of(theirs) for mine, theirs in both)

    def notes(self) -> list[str]:
        """What the tools print that read nothing, and who counts what is in no way there."""
        model, right = self.checkpoint.model, (self.checkpoint.parameters, *self.checkpoint.others)
        return [
            f"{side.name} on {model}: {side.refusal or f'{side.says:,} is wrong'}"
            for side in self.sides
            if side.says not in right
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            **self.checkpoint._asdict(),
            "distances": self.distances,
            "sides": [asdict(side) for side in self.sides],
            "ratios": {
                side.name: {
                    figure.name: [self._ratios(side, figure, at) for at in range(len(side.runs))]
                    for figure in (WALL, *FIGURES)
                }
                for side in self.sides[1:]
                if side.runs
            },
        }


def compare(  # noqa: PLR0913 - what is measured, and how often
    served: Served,
    checkpoint: Checkpoint,
    peers: Sequence[Peer],
    *,
    runs: int,
    distances: tuple[Seconds, ...],
    bytecode: Path,
) -> Compared:
    """`audit` and every peer that can be asked, in turn, after one warm-up each.

    Raises ValueError unless the audit is clean and counts the published parameters.
    """
    file = checkpoint.file
    url = f"{served.url}/{checkpoint.model}/resolve/main/{file}" if file else None
    tools = (Peer("audit", lambda model, _url: ours(model), _audit_says), *peers)
    asked = [(tool, command) for tool in tools if (command := tool.command(checkpoint.model, url))]
    ends = {tool.name: [_end(command, bytecode, served)] for tool, command in asked}
    for distance in distances:
        served.wait(distance)
        for _ in range(runs):
            for tool, command in asked:
                if _refusal(ends[tool.name]) is None:
                    ends[tool.name].append(_end(command, bytecode, served))
    served.wait(0)
    sides = tuple(_side(tool, ends[tool.name], runs) for tool, _ in asked)
    if sides[0].says != checkpoint.parameters:
        found = sides[0].refusal or f"{sides[0].says:,}"
        message = (
            f"{checkpoint.model}: expected {checkpoint.parameters:,} parameters, audit: {found}"
        )
        raise ValueError(message)
    return Compared(checkpoint=checkpoint, distances=distances, sides=sides)


def _end(command: Sequence[str], bytecode: Path, served: Served) -> Run | str:
    """What it took; or, where it failed, the last line that it printed."""
    try:
        return run(command, bytecode, served)
    except RuntimeError as error:
        served.log()  # so that what it asked is not counted as the next one's
        return str(error).splitlines()[-1]


def _refusal(ends: Sequence[Run | str]) -> str | None:
    return next((end for end in ends if isinstance(end, str)), None)


def _side(tool: Peer, ends: Sequence[Run | str], runs: int) -> Side:
    """Of the ends the first was to warm up; then come so many at each distance."""
    refusal = _refusal(ends)
    if refusal is not None:
        return Side(name=tool.name, says=None, runs=(), refusal=refusal)
    measured = [end for end in ends[1:] if isinstance(end, Run)]
    by_distance = tuple(
        tuple(measured[start : start + runs]) for start in range(0, len(measured), runs)
    )
    said = {tool.says(one.stdout) for one in measured}
    if len(said) != 1:
        message = f"{tool.name} says now one thing, now another: {sorted(said)}"
        raise ValueError(message)
    return Side(name=tool.name, says=said.pop(), runs=by_distance)


def _median(figure: Figure[Run], runs: Sequence[Run]) -> float:
    return median(map(figure.of, runs))


def _audit_says(printed: str) -> int:
    """The parameters that are stored; ValueError where the verdict is not clean."""
    found = _CLEAN.search(printed)
    if found is None:
        message = f"audit should be clean: {printed[-500:]}"
        raise ValueError(message)
    return int(found[1].replace(",", ""))

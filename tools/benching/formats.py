"""audit beside other tools on a .bin, GGUF and GPTQ checkpoint of 7 or 8 billion parameters.

What each says of the parameters stands beside what it took. Tools that count elements as they are
stored are wrong on packed weights, and that is printed as it is.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benching.figures import FIGURES, Figure, ratio
from benching.measure import Run, ours, run
from benching.peers import Peer
from benching.server import Served

TORCH, GGUF, GPTQ = "bench/llama-2-7b", "bench/llama-3.1-8b-gguf", "bench/llama-2-7b-gptq"
GGUF_FILE = "Llama-3.1-8B-Q4_K_M.gguf"
_SAID = re.compile(r"([\d,]+) parameters stored, [\d,]+ expected")
_SHOWN = tuple(figure for figure in FIGURES if figure.name != "of them redirects")
_WALL = _SHOWN[0]
_OTHERS = tuple(figure.name for figure in _SHOWN[1:])


class Checkpoint(NamedTuple):
    """One model that is served, as benching/formats_models.py builds it."""

    model: str
    title: str
    file: str | None = None  # its only weight file, for tools that are given a URL


CHECKPOINTS = (
    Checkpoint(
        TORCH,
        "Llama-2-7B as torch.save writes it: 2 shards of 13.5 GB in all, 6,738,415,616 parameters",
    ),
    Checkpoint(
        GGUF,
        "Llama-3.1-8B as GGUF, Q4_K_M: 4.9 GB with 7.8 MB of metadata, 8,030,261,248 parameters",
        GGUF_FILE,
    ),
    Checkpoint(
        GPTQ,
        "Llama-2-7B as GPTQ, 4 bits, g_idx: 3.9 GB of safetensors, 6,738,415,616 parameters",
        "model.safetensors",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One tool on one checkpoint."""

    name: str
    says: int | None  # parameters; None: it read nothing
    runs: tuple[Run, ...]  # empty where it read nothing
    refusal: str = ""  # the last line that it printed then


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All tools on one checkpoint, `audit` first; their runs went in turn."""

    headings = ("", "says", _WALL.name, "audit by it, median (min to max)", *_OTHERS)

    title: str
    model: str
    sides: tuple[Side, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Tool, the parameters it prints, medians; and the ratio of audit's wall time to its."""
        return [self._row(side) for side in self.sides]

    def _row(self, side: Side) -> tuple[str, ...]:
        if side.says is None:
            return side.name, "nothing", *["-"] * (len(self.headings) - 2)
        wall, *rest = (figure.shown(median(map(figure.of, side.runs))) for figure in _SHOWN)
        return side.name, f"{side.says:,}", wall, ratio(self._ratios(side, _WALL)), *rest

    def _ratios(self, side: Side, figure: Figure[Run]) -> list[float]:
        """Audit's by the tool's, pair by pair, sorted; none for audit itself."""
        if side is self.sides[0]:
            return []
        both = zip(self.sides[0].runs, side.runs, strict=True)
        return sorted(figure.of(mine) / figure.of(theirs) for mine, theirs in both)

    def notes(self) -> list[str]:
        """What the tools print that read nothing."""
        return [
            f"{side.name} on {self.model}: {side.refusal}"
            for side in self.sides
            if side.says is None
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "model": self.model,
            "sides": [asdict(side) for side in self.sides],
            "ratios": {
                side.name: {figure.name: self._ratios(side, figure) for figure in _SHOWN}
                for side in self.sides[1:]
                if side.runs
            },
        }


def compare(
    served: Served, checkpoint: Checkpoint, peers: Sequence[Peer], runs: int, bytecode: Path
) -> Compared:
    """`audit` and every peer that can be asked, in turn, after one warm-up each."""
    file = checkpoint.file
    url = f"{served.url}/{checkpoint.model}/resolve/main/{file}" if file else None
    tools = (Peer("audit", lambda model, _url: ours(model), _audit_says), *peers)
    asked = [(tool, command) for tool in tools if (command := tool.command(checkpoint.model, url))]
    ends: dict[str, list[Run | str]] = {tool.name: [] for tool, _ in asked}
    for _ in range(runs + 1):
        for tool, command in asked:
            if _refusal(ends[tool.name]) is None:
                ends[tool.name].append(_end(command, bytecode, served))
    sides = tuple(_side(tool, ends[tool.name]) for tool, _ in asked)
    if sides[0].says is None:
        message = f"audit {checkpoint.model} should be clean: {sides[0].refusal}"
        raise ValueError(message)
    return Compared(title=checkpoint.title, model=checkpoint.model, sides=sides)


def _end(command: Sequence[str], bytecode: Path, served: Served) -> Run | str:
    """What it took; or, where it failed, the last line that it printed."""
    try:
        return run(command, bytecode, served)
    except RuntimeError as error:
        served.log()  # so that what it asked is not counted as the next one's
        return str(error).splitlines()[-1]


def _refusal(ends: Sequence[Run | str]) -> str | None:
    return next((end for end in ends if isinstance(end, str)), None)


def _side(tool: Peer, ends: Sequence[Run | str]) -> Side:
    refusal = _refusal(ends)
    if refusal is not None:
        return Side(name=tool.name, says=None, runs=(), refusal=refusal)
    runs = tuple(end for end in ends[1:] if isinstance(end, Run))
    return Side(name=tool.name, says=tool.says(runs[-1].stdout), runs=runs)


def _audit_says(printed: str) -> int:
    found = _SAID.search(printed)
    if found is None:
        message = f"audit printed no count of parameters: {printed[-500:]}"
        raise ValueError(message)
    return int(found[1].replace(",", ""))

"""What reading the files beside the weights costs one audit.

Whole processes of `audit MODEL --no-companions` and `audit MODEL` in turn, each with an empty
cache, against one Hub on loopback, where each answer comes 50 ms late.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benching.measure import Run, ours, run
from benching.repositories import BERT_REPOSITORY, LLAMA_REPOSITORY
from benching.server import Served, serving

_MODELS = {"BERT": BERT_REPOSITORY, "Llama-3.1-8B": LLAMA_REPOSITORY}
_WITHOUT = "--no-companions"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench companions", description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="of each, after one to warm up")
    parser.add_argument("--distance", type=float, default=0.05, help="seconds before each answer")
    options = parser.parse_args()
    _row(("", "without", "with", "ratio", "CPU without", "CPU with", "requests", "more bytes"))
    _row(("---", *["--:"] * 7))
    with serving(layers=1, experts=1) as served, tempfile.TemporaryDirectory() as bytecode:
        for title, model in _MODELS.items():
            served.wait(0)
            _pairs(served, model, Path(bytecode), 1)
            served.wait(options.distance)
            _row((title, *_cells(_pairs(served, model, Path(bytecode), options.runs))))


def _pairs(served: Served, model: str, bytecode: Path, runs: int) -> list[tuple[Run, Run]]:
    command = ours(model)
    return [
        (run((*command, _WITHOUT), bytecode, served), run(command, bytecode, served))
        for _ in range(runs)
    ]


def _cells(pairs: Sequence[tuple[Run, Run]]) -> tuple[str, ...]:
    """Medians, and of the ratios of pairs the median, the least and the most."""
    plain, whole = zip(*pairs, strict=True)
    ratios = sorted(one.wall / other.wall for other, one in pairs)
    return (
        *(_milliseconds([one.wall for one in side]) for side in (plain, whole)),
        f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        *(_milliseconds([one.cpu for one in side]) for side in (plain, whole)),
        f"{plain[0].requests} and {whole[0].requests}",
        f"{whole[0].bytes - plain[0].bytes:,}",
    )


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * median(seconds):.0f} ms"


def _row(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()

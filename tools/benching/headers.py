"""audit beside other tools that read a checkpoint's headers.

Whole processes against one Hub on loopback, in turn, each with an empty cache, where answers come
at once and where each comes 50 ms late. The peers read the same headers and count their parameters,
and compare them with nothing: huggingface_hub's get_safetensors_metadata, and hf-mem and
@huggingface/hub, where --peers has them. Then a .bin, GGUF and GPTQ checkpoint, without distance.
The bench ends with an error where an audit is not clean or counts other parameters than were
published; the figures themselves are no gate.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from support.deepseek_v3 import EXPERTS

from benching import checkpoints, peers
from benching.comparing import Compared, compare
from benching.measure import AUDIT, run
from benching.peers import Peer
from benching.server import serving

DISTANCES = (0.0, 0.05)  # seconds before each answer
BEGIN, END = "<!-- bench -->", "<!-- end of bench -->"
VERSIONS = ("python", "huggingface_hub", "hf-audit")

# Processes that do no audit: what of the wall time is only getting there.
STARTS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "import auditor": (sys.executable, "-c", "import auditor"),
    "import huggingface_hub": (
        sys.executable,
        "-c",
        "from huggingface_hub import get_safetensors_metadata",
    ),
    "audit --help": (AUDIT, "--help"),
}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench headers", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each tool, after one to warm up")
    parser.add_argument("--only", default="", help="checkpoints with this in their id")
    parser.add_argument(
        "--layers", type=int, default=checkpoints.LAYERS, help="of the BERT with many layers"
    )
    parser.add_argument("--experts", type=int, default=EXPERTS, help="of DeepSeek-V3")
    parser.add_argument(
        "--peers", type=Path, default=Path(sys.prefix, "peers"), help="where other tools are"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run there")
    parser.add_argument("--markdown", action="store_true", help="tables for a README")
    options = parser.parse_args(given)
    if min(options.runs, options.layers, options.experts) < 1:
        parser.error("--runs, --layers and --experts start at 1")
    return options


def main() -> None:
    options = arguments()
    found, absent = peers.find(options.peers)
    with tempfile.TemporaryDirectory() as bytecode:
        compared = _compared(options, Path(bytecode), found)
        starts = {
            name: _start(command, options.runs, Path(bytecode)) for name, command in STARTS.items()
        }
    facts = _facts(options.runs)
    show = _markdown if options.markdown else _tables
    notes = [*(note for one in compared for note in one.notes()), *peers.lines(absent)]
    show(compared, [*notes, *_notes(starts, facts)])
    if options.json:
        figures = {
            "facts": facts,
            "checkpoints": [one.as_json() for one in compared],
            "starts": starts,
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _compared(
    options: argparse.Namespace, bytecode: Path, others: Sequence[Peer]
) -> list[Compared]:
    here = DISTANCES[:1]
    asked = [
        *((one, DISTANCES) for one in checkpoints.listed(options.layers, options.experts)),
        *((one, here) for one in checkpoints.packed()),
    ]
    with serving(options.layers, options.experts) as served:
        return [
            compare(served, one, others, runs=options.runs, distances=distances, bytecode=bytecode)
            for one, distances in asked
            if options.only in one.model
        ]


def _start(command: Sequence[str], runs: int, bytecode: Path) -> float:
    """Seconds, the median, after one run to warm up."""
    return median([run(command, bytecode).wall for _ in range(runs + 1)][1:])


def _facts(runs: int) -> dict[str, Any]:
    from auditor.downloader.headers import FIRST_READ  # noqa: PLC0415 - after the measuring

    return {
        "runs": runs,
        "load": f"{os.getloadavg()[0]:.1f}",
        "cores": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "huggingface_hub": version("huggingface_hub"),
        "hf-audit": version("hf-audit"),
        "first_read": FIRST_READ,
    }


def _notes(starts: dict[str, float], facts: dict[str, Any]) -> list[str]:
    started = ", ".join(f"`{name}` {1000 * wall:.0f} ms" for name, wall in starts.items())
    versions = ", ".join(f"{name} {facts[name]}" for name in VERSIONS)
    return [
        f"Medians of {facts['runs']} runs in turn, each with an empty cache; ratios are of pairs.",
        "One Hub on loopback answers all, without TLS and Xet.",
        "CPU time and the rest are those at the distance where they are larger.",
        "What a tool says: the parameters that it prints; hf-mem's fixed address is exchanged.",
        f"{facts['machine']}, {facts['cores']} cores, load {facts['load']}; {versions}.",
        f"The first read of a weight file has {facts['first_read']:,} bytes (headers.py).",
        f"For comparison: {started}.",
    ]


def _markdown(compared: Sequence[Compared], notes: Sequence[str]) -> None:
    """The tables between the markers that they have in the README, and the notes."""
    lines = [BEGIN, ""]
    for headings, group in groupby(compared, lambda one: one.headings):
        empty = [""] * (len(headings) - 1)
        lines += [_row(headings), _row(("---", *["--:"] * len(empty)))]
        for one in group:
            lines += [_row((f"**{one.checkpoint.title}**", *empty)), *map(_row, one.rows())]
        lines.append("")
    _say("\n".join([*lines, END, "", *notes]))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tables(compared: Sequence[Compared], notes: Sequence[str]) -> None:
    for one in compared:
        rows = (one.headings, *one.rows())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        _say(one.checkpoint.title)
        for row in rows:
            name, *numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            _say("  ".join([row[0].ljust(len(name)), *numbers]).rstrip())
        _say("")
    _say("\n".join(notes))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")

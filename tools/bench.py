"""audit beside huggingface_hub: `make bench`.

Whole processes against one Hub on loopback, in turn, each with an empty cache. The peer is
get_safetensors_metadata, the nearest that huggingface_hub has: it reads the same headers and
counts their parameters, and compares them with nothing. Then a .bin, GGUF and GPTQ checkpoint
beside hf-mem and @huggingface/gguf, where --peers has them. At last, in this process: what a config
of 92,000 tensors implies, built and reconciled, beside json.loads of as many. A bench and not a
gate: it ends with 0 whatever the figures are.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benching import formats, mixture, peers
from benching.figures import Measured, compare
from benching.formats import Compared
from benching.measure import AUDIT, run
from benching.mixture import Mixture
from benching.peers import Peer
from benching.server import serving

LAYERS, SHARDS = 5625, 20  # 16 tensors a layer and 7 around them: 90,007
SINGLE, SHARDED = "bert-base-chinese", "bench/many-layers"  # as benching/models.py serves them
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
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="pairs, after one to warm up")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the sharded model")
    parser.add_argument(
        "--experts", type=int, default=mixture.EXPERTS, help="of the mixture of experts"
    )
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
        measured, packed = _measured(options.layers, options.runs, Path(bytecode), found)
        starts = {
            name: _start(command, options.runs, Path(bytecode)) for name, command in STARTS.items()
        }
    facts = _facts(options.runs)
    # Last: the peak memory of the processes above counts that of the one they come from.
    experts = mixture.measured(mixture.LAYERS, options.experts, options.runs)
    show = _markdown if options.markdown else _tables
    notes = [*(note for one in packed for note in one.notes()), *peers.lines(absent)]
    show((*measured, *packed, experts), [*notes, *_notes(starts, facts)])
    if options.json:
        figures = {
            "facts": facts,
            "models": [one.as_json() for one in measured],
            "formats": [one.as_json() for one in packed],
            "mixture": experts.as_json(),
            "starts": starts,
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _measured(
    layers: int, runs: int, bytecode: Path, others: Sequence[Peer]
) -> tuple[list[Measured], list[Compared]]:
    tensors = 16 * layers + 7
    models = {
        SINGLE: f"{SINGLE}: one file of 411,553,788 bytes, 206 tensors",
        SHARDED: f"BertModel of {layers:,} layers: {SHARDS} shards, {tensors:,} tensors",
    }
    with serving(layers, SHARDS) as served:
        measured = [compare(served, title, id_, runs, bytecode) for id_, title in models.items()]
        return measured, [
            formats.compare(served, one, others, runs, bytecode) for one in formats.CHECKPOINTS
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
        f"Medians of {facts['runs']} pairs of whole processes in turn, each with an empty cache.",
        "One Hub on loopback answers all: no distance and no TLS.",
        "What a tool says: the parameters that it prints; hf-mem's fixed address is exchanged.",
        f"{facts['machine']}, {facts['cores']} cores, load {facts['load']}; {versions}.",
        f"The first read of a weight file has {facts['first_read']:,} bytes (headers.py).",
        f"For comparison: {started}.",
        "The mixture of experts: CPU time of the steps in one process, garbage collector off.",
    ]


def _markdown(measured: Sequence[Measured | Compared | Mixture], notes: Sequence[str]) -> None:
    lines = []
    for one in measured:
        rule = ("---", *["--:"] * (len(one.headings) - 1))
        lines += [f"**{one.title}**", "", *map(_row, (one.headings, rule))]
        lines += [*map(_row, one.rows()), ""]
    _say("\n".join([*lines, *notes]))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tables(measured: Sequence[Measured | Compared | Mixture], notes: Sequence[str]) -> None:
    for one in measured:
        rows = (one.headings, *one.rows())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        _say(one.title)
        for row in rows:
            name, *numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            _say("  ".join([row[0].ljust(len(name)), *numbers]).rstrip())
        _say("")
    _say("\n".join(notes))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()

"""Hold what audit --for says against the engines' own loaders, on saves that were not recorded.

It draws entries, flags, other sizes and one or two probes at once. A wrong answer fails the run;
unknown ones are counted. `python -m engines.hold mlx --draws 200 --seed 7` repeats a run.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engines import config4, probes, saves
from engines.__main__ import JUDGES, judge_of
from engines.judging import Judge
from engines.saves import Outside, Save

_DATA = Path(__file__).parents[2] / "auditor" / "data" / "engines"
_SIZES = (
    {},
    {"hidden_size": 96, "intermediate_size": 192},
    {"num_hidden_layers": 3},
    {"hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 256},
)
_AT_ONCE = 25  # folders to one audit


class Drawn(NamedTuple):
    """A folder to be judged and how it was made."""

    made_by: str
    written: probes.Written


def draw(entries: Mapping[str, Any], count: int, seed: int) -> Iterator[Drawn]:
    """Yield saves of entries with other sizes, each with up to two probes."""
    chance = random.Random(seed)
    names = sorted(name for name, entry in entries.items() if entry.get("variants"))
    while count and names:
        name = chance.choice(names)
        entry = entries[name]
        changes = chance.choice(entry["variants"]).get("when", {})
        sizes = chance.choice(_SIZES)
        try:
            save = saves.build(entry["class"], changes, sizes)
        except Outside:
            continue
        steps = [name, *(f"{key}={value}" for key, value in {**changes, **sizes}.items())]
        if "fills" in entry and chance.random() < 0.7:
            fills = {path: config4.Fill(source, source) for path, source in entry["fills"].items()}
            save = save._replace(config=config4.with_keys(save.config, fills))
            steps.append("with the keys that it requires")
        written = probes.Written(save.config, save.tensors)
        for _ in range(chance.choice((0, 1, 1, 1, 2))):
            probe, written = _probed(save, written, chance)
            steps.append(probe)
            save = save._replace(config=written.config, tensors=written.tensors)
        yield Drawn(", ".join(steps), written)
        count -= 1


def _probed(
    save: Save, written: probes.Written, chance: random.Random
) -> tuple[str, probes.Written]:
    """Return a probe of a random sort, applied to a save; sorts are drawn alike often."""
    by_sort: dict[str, list[probes.Probe]] = {}
    for probe in probes.probes(save, {}):
        by_sort.setdefault(probe[0].partition(" ")[0], []).append(probe)
    name, change = chance.choice(by_sort[chance.choice(sorted(by_sort))])
    changed = change()
    return name, changed._replace(files=changed.files or written.files)


def answers(engine: str, folders: Sequence[Path]) -> list[Any]:
    """Return what audit --for says of folders: true, false or "unknown"."""
    command = [sys.executable, "-m", "auditor", *map(str, folders)]
    done = subprocess.run(  # noqa: S603 - our own program
        [*command, "--for", engine, "--format", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    by_folder = {report["requested"]: report["engines"][engine]["loads"] for report in reports}
    return [by_folder[str(folder)] for folder in folders]


def compare(engine: str, python: str, count: int, seed: int) -> Counter[str]:
    """Judge drawn folders and return how many of our answers were right, wrong and unknown."""
    entries = json.loads((_DATA / f"{engine}.json").read_bytes())["entries"]
    counts: Counter[str] = Counter()
    said: list[Any] = []
    command = judge_of(engine, python)
    with tempfile.TemporaryDirectory() as top, Judge(command, Path(top, "log")) as judge:
        drawn = list(draw(entries, count, seed))
        folders = [Path(top, f"{number:04}") for number in range(len(drawn))]
        for one, folder in zip(drawn, folders, strict=True):
            probes.write(folder, one.written)
        outcomes = judge.outcomes(folders)
        for start in range(0, len(folders), _AT_ONCE):
            said += answers(engine, folders[start : start + _AT_ONCE])
    for one, outcome, answer in zip(drawn, outcomes, said, strict=True):
        if not outcome["judged"]:
            counts["not judged"] += 1
        elif answer not in {True, False}:
            counts["unknown"] += 1
        elif answer == outcome["loads"]:
            counts["right"] += 1
        else:
            counts["wrong"] += 1
            print(f"WRONG {answer}: {one.made_by}: {outcome.get('error', 'loads')[:200]}")
    print(f"{engine}, seed {seed}: {dict(counts)}", flush=True)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare engines' loaders with our answers; return 1 if one of them is wrong."""
    parser = argparse.ArgumentParser(prog="engines.hold", description=__doc__)
    parser.add_argument("engine", nargs="?", choices=sorted(JUDGES), help="by default all")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--environments", type=Path, default=Path(".venv/engines"))
    parser.add_argument("--python", help="the judge's interpreter, by default the environment's")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wrong = 0
    for engine in [options.engine] if options.engine else JUDGES:
        python = options.python or str(options.environments / engine / "bin" / "python")
        wrong += compare(engine, python, options.draws, options.seed)["wrong"]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Law 8 for a night: `PYTHONPATH=tests python tools/fuzz/stopped_sweeps.py [--points N]`.

Sweeps of forty models are stopped at random points, by kill -9, SIGTERM, Ctrl-C, SIGHUP or a full
disk, up to four times each, and then left alone: the tables are those of an undisturbed sweep.
Prints what it did; ends with 1 and the seed where the law is broken.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.hub import Hub
from support.stopping import WAYS, Stopping, environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, help="so many, however long they take")
    parser.add_argument("--seconds", type=float, default=60.0, help="unless --points is given (60)")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--processes", type=int, default=1, help="of each sweep (1)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    since, stops, ways = time.monotonic(), 0, Counter[str]()
    with Hub() as hub, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = environment(hub.url, folder / "hf-home")
        stopping = Stopping(hub, folder, env, options.processes)
        while _goes_on(options, ways.total(), time.monotonic() - since):
            drawn = draw.choices(list(WAYS), k=draw.randint(1, 4))
            try:
                stops += stopping.round(draw, drawn)
            except AssertionError as error:
                _say(f"broken with seed {options.seed} after {ways.total()} points: {error}")
                return 1
            ways.update(drawn)
    said = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    taken = time.monotonic() - since
    _say(f"stopped sweeps: {ways.total()} points in {taken:.0f} s ({said}), {stops} before the end")
    return 0


def _goes_on(options: argparse.Namespace, points: int, seconds: float) -> bool:
    return points < options.points if options.points else seconds < options.seconds


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

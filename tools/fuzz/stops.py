"""Interruptions: `python -m fuzz stops` stops sweeps, fixes and pushes.

Sweeps of forty models are stopped at random points for so many seconds, by kill -9, SIGTERM,
Ctrl-C, SIGHUP or a full disk, up to four times each, and then left alone: their tables are those of
an undisturbed sweep. `audit fix --apply` is stopped before each of its system calls that write, and
in the middle of those that write bytes: the fixed folder is complete or absent. Pushes are stopped
at random moments: the repository has the old files, or the whole new commit. Prints what was done;
ends with 1 and the seed if a law is broken.
"""

import argparse
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from support import stopped_fixes
from support.hub import Hub
from support.running import started
from support.stopping import WAYS, Stopping, environment
from support.sweep_models import healthy

_OLD = {"config.json": b"{}", "old.txt": b"old"}
_FILES, _SIZE = 16, 1_000_000  # files in LFS, so that a kill falls between and within uploads


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz stops", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of sweeps (60)")
    parser.add_argument("--points", type=int, default=40, help="of pushes (40)")
    parser.add_argument("--processes", type=int, default=1, help="of each sweep (1)")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    broken = 0
    for stop in (stop_sweeps, stop_fixes, stop_pushes):
        broken += _is_broken(stop, options)
    return min(broken, 1)


def _is_broken(stop: Callable[[argparse.Namespace], str], options: argparse.Namespace) -> bool:
    try:
        print(stop(options), flush=True)
    except AssertionError as error:
        print(f"{stop.__name__}: broken with seed {options.seed}: {error}", flush=True)
        return True
    return False


def stop_sweeps(options: argparse.Namespace) -> str:
    draw, ways = random.Random(options.seed), Counter[str]()
    since, stops = time.monotonic(), 0
    with Hub() as hub, TemporaryDirectory() as name:
        env = environment(hub.url, Path(name, "hf-home"))
        stopping = Stopping(hub, Path(name), env, options.processes)
        while time.monotonic() - since < options.seconds:
            drawn = draw.choices(list(WAYS), k=draw.randint(1, 4))
            stops += stopping.round(draw, drawn)
            ways.update(drawn)
    said = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    return f"stopped sweeps: {ways.total()} points ({said}), {stops} before the end"


def stop_fixes(_: argparse.Namespace) -> str:
    lines = []
    for given, number in stopped_fixes.WAYS:
        with TemporaryDirectory() as place:
            points = stopped_fixes.Stopping(Path(place), *given, shards=2).every_point(number)
        lines.append(f"audit fix {' '.join(given)}: {points} points of {number.name}")
    return "\n".join(lines)


def stop_pushes(options: argparse.Namespace) -> str:
    """Leave a first push alone, and stop the others at moments of the time that it took."""
    draw, ends = random.Random(options.seed), Counter[str]()
    new = healthy(0) | {f"{at}.onnx": bytes([at]) * _SIZE for at in range(_FILES)}
    with Hub() as hub, TemporaryDirectory() as name:
        folder = Path(name, "model")
        folder.mkdir()
        for file, content in new.items():
            (folder / file).write_bytes(content)
        hub.let_write("hf_write")
        env = environment(hub.url, Path(name, "home")) | {"HF_TOKEN": "hf_write"}
        whole = 0.0
        for point in range(options.points + 1):
            model = f"org/stopped-{point}"
            hub.add(model, _OLD)
            hub.intake.objects.clear()  # so that each push sends every file
            since = time.monotonic()
            process = started("push", str(folder), model, "--quiet", env=env)
            if point:
                time.sleep(draw.uniform(0.0, whole))
                process.send_signal(draw.choice((signal.SIGKILL, signal.SIGINT)))
            process.communicate()
            whole = whole or time.monotonic() - since
            kinds = {"old": _OLD, "new": _OLD | new}
            kind = next((key for key, each in kinds.items() if hub.stored(model) == each), "")
            assert kind, f"other files at point {point}"
            assert point or kind == "new", "a push that was left alone made no commit"
            ends[kind] += bool(point)
    return f"stopped pushes: {options.points} points, {ends['old']} old, {ends['new']} new commits"

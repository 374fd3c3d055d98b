"""Pushes that are stopped: `PYTHONPATH=tests python tools/fuzz/stopped_pushes.py [--points N]`.

A first `audit push` is left alone. The others are killed (kill -9) or interrupted (Ctrl-C) at
random moments of the time that it took: the repository then has the old files, or the whole new
commit. Prints what it did; ends with 1 and the seed where it has anything else.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.hub import Hub
from support.running import started
from support.stopping import environment
from support.sweep_models import healthy

_OLD = {"config.json": b"{}", "old.txt": b"old"}
_FILES, _SIZE = 16, 1_000_000  # files in LFS, so that a kill falls between and within uploads
_WAYS = (signal.SIGKILL, signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    draw, ends = random.Random(options.seed), Counter[str]()
    with Hub() as hub, tempfile.TemporaryDirectory() as name:
        new = healthy(0) | {f"{at}.onnx": bytes([at]) * _SIZE for at in range(_FILES)}
        folder = Path(name, "model")
        folder.mkdir()
        for file, content in new.items():
            (folder / file).write_bytes(content)
        hub.let_write("hf_write")
        env = environment(hub.url, Path(name, "home"))
        env |= {"HF_TOKEN": "hf_write"}
        whole = 0.0
        for point in range(options.points + 1):
            model = f"org/stopped-{point}"
            hub.add(model, _OLD)
            hub.intake.objects.clear()  # so that each push sends every file
            since = time.monotonic()
            process = started("push", str(folder), model, "--quiet", env=env)
            if point:
                _stop(process, draw.uniform(0.0, whole), draw.choice(_WAYS))
            process.communicate()
            whole = whole or time.monotonic() - since
            kinds = {"old": _OLD, "new": _OLD | new}
            kind = next((key for key, each in kinds.items() if hub.stored(model) == each), "")
            if not kind or (not point and kind == "old"):
                _say(f"broken with seed {options.seed} at point {point}")
                return 1
            ends[kind] += bool(point)
    _say(
        f"stopped pushes: {options.points} points, {ends['old']} old and {ends['new']} new commits"
    )
    return 0


def _stop(process: subprocess.Popen[str], seconds: float, number: signal.Signals) -> None:
    time.sleep(seconds)
    process.send_signal(number)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())

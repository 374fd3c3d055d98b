"""A fix is done or not: `PYTHONPATH=tests python tools/fuzz/stopped_fixes.py [--shards N]`.

`audit fix --apply` is stopped before each of its system calls that write, and in the middle of
those that write bytes, by kill -9, Ctrl-C and SIGTERM: the folder is as it was, and the fixed
folder is complete or absent. Prints how many points there were; exits with 1 if the law is broken.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from support.stopped_fixes import WAYS, Stopping


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=2, help="of the checkpoint (2)")
    options = parser.parse_args()
    for given, number in WAYS:
        with tempfile.TemporaryDirectory() as place:
            stopping = Stopping(Path(place), *given, shards=options.shards)
            try:
                points = stopping.every_point(number)
            except AssertionError as error:
                sys.stdout.write(f"broken: {error}\n")
                return 1
        sys.stdout.write(f"audit fix {' '.join(given)}: {points} points of {number.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

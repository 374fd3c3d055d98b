"""How many files a reader opens who follows one audit: `python tools/visits.py [--list] [--pairs]`.

Runs an audit of the BERT in the package and counts the files of auditor/ whose functions are
called, and the moves from file to file: a call is a move where the call before it, of all calls
into auditor/, was of another file. Bodies of modules and classes, comprehensions and what is called
while a module is imported are no part of it.
"""

import argparse
import contextlib
import inspect
import io
import os
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import auditor
from auditor.cli import main

PACKAGE = Path(auditor.__file__).parent
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class Visits:
    """What sys.setprofile tells of calls; those of the main thread, where an audit is done."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()  # by file
        self.pairs: Counter[tuple[str, ...]] = Counter()  # moves between two files, either way
        self._last: str | None = None
        self._imports = 0  # that are under way, one within the other
        self._starts: dict[CodeType, int] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._imports += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._imports and self._is_entered(frame):
            self.calls[code.co_filename] += 1
            if self._last not in {None, code.co_filename}:
                self.pairs[tuple(sorted((self._last or "", code.co_filename)))] += 1
            self._last = code.co_filename

    def _is_entered(self, frame: FrameType) -> bool:
        """Whether a function of the package begins; a generator that goes on does not."""
        code = frame.f_code
        return (
            code.co_filename.startswith(f"{PACKAGE}{os.sep}")
            and bool(code.co_flags & inspect.CO_OPTIMIZED)  # bodies of classes are not
            and code.co_name not in COMPREHENSIONS
            and self._starts.setdefault(code, frame.f_lasti) == frame.f_lasti
        )


def visits(*arguments: str) -> Visits:
    """Those of `audit` with these arguments."""
    found = Visits()
    sys.argv = ["audit", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(found)
        try:
            main()
        finally:
            sys.setprofile(None)
    return found


def _shown(path: str) -> str:
    return str(Path(path).relative_to(PACKAGE.parent))


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="each file, and the calls into it")
    parser.add_argument("--pairs", action="store_true", help="between which files the moves are")
    asked = parser.parse_args()
    found = visits("bert-base-chinese", "--source", "bundled")
    if asked.list:
        for path, calls in sorted(found.calls.items()):
            print(f"{calls:7,} {_shown(path)}")
    if asked.pairs:
        for pair, moves in found.pairs.most_common():
            print(f"{moves:7,} {' '.join(map(_shown, pair))}")
    print(
        f"{len(found.calls)} files, {found.pairs.total():,} moves between them in "
        f"{found.calls.total():,} calls"
    )


if __name__ == "__main__":
    run()

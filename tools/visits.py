"""The files that a reader opens to follow one audit: `python tools/visits.py [--list] [--pairs]`.

The program audits the BERT in the package and counts the files of auditor/ whose functions are
called, and the moves from file to file. A call is a move if the call before it, among all calls
into auditor/, was of another file. It also counts how often `reconcile` calls into a file again
after it has called into another one. Bodies of modules and classes, comprehensions, and calls
during an import do not count.
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
RECONCILE = str(PACKAGE / "reconciler" / "reconcile.py")
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


class Visits:
    """The calls into the package, counted by sys.setprofile in the main thread of an audit."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()  # by file
        self.pairs: Counter[tuple[str, ...]] = Counter()  # moves between two files, either way
        self.of_reconcile: list[str] = []  # the files that reconcile.py calls into, in order
        self._last: str | None = None
        self._imports = 0  # imports under way, one within the other
        self._starts: dict[CodeType, int] = {}

    @property
    def returns_of_reconcile(self) -> int:
        """The number of times that `reconcile` goes back to a file that it has left."""
        return len(self.of_reconcile) - len(set(self.of_reconcile))

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._imports += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._imports and self._is_entered(frame):
            self.calls[code.co_filename] += 1
            if self._last not in {None, code.co_filename}:
                self.pairs[tuple(sorted((self._last or "", code.co_filename)))] += 1
            self._last = code.co_filename
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            if caller == RECONCILE != code.co_filename and self.of_reconcile[-1:] != [self._last]:
                self.of_reconcile.append(self._last)

    def _is_entered(self, frame: FrameType) -> bool:
        """Whether a function of the package begins, and not a generator that continues."""
        code = frame.f_code
        return (
            code.co_filename.startswith(f"{PACKAGE}{os.sep}")
            and bool(code.co_flags & inspect.CO_OPTIMIZED)  # not the body of a class
            and code.co_name not in COMPREHENSIONS
            and self._starts.setdefault(code, frame.f_lasti) == frame.f_lasti
        )


def visits(*arguments: str) -> Visits:
    """Run `audit` with these arguments and return its visits."""
    counted = Visits()
    sys.argv = ["audit", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        sys.setprofile(counted)
        try:
            main()
        finally:
            sys.setprofile(None)
    return counted


def _shown(path: str) -> str:
    return str(Path(path).relative_to(PACKAGE.parent))


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list", action="store_true", help="print each file, and the calls into it"
    )
    parser.add_argument(
        "--pairs", action="store_true", help="print the moves between each two files"
    )
    options = parser.parse_args()
    counted = visits("bert-base-chinese", "--source", "bundled")
    if options.list:
        for path, calls in sorted(counted.calls.items()):
            print(f"{calls:7,} {_shown(path)}")
    if options.pairs:
        for pair, moves in counted.pairs.most_common():
            print(f"{moves:7,} {' '.join(map(_shown, pair))}")
    print(
        f"{len(counted.calls)} files, {counted.pairs.total():,} moves between them in "
        f"{counted.calls.total():,} calls; {counted.returns_of_reconcile} returns of reconcile"
    )


if __name__ == "__main__":
    run()

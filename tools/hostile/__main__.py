"""`python -m hostile`: audits every input of the table, and says which of them cost too much."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.bad_input.making import whole
from support.bad_input.running import KIB_ABOVE, Run, environment, run

from hostile.table import Hostile, table

_SECONDS = 20  # of processor time
_HANGS = 300  # by the clock, of a machine that may have other work
_CODES = {0, 1, 2, 3}
_KIB_OF_ONE = 2  # a tensor takes, whatever it is called, and KIB_ABOVE all the others
_SHOWN = 12  # of the costliest
_FORMS = ("json", "terminal", "csv")


class Cost(NamedTuple):
    """What one audit of one input came to."""

    name: str
    code: int
    seconds: float
    kib: int  # above a plain audit
    faults: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.kib / 1024:6.0f} MiB {self.seconds:6.2f} s  exit {self.code}  {self.name}"


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="hostile-") as top:
        costs = []
        for cost in _measured(Path(top), options.only, options.form):
            costs.append(cost)
            if options.all:
                print(cost.line, flush=True)
    costs.sort(key=lambda cost: (cost.kib, cost.seconds), reverse=True)
    for cost in () if options.all else costs[:_SHOWN]:
        print(cost.line)
    broken = [cost for cost in costs if cost.faults]
    for cost in broken:
        print(f"{cost.name}: {'; '.join(cost.faults)}")
    slowest = max((cost.seconds for cost in costs), default=0)
    most = max((cost.kib for cost in costs), default=0) / 1024
    codes = {code: sum(cost.code == code for cost in costs) for code in sorted(_CODES)}
    said = ", ".join(f"{count} end with {code}" for code, count in codes.items() if count)
    print(f"{len(costs)} inputs: {said}; at most {slowest:.1f} s and {most:.0f} MiB above a plain")
    print(f"audit; {len(broken)} of them above the bounds, or with a traceback")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--only", default="", help="inputs with this in their name")
    parser.add_argument("--all", action="store_true", help="a line for each, not the costliest")
    parser.add_argument("--form", default=_FORMS[0], choices=_FORMS)
    return parser.parse_args()


def _measured(top: Path, only: str, form: str) -> Iterator[Cost]:
    plain = _run(whole(top / "plain"), top / "plain-home", form)
    for number, one in enumerate(one for one in table() if only in one.name):
        with tempfile.TemporaryDirectory(dir=top, ignore_cleanup_errors=True) as place:
            ran = _run(one.make(Path(place)), top / f"home{number}", form)
        yield _cost(one, ran, plain)


def _run(path: Path, home: Path, form: str) -> Run:
    env = environment(home)
    return run(str(path), "--format", form, env=env, cwd=home, seconds=_HANGS, installed=True)


def _cost(one: Hostile, ran: Run, plain: Run) -> Cost:
    above, seconds = ran.peak - plain.peak, ran.spent / 1000
    most = max(KIB_ABOVE, one.tensors * _KIB_OF_ONE)
    faults = (
        (ran.code not in _CODES, f"ends with {ran.code}"),
        ("Traceback" in ran.stderr + ran.stdout, "a traceback"),
        ("crashed" in ran.stderr, "a crash"),
        (seconds > _SECONDS, f"takes {seconds:.1f} s, {_SECONDS} are the most"),
        (above > most, f"takes {above / 1024:.0f} MiB more, {most // 1024} are the most"),
    )
    return Cost(one.name, ran.code, seconds, above, tuple(what for bad, what in faults if bad))


if __name__ == "__main__":
    sys.exit(main())

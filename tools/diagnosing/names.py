"""Faults of names, files and configs, in checkpoints that transformers writes.

By cause: how many were planted, how many the audit flags, of how many the cause and its fields are
named, and of how many that cause alone; and whether a sound checkpoint gets any. Then pairs of
faults at once, and of how many both are named; `--pairs SEED` plants pairs alone, drawn with that
seed.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.fault_bench import FAMILIES, Fault, faults, written
from support.fault_pairs import pairs
from support.faults.families import MORE
from support.faults.files import file_faults
from support.faults.healthy import odd
from support.faults.names import name_faults
from support.faults_of_config import of_config

from auditor import Report, Unaudited
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot
from diagnosing.tally import COLUMNS, Tally, is_verbose


def main() -> None:
    if "--pairs" in sys.argv:
        with tempfile.TemporaryDirectory() as place:
            print_pairs(tally(Path(place), int(sys.argv[sys.argv.index("--pairs") + 1])))
        return
    table, slowest = Tally(), 0.0
    with tempfile.TemporaryDirectory() as place:
        for name in (*FAMILIES, *MORE):
            snapshot = written(name, Path(place))
            for _, each in (("as written", snapshot), *odd(name, snapshot, Path(place))):
                found = examine(each, Options(requested=name)).diagnosis
                table.add_sound(is_alarmed=bool(found))
            for fault in planted(name, snapshot, Path(place)):
                since = time.process_time()
                report = examine(fault.snapshot, Options(requested=name))
                slowest = max(slowest, time.process_time() - since)
                table.add(fault.cause, judged(fault, report))
        both = tally(Path(place))
    table.print()
    print_pairs(both)
    print(f"the slowest took {slowest:.2f} s")


def print_pairs(both: Counter[bool]) -> None:
    print(f"{both[True]} of {both.total()} pairs of faults are both named")


def tally(place: Path, seed: int = 0) -> Counter[bool]:
    """Count the pairs of faults by whether both are named."""
    counts: Counter[bool] = Counter()
    for pair in pairs(place, seed):
        found = examine(pair.snapshot, Options(requested=pair.name)).diagnosis
        counts[pair.is_named(found)] += 1
        if is_verbose() and not pair.is_named(found):
            print(f"{pair.name}: {[one.summary for one in found]}")
    return counts


def planted(name: str, snapshot: Snapshot, place: Path) -> Iterator[Fault]:
    """Every fault that can be planted in the checkpoint of a class."""
    yield from faults(name, snapshot) if name in FAMILIES else ()
    yield from name_faults(name, snapshot)
    yield from file_faults(name, place)
    yield from of_config(name, snapshot)


def judged(fault: Fault, report: Report | Unaudited) -> tuple[str, ...]:
    """The columns in which a fault counts."""
    if report.verdict == "clean":
        return COLUMNS[:1]
    causes = [one.cause for one in report.diagnosis]
    right = fault.cause in causes and fault.is_read(report.diagnosis)
    if is_verbose() and causes != [fault.cause]:
        print(f"{fault.name}: {[one.summary for one in report.diagnosis]}")
    return COLUMNS if right and len(causes) == 1 else COLUMNS[: 2 + right]

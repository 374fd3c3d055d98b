"""Faults planted beside the weights of repositories that transformers writes: what is said of them.

By cause: how many were planted, how many the audit flags, of how many the cause is named, and of
how many that cause alone; and how many sound repositories get a finding. `-v` names those of which
another thing is said.
"""

import tempfile
from collections import Counter
from pathlib import Path

from diagnose import COLUMNS, judged
from support.fault_bench import FAMILIES, Fault
from support.repository_bench import repository_faults, written_repository

from auditor.audit.options import Options
from auditor.audit.pipeline import examine


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    false = 0
    with tempfile.TemporaryDirectory() as place:
        for name in FAMILIES:
            snapshot = written_repository(name, Path(place))
            sound = examine(snapshot, Options(requested=name))
            if sound.verdict != "clean":
                print(f"{name}: {[one.reason for one in sound.findings]}")
                false += 1
            for fault in repository_faults(name, snapshot):
                report = examine(fault.snapshot, Options(requested=name))
                planted = Fault(name=fault.name, snapshot=fault.snapshot, cause=fault.cause)
                for column in judged(planted, report):
                    counts[fault.cause, column] += 1
    print(f"{'cause':30}" + "".join(f"{column:>9}" for column in COLUMNS))
    for cause in sorted({cause for cause, _ in counts}):
        print(f"{cause:30}" + "".join(f"{counts[cause, column]:>9}" for column in COLUMNS))
    every = [sum(counts[cause, column] for cause in {c for c, _ in counts}) for column in COLUMNS]
    print(f"{'all':30}" + "".join(f"{count:>9}" for count in every))
    print(f"{len(FAMILIES)} sound repositories, {false} of them alarmed about")


if __name__ == "__main__":
    main()

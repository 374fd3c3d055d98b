"""Faults planted in the numbers of checkpoints, and what `--values` says: `make diagnose-values`.

By cause: how many were planted, flagged with the right severity, named, and named alone; and of how
many sound checkpoints anything is said. `-v` names those of which another thing is said.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from support.value_faults import ValueCase, all_cases

import auditor
from auditor.report import Outcome

COLUMNS = ("planted", "flagged", "named", "alone")
LEVEL = "of_values"  # the module of findings that only numbers can show


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    sound = false = 0
    with tempfile.TemporaryDirectory() as place:
        for case in all_cases(Path(place)):
            outcome = auditor.audit(str(case.folder), values=True)
            if case.cause is None:
                sound += 1
                alarmed = outcome.verdict == "findings" or bool(causes_of(outcome))
                false += alarmed
                if alarmed and "-v" in sys.argv:
                    print(f"{case.name}: {outcome.verdict} {causes_of(outcome)}")
                continue
            for column in judged(case, outcome):
                counts[case.cause, column] += 1
    print(f"{'cause':26}" + "".join(f"{column:>9}" for column in COLUMNS))
    for cause in sorted({cause for cause, _ in counts}):
        print(f"{cause:26}" + "".join(f"{counts[cause, column]:>9}" for column in COLUMNS))
    print(f"{sound} sound checkpoints, {false} of which anything is said")


def causes_of(outcome: Outcome) -> list[tuple[str, str]]:
    """What was found in numbers; that a copy is the same is no fault."""
    found = [one for one in outcome.findings if type(one).__module__.endswith(LEVEL)]
    return [(one.kind, str(one.severity)) for one in found if one.kind != "duplicate"]


def judged(case: ValueCase, outcome: Outcome) -> tuple[str, ...]:
    causes = causes_of(outcome)
    if "-v" in sys.argv and causes != [(case.cause, case.severity)]:
        print(f"{case.name}: {causes}, not {case.cause}")
    if case.severity != "info" and outcome.verdict == "clean":
        return COLUMNS[:1]
    named = (case.cause, case.severity) in causes
    return COLUMNS if named and len(causes) == 1 else COLUMNS[: 2 + named]


if __name__ == "__main__":
    main()

"""The table of a run, and the time that a diagnosis takes."""

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from auditor import Report, Unaudited, diagnosis
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot

COLUMNS = ("planted", "flagged", "named", "alone")


def is_verbose() -> bool:
    return "-v" in sys.argv


class Tally:
    """How many faults of each cause were planted, and how far each of them was explained."""

    def __init__(self, columns: Sequence[str] = COLUMNS) -> None:
        self._columns = columns
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sound: Counter[bool] = Counter()

    def add(self, cause: str, reached: Sequence[str]) -> None:
        """Count a fault of a cause in the columns that it reached."""
        self._counts.update((cause, column) for column in reached)

    def add_sound(self, *, is_alarmed: bool) -> None:
        self._sound[is_alarmed] += 1

    def print(self) -> None:
        print(f"{'cause':30}" + "".join(f"{column:>9}" for column in self._columns))
        causes = sorted({cause for cause, _ in self._counts})
        rows = {cause: [self._counts[cause, one] for one in self._columns] for cause in causes}
        rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
        for cause, counts in rows.items():
            print(f"{cause:30}" + "".join(f"{count:>9}" for count in counts))
        print(f"{self._sound.total()} sound checkpoints, {self._sound[True]} of them alarmed about")


def timed(
    snapshot: Snapshot, options: Options
) -> tuple[Report | Unaudited, Mapping[str, Any], float]:
    """Return the report, the config after all changes, and the processor time of the diagnosis."""
    spent = [0.0]
    plain = diagnosis.diagnose

    def diagnose(*args: Any, **more: Any) -> Any:
        since = time.process_time()
        found = plain(*args, **more)
        spent[0] += time.process_time() - since
        return found

    diagnosis.diagnose = diagnose
    try:
        report = examine(snapshot, options)
    finally:
        diagnosis.diagnose = plain
    after = snapshot
    for one in report.diagnosis:
        after = one.change.applied_to(after) if one.change else after
    return report, json.loads(after.config.content) if after.config else {}, spent[0]

"""`make diagnose`: faults planted in checkpoints of many families, and what is said of them."""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support.fault_bench import FAMILIES, faults, written

from auditor.audit.options import Options
from auditor.audit.pipeline import examine


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        for name in FAMILIES:
            snapshot = written(name, Path(place))
            healthy = examine(snapshot, Options(requested=name))
            counts["healthy", "planted"] += 1
            counts["healthy", "flagged"] += healthy.verdict != "clean"
            counts["healthy", "false"] += bool(healthy.diagnosis)
            for fault in faults(name, snapshot):
                since = time.perf_counter()
                report = examine(fault.snapshot, Options(requested=name))
                took = time.perf_counter() - since
                if took > 0.15 and "-v" in sys.argv:
                    print(f"{took:.2f}", fault.name)
                slowest = max(slowest, took)
                causes = [one.cause for one in report.diagnosis]
                fields = {
                    key: tuple(values) for one in report.diagnosis for key, *values in one.fields
                }
                named = fault.cause in causes and (not fault.fields or fields == fault.fields)
                counts[fault.cause, "planted"] += 1
                counts[fault.cause, "flagged"] += report.verdict != "clean"
                counts[fault.cause, "named"] += named
                counts[fault.cause, "alone"] += named and len(causes) == 1
                if not (named and len(causes) == 1) and "-v" in sys.argv:
                    said = [one.summary for one in report.diagnosis] or report.verdict
                    kinds = [(one.kind, len(one.names)) for one in report.findings]
                    print(f"  {fault.name}: {said} {kinds}")
    for cause in sorted({cause for cause, _ in counts}):
        print(cause, {what: count for (one, what), count in counts.items() if one == cause})
    print(f"the slowest took {slowest:.2f} s")


if __name__ == "__main__":
    main()

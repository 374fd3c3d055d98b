"""Our load report beside the library's: `python tests/parity.py [TYPE ...] [--csv FILE]`.

For every model type with a closed form, a small checkpoint of each class as save_pretrained
writes it, loaded into every class of the type, spoilt in every way, and under older names; one
row for each load, with the reason where the two reports are not identical.
A measurement and not a gate: it ends with 0 whatever the shares are.
"""

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from parity_cases.configs import MODEL_TYPES
from parity_cases.rows import Row, rows_of

DEFAULT = Path("reports") / "parity.csv"


def main() -> None:
    parser = argparse.ArgumentParser(prog="parity", description=__doc__)
    parser.add_argument("types", nargs="*", help="model types; all without")
    parser.add_argument("--csv", type=Path, default=DEFAULT, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--config", type=int, default=0, metavar="N", help="draw other configs")
    options = parser.parse_args()
    types = options.types or MODEL_TYPES
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        of_types = pool.map(partial(rows_of, number=options.config), types)
        rows = [row for found in of_types for row in found]
    write(rows, options.csv)
    sys.stdout.write(summary(rows))


def write(rows: Iterable[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def summary(rows: Iterable[Row]) -> str:
    """Shares of the cases that are identical, by case and as a whole; then the exceptions."""
    rows = tuple(rows)
    lines = []
    for fused in ("no", "yes"):
        chosen = [row for row in rows if row.fused == fused]
        if not chosen:
            continue
        lines.append(f"fused in memory: {fused}")
        cases = dict.fromkeys(row.case for row in chosen)
        for case in (*cases, None):
            of_case = [row for row in chosen if case in {None, row.case}]
            same = sum(row.identical == "yes" for row in of_case)
            finer = sum(row.identical == "finer" for row in of_case)
            label = case or "all cases"
            lines.append(
                f"  {label:35} {same:6,} of {len(of_case):6,}  {same / len(of_case):7.2%}"
                + (f"  and ours is finer in {finer}" if finer else "")
            )
    reasons = Counter(
        (row.reason, row.model_type) for row in rows if row.identical == "no"
    ).most_common()
    lines += [f"{count:6,}  {model_type}: {reason}" for (reason, model_type), count in reasons]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""Our load report beside the library's: `make parity ARGS='TYPE ...'`.

For every model type with a closed form a small checkpoint of each class, loaded into every class
of the type; some classes of a reduced config, for each type with generated forms without the
oracle, and for some of the others by the oracle; and a few models of their published size. As
save_pretrained writes them, under older names, and spoilt.
Ours is `load_report` in the JSON of an audit; theirs is what from_pretrained returns with
output_loading_info=True. One row for each load, with the reason where the two are not the same.
Rows are written as they are made, so that `--more` goes on with a run that was stopped.
A measurement and not a gate: it ends with 0 whatever the shares are.
"""

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from parity_cases.configs import MODEL_TYPES
from parity_cases.large import MODELS
from parity_cases.oracle_configs import model_types
from parity_cases.rows import LeftOut, Row, Work, rows_of

from auditor.analytic import generated

DEFAULT = Path("reports") / "parity.csv"
TOGETHER = 8  # model types of one piece of work: the oracle's process starts once for each
KINDS = ("large", "oracle", "generated", "closed")
ORACLE_TYPES = 250


def main() -> None:
    parser = argparse.ArgumentParser(prog="parity", description=__doc__)
    parser.add_argument("types", nargs="*", help="model types; all without")
    parser.add_argument("--csv", type=Path, default=DEFAULT, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--config", type=int, default=0, metavar="N", help="draw other configs")
    parser.add_argument("--oracle-types", type=int, default=ORACLE_TYPES, metavar="N")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--more", action="store_true", help="leave out the types in the CSV")
    options = parser.parse_args()
    rows = read(options.csv) if options.more else []
    left_out: list[LeftOut] = []
    context = get_context("spawn")
    with (
        TemporaryDirectory(prefix="parity") as home,
        ProcessPoolExecutor(options.jobs, mp_context=context) as pool,
    ):
        works = tuple(pieces(options, Path(home), {(kind_of(row), row.model_type) for row in rows}))
        write(rows, options.csv)
        for found, without in pool.map(rows_of, works):
            rows += found
            left_out += without
            write(found, options.csv, more=True)
            sys.stderr.write(f"\r{len(rows):,} loads")
    sys.stderr.write("\n")
    sys.stdout.write(summary(rows, left_out))


def pieces(
    options: argparse.Namespace, home: Path, done: Collection[tuple[str, str]]
) -> Iterator[Work]:
    """The large ones first: they take the longest. Of the oracle's types some, at random."""
    learned = [each for each in generated.index().types if "." not in each]
    drawn = [each for each in model_types() if each not in learned]
    for some in (learned, drawn):
        Random(1 + options.config).shuffle(some)
    every_of = {
        "large": tuple(MODELS),
        "oracle": drawn if options.types else drawn[: options.oracle_types],
        "generated": learned,
        "closed": MODEL_TYPES,
    }
    for kind in options.kinds:
        types = tuple(
            each
            for each in every_of[kind]
            if (not options.types or each in options.types) and (kind, each) not in done
        )
        together = 1 if kind == "large" else TOGETHER
        for first in range(0, len(types), together):
            yield Work(kind, types[first : first + together], options.config, home)


def kind_of(row: Row) -> str:
    return "large" if row.case.startswith("large") else row.source.split()[0]


def write(rows: Iterable[Row], path: Path, *, more: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if more else "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows(rows if more else [Row._fields, *rows])


def read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**row) for row in csv.DictReader(file)]


def summary(rows: Iterable[Row], left_out: Iterable[LeftOut] = ()) -> str:
    """Shares of the loads that are the same, by source and case; then the exceptions."""
    rows = tuple(rows)
    lines = []
    for source in dict.fromkeys(row.source for row in rows):
        chosen = [row for row in rows if row.source == source]
        types = len({row.model_type for row in chosen})
        lines.append(f"{source}: {types} model types")
        cases = (*dict.fromkeys(row.case for row in chosen), None)
        lines += [
            _share(each, [row for row in chosen if each in {None, row.case}]) for each in cases
        ]
    lines.append(_share("all loads", list(rows)))
    alarms = Counter((row.model_type, row.case, row.alarms) for row in rows if row.alarms)
    lines.append(f"alarms where the library says nothing: {sum(alarms.values()):,}")
    lines += [f"{count:6,}  {' / '.join(each)}" for each, count in alarms.most_common()]
    reasons = Counter((row.model_type, row.reason) for row in rows if row.same != "yes")
    lines += [f"{count:6,}  {of}: {reason}" for (of, reason), count in reasons.most_common()]
    without = tuple(left_out)
    lines += [f"{len(without)} model types without a load"] * bool(without)
    lines += [f"        {one.model_type}: {one.reason}" for one in without]
    return "\n".join(lines) + "\n"


def _share(label: str | None, rows: list[Row]) -> str:
    same = sum(row.same == "yes" for row in rows)
    finer = sum(row.finer == "yes" for row in rows)
    silent = sum(row.same == "silent" for row in rows)
    more = f"  without a report {silent:,}" if silent else ""
    more += f"  findings say more exactly in {finer:,}" if finer else ""
    return f"  {label or 'all cases':45} {same:6,} of {len(rows):6,}  {same / len(rows):7.2%}{more}"


if __name__ == "__main__":
    main()

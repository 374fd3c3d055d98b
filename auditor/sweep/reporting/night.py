"""Write all reports of a night in one pass over the store."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from auditor.formats.json_values import json_text
from auditor.formats.text import counted
from auditor.messages import quoted
from auditor.sweep.reporting.baseline import Baseline, read_baseline
from auditor.sweep.reporting.files import TABLES, Csv, Parquet, Sarif, Table, rows_by_table
from auditor.sweep.reporting.heading import night_fragment
from auditor.sweep.reporting.model_entry import entry_of
from auditor.sweep.reporting.model_pages import ModelPages, staged_pages
from auditor.sweep.reporting.page import NightPage
from auditor.sweep.reporting.summary import NightSummary
from auditor.sweep.settings import folder_of
from auditor.sweep.store.reading import Alarms, Night, Store
from auditor.writing import output_file, replacing, require_no_link


class Wanted(Struct, frozen=True, kw_only=True):
    """The reports to write, and their paths."""

    folder: Path | None = None  # None: reports/nightly/NIGHT
    baseline: Path | None = None
    sarif: Path | None = None
    parquet: bool = False
    depth: int | None = None  # deepest level in modules.csv; None: all levels


class WrittenReports(Struct, frozen=True, kw_only=True):
    """The folder of written reports, and their summary."""

    folder: Path
    summary: Mapping[str, Any]  # the content of summary.json
    alarms: Alarms
    gaps: tuple[str, ...] = ()  # why the night does not say what it was meant to, a line each

    def __repr__(self) -> str:
        """Return one line: the summary itself may be long."""
        return f"WrittenReports({self.summary['night']}, {self.summary['models']:,} models)"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return night_fragment(self.summary)


def write_night(
    store: Path, *, night: str | None = None, wanted: Wanted | None = None
) -> WrittenReports:
    """Write the reports of a night, the latest if None, from the store alone.

    An unchanged store gives identical bytes. The files appear together, once all are complete.
    Raise UsageError if the night or the baseline cannot be read, StoreError if the store cannot,
    OSError if the folder cannot be written to.
    """
    wanted = wanted or Wanted()
    entries = read_baseline(wanted.baseline) if wanted.baseline else ()
    with Store.open(store) as nights:
        row = nights.chosen(night)
        written = _write(nights, row, wanted, Baseline(entries=entries, day=row.day))
        return replace(written, gaps=tuple(_gaps(row, night or nights.nights()[-1].night, written)))


def _gaps(night: Night, wanted: str, written: WrittenReports) -> Iterator[str]:
    """Yield a line if a later night has no plan, if the night is unfinished or has no models."""
    name, models = quoted(night.night), written.summary["models"]
    if wanted != night.night:
        detail = "has no models yet, its selection is under way or was stopped"
        yield f"the last night {quoted(wanted)} {detail}; this is the report of {name}"
    if not models:
        yield f"the night {name} has no models: nothing was audited"
    elif pending := written.summary["states"]["pending"]:
        detail = f"{pending:,} of {counted(models, 'model')} are not audited"
        yield f"the night {name} is not finished: {detail}; the same sweep goes on"


def _write(nights: Store, night: Night, wanted: Wanted, baseline: Baseline) -> WrittenReports:
    folder = wanted.folder or folder_of(night.night)
    require_no_link(folder)
    previous = nights.previous(night.night)
    with ExitStack() as stack:
        forms: dict[str, type[Table]] = {"csv": Csv, "parquet": Parquet}
        tables = [
            forms[ending](stack.enter_context(replacing(folder / f"{name}.{ending}")), name)
            for ending in (forms if wanted.parquet else ("csv",))
            for name in TABLES
        ]
        summary, models, page = NightSummary(), ModelPages(), NightPage(nights.count(night), stack)
        sarif = None
        if wanted.sarif:
            sarif = Sarif(stack.enter_context(output_file(wanted.sarif)), night, previous)
        for compared in nights.compared(night, previous):
            entry = entry_of(compared, baseline, first=previous is None)
            summary.add(entry)
            models.add(entry)
            page.add(entry)
            if sarif:
                sarif.add(entry)
            rows = rows_by_table(entry, wanted.depth)
            for table in tables:
                table.add(rows)
        for output in (*tables, *((sarif,) if sarif else ())):
            output.close()
        index = stack.enter_context(replacing(folder / "index.html"))
        numbers = stack.enter_context(replacing(folder / "summary.json"))
        # Entered last, so it exits first: the pages are in place before index.html links to them.
        pages = models.write(nights, night.night, stack.enter_context(staged_pages(folder)))
        content = summary.content(night, previous, baseline if wanted.baseline else None)
        content = {**content, "pages": len(pages)}
        page.write(index, content, pages)
        numbers.write(f"{json_text(content, indent=2)}\n".encode())
    return WrittenReports(folder=folder, summary=content, alarms=summary.alarms)

"""Writes all reports of a night in one pass over the store."""

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

from msgspec import Struct

from auditor.formats.json_values import json_text
from auditor.sweep.reporting.baseline import Baseline, read_baseline
from auditor.sweep.reporting.files import TABLES, Csv, Parquet, Table, rows_by_table
from auditor.sweep.reporting.heading import night_fragment
from auditor.sweep.reporting.model_entry import entry_of
from auditor.sweep.reporting.model_pages import ModelPages, staged_pages
from auditor.sweep.reporting.page import NightPage
from auditor.sweep.reporting.sarif import Sarif
from auditor.sweep.reporting.summary import NightSummary
from auditor.sweep.settings import folder_of
from auditor.sweep.store.reading import Alarms, Night, Store
from auditor.writing import replacing


class Wanted(Struct, frozen=True, kw_only=True):
    """What is to be written, and where."""

    folder: Path | None = None  # None: reports/nightly/NIGHT
    baseline: Path | None = None
    sarif: Path | None = None
    parquet: bool = False
    depth: int | None = None  # of modules.csv; None: all


class WrittenReports(Struct, frozen=True, kw_only=True):
    """What was written, and what it says."""

    folder: Path
    summary: Mapping[str, Any]  # the content of summary.json
    alarms: Alarms

    def __repr__(self) -> str:
        """One line: a summary holds all that is new."""
        return f"WrittenReports({self.summary['night']}, {self.summary['models']:,} models)"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return night_fragment(self.summary)


def write_night(
    store: Path, *, night: str | None = None, wanted: Wanted | None = None
) -> WrittenReports:
    """Write the reports of a night, the latest if None, from the store alone.

    The same store gives the same bytes. Files appear together, when all of them are whole. Raises
    UsageError for a night or a baseline that cannot be read, StoreError for such a store, OSError
    for a folder that cannot be written to.
    """
    wanted = wanted or Wanted()
    entries = read_baseline(wanted.baseline) if wanted.baseline else ()
    with Store.open(store) as nights:
        shown = nights.chosen(night)
        return _written(nights, shown, wanted, Baseline(entries=entries, day=_day(shown)))


def _written(nights: Store, night: Night, wanted: Wanted, baseline: Baseline) -> WrittenReports:
    folder = wanted.folder or folder_of(night.night)
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
            sarif = Sarif(stack.enter_context(replacing(wanted.sarif)), night, previous)
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
        for written in (*tables, *((sarif,) if sarif else ())):
            written.close()
        index = stack.enter_context(replacing(folder / "index.html"))
        numbers = stack.enter_context(replacing(folder / "summary.json"))
        # The last that is entered ends first: no link leads to a page that is not there yet.
        pages = models.write(nights, night.night, stack.enter_context(staged_pages(folder)))
        content = summary.content(night, previous, baseline if wanted.baseline else None)
        content = {**content, "pages": len(pages)}
        page.write(index, content, pages)
        numbers.write(f"{json_text(content, indent=2)}\n".encode())
    return WrittenReports(folder=folder, summary=content, alarms=summary.alarms)


def _day(night: Night) -> date:
    """The day that a night is of: its name, or when it started."""
    try:
        return date.fromisoformat(night.night)
    except ValueError:
        return date.fromisoformat(night.started[:10])

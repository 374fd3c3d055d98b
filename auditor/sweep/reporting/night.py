"""Write all reports of a night in one pass over the store."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from auditor.formats import View, as_html
from auditor.formats.as_json import outcome_from
from auditor.formats.document import Document
from auditor.formats.json_values import json_text
from auditor.formats.text import counted
from auditor.messages import quoted
from auditor.sweep.reporting.baseline import Baseline, read_baseline
from auditor.sweep.reporting.files import TABLES, Csv, Parquet, Sarif, Table, rows_by_table
from auditor.sweep.reporting.model_entry import ModelEntry, ModelState, entry_of
from auditor.sweep.reporting.page import NightPage
from auditor.sweep.reporting.summary import NightSummary
from auditor.sweep.settings import folder_of
from auditor.sweep.store.reading import Alarms, Night, Store
from auditor.writing import output_file, replacing, require_no_link

FOLDER = "models"  # of the models' pages, below the night's folder
MOST_PAGES = 500
# A page takes 10 to 40 kB; 6 kB of them are its style.
MOST_BYTES = 32 * 1024 * 1024  # bytes of all pages together
LARGEST = 2 * 1024 * 1024  # bytes of one page

_ORDER = (ModelState.NEW, ModelState.OPEN, ModelState.UNAUDITED, ModelState.ACCEPTED)
_LONGEST_ID = 80  # characters of a model id in a file name
_PAGE_NAME = re.compile(r"(?:[A-Za-z0-9._-]+-)?[0-9a-f]{12}\.html")


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
            rows = rows_by_table(entry, wanted.depth, night)
            for table in tables:
                table.add(rows)
        for output in (*tables, *((sarif,) if sarif else ())):
            output.close()
        index = stack.enter_context(replacing(folder / "index.html"))
        numbers = stack.enter_context(replacing(folder / "summary.json"))
        pages = models.rendered(nights, night.night)
        addresses = {model: f"{FOLDER}/{page_name(model)}" for model in pages}
        content = summary.content(night, previous, baseline if wanted.baseline else None)
        content = {**content, "pages": len(pages)}
        page.write(index, content, addresses)
        numbers.write(f"{json_text(content, indent=2)}\n".encode())
        require_no_link(folder / FOLDER)
        for model, text in pages.items():  # before index.html, which links to them, is in place
            _write_page(folder / addresses[model], text)
        _remove_other_pages(folder / FOLDER, {page_name(model) for model in pages})
    return WrittenReports(folder=folder, summary=content, alarms=summary.alarms)


# --- pages of models ------------------------------------------------------------------------------


class ModelPages:
    """A page for each model with findings or modules, as `audit --format html` writes it.

    A page is made from the stored outcome, which has no list of tensors. Pages are limited in
    number and in bytes; models with new findings come first, then models with known findings,
    unaudited models and models with accepted findings.
    """

    def __init__(self) -> None:
        self._models: Mapping[ModelState | None, list[str]] = defaultdict(list)

    def add(self, entry: ModelEntry) -> None:
        # A page would add nothing to the reason of an unaudited model without findings.
        has_content = entry.matches or entry.outcome.modules
        if has_content and len(self._models[entry.state]) < MOST_PAGES:
            self._models[entry.state].append(entry.model)

    def rendered(self, nights: Store, night: str) -> Mapping[str, bytes]:
        """Return the pages by model."""
        models = [model for state in _ORDER for model in self._models[state]][:MOST_PAGES]
        pages: dict[str, bytes] = {}
        room = MOST_BYTES
        for model in models:
            result = nights.result(night, model)
            content = _page(result.document) if result and result.document else None
            if content is not None and len(content) <= min(LARGEST, room):
                pages[model] = content
                room -= len(content)
        return pages


def _write_page(path: Path, content: bytes) -> None:
    """Replace a page in one step, without fsync, which takes too long for 500 pages."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)


def _remove_other_pages(folder: Path, kept: Collection[str]) -> None:
    """Remove the pages of models that have none tonight, by their names; other files stay."""
    for path in folder.glob("*.html"):
        if path.name not in kept and _PAGE_NAME.fullmatch(path.name):
            path.unlink()


def _page(outcome: Document) -> bytes | None:
    """Return the page; None if another version wrote the outcome and this one cannot read it."""
    try:
        [text] = as_html.files([outcome_from(outcome)], View()).values()
    except (KeyError, TypeError, ValueError):
        return None
    return text.encode("ascii")


def page_name(model: str) -> str:
    """Return a safe file name for any id: its readable characters, and a digest that is unique."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-")[:_LONGEST_ID]
    digest = sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable}-{digest}.html" if readable else f"{digest}.html"

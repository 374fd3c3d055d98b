"""A page for each model with findings or modules, as `audit --format html` writes it.

A page is made from the stored outcome, which has no list of tensors. Pages are limited in number
and in bytes; models with new findings come first, then models with known findings, unaudited models
and models with accepted findings.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from auditor.formats import View, as_html
from auditor.formats.as_json import outcome_from
from auditor.formats.document import Document
from auditor.sweep.reporting.model_entry import ModelEntry, ModelState
from auditor.sweep.store.reading import Store
from auditor.writing import require_no_link

FOLDER = "models"
MOST_PAGES = 500
# A page takes 10 to 40 kB; 6 kB of them are its style.
MOST_BYTES = 32 * 1024 * 1024  # bytes of all pages together
LARGEST = 2 * 1024 * 1024  # bytes of one page

_ORDER = (ModelState.NEW, ModelState.OPEN, ModelState.UNAUDITED, ModelState.ACCEPTED)
_LONGEST_ID = 80  # characters of a model id in a file name


class ModelPages:
    """A writer that collects the models that get a page, and writes the pages."""

    def __init__(self) -> None:
        self._models: Mapping[ModelState | None, list[str]] = defaultdict(list)

    def add(self, entry: ModelEntry) -> None:
        # A page would add nothing to the reason of an unaudited model without findings.
        has_content = entry.matches or entry.outcome.modules
        if has_content and len(self._models[entry.state]) < MOST_PAGES:
            self._models[entry.state].append(entry.model)

    def write(self, nights: Store, night: str, staged: Path) -> Mapping[str, str]:
        """Write the pages into a folder; return addresses by model, relative to index.html."""
        models = [model for state in _ORDER for model in self._models[state]][:MOST_PAGES]
        address_by_model: dict[str, str] = {}
        room = MOST_BYTES
        for model in models:
            result = nights.result(night, model)
            content = _page(result.document) if result and result.document else None
            if content is None or len(content) > min(LARGEST, room):
                continue
            name = page_name(model)
            (staged / name).write_bytes(content)
            address_by_model[model] = f"{FOLDER}/{name}"
            room -= len(content)
        return address_by_model


@contextmanager
def staged_pages(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose pages move to the night's folder unless there is an error.

    Pages are moved one by one, because some systems do not allow 500 open files, and without fsync,
    because 500 calls of it took longer than all other work.
    """
    with TemporaryDirectory(prefix=f".{FOLDER}.", dir=folder) as name:
        staged, pages = Path(name), folder / FOLDER
        require_no_link(pages)
        yield staged
        for page in sorted(staged.iterdir()):
            pages.mkdir(exist_ok=True)
            page.replace(pages / page.name)


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

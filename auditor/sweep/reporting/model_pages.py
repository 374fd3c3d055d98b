"""A page for each model that has something to say: the one that `audit --format html` makes.

It is made of the stored outcome, which has no list of tensors. Pages are bounded in number and in
bytes; what is new goes first, then what was known, what could not be audited, what is accepted.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from auditor.formats import View, as_html
from auditor.formats.stored_outcome import outcome_from
from auditor.sweep.reporting.model_entry import ModelEntry, ModelState
from auditor.sweep.store.reading import Store

FOLDER = "models"
MOST_PAGES = 500
# A page takes 10 to 40 kB; 6 kB of them are its style.
MOST_BYTES = 32 * 1024 * 1024  # of all pages
LARGEST = 2 * 1024 * 1024  # bytes of one

_ORDER = (ModelState.NEW, ModelState.OPEN, ModelState.UNAUDITED, ModelState.ACCEPTED)
_LONGEST_ID = 80  # characters of it in a file's name


class ModelPages:
    """Remembers which models to write a page of, and writes them."""

    def __init__(self) -> None:
        self._models: Mapping[ModelState | None, list[str]] = defaultdict(list)

    def add(self, entry: ModelEntry) -> None:
        # More than why it is not audited.
        found = entry.outcome and (entry.matches or entry.outcome.get("modules"))
        if found and len(self._models[entry.state]) < MOST_PAGES:
            self._models[entry.state].append(entry.model)

    def write(self, nights: Store, night: str, staged: Path) -> Mapping[str, str]:
        """Write the pages into a folder; by model the address of its page from the night's."""
        chosen = [model for state in _ORDER for model in self._models[state]][:MOST_PAGES]
        written: dict[str, str] = {}
        room = MOST_BYTES
        for model in chosen:
            result = nights.result(night, model)
            content = _page(result.outcome) if result and result.outcome else None
            if content is None or len(content) > min(LARGEST, room):
                continue
            name = page_name(model)
            (staged / name).write_bytes(content)
            written[model] = f"{FOLDER}/{name}"
            room -= len(content)
        return written


@contextmanager
def staged_pages(folder: Path) -> Iterator[Path]:
    """A folder for pages, which move to the night's folder when all is well; else they are lost.

    They are moved one by one, without waiting for the disk: 500 files open at once are more than
    some systems allow, and as many waits took longer than all the rest.
    """
    with TemporaryDirectory(prefix=f".{FOLDER}.", dir=folder) as name:
        staged = Path(name)
        yield staged
        for page in sorted(staged.iterdir()):
            (folder / FOLDER).mkdir(exist_ok=True)
            page.replace(folder / FOLDER / page.name)


def _page(outcome: Mapping[str, Any]) -> bytes | None:
    """The page; None of an outcome of another version that this one cannot read."""
    try:
        [text] = as_html.files([outcome_from(outcome)], View()).values()
    except (KeyError, TypeError, ValueError):
        return None
    return text.encode("ascii")


def page_name(model: str) -> str:
    """A file's name, whatever the id is: what is readable of it, and a digest that tells it."""
    shown = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip(".-")[:_LONGEST_ID]
    digest = sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown}-{digest}.html" if shown else f"{digest}.html"

"""How much a sweep would have to do, found out without doing it: nothing is written or fetched."""

import re
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from functools import reduce
from operator import add

from msgspec.structs import astuple

from auditor.checkpoint.filenames import Chooser
from auditor.checkpoint.filenames import FileSelection as Files
from auditor.checkpoint.selecting import ADAPTER_CONFIG, select, with_companions
from auditor.companions.companion_files import OF_HUB, TOKENIZER
from auditor.downloader.access_token import usable_token
from auditor.downloader.model_list import MAX_PAGES, PAGE
from auditor.downloader.waits import Waits
from auditor.errors import SourceError
from auditor.sweep.costs import SweepLoad
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.progress import Progress
from auditor.sweep.selection import ModelSelection, Selector
from auditor.sweep.settings import SweepSettings
from auditor.sweep.store.ledger import FoundModel
from auditor.sweep.store.reading import Store, Versions
from auditor.sweep.workers.budget import Budget

_INDEX = re.compile(r"(?P<start>.+)\.(?P<ending>safetensors|bin)\.index(\.[^.]+)?\.json")
_SHARD = re.compile(r"-\d{1,6}-of-\d{1,6}[.\w]*$")
_AS_ONE_FILE = "Counted as one config.json and one weight file a model: none was listed."
_BESIDE = f"Companions were counted as {OF_HUB.requests} requests a model, which is the most."
_LISTED = f"A list is read to its end, or to {MAX_PAGES:,} pages of {PAGE:,} models at most."
_BY_ID = "Ids: known ones are free if they have not moved; an author's many are asked for in pages."


class _Known(Store):
    """A store as an estimate reads it."""

    def is_empty(self) -> bool:
        return not any(
            self._database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608 - ours
            for table in ("outcomes", "snapshots")
        )

    def outcome(self, model: str, commit: str | None, versions: Versions) -> bool:
        """Whether the model has one of these versions; commit None: at any commit."""
        query = (
            "SELECT 1 FROM outcomes WHERE model = ? AND (auditor, catalogue) = (?, ?)"
            " AND (? IS NULL OR commit_sha = ?) LIMIT 1"
        )
        given = (model, *astuple(versions), commit, commit)
        return self._database.execute(query, given).fetchone() is not None

    def snapshot(self, model: str, commit: str) -> bool:
        query = "SELECT 1 FROM snapshots WHERE (model, commit_sha) = (?, ?)"
        return self._database.execute(query, (model, commit)).fetchone() is not None


def expected_load(
    settings: SweepSettings, *, token: str | None = None, progress: Progress | None = None
) -> SweepLoad:
    """The load of a sweep with these settings.

    The Hub is asked for its lists, as the sweep would, and for nothing else; of ids, and of the
    first N of all models where nothing is stored yet, it need not be asked at all. Selections that
    overlap are counted twice. Raises UsageError and SourceError as the sweep would.
    """
    with ExitStack() as stack:
        path = settings.output.store
        store = stack.enter_context(_Known.open(path)) if path.exists() else None
        known = None if store is None or store.is_empty() else store
        shown = stack.enter_context(progress or Progress())
        budget = Budget(settings.policy.max_requests)
        waits = Waits(shown.waiting)
        selector = Selector(settings.policy, usable_token(token), budget, waits)
        stack.enter_context(selector)
        beside = settings.policy.companions
        loads = [_load(one, known, selector, shown, beside=beside) for one in settings.selections]
        return reduce(add, loads)


def _load(
    selection: ModelSelection,
    known: _Known | None,
    selector: Selector,
    shown: Progress,
    *,
    beside: bool,  # what stands beside the weights is read, too
) -> SweepLoad:
    choose = with_companions if beside else select
    each = 1 + (OF_HUB.requests if beside else 0)  # texts of a model that is not listed
    one_file = (_AS_ONE_FILE, _BESIDE) if beside else (_AS_ONE_FILE,)
    if selection.ids:
        ids = tuple(dict.fromkeys(selection.ids))
        now = current_versions()
        there = sum(known.outcome(name, None, now) for name in ids) if known else 0
        new = len(ids) - there
        return SweepLoad(
            models=len(ids),
            known=there,
            listing=len(ids),
            texts=new * each,
            headers=new,
            notes=(*one_file, _BY_ID),
        )
    whole_hub = not (selection.author or selection.filters or selection.search)
    if whole_hub and selection.top and known is None:
        top = selection.top
        pages = -(-top // PAGE)
        return SweepLoad(
            models=top, listing=pages, texts=top * each, headers=top, notes=(*one_file, _LISTED)
        )
    load = SweepLoad(models=0, notes=(_LISTED,))
    for page in selector.pages(selection):
        found = (_of_model(one, known, choose) for one in page.found)
        load = reduce(add, found, load + SweepLoad(models=len(page.refused), listing=1))
        shown.selected(load.models)
    return load


def _of_model(found: FoundModel, known: _Known | None, choose: Chooser) -> SweepLoad:
    model, commit, _ = found.planned
    if known and known.outcome(model, commit, current_versions()):
        return SweepLoad(models=1, known=1)
    if known and known.snapshot(model, commit):
        return SweepLoad(models=1, stored=1)
    try:
        names = _names(found.siblings)
        files = choose(names, model)
    except SourceError:  # it has no weights: that is known from its list of files
        return SweepLoad(models=1)
    return _reads(files, names)


def _names(siblings: object) -> frozenset[str]:
    entries: Iterable[object] = siblings if isinstance(siblings, list) else ()
    names = (one.get("rfilename") for one in entries if isinstance(one, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _reads(files: Files, names: Collection[str]) -> SweepLoad:
    """The requests for one model, if each file takes one; an adapter's base is two more."""
    if files.hints:  # of which one names a file, as likely as not
        return SweepLoad(models=1, texts=len(files.hints), headers=1)
    models = (files, *(part.selection for part in files.parts))
    texts = sum(
        bool(text)
        for one in models
        for text in (one.config, one.index, one.packing, one.settings, one.manifest)
    )
    headers = sum(
        bool(one.weights) + len(one.shards) + _indexed(one.index, names) for one in models
    )
    bases = int(files.config == ADAPTER_CONFIG)
    companions = files.companions or ()
    parts = len(companions) + (TOKENIZER in companions)  # of which the end is read, too
    beside = min(parts, OF_HUB.requests)
    return SweepLoad(models=1, listing=bases, texts=texts + bases + beside, headers=headers)


def _indexed(index: str | None, names: Collection[str]) -> int:
    """How many shards an index most likely has: those beside it that are numbered."""
    named = _INDEX.fullmatch(index or "")
    if named is None:
        return 0
    start, ending = named["start"], f".{named['ending']}"
    beside = (name for name in names if name.startswith(start) and name.endswith(ending))
    return sum(_SHARD.search(name) is not None for name in beside)

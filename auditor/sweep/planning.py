"""How much a sweep would have to do, found out without doing it: nothing is written or fetched."""

import re
from collections.abc import Collection
from contextlib import ExitStack

from auditor.checkpoint.filenames import FileSelection as Files
from auditor.checkpoint.hub_listing import listing_of
from auditor.checkpoint.selecting import ADAPTER_CONFIG, select, with_companions
from auditor.companions.companion_files import OF_HUB, TOKENIZER
from auditor.downloader.hub_settings import usable_token
from auditor.downloader.model_list import MAX_PAGES, PAGE
from auditor.downloader.waits import Waits
from auditor.errors import CheckpointError, SourceError
from auditor.sweep.costs import SweepLoad
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.progress import Progress
from auditor.sweep.selection import ModelSelection, Selector
from auditor.sweep.settings import SweepSettings
from auditor.sweep.store.reading import SelectedModel, Store
from auditor.sweep.workers.budget import Budget

_INDEX = re.compile(r"(.+)\.(safetensors|bin)\.index(\.[^.]+)?\.json")
_AS_ONE_FILE = "Counted as one config.json and one weight file a model: none was listed."
_BESIDE = f"Companions were counted as {OF_HUB.requests} requests a model, which is the most."
_LISTED = f"A list is read to its end, or to {MAX_PAGES:,} pages of {PAGE:,} models at most."
_BY_ID = "Ids: known ones are free if they have not moved; an author's many are asked for in pages."


def expected_load(
    settings: SweepSettings, *, token: str | None = None, progress: Progress | None = None
) -> SweepLoad:
    """The load of a sweep with these settings.

    The Hub is asked for its lists, as the sweep would, and for nothing else; of ids, and of the
    first N of all models where there is no store yet, it need not be asked at all. Selections that
    overlap are counted twice. Raises UsageError and SourceError as the sweep would.
    """
    with ExitStack() as stack:
        path = settings.output.store
        store = stack.enter_context(Store.open(path)) if path.exists() else None
        shown = stack.enter_context(progress or Progress())
        budget = Budget(settings.policy.max_requests)
        selector = Selector(settings.policy, usable_token(token), budget, Waits(shown.waiting))
        stack.enter_context(selector)
        beside = settings.policy.companions  # what stands beside the weights is read, too
        total = SweepLoad(models=0)
        for one in settings.selections:
            narrowed = one.author or one.filters or one.search
            if one.ids or (one.top and store is None and not narrowed):
                total += _unlisted_load(one, store, beside=beside)
                continue
            total += SweepLoad(models=0, notes=(_LISTED,))
            for page in selector.pages(one):
                total += SweepLoad(models=0, listing=1)
                for model in page:
                    total += _load_of(model, store, beside=beside)
                shown.selected(total.models)
        return total


def _unlisted_load(selection: ModelSelection, store: Store | None, *, beside: bool) -> SweepLoad:
    """The load of ids, or of the first N of all models: of none the files are known."""
    ids = set(selection.ids)
    models = len(ids) or selection.top or 0
    known = sum(store.has_outcome(one, None, current_versions()) for one in ids) if store else 0
    new = models - known
    return SweepLoad(
        models=models,
        known=known,
        listing=len(ids) or -(-models // PAGE),
        texts=new * (1 + (OF_HUB.requests if beside else 0)),
        headers=new,
        notes=(_AS_ONE_FILE, *((_BESIDE,) if beside else ()), _BY_ID if ids else _LISTED),
    )


def _load_of(selected: SelectedModel, store: Store | None, *, beside: bool) -> SweepLoad:
    key = selected.model, selected.commit_sha
    if store and store.has_outcome(*key, current_versions()):
        return SweepLoad(models=1, known=1)
    if store and store.has_snapshot(*key):
        return SweepLoad(models=1, stored=1)
    entry = {"id": selected.model, "sha": selected.commit_sha, "siblings": selected.siblings}
    try:
        names = {file.name for file in listing_of(entry, selected.model).files}
        files = (with_companions if beside else select)(names, selected.model)
    except (SourceError, CheckpointError):  # it has no weights: that is known from its files' names
        return SweepLoad(models=1)
    return _reads(files, names)


def _reads(files: Files, names: Collection[str]) -> SweepLoad:
    """The requests for one model, if each file takes one; an adapter's base is two more."""
    if files.hints:  # of which one names a file, as likely as not
        return SweepLoad(models=1, texts=len(files.hints), headers=1)
    models = (files, *(part.selection for part in files.parts))
    texts = headers = 0
    for one in models:
        texts += sum(map(bool, (one.config, one.index, one.packing, one.settings, one.manifest)))
        headers += bool(one.weights) + len(one.shards) + _indexed(one.index, names)
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
    shard = re.compile(rf"{re.escape(named[1])}.*-\d{{1,6}}-of-\d{{1,6}}[.\w]*\.{named[2]}")
    return sum(shard.fullmatch(name) is not None for name in names)

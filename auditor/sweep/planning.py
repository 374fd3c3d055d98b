"""The work of a sweep, estimated from lists alone: nothing is written, and no file is fetched."""

import re
from collections.abc import Collection
from contextlib import ExitStack

from msgspec.structs import replace

from auditor.checkpoint.filenames import FileSelection as Files
from auditor.checkpoint.hub_listing import listing_of
from auditor.checkpoint.selecting import ADAPTER_CONFIG, with_companions
from auditor.companions.companion_files import OF_HUB, TOKENIZER
from auditor.downloader.hub_settings import usable_token
from auditor.downloader.model_list import MAX_PAGES, PAGE
from auditor.downloader.waits import Waits
from auditor.errors import CheckpointError, SourceError
from auditor.sweep.costs import CompanionLoad, SweepLoad
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.progress import Progress
from auditor.sweep.selection import ModelSelection, Selector
from auditor.sweep.settings import SweepSettings
from auditor.sweep.store.reading import SelectedModel, Store
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import lacks_companion_sizes

_INDEX = re.compile(r"(.+)\.(safetensors|bin)\.index(\.[^.]+)?\.json")
_AS_ONE_FILE = "Counted as one config.json and one weight file a model: none was listed."
_COMPANIONS = f"Companions: {OF_HUB.requests} requests a model, which is the most."
_LISTED = f"A list is read to its end, or to {MAX_PAGES:,} pages of {PAGE:,} models at most."
_BY_ID = "Ids: known ones are free if they have not moved; an author's many are asked for in pages."


def expected_load(
    settings: SweepSettings, *, token: str | None = None, progress: Progress | None = None
) -> SweepLoad:
    """Return the load of a sweep with these settings.

    Only the Hub's lists are read, as the sweep reads them. Nothing is read for ids, nor for the
    first N of all models if there is no store yet. Selections that overlap are counted twice.
    Raise UsageError and SourceError as the sweep would.
    """
    with ExitStack() as stack:
        path = settings.output.store
        store = stack.enter_context(Store.open(path)) if path.exists() else None
        shown = stack.enter_context(progress or Progress())
        budget = Budget(settings.policy.max_requests)
        selector = Selector(settings.policy, usable_token(token), budget, Waits(shown.waiting))
        stack.enter_context(selector)
        companions = settings.policy.companions
        total = SweepLoad(models=0)
        for one in settings.selections:
            narrowed = one.author or one.filters or one.search
            if one.ids or (one.top and store is None and not narrowed):
                total += _unlisted_load(one, store, companions=companions)
                continue
            total += SweepLoad(models=0, notes=(_LISTED,))
            for page in selector.pages(one):
                total += SweepLoad(models=0, listing=1)
                for model in page:
                    total += _load_of(model, store, companions=companions)
                shown.selected(total.models)
        return total


def _unlisted_load(
    selection: ModelSelection, store: Store | None, *, companions: bool
) -> SweepLoad:
    """Return the load of ids, or of the first N of all models, whose files are not known."""
    ids, versions = set(selection.ids), current_versions(companions=companions)
    models = len(ids) or selection.top or 0
    known = sum(store.has_outcome(one, None, versions) for one in ids) if store else 0
    new = models - known
    again = 0 if companions else known  # companions are read with all other files of a model
    beside = CompanionLoad(
        models=new + again,
        listing=0 if ids else new,
        reads=OF_HUB.requests * new + (OF_HUB.requests + 2) * again,
    )
    return SweepLoad(
        models=models,
        known=known,
        listing=len(ids) or -(-models // PAGE),
        texts=new,
        headers=new,
        companions=beside,
        notes=(_AS_ONE_FILE, _COMPANIONS, _BY_ID if ids else _LISTED),
    )


def _load_of(selected: SelectedModel, store: Store | None, *, companions: bool) -> SweepLoad:
    """Return the load of a model that is listed."""
    key = selected.model, selected.commit_sha
    known = store is not None and store.has_outcome(*key, current_versions(companions=companions))
    entry = {"id": selected.model, "sha": selected.commit_sha, "siblings": selected.siblings}
    try:
        listing = listing_of(entry, selected.model)
        names = {file.name for file in listing.files}
        load = _reads(with_companions(names, selected.model), names)
    except (SourceError, CheckpointError):  # it has no weights, which the names of its files tell
        return SweepLoad(models=1, known=int(known))
    beside = replace(load.companions, listing=int(lacks_companion_sizes(listing)))
    needed = companions and beside.models > 0
    stored = store is not None and store.has_snapshot(*key, companions=needed)
    if not (known or stored):
        return replace(load, companions=beside)
    again = load.listing + beside.listing, load.resolvers + beside.reads
    beside = replace(beside, listing=again[0], reads=again[1]) if beside.models else beside
    return SweepLoad(
        models=1,
        known=int(known),
        stored=int(stored and not known),
        companions=CompanionLoad() if companions else beside,
    )


def _reads(files: Files, names: Collection[str]) -> SweepLoad:
    """Return the requests for one model, if each file takes one; an adapter's base is two more."""
    companions = files.companions or ()
    parts = len(companions) + (TOKENIZER in companions)  # whose end is read, too
    beside = CompanionLoad(models=int(bool(companions)), reads=min(parts, OF_HUB.requests))
    if files.hints:  # one of them names a file, as likely as not
        return SweepLoad(models=1, texts=len(files.hints), headers=1, companions=beside)
    models = (files, *(part.selection for part in files.parts))
    texts = headers = 0
    for one in models:
        texts += sum(map(bool, (one.config, one.index, one.packing, one.settings, one.manifest)))
        headers += bool(one.weights) + len(one.shards) + _indexed(one.index, names)
    bases = int(files.config == ADAPTER_CONFIG)
    return SweepLoad(
        models=1, listing=bases, texts=texts + bases, headers=headers, companions=beside
    )


def _indexed(index: str | None, names: Collection[str]) -> int:
    """Return how many shards an index most likely has: the numbered files beside it."""
    named = _INDEX.fullmatch(index or "")
    if named is None:
        return 0
    shard = re.compile(rf"{re.escape(named[1])}.*-\d{{1,6}}-of-\d{{1,6}}[.\w]*\.{named[2]}")
    return sum(shard.fullmatch(name) is not None for name in names)

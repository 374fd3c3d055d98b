"""The work of a sweep, estimated from the Hub's lists; writes nothing and fetches no file."""

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
from auditor.names import file_name
from auditor.sweep.authors import MOST
from auditor.sweep.costs import CompanionLoad, SweepLoad
from auditor.sweep.losses import require_models
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.policy import Policy
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
_AUTHORS = f"Who pushed: 1 API request more a model with new findings, {MOST} a night at most."
_BY_ID = "Ids: known ones are free if they have not moved; an author's many are asked for in pages."


def expected_load(
    settings: SweepSettings, *, token: str | None = None, progress: Progress | None = None
) -> SweepLoad:
    """Return the estimated work of a sweep with these settings.

    Only the Hub's lists of models are read. No list is read for a selection by ids, nor for the
    first N of all models if there is no store yet. A model in two selections is counted twice.
    Raise UsageError and SourceError as the sweep would.
    """
    with ExitStack() as stack:
        path = settings.output.store
        store = stack.enter_context(Store.open(path)) if path.exists() else None
        shown = stack.enter_context(progress or Progress())
        budget = Budget(settings.policy.max_requests)
        selector = Selector(settings.policy, usable_token(token), budget, Waits(shown.waiting))
        stack.enter_context(selector)
        policy = settings.policy
        total = SweepLoad(models=0)
        for selection in settings.selections:
            is_narrowed = selection.author or selection.filters or selection.search
            if selection.ids or (selection.top and store is None and not is_narrowed):
                total += _unlisted_load(selection, store, policy)
                continue
            total += SweepLoad(models=0, notes=(_LISTED,))
            before = total.models
            for page in selector.pages(selection):
                total += SweepLoad(models=0, listing=1)
                for model in page:
                    total += _load_of(model, store, policy)
                shown.selected(total.models)
            require_models(selection.described, total.models - before)
        return total + SweepLoad(models=0, notes=(_AUTHORS,))


def _unlisted_load(selection: ModelSelection, store: Store | None, policy: Policy) -> SweepLoad:
    """Estimate the work for the given ids, or the first N of all models, without file lists."""
    ids, versions, companions = (
        set(selection.ids),
        current_versions(policy=policy),
        policy.companions,
    )
    models = len(ids) or selection.top or 0
    known_count = sum(store.has_outcome(model, None, versions) for model in ids) if store else 0
    new = models - known_count
    again = 0 if companions else known_count  # to read companions, all files are read again
    companion_load = CompanionLoad(
        models=new + again,
        listing=0 if ids else new,
        reads=OF_HUB.requests * new + (OF_HUB.requests + 2) * again,
    )
    return SweepLoad(
        models=models,
        known=known_count,
        listing=len(ids) or -(-models // PAGE),
        texts=new,
        headers=new,
        companions=companion_load,
        notes=(_AS_ONE_FILE, _COMPANIONS, _BY_ID if ids else _LISTED),
    )


def _load_of(selected: SelectedModel, store: Store | None, policy: Policy) -> SweepLoad:
    key, companions = (selected.model, selected.commit_sha), policy.companions
    is_known = store is not None and store.has_outcome(*key, current_versions(policy=policy))
    entry = {"id": selected.model, "sha": selected.commit_sha, "siblings": selected.siblings}
    try:
        listing = listing_of(entry, selected.model)
        names = {file.name for file in listing.files}
        load = _reads(with_companions(names, selected.model), names)
    except (SourceError, CheckpointError):  # the file names show no weights
        return SweepLoad(models=1, known=int(is_known))
    extra = replace(load.companions, listing=int(lacks_companion_sizes(listing)))
    needs_companions = companions and extra.models > 0
    stored = store is not None and store.has_snapshot(*key, companions=needs_companions)
    if not (is_known or stored):
        return replace(load, companions=extra)
    if extra.models:  # if companions are read later, all files are read again
        requests, reads = load.listing + extra.listing, load.resolvers + extra.reads
        extra = replace(extra, listing=requests, reads=reads)
    return SweepLoad(
        models=1,
        known=int(is_known),
        stored=int(stored and not is_known),
        companions=CompanionLoad() if companions else extra,
    )


def _reads(files: Files, names: Collection[str]) -> SweepLoad:
    """Return the requests for one model: one for each file, two more for the base of an adapter."""
    companions = files.companions or ()
    # a tokenizer.json takes two reads
    reads = len(companions) + sum(file_name(one) == TOKENIZER for one in companions)
    extra = CompanionLoad(models=int(bool(companions)), reads=min(reads, OF_HUB.requests))
    if files.hints:  # probably one of them names a weight file
        return SweepLoad(models=1, texts=len(files.hints), headers=1, companions=extra)
    components = (files, *(part.selection for part in files.parts))
    texts = headers = 0
    for part in components:
        text_files = (part.config, part.index, part.packing, part.settings, part.manifest)
        texts += sum(map(bool, text_files))
        headers += bool(part.weights) + len(part.shards) + _indexed(part.index, names)
    bases = int(files.config == ADAPTER_CONFIG)
    return SweepLoad(
        models=1, listing=bases, texts=texts + bases, headers=headers, companions=extra
    )


def _indexed(index: str | None, names: Collection[str]) -> int:
    """Return the number of files named like shards of the index: same stem, `-N-of-M`."""
    match = _INDEX.fullmatch(index or "")
    if match is None:
        return 0
    shard = re.compile(rf"{re.escape(match[1])}.*-\d{{1,6}}-of-\d{{1,6}}[.\w]*\.{match[2]}")
    return sum(shard.fullmatch(name) is not None for name in names)

"""The work of a sweep, estimated from the Hub's lists; writes nothing and fetches no file."""

import re
from collections.abc import Collection
from contextlib import ExitStack

from msgspec import Struct

from auditor.checkpoint.filenames import FileSelection as Files
from auditor.checkpoint.hub_listing import listing_of
from auditor.checkpoint.selecting import ADAPTER_CONFIG, with_companions
from auditor.companions.companion_files import OF_HUB, TOKENIZER
from auditor.downloader.hub_settings import usable_token
from auditor.downloader.model_list import PAGE
from auditor.downloader.retry import WINDOW
from auditor.errors import CheckpointError, SourceError
from auditor.formats.text import counted
from auditor.names import file_name
from auditor.sweep.one_model import lacks_companion_sizes
from auditor.sweep.outcome_digest import current_versions
from auditor.sweep.progress import Progress
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.runner import require_models
from auditor.sweep.selection import Selector
from auditor.sweep.settings import ModelSelection, Policy, SweepSettings
from auditor.sweep.store.reading import SelectedModel, Store

# Requests that a free token may send in five minutes, less the fifty that a sweep leaves to others:
# https://huggingface.co/docs/hub/rate-limits as of September 2025. docs/sweeps.md has other plans.
_API, _FILES = 1_000 - 50, 5_000 - 50

_INDEX = re.compile(r"(.+)\.(safetensors|bin)\.index(\.[^.]+)?\.json")


class SweepLoad(Struct, frozen=True, kw_only=True):
    """The estimated work of a sweep: numbers of models and of requests."""

    models: int = 0  # selected models
    known: int = 0  # models whose outcome is in the store: nothing to do
    stored: int = 0  # models whose headers are in the store: audited anew without requests
    api: int = 0  # requests for pages of lists, and for single models
    files: int = 0  # requests for files (/resolve/ addresses)

    def __add__(self, other: "SweepLoad") -> "SweepLoad":
        fields = self.__struct_fields__
        return SweepLoad(**{name: getattr(self, name) + getattr(other, name) for name in fields})

    @property
    def fetched(self) -> int:
        """The number of models with files to read."""
        return self.models - self.known - self.stored

    def in_words(self, most: int | None = None) -> str:
        """Return the work as one line; `most` is --max-requests."""
        known = f", {self.known:,} known" if self.known else ""
        stored = f", {self.stored:,} with stored headers" if self.stored else ""
        windows = self.api / _API + self.files / _FILES
        limit = "a free token"
        if most is not None:
            windows, limit = (self.api + self.files) / most, "these --max-requests"
        requests = f"{counted(self.api, 'API request')}, {counted(self.files, 'file request')}"
        return (
            f"{counted(self.models, 'model')}{known}{stored}, {self.fetched:,} to fetch: "
            f"{requests}; {windows * WINDOW / 3600:,.1f} hours with {limit}"
        )


def expected_load(
    settings: SweepSettings, *, token: str | None = None, progress: Progress | None = None
) -> SweepLoad:
    """Return the estimated work of a sweep with these settings.

    Only the Hub's lists of models are read. No list is read for a selection by ids, nor for the
    first N of all models if there is no store yet. A model in two selections is counted twice.
    Raise UsageError and SourceError as the sweep would.
    """
    with ExitStack() as stack:
        path, policy = settings.output.store, settings.policy
        store = stack.enter_context(Store.open(path)) if path.exists() else None
        shown = stack.enter_context(progress or Progress())
        limiter = RateLimiter(policy.max_requests)
        selector = Selector(policy, usable_token(token), limiter, shown.talk)
        stack.enter_context(selector)
        total = SweepLoad()
        for selection in settings.selections:
            is_narrowed = selection.author or selection.filters or selection.search
            if selection.ids or (selection.top and store is None and not is_narrowed):
                total += _unlisted_load(selection, store, policy)
                continue
            before = total.models
            for page in selector.pages(selection):
                total += SweepLoad(api=1)
                for model in page:
                    total += _load_of(model, store, policy)
                shown.selected(total.models)
            require_models(selection.described, total.models - before)
        return total


def _unlisted_load(selection: ModelSelection, store: Store | None, policy: Policy) -> SweepLoad:
    """Estimate the work for ids, or the first N of all models: a config and one weight file each.

    With companion files, the most requests that these take.
    """
    ids, versions = set(selection.ids), current_versions(policy=policy)
    models = len(ids) or selection.top or 0
    known = sum(store.has_outcome(model, None, versions) for model in ids) if store else 0
    new = models - known
    api = len(ids) or -(-models // PAGE)
    files = 2 * new
    if policy.companions:
        api, files = api + (0 if ids else new), files + OF_HUB.requests * new
    return SweepLoad(models=models, known=known, api=api, files=files)


def _load_of(selected: SelectedModel, store: Store | None, policy: Policy) -> SweepLoad:
    key = (selected.model, selected.commit_sha)
    if store is not None and store.has_outcome(*key, current_versions(policy=policy)):
        return SweepLoad(models=1, known=1)
    entry = {"id": selected.model, "sha": selected.commit_sha, "siblings": selected.siblings}
    try:
        listing = listing_of(entry, selected.model)
        names = {file.name for file in listing.files}
        selection = with_companions(names, selected.model)
    except (SourceError, CheckpointError):  # the file names show no weights
        return SweepLoad(models=1)
    companions = (policy.companions and selection.companions) or ()
    if store is not None and store.has_snapshot(*key, companions=bool(companions)):
        return SweepLoad(models=1, stored=1)
    load = _reads(selection, names)
    if companions:
        # a tokenizer.json takes two reads
        reads = len(companions) + sum(file_name(one) == TOKENIZER for one in companions)
        api = int(lacks_companion_sizes(listing))
        load += SweepLoad(api=api, files=min(reads, OF_HUB.requests))
    return load


def _reads(files: Files, names: Collection[str]) -> SweepLoad:
    """Return the requests for one model: one for each file, two more for the base of an adapter."""
    if files.hints:  # probably one of them names a weight file
        return SweepLoad(models=1, files=len(files.hints) + 1)
    count = 0
    for part in (files, *(part.selection for part in files.parts)):
        texts = (part.config, part.index, part.packing, part.settings, part.manifest)
        count += sum(map(bool, texts))
        count += bool(part.weights) + len(part.shards) + _indexed(part.index, names)
    bases = int(files.config == ADAPTER_CONFIG)
    return SweepLoad(models=1, api=bases, files=count + bases)


def _indexed(index: str | None, names: Collection[str]) -> int:
    """Return the number of files named like shards of the index: same stem, `-N-of-M`."""
    match = _INDEX.fullmatch(index or "")
    if match is None:
        return 0
    shard = re.compile(rf"{re.escape(match[1])}.*-\d{{1,6}}-of-\d{{1,6}}[.\w]*\.{match[2]}")
    return sum(shard.fullmatch(name) is not None for name in names)

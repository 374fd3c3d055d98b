"""The work of a sweep, estimated from the Hub's lists; writes nothing and fetches no file."""

from contextlib import ExitStack

from msgspec import Struct

from auditor.companions.companion_files import OF_HUB
from auditor.downloader.hub_settings import usable_token
from auditor.downloader.model_list import PAGE
from auditor.downloader.retry import WINDOW
from auditor.formats.text import counted
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


class SweepLoad(Struct, frozen=True, kw_only=True):
    """The estimated work of a sweep: numbers of models and of requests."""

    models: int = 0  # selected models
    known: int = 0  # models whose outcome is in the store: nothing to do
    stored: int = 0  # models whose headers are in the store: audited anew without requests
    api: int = 0  # requests for pages of lists, and for single models
    files: int = 0  # requests for files: a config and one weight file of each model

    def __add__(self, other: "SweepLoad") -> "SweepLoad":
        fields = self.__struct_fields__
        return SweepLoad(**{name: getattr(self, name) + getattr(other, name) for name in fields})

    def in_words(self, most: int | None = None) -> str:
        """Return the work as one line; `most` is --max-requests."""
        known = f", {self.known:,} known" if self.known else ""
        stored = f", {self.stored:,} with stored headers" if self.stored else ""
        fetched = self.models - self.known - self.stored
        windows, limit = self.api / _API + self.files / _FILES, "a free token"
        if most is not None:
            windows, limit = (self.api + self.files) / most, "these --max-requests"
        requests = f"{counted(self.api, 'API request')}, {counted(self.files, 'file request')}"
        return (
            f"{counted(self.models, 'model')}{known}{stored}, {fetched:,} to fetch: about "
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
    """Estimate the work for ids, or for the first N of all models."""
    ids, versions = set(selection.ids), current_versions(policy=policy)
    models = len(ids) or selection.top or 0
    known = sum(store.has_outcome(model, None, versions) for model in ids) if store else 0
    new = _new_load(policy, models - known, has_sizes=bool(ids))
    return SweepLoad(models=known, known=known, api=len(ids) or -(-models // PAGE)) + new


def _load_of(selected: SelectedModel, store: Store | None, policy: Policy) -> SweepLoad:
    key = (selected.model, selected.commit_sha)
    if store is not None and store.has_outcome(*key, current_versions(policy=policy)):
        return SweepLoad(models=1, known=1)
    if store is not None and store.has_snapshot(*key, companions=policy.companions):
        return SweepLoad(models=1, stored=1)
    return _new_load(policy, 1, has_sizes=False)


def _new_load(policy: Policy, models: int, *, has_sizes: bool) -> SweepLoad:
    """Return the requests for new models.

    Companion files take the most that they may, and one request for their sizes, which the list of
    models lacks.
    """
    api = models if policy.companions and not has_sizes else 0
    reads = 2 + OF_HUB.requests if policy.companions else 2
    return SweepLoad(models=models, api=api, files=reads * models)

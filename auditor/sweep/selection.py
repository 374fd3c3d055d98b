"""Selections: the models of a night, at their current commits on the Hub."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from threading import Event
from typing import Self

from auditor.checkpoint.hub_listing import push_time
from auditor.downloader import hub, model_list, store
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel, StoreAddress, parse_id, store_address
from auditor.downloader.model_list import PAGE, ListEntry
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.sweep.one_model import recorded, unaudited_model
from auditor.sweep.rate_limits import PAGE_BOUNDS, Bounds, Budget, RateLimiter
from auditor.sweep.settings import ModelSelection, Policy
from auditor.sweep.store.reading import SelectedModel

Page = tuple[SelectedModel, ...]  # about a thousand models, in the order of the Hub's list

_AT_ONCE = 16  # concurrent requests for single models
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Selector:
    """A context manager that queries the Hub for the models of selections."""

    def __init__(
        self,
        policy: Policy,
        token: str | None,
        limiter: RateLimiter,
        talk: ProgressLines | None = None,
    ) -> None:
        self._policy = policy
        self._token = token
        self._limiter = limiter
        self._over = Event()
        self._talk = talk or ProgressLines(ignore_message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def pages(self, selection: ModelSelection) -> Iterator[Page]:
        """Yield the models of a selection; raise SourceError if the list cannot be read."""
        if selection.address:
            yield self._in_store(StoreAddress(selection.address))
        elif selection.ids:
            yield from self.named(selection.ids)
        else:
            yield from self._listed(selection.query, selection.top)

    def named(self, ids: Sequence[str]) -> Iterator[Page]:
        """Yield the models with these ids, by one request each."""
        requested_ids = iter(dict.fromkeys(ids))
        with threads(_AT_ONCE, self._over.set) as pool:
            while batch := tuple(islice(requested_ids, PAGE)):
                futures = [pool.submit(self._requested_model, requested) for requested in batch]
                yield tuple(map(awaited, futures))

    def _listed(self, query: Iterable[tuple[str, str]], left: int | None = None) -> Iterator[Page]:
        """Yield pages of the Hub's list: its first `left` models, or all if `left` is None."""
        session = partial(self._session, HubModel(id="the list of models"), PAGE_BOUNDS)
        for page in model_list.pages(session, query):
            yield tuple(map(self._from_entry, page[:left]))
            if left is not None:
                left -= len(page)
                if left <= 0:
                    return

    def _in_store(self, address: StoreAddress) -> Page:
        """Return the models below an address, by one listing."""
        listing = store.list_files(store.opened(address, self._token, self._talk))
        return tuple(
            _in_folder(f"{address.url}/{folder}".rstrip("/"), part)
            for folder, part in store.models_in(listing)
        )

    def _from_entry(self, entry: ListEntry) -> SelectedModel:
        """Return the model of a list entry; if the entry has no commit, request it from the Hub."""
        if entry.excess:
            detail = f"{entry.id}, in the list of models, {entry.excess}"
            return _refused(entry.id, Reason.TOO_LARGE, detail)
        if not isinstance(entry.sha, str) or not _COMMIT.fullmatch(entry.sha):
            return self._requested_model(entry.id)
        pushed = push_time(entry.last_modified)
        return SelectedModel(entry.id, entry.sha, entry.id, entry.siblings, pushed=pushed)

    def _requested_model(self, requested: str) -> SelectedModel:
        """Request the commit and the files of one model id."""
        try:
            if address := store_address(requested):
                listed = store.list_files(store.opened(address, self._token, self._talk))
                return _in_folder(address.url, listed)
            model = parse_id(requested)
            session = self._session(model, Bounds.of_a_model(self._policy))
            listing = hub.fetch_listing(model, session)
        except SourceError as error:
            return _refused(requested, error.reason, str(error))
        except UsageError as error:
            return _refused(requested, Reason.BAD_REQUEST, str(error))
        siblings = [{"rfilename": file.name, "size": file.size} for file in listing.files]
        # It is not documented whether a revision's listing has the time of its own commit.
        pushed = listing.pushed if model.revision is None else None
        return SelectedModel(listing.model_id, listing.commit, requested, siblings, pushed=pushed)

    def _session(self, model: HubModel, bounds: Bounds) -> Session:
        budget = Budget(bounds, self._limiter, self._talk, self._over)
        return budget.session(model, self._token)


def _in_folder(address: str, listing: store.StoreListing) -> SelectedModel:
    if listing.version is None:
        detail = f"the store of {quoted(address)} does not tell one version of a file from another"
        return _refused(address, Reason.BAD_REQUEST, f"{detail}; audit the model by its address")
    return SelectedModel(address, listing.version, address)


def _refused(requested: str, reason: Reason, detail: str) -> SelectedModel:
    """Return a model without a commit, with an Unaudited outcome that gives the reason."""
    refusal = recorded(unaudited_model(requested, "", reason, detail))
    return SelectedModel(requested, "", requested, refusal=refusal)

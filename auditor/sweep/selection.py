"""Selections: the models of a night, at their current commits on the Hub."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from threading import Event
from typing import Self

from msgspec import Struct
from msgspec.structs import asdict

from auditor.checkpoint.hub_listing import id_fault, push_time
from auditor.downloader import hub, model_list
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel, parse_id
from auditor.downloader.model_list import PAGE, ListEntry
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import ProgressLines, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep.policy import Policy
from auditor.sweep.store.reading import SelectedModel
from auditor.sweep.workers.allowance import PAGE_BOUNDS, Allowance, Bounds
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import unaudited_model
from auditor.sweep.workers.stored_outcome import recorded

Page = tuple[SelectedModel, ...]  # about a thousand models, in the order of the Hub's list

_AT_ONCE = 16  # concurrent requests for single models
_WORTH_LISTING = 20  # with so many ids of one author, the author's list is read instead
_COMMIT = re.compile(r"[0-9a-f]{40}")
_EXPAND = (("expand", "sha"), ("expand", "siblings"), ("expand", "lastModified"))


class ModelSelection(Struct, frozen=True, kw_only=True):
    """A choice of models: by ids, or by the filters of the Hub's list API."""

    ids: tuple[str, ...] = ()  # each with an optional @revision
    author: str | None = None
    filters: tuple[str, ...] = ()  # tags; a library is a tag, too
    search: str | None = None
    sort: str | None = None  # downloads, likes, lastModified, ...: in descending order
    top: int | None = None  # the largest number of models

    @property
    def described(self) -> Mapping[str, object]:
        """The selection as a store records it; ids are replaced by their number and digest."""
        fields = {name: value for name, value in asdict(self).items() if value}
        if self.ids:
            digest = sha256("\n".join(self.ids).encode()).hexdigest()[:12]
            fields["ids"] = f"{len(self.ids)} ids, {digest}"
        return fields

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """The query parameters of the Hub's list API for this selection."""
        options = (("author", self.author), ("search", self.search), ("sort", self.sort))
        parameters = [(name, value) for name, value in options if value]
        size = min(self.top or PAGE, PAGE)
        filters = (("filter", tag) for tag in self.filters)
        return (*parameters, *filters, ("limit", str(size)), *_EXPAND)


class Selector:
    """A context manager that queries the Hub for the models of selections."""

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self._policy = policy
        self._token = token
        self._budget = budget
        self._over = Event()
        self._talk = ProgressLines(ignore_message, waits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def pages(self, selection: ModelSelection) -> Iterator[Page]:
        """Yield the models of a selection; raise SourceError if the list cannot be read."""
        if selection.ids:
            yield from self.named(selection.ids)
        else:
            yield from self._listed(selection.query, selection.top)

    def named(self, ids: Sequence[str]) -> Iterator[Page]:
        """Yield the models with these ids; read an author's list if that takes fewer requests."""
        remaining_ids = dict.fromkeys(ids)
        valid_ids = (name for name in remaining_ids if "/" in name and not id_fault(name))
        authors = Counter(name.partition("/")[0] for name in valid_ids)
        for author, count in sorted(authors.items()):
            if count >= _WORTH_LISTING:
                yield from self._from_author_list(author, remaining_ids, count)
        requested_ids = iter(remaining_ids)
        with threads(_AT_ONCE, self._over.set) as pool:
            while batch := tuple(islice(requested_ids, PAGE)):
                futures = [pool.submit(self._requested_model, requested) for requested in batch]
                yield tuple(map(awaited, futures))

    def _from_author_list(
        self, author: str, remaining_ids: dict[str, None], count: int
    ) -> Iterator[Page]:
        """Yield models on an author's first `count` pages, and remove them from `remaining_ids`."""
        for page in islice(self._listed(ModelSelection(author=author).query), count):
            models = tuple(one for one in page if one.commit_sha and one.model in remaining_ids)
            for model in models:
                remaining_ids.pop(model.model, None)
            yield models
            count -= len(models)
            if count <= 0:
                return

    def _listed(self, query: Iterable[tuple[str, str]], left: int | None = None) -> Iterator[Page]:
        """Yield pages of the Hub's list: its first `left` models, or all if `left` is None."""
        session = partial(self._session, HubModel(id="the list of models"), PAGE_BOUNDS)
        for page in model_list.pages(session, query):
            yield tuple(map(self._from_entry, page[:left]))
            if left is not None:
                left -= len(page)
                if left <= 0:
                    return

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
        allowance = Allowance(bounds, self._budget, self._talk, self._over)
        return allowance.session(model, self._token)


def _refused(requested: str, reason: Reason, detail: str) -> SelectedModel:
    """Return a model without a commit, with an Unaudited outcome that gives the reason."""
    refusal = recorded(unaudited_model(requested, "", reason, detail))
    return SelectedModel(requested, "", requested, refusal=refusal)

"""Selections: which models a night is about, and at which commit the Hub has them now."""

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

from auditor.checkpoint.hub_listing import id_fault
from auditor.downloader import hub, model_list
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel, parse_id
from auditor.downloader.model_list import PAGE
from auditor.downloader.model_list_page import ListEntry
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import Talk, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep.policy import Policy
from auditor.sweep.store.reading import SelectedModel
from auditor.sweep.workers.allowance import PAGE_BOUNDS, Allowance, Bounds
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import unaudited_model
from auditor.sweep.workers.same_headers import recorded

Page = tuple[SelectedModel, ...]  # as they were found, about a thousand at a time

_AT_ONCE = 16  # requests for single models
_WORTH_LISTING = 20  # ids of one author from which on the author's pages are asked for
_COMMIT = re.compile(r"[0-9a-f]{40}")
_EXPAND = (("expand", "sha"), ("expand", "siblings"))


class ModelSelection(Struct, frozen=True, kw_only=True):
    """One way to choose models: ids that are given, or what the Hub's list API filters."""

    ids: tuple[str, ...] = ()  # each with an optional @revision
    author: str | None = None
    filters: tuple[str, ...] = ()  # tags; a library is one
    search: str | None = None
    sort: str | None = None  # downloads, likes, lastModified, ...: the most of it first
    top: int | None = None  # the largest number of models

    @property
    def described(self) -> Mapping[str, object]:
        """What was asked for, as a store keeps it: of many ids their number and digest."""
        said = {name: value for name, value in asdict(self).items() if value}
        if self.ids:
            digest = sha256("\n".join(self.ids).encode()).hexdigest()[:12]
            said["ids"] = f"{len(self.ids)} ids, {digest}"
        return said

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """The parameters of the list API."""
        asked = (("author", self.author), ("search", self.search), ("sort", self.sort))
        given = [(name, value) for name, value in asked if value]
        size = min(self.top or PAGE, PAGE)
        filters = (("filter", tag) for tag in self.filters)
        return (*given, *filters, ("limit", str(size)), *_EXPAND)


class Selector:
    """Asks the Hub which models there are; a context manager."""

    def __init__(
        self, policy: Policy, token: str | None, budget: Budget, waits: Waits | None = None
    ) -> None:
        self._policy = policy
        self._token = token
        self._budget = budget
        self._over = Event()
        self._talk = Talk(ignore_message, waits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def pages(self, selection: ModelSelection) -> Iterator[Page]:
        """The models of a selection; raises SourceError where the list itself cannot be had."""
        if selection.ids:
            yield from self.named(selection.ids)
        else:
            yield from self._listed(selection.query, selection.top)

    def named(self, ids: Sequence[str]) -> Iterator[Page]:
        """The models of these ids: by an author's pages where that is fewer requests."""
        left = dict.fromkeys(ids)
        whole = (name for name in left if "/" in name and not id_fault(name))
        authors = Counter(name.partition("/")[0] for name in whole)
        for author, count in sorted(authors.items()):
            if count >= _WORTH_LISTING:
                yield from self._of_author(author, left, count)
        rest = iter(left)
        with threads(_AT_ONCE, self._over.set) as pool:
            while batch := tuple(islice(rest, PAGE)):
                asked = [pool.submit(self._one, requested) for requested in batch]
                yield tuple(map(awaited, asked))

    def _of_author(self, author: str, left: dict[str, None], count: int) -> Iterator[Page]:
        """Those of `left` that an author's first `count` pages tell, which leave it."""
        for page in islice(self._listed(ModelSelection(author=author).query), count):
            found = tuple(one for one in page if one.commit_sha and one.model in left)
            for one in found:
                left.pop(one.model, None)
            yield found
            count -= len(found)
            if count <= 0:
                return

    def _listed(self, query: Iterable[tuple[str, str]], left: int | None = None) -> Iterator[Page]:
        """The models of a list, the first `left` of them."""
        session = partial(self._session, HubModel(id="the list of models"), PAGE_BOUNDS)
        for page in model_list.pages(session, query):
            yield tuple(map(self._of_entry, page[:left]))
            if left is not None:
                left -= len(page)
                if left <= 0:
                    return

    def _of_entry(self, entry: ListEntry) -> SelectedModel:
        """A model as the list has it; one without a commit there is asked for by itself."""
        if entry.excess:
            detail = f"{entry.id}, in the list of models, {entry.excess}"
            return _refused(entry.id, Reason.TOO_LARGE, detail)
        if not isinstance(entry.sha, str) or not _COMMIT.fullmatch(entry.sha):
            return self._one(entry.id)
        return SelectedModel(entry.id, entry.sha, entry.id, entry.siblings)

    def _one(self, requested: str) -> SelectedModel:
        """The commit and the files of one id, for one request."""
        try:
            model = parse_id(requested)
            listed = hub.fetch_listing(model, self._session(model, Bounds.of_a_model(self._policy)))
        except SourceError as error:
            return _refused(requested, error.reason, str(error))
        except UsageError as error:
            return _refused(requested, Reason.BAD_REQUEST, str(error))
        siblings = [{"rfilename": file.name, "size": file.size} for file in listed.files]
        return SelectedModel(listed.model_id, listed.commit, requested, siblings)

    def _session(self, model: HubModel, bounds: Bounds) -> Session:
        allowance = Allowance(bounds, self._budget, self._talk, self._over)
        return allowance.session(model, self._token)


def _refused(requested: str, reason: Reason, detail: str) -> SelectedModel:
    """An id that the Hub told nothing of."""
    refusal = recorded(unaudited_model(requested, "", reason, detail))
    return SelectedModel(requested, "", requested, refusal=refusal)

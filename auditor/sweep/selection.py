"""Selections: which models a night is about, and at which commit the Hub has them now."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from threading import Event
from typing import NamedTuple, Self

from msgspec import Struct
from msgspec.structs import asdict

from auditor.downloader import hub, model_list
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel, id_fault, parse_id
from auditor.downloader.model_list import PAGE
from auditor.downloader.model_list_page import Crowded, Entry
from auditor.downloader.parallel import threads
from auditor.downloader.waits import Talk, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.report import Unaudited
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import FoundModel
from auditor.sweep.store.reading import Planned
from auditor.sweep.workers.allowance import PAGE_BOUNDS, Allowance, Bounds
from auditor.sweep.workers.budget import Budget
from auditor.sweep.workers.one_model import unaudited_model

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


class RefusedId(NamedTuple):
    """An id that the Hub told nothing of."""

    planned: Planned
    outcome: Unaudited


class SelectedPage(NamedTuple):
    """Models as they were found, about a thousand at a time."""

    found: tuple[FoundModel, ...]
    refused: tuple[RefusedId, ...] = ()


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

    def pages(self, selection: ModelSelection) -> Iterator[SelectedPage]:
        """The models of a selection; raises SourceError where the list itself cannot be had."""
        if selection.ids:
            yield from self.named(selection.ids)
        else:
            yield from self._listed(selection.query, selection.top)

    def named(self, ids: Sequence[str]) -> Iterator[SelectedPage]:
        """The models of these ids: by an author's pages where that is fewer requests."""
        plain = {name for name in ids if not id_fault(name)}
        authors = Counter(name.partition("/")[0] for name in plain if "/" in name)
        for author, count in sorted(authors.items()):
            if count >= _WORTH_LISTING:
                wanted = {name for name in plain if name.startswith(f"{author}/")}
                yield from self._of_author(author, wanted)
                plain -= wanted
        rest = iter(dict.fromkeys(name for name in ids if name in plain or id_fault(name)))
        with threads(_AT_ONCE, self._over.set) as pool:
            while batch := tuple(islice(rest, PAGE)):
                yield _page_of(*pool.map(self._one, batch))

    def _of_author(self, author: str, wanted: set[str]) -> Iterator[SelectedPage]:
        """Those of one author; no more pages are turned than single requests would be made."""
        missing = set(wanted)
        query = ModelSelection(author=author).query
        for page in islice(self._listed(query, None), len(wanted)):
            found = tuple(one for one in page.found if one.planned.model in missing)
            missing -= {one.planned.model for one in found}
            yield SelectedPage(found)
            if not missing:
                return
        for name in sorted(missing):
            yield _page_of(self._one(name))

    def _listed(self, query: Iterable[tuple[str, str]], top: int | None) -> Iterator[SelectedPage]:
        def session() -> Session:
            return self._session(HubModel(id="the list of models"), PAGE_BOUNDS)

        left = top
        for page in model_list.pages(session, query):
            entries = page if left is None else page[:left]
            left = None if left is None else left - len(entries)
            found = [_found(entry) for entry in entries]
            yield _page_of(*found)
            for name in (one for one in found if isinstance(one, str)):
                yield _page_of(self._one(name))
            if left == 0:
                return

    def _one(self, requested: str) -> FoundModel | RefusedId:
        """The commit and the files of one id, for one request."""
        try:
            model = parse_id(requested)
            listed = hub.fetch_listing(model, self._session(model, Bounds.of_a_model(self._policy)))
        except SourceError as error:
            return _refused(requested, error.reason, str(error))
        except UsageError as error:
            return _refused(requested, Reason.BAD_REQUEST, str(error))
        siblings = [{"rfilename": file.name, "size": file.size} for file in listed.files]
        return FoundModel(Planned(listed.model_id, listed.commit, requested), siblings)

    def _session(self, model: HubModel, bounds: Bounds) -> Session:
        allowance = Allowance(bounds, self._budget, self._talk, self._over)
        return allowance.session(model, self._token)


def _found(entry: Entry) -> FoundModel | RefusedId | str:
    """A model as the list has it; its id alone where the list lacks its commit."""
    if isinstance(entry, Crowded):
        detail = f"{entry.id}, in the list of models, {entry.detail}"
        return _refused(entry.id, Reason.TOO_LARGE, detail)
    name, commit = str(entry["id"]), entry.get("sha")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        return name
    return FoundModel(Planned(name, commit, name), entry.get("siblings"))


def _refused(requested: str, reason: Reason, detail: str) -> RefusedId:
    return RefusedId(
        Planned(requested, "", requested), unaudited_model(requested, "", reason, detail)
    )


def _page_of(*asked: FoundModel | RefusedId | str) -> SelectedPage:
    """Those that were found, and those that were refused; ids alone are asked for once more."""
    return SelectedPage(
        tuple(one for one in asked if isinstance(one, FoundModel)),
        tuple(one for one in asked if isinstance(one, RefusedId)),
    )

"""One audit's HTTP: redirects followed by hand, bodies bounded, every request counted."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import Protocol, TypeVar

import huggingface_hub

from auditor.containers.words import quoted
from auditor.downloader.patience import PassingError, Patience
from auditor.downloader.refusals import failed, refused
from auditor.downloader.request import HubModel
from auditor.downloader.snapshot import Fetched
from auditor.downloader.wire import Address, BadAddressError, Reply, Wire, WireError, grace
from auditor.errors import Reason, SourceError
from auditor.tensors import Span

T = TypeVar("T")

_MOST_REDIRECTS = 5  # the Hub needs two: an older name, and the storage
_MOST_OF_AN_ERROR = 64 * 1024  # bytes; the Hub's have a few hundred

# Bytes of a redirect's own body that are read, so that the connection can serve the next shard:
# the Hub's have about 1 kB, and a new connection costs two round trips, three with its request.
_MOST_OF_A_REDIRECT = 4 * 1024

# Bytes a second that a body must keep up once three time-outs have passed: 33 kbit/s, the pace of
# a telephone modem. The transport's own time-outs never end a body that drips without a pause.
_SLOWEST = 4 * 1024

_OK, _PARTIAL = 200, 206
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_DIGITS = 19  # of a header's number; more than any file has bytes


class Body:
    """An answer's body, read from the start as far as is asked."""

    def __init__(self, reply: Reply, count: Callable[[int], None]) -> None:
        self._host = reply.address.host
        self._count = count
        self._pieces = reply.pieces()
        self._data = bytearray()
        self._since = time.monotonic()

    def upto(self, stop: int) -> bytes:
        """The first `stop` bytes; fewer where the body is shorter."""
        while len(self._data) < stop:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._data += piece
            self._count(len(piece))
            self._keep_up()
        return bytes(self._data[:stop])

    def _keep_up(self) -> None:
        if time.monotonic() - self._since > grace() + len(self._data) / _SLOWEST:
            detail = f"{self._host} sends too slowly: {len(self._data):,} bytes"
            raise PassingError(Reason.TIMED_OUT, f"{detail} in {grace():.0f} s and more")


class Answer:
    """The file's answer: its status, its headers, and as much of its body as is asked for."""

    def __init__(self, reply: Reply, body: Body, linked_size: int | None) -> None:
        self.host = reply.address.host
        self.partial = reply.status == _PARTIAL
        self.headers = reply.headers
        self.body = body
        self.linked_size = linked_size  # the whole file's, as the redirect to it said

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the answer says."""
        return whole_number(self.headers.get("content-length"))


class Governor(Protocol):
    """Who rules over the requests of many audits; called from several threads."""

    def admit(self, path: str) -> None:
        """Before a request to the Hub: waits for its turn; raises SourceError if it has none."""

    def note(self, headers: Mapping[str, str]) -> None:
        """What the Hub's answer says of what is left."""

    def held(self, seconds: float) -> None:
        """Before a wait that a server asked for: it is too busy, or has answered too often."""

    def check(self, received: int) -> None:
        """After a piece of a body, with all bytes so far: raises SourceError for too many."""


class Unruled:
    """The governor of an audit that stands alone: Patience is enough for that."""

    def admit(self, path: str) -> None: ...

    def note(self, headers: Mapping[str, str]) -> None: ...

    def held(self, seconds: float) -> None: ...

    def check(self, received: int) -> None: ...


class Session:
    """The requests of one audit of one model; used from several threads.

    They go over huggingface_hub's own client, or over a `wire` that several audits share.
    """

    def __init__(
        self,
        model: HubModel,
        token: str | None,
        say: Callable[[str], None],
        *,
        wire: Wire | None = None,
        governor: Governor = Unruled(),  # noqa: B008 - it holds nothing
    ) -> None:
        self._model = model
        self._wire = wire or _client()
        self._governor = governor
        self._headers = {
            "user-agent": _agent(),
            "accept-encoding": "identity",  # a range of a packed body is no range of the file
        }
        self._authorization = {"authorization": f"Bearer {token}"} if token else {}
        self._patience = Patience(say, governor.held)
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._since = time.monotonic()

    @property
    def fetched(self) -> Fetched:
        seconds = time.monotonic() - self._since
        return Fetched(requests=self._requests, bytes=self._bytes, seconds=seconds)

    def stop(self) -> None:
        """Ends the waits of all threads: the audit has failed."""
        self._patience.end()

    def get(
        self,
        url: str,
        take: Callable[[Answer], T],
        *,
        span: Span | None = None,
        commit: str | None = None,
    ) -> T:
        """What `take` makes of the answer; tried again after faults that pass.

        With a commit, every answer must be of that commit.
        """
        headers = self._headers | ({"range": span.http_range} if span else {})
        return self._patience.call(lambda: self._once(url, headers, take, commit))

    def _once(
        self, url: str, headers: dict[str, str], take: Callable[[Answer], T], commit: str | None
    ) -> T:
        with _translated(url):
            address = Address.of(url)
        hub, trail = address.origin, _Trail(commit)
        headers = headers | self._authorization
        for _ in range(_MOST_REDIRECTS + 1):
            by_hub = address.origin == hub
            if by_hub:
                self._governor.admit(address.target)
            else:  # is not shown the token, nor is whoever it redirects to
                headers.pop("authorization", None)
            with _translated(address.url), closing(self._ask(address, headers)) as reply:
                if by_hub:
                    self._governor.note(reply.headers)
                body = Body(reply, self._count)
                redirects = _redirects(reply)
                if reply.status not in {_OK, _PARTIAL} and not redirects:
                    text = body.upto(_MOST_OF_AN_ERROR)
                    raise refused(self._model, reply, text, by_hub=by_hub)
                trail.note(reply)
                if not redirects:
                    trail.end()
                    return take(_plain_answer(reply, body, trail.linked_size))
                _drain(reply, body)
                address = _redirected(reply)
        detail = f"{Address.of(url).host} redirects more than {_MOST_REDIRECTS} times"
        raise SourceError(Reason.BAD_RESPONSE, detail)

    def _ask(self, address: Address, headers: Mapping[str, str]) -> Reply:
        with self._lock:
            self._requests += 1
        return self._wire.ask(address, headers)

    def _count(self, received: int) -> None:
        with self._lock:
            self._bytes += received
        self._governor.check(self._bytes)


def _client() -> Wire:
    from auditor.downloader.client import HubClient  # noqa: PLC0415 - 70 ms that a sweep is spared

    return HubClient()


@cache
def _agent() -> str:
    # Not build_hf_headers: what it adds to a user agent can cost a request of its own.
    agent = f"hf-audit/{version('hf-audit')}; hf_hub/{huggingface_hub.__version__}"
    return f"{agent}; python/{python_version()}"


class _Trail:
    """What the answers on the way to a file say of it; all must be of the commit asked for."""

    def __init__(self, commit: str | None) -> None:
        self._commit = commit
        self._commits: set[str] = set()
        self.linked_size: int | None = None

    def note(self, reply: Reply) -> None:
        headers = reply.headers
        if "x-repo-commit" in headers:  # of several answers, or several of one
            self._commits |= {one.strip() for one in headers["x-repo-commit"].split(",")}
        others = sorted(self._commits - {self._commit})
        if self._commit is not None and others:
            detail = f"the Hub answered with commit {quoted(others[0])}, not {self._commit}"
            raise SourceError(Reason.COMMIT_MOVED, detail)
        if "x-linked-size" in headers:
            self.linked_size = whole_number(headers["x-linked-size"])

    def end(self) -> None:
        if self._commit is not None and not self._commits:
            detail = "the answer names no commit (X-Repo-Commit): is a proxy in the way?"
            raise SourceError(Reason.BAD_RESPONSE, detail)


def whole_number(text: str | None) -> int | None:
    """A header's value as a number; None where it is none, or absurdly long."""
    return (
        int(text) if text and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
    )


def _plain_answer(reply: Reply, body: Body, linked_size: int | None) -> Answer:
    encoding = reply.headers.get("content-encoding", "identity")
    if encoding != "identity":
        detail = f"{reply.address.host} packs its answer ({quoted(encoding)}) though asked not to"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return Answer(reply, body, linked_size)


def _redirects(reply: Reply) -> bool:
    return reply.status in _REDIRECTS and "location" in reply.headers


def _drain(reply: Reply, body: Body) -> None:
    """Read the body of a redirect where it is short, so that its connection can be used again."""
    length = whole_number(reply.headers.get("content-length"))
    if length is not None and length <= _MOST_OF_A_REDIRECT:
        body.upto(length + 1)  # one more than there is: the reading ends, and is seen to end


def _redirected(reply: Reply) -> Address:
    """Where a redirect leads."""
    here = reply.address
    detail = f"{here.host} redirects to what is no address"
    try:
        there = here.joined(reply.headers["location"])
    except BadAddressError:
        raise SourceError(Reason.BAD_RESPONSE, detail) from None
    if there.scheme not in {"http", "https"} or (here.scheme, there.scheme) == ("https", "http"):
        detail = f"{here.host} redirects from {here.scheme} to {quoted(there.scheme)}"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    if not there.host:
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return there


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Errors of the wire, as what they mean to an audit."""
    try:
        yield
    except WireError as error:
        raise failed(url, error) from error

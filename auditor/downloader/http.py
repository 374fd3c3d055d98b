"""One audit's HTTP: redirects followed by hand, bodies bounded, every request counted."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from math import inf
from platform import python_version
from threading import Event
from typing import Generic, NamedTuple, TypeVar

import huggingface_hub

from auditor.checkpoint.snapshot import Fetched
from auditor.downloader.answers import Answer, Body
from auditor.downloader.client import Reply, shared_client
from auditor.downloader.http_errors import no_answer_error, refusal_error
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import apart_from_signals
from auditor.downloader.retry import PassingError, Patience
from auditor.downloader.transport import (
    Address,
    BadAddressError,
    BrokenAnswerError,
    TransportError,
    framing_fault,
    patience,
    whole_number,
)
from auditor.downloader.waits import Talk
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span
from auditor.version import VERSION


class Turn(NamedTuple):
    """Leave to make one request."""

    path: str
    first: float = 0.0  # when it went before the others of its kind; 0: it is one of many
    waited: float = 0.0  # seconds


# Bytes of one model: headers of 48 MiB, for which twice as much may be asked, since first reads are
# guesses; an index of 32, a config and a listing of 16 each.
MOST_BYTES = 160 * 1024 * 1024


class Governor:
    """Lets requests to the Hub through, and hears what came of them; called from several threads.

    Every `admit` is followed by one `note`, or by one `lost`. This one is of an audit that stands
    alone, for which Patience is enough: all requests go through, and the bytes are bounded.
    """

    def __init__(self, most: float = MOST_BYTES, what: str = "one model") -> None:
        self._most, self._what = most, what  # bytes of all bodies, and of what

    def admit(self, path: str) -> Turn:
        """Before a request: waits for its turn; raises SourceError if it gets no turn."""
        return Turn(path)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun."""

    def lost(self, turn: Turn) -> None:
        """The request ended without an answer."""

    def held(self, seconds: float) -> None:
        """Before a wait that a server asked for: it is too busy, or has answered too often."""

    def check(self, received: int) -> None:
        """After a piece of a body, with all bytes so far: raises SourceError for too many."""
        if received > self._most:
            detail = f"more than {self._most:,} bytes, the most for {self._what}"
            raise SourceError(Reason.TOO_LARGE, detail)


T = TypeVar("T")

_MOST_REDIRECTS = 5  # the Hub needs two: an older name, and the storage
_MOST_OF_AN_ERROR = 64 * 1024  # bytes; the Hub's have a few hundred

# Bytes of a redirect's own body that are read, so that the connection can serve the next shard:
# the Hub's have about 1 kB, and a new connection costs two round trips, three with its request.
_MOST_OF_A_REDIRECT = 4 * 1024

_LEAST_SILENCE = 0.1  # seconds that are left for an answer, however long the way to it was
_OK, _PARTIAL = 200, 206
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Session:
    """The requests of one audit of one model; used from several threads.

    `silence` and `over` are those of its Patience.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each bound
        self,
        model: HubModel,
        token: str | None,
        say: Callable[[str], None],
        *,
        governor: Governor = Governor(),  # noqa: B008 - it holds a bound
        silence: float | None = None,
        over: Event | None = None,
    ) -> None:
        self._model = model
        self._client = shared_client()
        self._governor = governor
        self._headers = {
            "user-agent": _agent(),
            "accept-encoding": "identity",  # a range of a packed body is not a range of the file
        }
        self._authorization = {"authorization": f"Bearer {token}"} if token else {}
        self._patience = Patience(Talk.of(say), governor.held, silence=silence, over=over)
        self._lock = threading.Lock()
        self._requests = 0
        self._redirects = 0
        self._bytes = 0
        self.distance = inf  # seconds from a request to its answer, of the quickest
        self._since = time.monotonic()

    @property
    def fetched(self) -> Fetched:
        seconds = time.monotonic() - self._since
        return Fetched(
            requests=self._requests, bytes=self._bytes, seconds=seconds, redirects=self._redirects
        )

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
        request = _FileRequest(url, span, take)

        def once(silence: float) -> T:
            return self._once(request, _Trail(commit), silence)

        return apart_from_signals(lambda: self._patience.call(once))

    def try_once(
        self,
        url: str,
        take: Callable[[Answer], T],
        *,
        span: Span | None = None,
    ) -> T:
        """The same of one attempt, at any commit, which the Answer tells."""
        return self._once(_FileRequest(url, span, take), _Trail(None), patience())

    def _once(self, request: "_FileRequest[T]", trail: "_Trail", silence: float) -> T:
        url, span, take = request
        with _translated(url, time.monotonic()):
            address = Address.of(url)
        hub = address.origin
        headers = self._headers | self._authorization
        if span is not None:
            headers["range"] = span.http_range
        for _ in range(_MOST_REDIRECTS + 1):
            by_hub = address.origin == hub
            if not by_hub:  # is not sent the token, nor is what it redirects to
                headers.pop("authorization", None)
            with self._answered(address, headers, silence, by_hub=by_hub) as (reply, body):
                if not (reply.status in {_OK, _PARTIAL} or _redirects(reply)):
                    text = body.upto(_MOST_OF_AN_ERROR)
                    raise refusal_error(self._model, reply, text, by_hub=by_hub)
                trail.note(reply)
                if not _redirects(reply):
                    trail.end()
                    return take(_plain_answer(reply, body, trail))
                with self._lock:
                    self._redirects += 1
                _drain(reply, body)
                address = _redirected(reply)
                silence = max(_LEAST_SILENCE, silence - body.age)
        detail = f"{Address.of(url).host} redirects more than {_MOST_REDIRECTS} times"
        raise SourceError(Reason.BAD_RESPONSE, detail)

    @contextmanager
    def _answered(
        self, address: Address, headers: Mapping[str, str], silence: float, *, by_hub: bool
    ) -> Iterator[tuple[Reply, Body]]:
        """The answer to one request: a file, or a redirect to one."""
        turn = self._governor.admit(address.target) if by_hub else None
        since = time.monotonic()
        with (
            _translated(address.url, since),
            closing(self._ask(address, headers, silence, turn)) as reply,
        ):
            if fault := framing_fault(reply.headers):
                raise BrokenAnswerError(fault)
            yield reply, Body(reply, self._count, min(patience(), silence), since)

    def _ask(
        self, address: Address, headers: Mapping[str, str], silence: float, turn: Turn | None
    ) -> Reply:
        with self._lock:
            self._requests += 1
        since = time.monotonic()
        try:
            reply = self._client.ask(address, headers, silence)
        except BaseException:
            if turn:
                self._governor.lost(turn)
            raise
        with self._lock:
            self.distance = min(self.distance, time.monotonic() - since)
        if turn:
            self._governor.note(turn, reply.status, reply.headers)
        return reply

    def _count(self, received: int) -> None:
        with self._lock:
            self._bytes += received
        self._governor.check(self._bytes)


class _FileRequest(NamedTuple, Generic[T]):
    """A request for a file or a part of one, and the function that reads its answer."""

    url: str
    span: Span | None
    take: Callable[[Answer], T]


@cache
def _agent() -> str:
    # Not build_hf_headers: what it adds to a user agent can cost a request of its own.
    agent = f"hf-audit/{VERSION}; hf_hub/{huggingface_hub.__version__}"
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

    @property
    def seen(self) -> str | None:
        """The commit that the answers are of; None: they name none, or several."""
        return next(iter(self._commits)) if len(self._commits) == 1 else None

    def end(self) -> None:
        if self._commit is not None and not self._commits:
            detail = "the answer names no commit (X-Repo-Commit): is a proxy in the way?"
            raise SourceError(Reason.BAD_RESPONSE, detail)


def _plain_answer(reply: Reply, body: Body, trail: _Trail) -> Answer:
    encoding = reply.headers.get("content-encoding", "identity")
    if encoding != "identity":
        detail = f"{reply.address.host} packs its answer ({quoted(encoding)}) though asked not to"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return Answer(reply, body, trail.linked_size, trail.seen)


def _redirects(reply: Reply) -> bool:
    return reply.status in _REDIRECTS and "location" in reply.headers


def _drain(reply: Reply, body: Body) -> None:
    """Read the body of a redirect where it is short, so that its connection can be used again."""
    if reply.length is not None and reply.length <= _MOST_OF_A_REDIRECT:
        body.upto(reply.length + 1)  # one more than there is: the reading ends, and is seen to end


def _redirected(reply: Reply) -> Address:
    """Where a redirect leads."""
    here = reply.address
    detail = f"{here.host} redirects to what is not an address"
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
def _translated(url: str, since: float) -> Iterator[None]:
    """Errors of the wire, as what they mean to an audit that has asked since then."""
    try:
        yield
    except TransportError as error:
        found = no_answer_error(url, error)
        _note_silence(found, since)
        raise found from error
    except PassingError as fault:
        _note_silence(fault, since)
        raise


def _note_silence(error: Exception, since: float) -> None:
    if isinstance(error, PassingError) and error.reason is Reason.TIMED_OUT:
        error.silence = time.monotonic() - since

"""One audit's HTTP: redirects followed by hand, bodies bounded, every request counted."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import cache, partial
from importlib.metadata import version
from platform import python_version
from typing import Protocol, TypeVar

import httpx2
import huggingface_hub
from huggingface_hub import constants, get_session
from huggingface_hub.errors import OfflineModeIsEnabled

from auditor.containers.words import quoted
from auditor.downloader.patience import PassingError, Patience
from auditor.downloader.refusals import failed, refused
from auditor.downloader.request import HubModel
from auditor.downloader.snapshot import Fetched
from auditor.errors import Reason, SourceError, UsageError
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
_DIGITS = 19  # of a header's number; more than any file has bytes


class Body:
    """An answer's body, read from the start as far as is asked."""

    def __init__(self, response: httpx2.Response, count: Callable[[int], None]) -> None:
        self._response = response
        self._count = count
        self._chunks = response.iter_raw()
        self._data = bytearray()
        self._since = time.monotonic()

    def upto(self, stop: int) -> bytes:
        """The first `stop` bytes; fewer where the body is shorter."""
        while len(self._data) < stop:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._data += chunk
            self._count(len(chunk))
            self._keep_up()
        return bytes(self._data[:stop])

    def _keep_up(self) -> None:
        if time.monotonic() - self._since > grace() + len(self._data) / _SLOWEST:
            detail = f"{self._response.url.host} sends too slowly: {len(self._data):,} bytes"
            raise PassingError(Reason.TIMED_OUT, f"{detail} in {grace():.0f} s and more")


class Answer:
    """The file's answer: its status, its headers, and as much of its body as is asked for."""

    def __init__(self, response: httpx2.Response, body: Body, linked_size: int | None) -> None:
        self.host = response.url.host
        self.partial = response.status_code == _PARTIAL
        self.headers = response.headers
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

    def check(self, received: int) -> None:
        """After a piece of a body, with all bytes so far: raises SourceError for too many."""


class Unruled:
    """The governor of an audit that stands alone: Patience is enough for that."""

    def admit(self, path: str) -> None: ...

    def note(self, headers: Mapping[str, str]) -> None: ...

    def check(self, received: int) -> None: ...


class Session:
    """The requests of one audit of one model; used from several threads.

    A `client` of the caller's own is trusted to bound the time that an answer's headers take.
    """

    def __init__(
        self,
        model: HubModel,
        token: str | None,
        say: Callable[[str], None],
        *,
        client: httpx2.Client | None = None,
        governor: Governor = Unruled(),  # noqa: B008 - it holds nothing
    ) -> None:
        self._model = model
        self._bounded = client is not None
        self._client = client or _client()
        self._governor = governor
        self._headers = {
            "user-agent": _agent(),
            "accept-encoding": "identity",  # a range of a packed body is no range of the file
        }
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._patience = Patience(say)
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
        address = httpx2.URL(url)
        with _translated(address):
            timeout = httpx2.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT)
            request = self._client.build_request("GET", address, headers=headers, timeout=timeout)
        hub, trail = request.url.origin, _Trail(commit)
        for _ in range(_MOST_REDIRECTS + 1):
            by_hub = request.url.origin == hub
            if by_hub:
                self._governor.admit(request.url.path)
            with _translated(request.url), closing(self._send(request)) as response:
                if by_hub:
                    self._governor.note(response.headers)
                body = Body(response, self._count)
                if response.status_code not in {_OK, _PARTIAL} and not _redirects(response):
                    text = body.upto(_MOST_OF_AN_ERROR)
                    raise refused(self._model, response, text, by_hub=by_hub)
                trail.note(response)
                if not _redirects(response):
                    trail.end()
                    return take(_plain_answer(response, body, trail.linked_size))
                _drain(response, body)
                request = _redirected(response, hub)
        detail = f"{httpx2.URL(url).host} redirects more than {_MOST_REDIRECTS} times"
        raise SourceError(Reason.BAD_RESPONSE, detail)

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        with self._lock:
            self._requests += 1
        send = partial(self._client.send, request, stream=True, follow_redirects=False)
        return send() if self._bounded else _within(grace(), send)

    def _count(self, received: int) -> None:
        with self._lock:
            self._bytes += received
        self._governor.check(self._bytes)


@cache
def _agent() -> str:
    # Not build_hf_headers: what it adds to a user agent can cost a request of its own.
    agent = f"hf-audit/{version('hf-audit')}; hf_hub/{huggingface_hub.__version__}"
    return f"{agent}; python/{python_version()}"


def _client() -> httpx2.Client:
    """huggingface_hub's own client; made at the first call, of what the environment says."""
    try:
        return get_session()
    except (ValueError, ImportError, OSError) as error:
        detail = "are the proxies (HTTPS_PROXY, ALL_PROXY) and SSL_CERT_FILE of this machine right?"
        raise UsageError(f"no connection can be prepared: {error}; {detail}") from None


class _Trail:
    """What the answers on the way to a file say of it; all must be of the commit asked for."""

    def __init__(self, commit: str | None) -> None:
        self._commit = commit
        self._commits: set[str] = set()
        self.linked_size: int | None = None

    def note(self, response: httpx2.Response) -> None:
        headers = response.headers
        self._commits |= set(headers.get_list("x-repo-commit"))
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


def _plain_answer(response: httpx2.Response, body: Body, linked_size: int | None) -> Answer:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        detail = f"{response.url.host} packs its answer ({quoted(encoding)}) though asked not to"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return Answer(response, body, linked_size)


def _redirects(response: httpx2.Response) -> bool:
    return response.has_redirect_location


def _drain(response: httpx2.Response, body: Body) -> None:
    """Read the body of a redirect where it is short, so that its connection can be used again."""
    length = whole_number(response.headers.get("content-length"))
    if length is not None and length <= _MOST_OF_A_REDIRECT:
        body.upto(length + 1)  # one more than there is: the reading ends, and is seen to end


def _redirected(response: httpx2.Response, hub: object) -> httpx2.Request:
    """The request that a redirect asks for; without the token unless it stays on the Hub."""
    here, request = response.url, response.next_request
    if request is None:
        detail = f"{here.host} redirects to what is no address"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    there = request.url
    if there.scheme not in {"http", "https"} or (here.scheme, there.scheme) == ("https", "http"):
        detail = f"{here.host} redirects from {here.scheme} to {quoted(there.scheme)}"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    if there.origin != hub:
        # httpx2 does so too, except from http to https on the same host; this does not rest on it.
        request.headers.pop("authorization", None)
    return request


@contextmanager
def _translated(url: httpx2.URL) -> Iterator[None]:
    """Errors of the transport, as what they mean to an audit."""
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, OfflineModeIsEnabled) as error:
        raise failed(url, error) from error


def grace() -> float:
    """Seconds for finding, connecting and the headers; and before a body's pace counts."""
    return 3.0 * constants.HF_HUB_DOWNLOAD_TIMEOUT


def _within(seconds: float, call: Callable[[], httpx2.Response]) -> httpx2.Response:
    """The call's response, or a time-out after so many seconds.

    The transport's own time-outs are for each read, and do not reach into the name look-up.
    """
    future = Future[httpx2.Response]()

    def run() -> None:
        try:
            response = call()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            return
        if future.set_running_or_notify_cancel():
            future.set_result(response)
        else:
            response.close()

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.cancel():
            raise httpx2.ReadTimeout(f"no headers within {seconds:.0f} s") from None
        return future.result()

"""The HTTP session of one audit: it follows redirects, bounds bodies and counts every request."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from platform import python_version
from threading import Event
from typing import NamedTuple, TypeVar

import huggingface_hub
from pyreqwest.http import Url

from auditor.checkpoint.snapshot import Fetched
from auditor.downloader.answers import Answer, refusal_error
from auditor.downloader.client import Reply, shared_client
from auditor.downloader.hub_settings import plain_url, time_out
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import outside_main_thread
from auditor.downloader.retry import PassingError, RetryPolicy
from auditor.downloader.waits import ProgressLines
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.redaction import redacted
from auditor.tensors import Span
from auditor.version import VERSION


class Turn(NamedTuple):
    """The permission to make one request."""

    path: str
    first: float = 0.0  # send time if it is the first request of a rate-limit window, else 0
    waited: float = 0.0  # seconds


NO_ANSWER = 0  # the status of a request that was not answered

# The most bytes to read of one model: headers of 48 MiB, doubled because the lengths of first reads
# are guesses; 32 MiB for an index, 16 each for a config and a listing.
MOST_BYTES = 160 * 1024 * 1024


class RequestBudget:
    """A gate for requests to the Hub that also records results; several threads call it.

    Every `admit` is followed by one `note`. This class is for a single audit: it admits every
    request and only limits the bytes, because RetryPolicy repeats refused requests.
    """

    def __init__(self, most: float = MOST_BYTES, subject: str = "one model") -> None:
        self._most, self._subject = most, subject  # most bytes; subject of messages

    def admit(self, path: str) -> Turn:
        """Wait until a request may be sent; raise SourceError if that will never be allowed."""
        return Turn(path)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """Record an answer's status and headers; the status is NO_ANSWER if there was no answer."""

    def held(self, seconds: float) -> AbstractContextManager[object]:
        """Return a context for a wait that a busy or rate-limiting server requested."""
        return nullcontext(seconds)

    def check(self, received: int) -> None:
        """Raise SourceError if `received`, the total of body bytes so far, exceeds the limit."""
        if received > self._most:
            detail = (
                f"received {received:,} bytes, expected at most {self._most:,} of {self._subject}"
            )
            raise SourceError(Reason.TOO_LARGE, detail)


T = TypeVar("T")

_MOST_REDIRECTS = 5  # most redirects; the Hub sends two: from an older name, and to the storage
_MOST_OF_AN_ERROR = 64 * 1024  # bytes; the Hub's have a few hundred

# Bytes of a redirect's body that are read, so that the connection can serve the next shard. The
# Hub's bodies have about 1 kB; a new connection costs two round trips, three with its request.
_MOST_OF_A_REDIRECT = 4 * 1024

_LEAST_SILENCE = 0.1  # seconds left for a redirected request, however long the redirects took
_OK, _PARTIAL = 200, 206
# Not build_hf_headers, which may send a request to complete the user agent.
_HUB_LIBRARY = f"hf_hub/{huggingface_hub.__version__}"
_AGENT = f"hf-audit/{VERSION}; {_HUB_LIBRARY}; python/{python_version()}"

# One DEBUG record a request, redirects and failed attempts included; `audit -vv` prints them.
requests_log = logging.getLogger("auditor.requests")


class Session:
    """The requests of one audit of one model; several threads use it.

    `model` is None if the server is no Hub: refusals then have no message of a Hub.
    `silence` and `over` are passed to the RetryPolicy that repeats failed requests.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each bound
        self,
        model: HubModel | None,
        token: str | None,
        say: Callable[[str], None],
        *,
        budget: RequestBudget = RequestBudget(),  # noqa: B008 - its bound never changes
        silence: float | None = None,
        over: Event | None = None,
    ) -> None:
        self._model = model
        self._client = shared_client()
        self._budget = budget
        self._headers = {
            "user-agent": _AGENT,
            "accept-encoding": "identity",  # a compressed body has other offsets than the file
        }
        self._authorization = {"authorization": f"Bearer {token}"} if token else {}
        self._retries = RetryPolicy(ProgressLines.of(say), budget.held, silence=silence, over=over)
        self._lock = threading.Lock()
        self.names_no_commit = False  # whether a mirror left out the commit of a file
        self._requests = 0
        self._redirects = 0
        self._bytes = 0
        self._since = time.monotonic()

    @property
    def fetched(self) -> Fetched:
        seconds = time.monotonic() - self._since
        return Fetched(
            requests=self._requests, bytes=self._bytes, seconds=seconds, redirects=self._redirects
        )

    def stop(self) -> None:
        """End the waits of all threads, because the audit has failed."""
        self._retries.end()

    def get(
        self,
        url: str,
        take: Callable[[Answer], T],
        *,
        purpose: str,
        span: Span | None = None,
        commit: str | None = None,
    ) -> T:
        """Request `url` and return `take(answer)`; try again after each PassingError.

        If `commit` is given, every answer must name that commit. `purpose` describes the read in
        the log of requests.
        """

        def once(silence: float) -> T:
            return self.try_once(
                url, take, purpose=purpose, span=span, commit=commit, silence=silence
            )

        return outside_main_thread(lambda: self._retries.call(once))

    def try_once(  # noqa: PLR0913 - one keyword for each bound of an attempt
        self,
        url: str,
        take: Callable[[Answer], T],
        *,
        purpose: str,
        span: Span | None = None,
        commit: str | None = None,
        silence: float | None = None,
    ) -> T:
        """Make one attempt of `get`; it fails after `silence` seconds without an answer."""
        address, seconds_left = plain_url(url), silence or time_out()
        hub = address.origin_ascii
        headers = self._headers | self._authorization
        if span is not None:
            headers["range"] = span.http_range
        answer: Answer | None = None
        for _ in range(_MOST_REDIRECTS + 1):
            by_hub = address.origin_ascii == hub
            if not by_hub:  # neither this host nor the hosts it redirects to may get the token
                headers.pop("authorization", None)
            with self._replied(address, headers, seconds_left, purpose, by_hub=by_hub) as reply:
                answer = Answer(reply, self._count, answer)
                if not (answer.status in {_OK, _PARTIAL} or answer.redirects):
                    text = answer.upto(_MOST_OF_AN_ERROR)
                    raise refusal_error(self._model, answer, text, by_hub=by_hub)
                if commit is not None and answer.require_commit(commit):
                    self.names_no_commit = True
                if not answer.redirects:
                    _require_plain(answer)
                    return take(answer)
                with self._lock:
                    self._redirects += 1
                if answer.length is not None and answer.length <= _MOST_OF_A_REDIRECT:
                    answer.upto(answer.length + 1)  # one byte more than it has, to read to its end
                address = _redirected(answer)
                seconds_left = max(_LEAST_SILENCE, seconds_left - answer.age)
        detail = f"{plain_url(url).host_str} redirects more than {_MOST_REDIRECTS} times"
        raise SourceError(Reason.BAD_RESPONSE, detail)

    @contextmanager
    def _replied(
        self, url: Url, headers: Mapping[str, str], silence: float, purpose: str, *, by_hub: bool
    ) -> Iterator[Reply]:
        """Send one request; when the block ends, close its reply and log it."""
        turn = self._budget.admit(url.path) if by_hub else None
        with self._lock:
            self._requests += 1
        since, reply = time.monotonic(), None
        try:
            reply = self._client.ask(url, headers, silence)
            if turn:
                self._budget.note(turn, reply.status, reply.headers)
            yield reply
        except PassingError as fault:
            if fault.reason is Reason.TIMED_OUT:
                fault.silence = time.monotonic() - since
            raise
        finally:
            if reply:
                reply.close()
            elif turn:
                self._budget.note(turn, NO_ANSWER, {})
            # The query is left out, because it contains the signature of a storage address.
            requests_log.debug(
                "GET %s%s %s %s, %s bytes, %.0f ms: %s",
                url.origin_ascii,
                redacted(url.path),
                headers.get("range", "whole"),
                reply.status if reply else "no answer",
                f"{reply.received if reply else 0:,}",
                1000 * (time.monotonic() - since),
                purpose,
            )

    def _count(self, received: int) -> None:
        with self._lock:
            self._bytes += received
        self._budget.check(self._bytes)


def _require_plain(answer: Answer) -> None:
    encoding = answer.headers.get("content-encoding", "identity")
    if encoding != "identity":
        detail = (
            f"the answer of {answer.host} has the encoding {quoted(encoding)}, expected identity"
        )
        raise SourceError(Reason.BAD_RESPONSE, detail)


def _redirected(answer: Answer) -> Url:
    """Return the address that a redirect leads to."""
    source = answer.url
    try:
        target = plain_url(answer.headers["location"], source)
    except ValueError:
        detail = f"the redirect of {answer.host} does not have an address"
        raise SourceError(Reason.BAD_RESPONSE, detail) from None
    schemes = (source.scheme, target.scheme)
    if target.scheme not in {"http", "https"} or schemes == ("https", "http"):
        detail = f"{answer.host} redirects from {source.scheme} to {quoted(target.scheme)}"
        raise SourceError(Reason.BAD_RESPONSE, detail)
    return target

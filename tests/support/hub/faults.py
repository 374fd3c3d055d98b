"""Ways in which a server, mirror or proxy misbehaves: each turns a true answer into a false one."""

# ruff: noqa: ARG002 (every fault is given request and answer; few look at both)

import json
import re
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, repeat
from typing import Any

from .blobs import CHUNK, size_of
from .wire import Answer, Cut, Headers, Pause, Piece, Request, Step, plain, put

PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in</body></html>"
CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass(frozen=True, kw_only=True)
class Fault(ABC):
    """Turns a true answer into a false one."""

    def bites(self, request: Request, answer: Answer) -> bool:
        """Whether this answer can be spoilt so; if not, the fault waits for one that can."""
        return True

    @abstractmethod
    def spoil(self, request: Request, answer: Answer) -> Answer:
        """The answer that is sent instead."""


@dataclass(frozen=True, kw_only=True)
class BodyFault(Fault):
    """Spoils a body that is not empty."""

    def bites(self, request: Request, answer: Answer) -> bool:
        return request.method != "HEAD" and answer.header("Content-Length") != "0"


@dataclass(frozen=True, kw_only=True)
class WholeFile(Fault):
    """Ignores Range: 200 and the whole file."""

    def bites(self, request: Request, answer: Answer) -> bool:
        return answer.status == 206

    def spoil(self, request: Request, answer: Answer) -> Answer:
        size = size_of(answer.file)
        headers = put(put(answer.headers, "Content-Range", None), "Content-Length", str(size))
        body = Cut(content=answer.file, start=0, stop=size)
        return replace(answer, status=200, headers=headers, body=body)


@dataclass(frozen=True, kw_only=True)
class TooMany(Fault):
    """429: with RateLimit `r=0;t=reset`, or with Retry-After, or with neither."""

    reset: int | None = None  # seconds
    retry_after: int | str | None = None  # seconds, or an HTTP date

    def spoil(self, request: Request, answer: Answer) -> Answer:
        kind = "resolvers" if "/resolve/" in request.path else "api"
        limits = _limits(answer)
        if self.reset is not None:
            limits = put(limits, "RateLimit", f'"{kind}";r=0;t={self.reset}')
        wait = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        return plain(429, b"Too Many Requests", "text/plain; charset=utf-8", *wait, *limits)


@dataclass(frozen=True, kw_only=True)
class ServerError(Fault):
    """500, 502, 503, 504 and their kind, with a body of `size` bytes, as long as you like."""

    status: int = 500
    size: int = 21
    retry_after: int | None = None  # seconds

    def spoil(self, request: Request, answer: Answer) -> Answer:
        wait = () if self.retry_after is None else (("Retry-After", str(self.retry_after)),)
        length = ("Content-Length", str(self.size))
        headers = (("Content-Type", "text/html"), length, *wait, *_limits(answer))
        return Answer(status=self.status, headers=headers, body=_filler(self.size))


@dataclass(frozen=True, kw_only=True)
class Says(Fault):
    """Exactly this status and these headers, in place of an answer; the Hub's own are left out."""

    status: int
    headers: Headers = ()

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return plain(self.status, b"so be it", "text/plain; charset=utf-8", *self.headers)


@dataclass(frozen=True, kw_only=True)
class _Break(Fault):
    """Does something to the connection, at once or after so many bytes of the body."""

    after: int | None = None  # bytes of body; None: before the status line

    def bites(self, request: Request, answer: Answer) -> bool:
        return self.after is None or request.method != "HEAD"

    def _broken(self, answer: Answer, step: Step) -> Answer:
        if self.after is None:
            return replace(answer, hold=step)
        return replace(answer, body=chain(_first(answer.body, self.after), [step]))


@dataclass(frozen=True, kw_only=True)
class Reset(_Break):
    """The connection is reset (RST)."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return self._broken(answer, Step.RESET)


@dataclass(frozen=True, kw_only=True)
class HangUp(_Break):
    """The connection is closed in good order (FIN), too early."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return self._broken(answer, Step.CLOSE)


@dataclass(frozen=True, kw_only=True)
class Stall(_Break):
    """Nothing more comes; the connection is held until the client leaves or the server stops."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return self._broken(answer, Step.STALL)


@dataclass(frozen=True, kw_only=True)
class Late(Fault):
    """A true answer that comes from far away: so much later."""

    seconds: float

    def spoil(self, request: Request, answer: Answer) -> Answer:
        time.sleep(self.seconds)
        return answer


@dataclass(frozen=True, kw_only=True)
class Drip(BodyFault):
    """The body comes in small pieces with a pause before each."""

    piece: int = 1  # bytes
    seconds: float = 0.05

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return replace(answer, body=self._drops(answer.body))

    def _drops(self, body: Iterable[Piece]) -> Iterator[Piece]:
        for chunk in body:
            for at in range(0, len(chunk), self.piece):
                yield Pause(seconds=self.seconds)
                yield chunk[at : at + self.piece]


@dataclass(frozen=True, kw_only=True)
class ShortBody(BodyFault):
    """The last bytes that Content-Length promises never come; the connection is closed."""

    missing: int = 1

    def spoil(self, request: Request, answer: Answer) -> Answer:
        kept = max(0, int(answer.header("Content-Length")) - self.missing)
        return replace(answer, body=chain(_first(answer.body, kept), [Step.CLOSE]))


@dataclass(frozen=True, kw_only=True)
class WrongRange(Fault):
    """206 whose Content-Range names another offset or another total."""

    shift: int = 0  # added to both ends
    total: int | str | None = None  # "*" is legal; None: the true one

    def bites(self, request: Request, answer: Answer) -> bool:
        return answer.status == 206

    def spoil(self, request: Request, answer: Answer) -> Answer:
        first, last, total = map(
            int, CONTENT_RANGE.fullmatch(answer.header("Content-Range")).groups()
        )
        total = total if self.total is None else self.total
        value = f"bytes {first + self.shift}-{last + self.shift}/{total}"
        return replace(answer, headers=put(answer.headers, "Content-Range", value))


@dataclass(frozen=True, kw_only=True)
class Header(Fault):
    """One header replaced, or (None) left out; bites only where the true answer has it."""

    name: str
    value: str | None

    def bites(self, request: Request, answer: Answer) -> bool:
        return answer.header(self.name) is not None

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return replace(answer, headers=put(answer.headers, self.name, self.value))


@dataclass(frozen=True, kw_only=True)
class RedirectLoop(Fault):
    """A redirect to the very address that was asked."""

    status: int = 307

    def spoil(self, request: Request, answer: Answer) -> Answer:
        location = ("Location", request.target)
        return plain(self.status, b"", "text/plain", location, *_limits(answer))


@dataclass(frozen=True, kw_only=True)
class RedirectTo(Fault):
    """A redirect elsewhere (`file:`, `ftp:`, another host), or a true one, with a long body."""

    location: str | None = None  # None: the answer's own; bites only where it has one
    status: int = 302
    size: int = 0  # bytes of the redirect's own body

    def bites(self, request: Request, answer: Answer) -> bool:
        return self.location is not None or answer.header("Location") is not None

    def spoil(self, request: Request, answer: Answer) -> Answer:
        headers = put(answer.headers, "Location", self.location or answer.header("Location"))
        headers = put(headers, "Content-Length", str(self.size))
        return replace(answer, status=self.status, headers=headers, body=_filler(self.size))


@dataclass(frozen=True, kw_only=True)
class EndlessBody(BodyFault):
    """Spaces without end: until the connection closes, or in chunks that never stop."""

    chunked: bool = False

    def spoil(self, request: Request, answer: Answer) -> Answer:
        headers = put(answer.headers, "Content-Length", None)
        if not self.chunked:
            return replace(answer, headers=headers, body=repeat(b" " * CHUNK))
        headers = put(headers, "Transfer-Encoding", "chunked")
        piece = b"%x\r\n%s\r\n" % (CHUNK, b" " * CHUNK)
        return replace(answer, headers=headers, body=repeat(piece))


@dataclass(frozen=True, kw_only=True)
class EndlessHeaders(Fault):
    """Header lines without end."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        filler = (("X-Filler", "x" * 1000) for _ in repeat(None))
        return replace(answer, trailing=filler)


@dataclass(frozen=True, kw_only=True)
class HtmlPage(Fault):
    """200 and a page: a captive portal, or a proxy's login."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return plain(200, PAGE, "text/html; charset=utf-8", *_limits(answer))


@dataclass(frozen=True, kw_only=True)
class WrongJson(Fault):
    """200 and JSON of another shape."""

    value: Any = None

    def spoil(self, request: Request, answer: Answer) -> Answer:
        body = json.dumps(self.value).encode()
        return plain(200, body, "application/json; charset=utf-8", *_limits(answer))


@dataclass(frozen=True, kw_only=True)
class Gzipped(BodyFault):
    """A body in gzip, whatever the client accepts. Over a Sparse file it is a bomb: 1,000 to 1."""

    def spoil(self, request: Request, answer: Answer) -> Answer:
        headers = put(answer.headers, "Content-Length", None)  # the connection's end is the body's
        headers = put(headers, "Content-Encoding", "gzip")
        return replace(answer, headers=headers, body=_gzip(answer.body))


@dataclass(frozen=True, kw_only=True)
class After(Fault):
    """No fault: leaves every answer true, and sets `event` once `requests` of them have come."""

    requests: int = 1
    event: threading.Event = field(default_factory=threading.Event)
    _came: Iterator[int] = field(default_factory=lambda: count(1))

    def bites(self, request: Request, answer: Answer) -> bool:
        if next(self._came) == self.requests:
            self.event.set()
        return False

    def spoil(self, request: Request, answer: Answer) -> Answer:
        return answer


OFTEN_SEEN = (
    TooMany(reset=1),
    ServerError(status=500),
    ServerError(status=502),
    ServerError(status=503, retry_after=1),
    Reset(),
    Reset(after=1),
    HangUp(),
    ShortBody(),
)


def _limits(answer: Answer) -> Headers:
    return tuple(pair for pair in answer.headers if pair[0].startswith("RateLimit"))


def _first(body: Iterable[Piece], size: int) -> Iterator[Piece]:
    left = size
    for piece in body:
        if left <= 0:
            return
        yield piece[:left]
        left -= len(piece)


def _filler(size: int) -> Iterator[bytes]:
    return (b"." * min(CHUNK, size - at) for at in range(0, size, CHUNK))


def _gzip(body: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=31)  # 31: the gzip wrapper
    for piece in body:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()

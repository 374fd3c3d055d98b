"""HTTP for thousands of audits: httpx2's client over the standard library's connections.

On loopback a request by httpx2's own transport takes 202 us of processor time, by this one 115,
of which http.client has 66; a sweep's requests are its largest cost. It speaks no proxy: where
this machine has one, `client` is httpx2 as it is.
"""

import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.request import getproxies

import httpx2

from auditor.downloader.http import grace

_CHUNK = 64 * 1024  # bytes of a body at a time


class _Peer(NamedTuple):
    scheme: str
    host: str
    port: int


class _Line(NamedTuple):
    """One connection, to one peer, over a socket that can be hurried."""

    peer: _Peer
    http: http.client.HTTPConnection
    sock: "_Bounded"


def client() -> httpx2.Client | None:
    """A client for many audits and threads; None where a proxy is in the way."""
    if any(getproxies().get(scheme) for scheme in ("http", "https", "all")):
        return None
    return httpx2.Client(transport=Lean(httpx2.create_ssl_context()), timeout=None)


class Lean(httpx2.BaseTransport):
    """Connections that are kept and used again, each by one thread at a time."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._idle: dict[_Peer, list[_Line]] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        peer = _Peer(url.scheme, url.host, port)
        line = self._kept(peer) or self._connected(peer, request)
        return self._asked(line, request)

    def _kept(self, peer: _Peer) -> _Line | None:
        """A connection that is open yet: one that has something to say has been closed."""
        while True:
            with self._lock:
                kept = self._idle.get(peer)
                line = kept.pop() if kept else None
            if line is None or not line.sock.speaks():
                return line
            line.http.close()

    def close(self) -> None:
        with self._lock:
            for line in (line for kept in self._idle.values() for line in kept):
                line.http.close()
            self._idle.clear()

    def _connected(self, peer: _Peer, request: httpx2.Request) -> _Line:
        seconds = _timeouts(request).get("connect")
        if peer.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                peer.host, peer.port, timeout=seconds, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(peer.host, peer.port, timeout=seconds)
        try:
            connection.connect()
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error), request=request) from error
        except (OSError, UnicodeError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        bounded = _Bounded(connection.sock)
        connection.sock = bounded
        return _Line(peer, connection, bounded)

    def _asked(self, line: _Line, request: httpx2.Request) -> httpx2.Response:
        """The answer, its body unread."""
        connection = line.http
        line.sock.begin(_timeouts(request).get("read"))
        try:
            with _translated(request):
                target = request.url.raw_path.decode("ascii")
                connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
                for name, value in request.headers.raw:
                    connection.putheader(name, value)
                connection.endheaders()
                response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        line.sock.headers_are_here()
        return httpx2.Response(
            response.status,
            headers=response.getheaders(),
            stream=_Body(self, line, response, request),
            extensions={"reason_phrase": response.reason.encode("latin-1", "replace")},
        )

    def keep(self, line: _Line) -> None:
        """Take back a connection whose answer was read to its end."""
        with self._lock:
            self._idle.setdefault(line.peer, []).append(line)


class _Body(httpx2.SyncByteStream):
    """An answer's body; once read to its end its connection serves again."""

    def __init__(
        self,
        lean: Lean,
        line: _Line,
        response: http.client.HTTPResponse,
        request: httpx2.Request,
    ) -> None:
        self._lean = lean
        self._line = line
        self._response = response
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        response = self._response
        with _translated(self._request):
            while chunk := response.read1(_CHUNK):
                yield chunk
            if response.length:  # http.client takes an early end for the end
                message = f"the connection ended {response.length:,} bytes before the body"
                raise httpx2.RemoteProtocolError(message, request=self._request)

    def close(self) -> None:
        response = self._response
        at_its_end = response.isclosed() or response.length == 0
        response.close()
        if at_its_end and not response.will_close:
            self._lean.keep(self._line)
        else:
            self._line.http.close()


class _Bounded:
    """A socket that ends a read which takes too long, headers that drip included."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._until: float | None = None

    def begin(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)
        self._until = time.monotonic() + grace()

    def headers_are_here(self) -> None:
        self._until = None

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)

    def speaks(self) -> bool:
        poll = select.poll()  # select.select ends at 1,024 files, selectors take 10 us more
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What http.client reads; the socket stays open until this is closed too."""
        return io.BufferedReader(_Reads(self._sock.makefile("rb", buffering=0), self))

    def in_time(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise TimeoutError(f"no headers within {grace():.0f} s")

    def close(self) -> None:
        self._sock.close()


class _Reads(io.RawIOBase):
    """A socket's bytes, as long as they come in time."""

    def __init__(self, raw: io.RawIOBase, sock: _Bounded) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.in_time()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _timeouts(request: httpx2.Request) -> Mapping[str, float | None]:
    given: Mapping[str, float | None] = request.extensions.get("timeout", {})
    return given


@contextmanager
def _translated(request: httpx2.Request) -> Iterator[None]:
    """Errors of http.client and of sockets, as those of httpx2 that say the same."""
    try:
        yield
    except TimeoutError as error:
        raise httpx2.ReadTimeout(str(error), request=request) from error
    except (http.client.HTTPException, ValueError) as error:  # ValueError: a chunk of no size
        message = str(error) or type(error).__name__
        raise httpx2.RemoteProtocolError(message, request=request) from error
    except OSError as error:
        raise httpx2.ReadError(str(error), request=request) from error

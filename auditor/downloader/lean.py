"""The Wire of a sweep: connections that are kept for thousands of audits, over httptools' parser.

A sweep's requests are its largest cost. On loopback one takes 202 us of processor time by httpx2,
61 by http.client and 42 here, most of them the kernel's: httptools parses in C (llhttp, the parser
of Node.js). It speaks no proxy: where one is in the way, huggingface_hub's client serves.
"""

import re
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Self
from urllib.request import getproxies

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from auditor.downloader.transport import (
    UPGRADE,
    Address,
    BadAddressError,
    BrokenAnswerError,
    TooLateError,
    TransportError,
    grace,
    patience,
)

_AT_ONCE = 64 * 1024  # bytes of one read
_MOST_OF_A_HEAD = 64 * 1024  # bytes of status and headers; the Hub's have about 1 kB
_SWITCHING = 101
_FINAL = 200  # the first status that is not an interim one
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SENDABLE = re.compile(r"[\x20-\x7e]*")


class _Line:
    """One connection to one origin; it waits in `_await` and nowhere else.

    A socket with a time-out asks the kernel to wait before each call, needed or not, and each time
    another thread of the process takes over: a sweep took a tenth longer.
    """

    def __init__(self, sock: socket.socket, origin: tuple[str, str, int]) -> None:
        self.origin = origin
        self._sock = sock
        self.patience = patience()  # seconds for each single read
        self._poll = select.poll()  # select.select ends at 1,024 files, selectors take 10 us more
        sock.settimeout(0.0)

    def send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._sock.send(data) :]
            except _NOT_YET as error:
                self._await(error, select.POLLOUT)

    def receive(self) -> bytes:
        """What has come, after a wait if nothing has; nothing at the connection's end."""
        if not isinstance(self._sock, ssl.SSLSocket):  # which may hold more than poll knows of
            self._await(None, select.POLLIN)
        while True:
            try:
                return self._sock.recv(_AT_ONCE)
            except _NOT_YET as error:
                self._await(error, select.POLLIN)

    def is_open(self) -> bool:
        """Whether an idle connection can be used again."""
        self._poll.register(self._sock, select.POLLIN)
        return not self._poll.poll(0)  # there is nothing to read but its end

    def close(self) -> None:
        self._sock.close()

    def _await(self, error: OSError | None, event: int) -> None:
        """Wait until it can be read or written; TLS may need the other of the two first."""
        if isinstance(error, ssl.SSLWantReadError):
            event = select.POLLIN
        elif isinstance(error, ssl.SSLWantWriteError):
            event = select.POLLOUT
        self._poll.register(self._sock, event)
        if not self._poll.poll(self.patience * 1000):
            raise TimeoutError("timed out")


class Lean:
    """Connections that are kept and used again, each by one thread at a time."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str, int], list[_Line]] = {}

    @classmethod
    def unless_proxied(cls) -> Self | None:
        """One for many audits and threads; None where a proxy is in the way."""
        proxied = any(getproxies().get(scheme) for scheme in ("http", "https", "all"))
        return None if proxied else cls()

    def ask(self, address: Address, headers: Mapping[str, str], silence: float) -> "_Reply":
        asked = _request(address, headers)
        until = time.monotonic() + min(grace(), silence)
        line = self._kept(address.origin) or self._connected(address, min(patience(), silence))
        line.patience = min(patience(), silence)
        reply = _Reply(self, line, address)
        try:
            with _translated():
                line.send(asked)
                reply.begin(until)
        except BaseException:
            reply.close()
            raise
        return reply

    def keep(self, line: _Line) -> None:
        """Take back a connection whose answer was read to its end."""
        with self._lock:
            self._idle.setdefault(line.origin, []).append(line)

    def close(self) -> None:
        with self._lock:
            for line in (line for kept in self._idle.values() for line in kept):
                line.close()
            self._idle.clear()

    def _kept(self, origin: tuple[str, str, int]) -> _Line | None:
        """A connection that is open yet."""
        while True:
            with self._lock:
                kept = self._idle.get(origin)
                line = kept.pop() if kept else None
            if line is None or line.is_open():
                return line
            line.close()

    def _connected(self, address: Address, seconds: float) -> _Line:
        try:
            sock = _reached(address, seconds)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.scheme == "https":
                sock = self._secured(sock, address.host)
        except TimeoutError as error:
            raise TooLateError(str(error)) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
            raise TransportError(str(error)) from error
        return _Line(sock, address.origin)

    def _secured(self, sock: socket.socket, host: str) -> socket.socket:
        import httpx2  # noqa: PLC0415 - 35 ms; it knows which certificates are trusted here

        with self._lock:
            self._context = self._context or httpx2.create_ssl_context()
        try:
            return self._context.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise


def _reached(address: Address, seconds: float) -> socket.socket:
    """A connection. A name is looked up in a thread: time-outs and signals do not end a look-up."""
    place = (address.host, address.port)
    if address.host.replace(".", "").isdecimal() or ":" in address.host:
        return socket.create_connection(place, seconds)
    future = Future[socket.socket]()

    def connect() -> None:
        try:
            made = socket.create_connection(place, seconds)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(made)
            else:
                made.close()

    threading.Thread(target=connect, name="connect", daemon=True).start()
    try:
        return future.result(seconds)
    except BaseException:
        if not future.cancel() and future.exception() is None:
            future.result().close()  # it came in the last moment
        raise


def _request(address: Address, headers: Mapping[str, str]) -> bytes:
    """What is sent; raises BadAddressError where that would not be one request."""
    lines = [f"GET {address.target} HTTP/1.1", f"host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not all(map(_SENDABLE.fullmatch, lines)) or " " in address.target:
        raise BadAddressError("the address or a header holds what none can")
    return "\r\n".join((*lines, "\r\n")).encode()


class _Reply:
    """An answer whose connection serves again once its body was read to its end."""

    def __init__(self, lean: Lean, line: _Line, address: Address) -> None:
        self.address = address
        self._lean = lean
        self._line = line
        self._message = _Message()

    def begin(self, until: float) -> None:
        """Read status and headers, until then at the latest."""
        left, message = _MOST_OF_A_HEAD, self._message
        while not message.has_headers:
            left -= self._read()
            if left < 0 and not message.has_headers:
                detail = f"its headers have more than {_MOST_OF_A_HEAD:,} bytes"
                raise BrokenAnswerError(detail)
            if time.monotonic() > until:
                raise TimeoutError("no headers in time")
        self.status = message.status
        self.phrase = message.phrase
        self.headers: Mapping[str, str] = message.headers

    def pieces(self) -> Iterator[bytes]:
        message = self._message
        while True:
            while message.pieces:
                yield message.pieces.popleft()
            if message.ended:
                return
            with _translated():
                self._read()
            yield b""  # whoever reads looks at the clock: frames without content can be endless

    def close(self) -> None:
        message = self._message
        message.parser = None  # with it parser and message would hold each other
        if message.ended and message.may_be_followed:
            self._lean.keep(self._line)
        else:
            self._line.close()

    def _read(self) -> int:
        """Read once, and parse it; the number of bytes."""
        data = self._line.receive()
        message = self._message
        if data:
            message.take(data)
        elif message.has_headers and message.until_closed:
            message.ended = True
        else:
            raise BrokenAnswerError("the connection ended before the answer")
        return len(data)


class _Message:
    """What the parser has found so far; it calls what begins with on_."""

    def __init__(self) -> None:
        self.parser: HttpResponseParser | None = HttpResponseParser(self)
        self.status = 0
        self.phrase = ""
        self.headers: dict[str, str] = {}
        self.has_headers = False  # of the final answer
        self.pieces = deque[bytes]()
        self.ended = False
        self.may_be_followed = False  # by the answer to another request

    @property
    def until_closed(self) -> bool:
        """Whether the body's end is the connection's: nothing says how long it is."""
        return "content-length" not in self.headers and "transfer-encoding" not in self.headers

    def take(self, data: bytes) -> None:
        """Parse what has come; the parser stops where another protocol begins."""
        if self.parser is None:
            return
        try:
            self.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            said = UPGRADE if self.status == _SWITCHING else str(error) or type(error).__name__
            raise BrokenAnswerError(said) from error

    def on_message_begin(self) -> None:
        self.may_be_followed = False  # a message after a whole answer belongs to no request

    def on_status(self, phrase: bytes) -> None:
        if not self.has_headers:
            self.phrase += phrase.decode("latin-1")  # it may come in parts

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_headers:
            return  # a trailer, of which none says anything to us
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if not self.has_headers and self.parser:
            self.status = self.parser.get_status_code()
            self.has_headers = self.status >= _FINAL
            if not self.has_headers:  # 100 Continue and its like: the answer follows
                self.phrase = ""
                self.headers.clear()

    def on_body(self, piece: bytes) -> None:
        if not self.ended:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        if self.has_headers and not self.ended and self.parser:
            self.ended = True
            self.may_be_followed = self.parser.should_keep_alive()


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of sockets, as what they are to a Wire."""
    try:
        yield
    except TimeoutError as error:
        raise TooLateError(str(error)) from error
    except OSError as error:
        raise TransportError(str(error)) from error

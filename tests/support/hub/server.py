"""One origin: its socket, its threads, and the bytes it writes."""

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain, count
from typing import Any

from .faults import Fault
from .log import Entry, Log
from .wire import Answer, Origin, Pause, Request, Step, phrase

HOST = "127.0.0.1"
# Bytes; they keep what a client that leaves has not read out of the count of bytes sent. An answer
# with a fault, whose client is to leave, has fewer.
SEND_BUFFER = 128 * 1024
SPOILT_BUFFER = 16 * 1024
# Bytes. Loopback's own segments have 64 KiB, and a client acknowledges one alone after 40 ms, for
# which the next one waits: over a connection that serves again 8 MB took 2 s.
SEGMENT = 8 * 1024
FLUSH = 32 * 1024  # bytes of headers held back, so that endless headers do flow
# What lets pages of other sites read answers, as the Hub's do; sent to browsers alone.
SHARED = (("Access-Control-Allow-Origin", "*"), ("Access-Control-Expose-Headers", "*"))
LINGER_0 = struct.pack("ii", 1, 0)  # closing sends RST

Answering = Callable[[Request], tuple[Answer, Fault | None]]  # the fault that spoilt it


class Handler(BaseHTTPRequestHandler):
    """Reads requests from one connection and writes what the Hub answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client left, or the server stops
            super().handle()

    def serve(self) -> None:
        request = Request(
            origin=self.server.origin,
            method=self.command,
            target=self.path,
            headers=tuple(self.headers.items()),
            connection=self.server.number_of(self.connection),
            body=self._body(),
        )
        entry = self.server.log.open(request)
        answer, fault = self.server.answer(request)
        if fault:
            entry.fault = type(fault).__name__
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SPOILT_BUFFER)
        if answer.hold is not None:
            self._do(answer.hold)
        else:
            entry.status = answer.status
            self._write(answer, entry)

    def _body(self) -> bytes:
        """The whole body; a client that leaves before its end has not asked."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self._exactly(int(self.headers.get("Content-Length") or 0))
        body = bytearray()
        while size := int(self.rfile.readline() or b"x", 16):
            body += self._exactly(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)

    def _exactly(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionResetError
        return body

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 (http.server's names)

    def _write(self, answer: Answer, entry: Entry) -> None:
        pending = self._write_headers(answer)
        if self.command == "HEAD":
            self.wfile.write(pending)
            return
        for piece in answer.body:
            if isinstance(piece, bytes):
                entry.sent += len(piece)
                self.wfile.write(pending + piece)
                pending = b""
                continue
            self.wfile.write(pending)
            pending = b""
            if not self._do(piece):
                break
        self.wfile.write(pending)
        if not _delimited(answer, entry.sent):
            self.close_connection = True

    def _write_headers(self, answer: Answer) -> bytes:
        """Writes long headers; short ones are returned, to go out with the first of the body."""
        lines = bytearray(f"HTTP/1.1 {answer.status} {phrase(answer.status)}\r\n".encode())
        shared = SHARED if "Origin" in self.headers else ()
        for name, value in chain(answer.headers, answer.trailing, shared):
            lines += f"{name}: {value}\r\n".encode("latin-1")
            if len(lines) > FLUSH:
                self.wfile.write(lines)
                lines.clear()
        return bytes(lines + b"\r\n")

    def _do(self, step: Step | Pause) -> bool:
        """Whether the body goes on after this step."""
        match step:
            case Pause():
                self.server.stopping.wait(step.seconds)
                return True
            case Step.STALL:
                while self.connection.recv(FLUSH):
                    pass
            case Step.RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
            case Step.CLOSE:
                pass
        self.close_connection = True
        return False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's name)
        """The log is in memory."""


def _delimited(answer: Answer, sent: int) -> bool:
    """Whether the client knows where the body ended, so that the connection can be used again."""
    declared = answer.header("Content-Length")
    return declared == str(sent)


class Server(HTTPServer):
    """One origin; a thread for each connection, all of them joined at the end."""

    request_queue_size = 128

    def __init__(self, origin: Origin, port: int, answer: Answering, log: Log) -> None:
        self.origin = origin
        self.answer = answer
        self.log = log
        self.stopping = threading.Event()
        self.failures: list[Exception] = []
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[int, threading.Thread]] = {}
        super().__init__((HOST, port), Handler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with contextlib.suppress(OSError):  # not every system lets a server say so
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        self._wake, self._waker = socket.socketpair()
        self._loop = threading.Thread(target=self._accept, daemon=True)
        self._loop.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def number_of(self, connection: socket.socket) -> int:
        return self._open[connection][0]

    def _accept(self) -> None:
        """Like serve_forever, but woken to stop: its poll cost 20 ms a test."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while self._wake not in {key.fileobj for key, _ in selector.select()}:
                with contextlib.suppress(OSError):  # the client has gone already
                    self.process_request(*self.get_request())

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self._handle, args=(request, client_address), daemon=True)
        with self._lock:
            self._open[request] = next(self._numbers), thread
        thread.start()

    def _handle(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception as failure:  # noqa: BLE001 (raised again when the Hub is closed)
            self.failures.append(failure)
        finally:
            with self._lock:
                del self._open[request]
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection: by RST where the handler asked for that, else by FIN."""
        lingering = request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(LINGER_0))
        if lingering == LINGER_0:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def stop(self) -> None:
        self.stopping.set()
        self._waker.close()
        self._loop.join()
        self._wake.close()
        self.server_close()
        with self._lock:
            threads = [thread for _, thread in self._open.values()]
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client has gone already
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()

"""A server that says whatever bytes a test gives it, HTTP or not."""

import itertools
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from pyreqwest.http import Url


class RawServer(socketserver.ThreadingTCPServer):
    """Answers each request for /N with the pieces that were left under N; None ends it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pieces: dict[str, Callable[[], Iterable[bytes | None]]] = {}
        self.asked: list[tuple[str, int]] = []  # path, and the client's port
        self._numbers = itertools.count()

    def address(self, *pieces: bytes | None) -> Url:
        """Where these will be the answer."""
        return self.endless(lambda: pieces)

    def otherwise(self, *pieces: bytes | None) -> None:
        """These are the answer wherever nothing else was left."""
        self.pieces[""] = lambda: pieces

    def endless(self, pieces: Callable[[], Iterable[bytes | None]]) -> Url:
        """Where these will be the answer, which need have no end."""
        number = next(self._numbers)
        self.pieces[f"/{number}"] = pieces
        return Url(f"http://127.0.0.1:{self.server_address[1]}/{number}")


class _Handler(socketserver.StreamRequestHandler):
    server: RawServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has left
            while line := self.rfile.readline():
                while self.rfile.readline().strip():
                    pass
                path = line.decode().split()[1]
                self.server.asked.append((path, self.client_address[1]))
                for piece in self.server.pieces.get(path, self.server.pieces.get("", tuple))():
                    if piece is None:
                        return
                    self.wfile.write(piece)
                    self.wfile.flush()


@contextmanager
def raw_server() -> Iterator[RawServer]:
    """One that runs until the end of the block."""
    with RawServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()

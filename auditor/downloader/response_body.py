"""An answer's body: read as far as is asked, and left where it is slow or comes in crumbs."""

import time
from collections.abc import Callable, Mapping

from auditor.downloader.client import Reply
from auditor.downloader.retry import PassingError
from auditor.errors import Reason

# Bytes a second that a body must keep up once the time for its headers has passed: 33 kbit/s, the
# pace of a telephone modem. The transport's own time-outs never end a body that drips on and on.
_SLOWEST = 4 * 1024

# Pieces of a body, and bytes that each of them has on average where there are more. The least that
# networks carry at once are 500; a piece costs some 30 us, and a body of single bytes minutes.
_MOST_PIECES, _CRUMB = 10_000, 256

_DIGITS = 19  # of a header's number; more than any file has bytes
_PARTIAL = 206


class Body:
    """An answer's body, read from the start as far as is asked."""

    def __init__(
        self, reply: Reply, count: Callable[[int], None], within: float, since: float
    ) -> None:
        """`count` gets numbers of bytes; the pace counts from `within` seconds after `since` on."""
        self._host = reply.address.host
        self._count = count
        self._pieces = reply.pieces()
        self._data = bytearray()
        self._read = 0  # pieces
        self._within = within
        self._since = since

    @property
    def age(self) -> float:
        """Seconds since the request went."""
        return time.monotonic() - self._since

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
        """Raise PassingError where the body is slow; pieces may be empty, without end."""
        self._read += 1
        size = len(self._data)
        if self.age > self._within + size / _SLOWEST:
            detail = f"{self._host} sends too slowly: {size:,} bytes"
            raise PassingError(Reason.TIMED_OUT, f"{detail} in {self._within:.0f} s and more")
        if self._read > _MOST_PIECES + size / _CRUMB:
            detail = f"{self._host} sends {size:,} bytes in more than {self._read - 1:,} pieces"
            raise PassingError(Reason.BAD_RESPONSE, detail)


class Answer:
    """The file's answer: its status, its headers, and as much of its body as is asked for."""

    def __init__(
        self, reply: Reply, body: Body, linked_size: int | None, commit: str | None
    ) -> None:
        self.host = reply.address.host
        self.partial = reply.status == _PARTIAL
        self.headers: Mapping[str, str] = reply.headers
        self.body = body
        self.linked_size = linked_size  # the whole file's, as the redirect to it said
        self.commit = commit  # of which it is, as the Hub said

    @property
    def length(self) -> int | None:
        """Bytes of the body, where the answer says."""
        return whole_number(self.headers.get("content-length"))


def whole_number(text: str | None) -> int | None:
    """A header's value as a number; None if it is not a number, or absurdly long."""
    return (
        int(text) if text and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
    )

"""What travels: a request as the client sent it, and an answer as the server will write it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from .blobs import Content, chunks

Headers = tuple[tuple[str, str], ...]


class Origin(StrEnum):
    """Which of the two servers was asked."""

    HUB = "hub"
    STORAGE = "storage"


class Step(Enum):
    """What the server can do to a connection in place of writing to it."""

    RESET = "reset"  # RST
    CLOSE = "close"  # FIN
    STALL = "stall"  # hold it until the client goes away or the server stops


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Write nothing for so many seconds, or until the server stops."""

    seconds: float


Piece = bytes | Step | Pause


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request line with its headers and its body."""

    origin: Origin
    method: str
    target: str  # as in the request line: quoted, with the query
    headers: Headers
    connection: int  # counts the TCP connections of the server, from 1
    body: bytes = b""

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str | None:
        return find(self.headers, name)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A status, headers and the pieces of a body; lazy, so that 5 GB cost nothing."""

    status: int
    headers: Headers
    body: Iterable[Piece] = ()
    file: Content | None = None  # the whole file that the body was cut from
    trailing: Iterable[tuple[str, str]] = ()  # more headers, perhaps without end
    hold: Step | None = None  # done in place of any byte

    def header(self, name: str) -> str | None:
        return find(self.headers, name)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The bytes [start, stop) of a file, read when they are sent."""

    content: Content
    start: int
    stop: int

    def __iter__(self) -> Iterator[bytes]:
        return chunks(self.content, self.start, self.stop)


def find(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name.lower()), None)


def put(headers: Headers, name: str, value: str | None) -> Headers:
    """The headers with this one set, or without it where the value is None."""
    rest = tuple(pair for pair in headers if pair[0].lower() != name.lower())
    return rest if value is None else (*rest, (name, value))


def plain(
    status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *extra: tuple[str, str]
) -> Answer:
    """A whole answer of a few bytes."""
    headers = (("Content-Type", kind), ("Content-Length", str(len(body))), *extra)
    return Answer(status=status, headers=headers, body=(body,))


def as_json(status: int, value: Any, *extra: tuple[str, str]) -> Answer:
    return plain(status, json.dumps(value).encode(), "application/json; charset=utf-8", *extra)


def phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"

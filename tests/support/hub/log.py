"""The record of what was asked and answered."""

import threading
from dataclasses import dataclass

from .wire import Headers, Origin, Request


@dataclass(frozen=True, kw_only=True)
class Record:
    """One request and what came of it."""

    origin: Origin
    method: str
    path: str  # unquoted, without the query
    query: str  # as sent
    range: str | None  # the Range header
    status: int | None  # None: no answer was begun
    sent: int  # bytes of body handed to the connection; what a client has read is not more
    authorization: str | None  # the header as it arrived
    headers: Headers  # of the request
    connection: int  # counts the TCP connections of the server, from 1
    fault: str | None  # class of the misbehaviour; None: the answer was true


class Entry:
    """A record in the making; written by one handler thread only."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status: int | None = None
        self.sent = 0
        self.fault: str | None = None

    def freeze(self) -> Record:
        request = self.request
        return Record(
            origin=request.origin,
            method=request.method,
            path=request.path,
            query=request.query,
            range=request.header("Range"),
            status=self.status,
            sent=self.sent,
            authorization=request.header("Authorization"),
            headers=request.headers,
            connection=request.connection,
            fault=self.fault,
        )


class Log:
    """Entries in the order the requests arrived. An entry is made before its answer begins, so
    that a client that has its answer finds it here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def open(self, request: Request) -> Entry:
        entry = Entry(request)
        with self._lock:
            self._entries.append(entry)
        return entry

    def records(self) -> tuple[Record, ...]:
        with self._lock:
            entries = tuple(self._entries)
        return tuple(entry.freeze() for entry in entries)

    def reset(self) -> None:
        with self._lock:
            self._entries.clear()

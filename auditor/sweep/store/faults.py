"""Errors of SQLite and of a damaged store, as one line with what to do."""

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from auditor.errors import StoreError
from auditor.messages import quoted

_PRIMARY = 0xFF  # of an error code: what kind of fault it is, without its details
_KEPT = "what was audited is kept, and the same command goes on from there"
_FULL = f"make room; {_KEPT}"
_SAVE = "`sqlite3 STORE .recover` saves what it can; move the file away to begin anew"
_OTHER = "move it away, or name another file"
_LEAST = 64 * 1024  # bytes: with less than this on a disk, whatever fails there fails for that


FAULTS = (sqlite3.Error, zlib.error, json.JSONDecodeError, UnicodeDecodeError)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Errors of SQLite, and of what a store keeps, as StoreErrors."""
    try:
        yield
    except FAULTS as error:
        raise StoreError(store_fault(path, error)) from None


def store_fault(path: Path, error: Exception) -> str:
    """What is wrong with the store, and what to do."""
    return f"the store {quoted(str(path))} {_fault(path, error)}"


def _fault(path: Path, error: Exception) -> str:
    if path.is_dir():
        return "is a folder: name a file"
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY:
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR if _is_full(path):
            found = f"cannot be written, the disk is full: {_FULL}"
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            found = f"cannot be written ({error}), the disk is full or unsound: {_FULL}"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            where = quoted(str(path.parent))
            found = (
                f"cannot be opened ({error}): the file and its folder {where} have to be writable"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            found = f"has been written to by another sweep for a minute: wait for it; {_KEPT}"
        case sqlite3.SQLITE_NOTADB:
            found = f"is not an SQLite database, or its beginning is damaged: {_OTHER}"
        case _:
            found = f"is damaged: {error}; {_SAVE}"
    return found


def _is_full(path: Path) -> bool:
    try:
        left = os.statvfs(path.parent)
    except OSError:
        return False
    return left.f_bavail * left.f_frsize < _LEAST

"""A store's file as it is opened: made, taken over from an earlier version, or refused."""

import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from auditor.errors import StoreError, UsageError
from auditor.messages import quoted
from auditor.sweep.store.packing import compress_text, decompress_text
from auditor.sweep.store.schema import APPLICATION, TABLES, UPGRADES, VERSION

_BUSY = 60.0  # seconds that a writer waits for another one
_STEP = 0.2  # of these at a time: SQLite handles no signal while it waits
_NAMED = re.compile(r"^CREATE (?:TABLE|VIEW) (\w+)", re.MULTILINE)
_TABLES = frozenset(_NAMED.findall(TABLES))
_REFUSED = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM))


def open_store(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """A store to write; raises StoreError where that fails, UsageError as `prepare_tables` does."""
    with store_errors(path):
        database = _connected(str(path), stack)
        prepare_tables(database, path)
    return database


def open_store_to_read(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """A store to read, which may stand where nothing can be written; raises as `open_store`.

    SQLite reads a store of this kind (WAL) only where it may write a file beside it, unless it is
    told that no process writes to the store (immutable). That is true of a read-only mount. But
    then it leaves out what is in the -wal file: if there is one, both are copied and the copy is
    read. So is a copy of a store of an earlier version, which has to be taken over.
    """
    try:
        with ExitStack() as trial:
            database = _connected(str(path), trial)
            prepare_tables(database, path)
            stack.push(trial.pop_all())
            return database
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _REFUSED:
            raise StoreError(store_fault(path, error)) from None
    with store_errors(path):
        wal = path.with_name(f"{path.name}-wal")
        if not wal.exists() or not wal.stat().st_size:
            address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
            database = _connected(address, stack)
            if database.execute("PRAGMA user_version").fetchone() == (VERSION,):
                _check(database, path)
                return database
        return _copied(path, wal, stack)


def _copied(path: Path, wal: Path, stack: ExitStack) -> sqlite3.Connection:
    try:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-audit-")))
        copy = folder / path.name
        for file in (path, wal):
            if file.exists():
                shutil.copyfile(file, folder / file.name)
    except OSError as error:
        detail = f"it stands where nothing can be written, and cannot be copied: {error}"
        raise StoreError(f"the store {quoted(str(path))} cannot be read: {detail}") from None
    database = _connected(str(copy), stack)
    prepare_tables(database, path)
    return database


def _connected(name: str, stack: ExitStack) -> sqlite3.Connection:
    uri = name.startswith("file:")
    database = sqlite3.connect(name, timeout=_STEP, isolation_level=None, uri=uri)
    stack.callback(database.close)
    return database


def begin(database: sqlite3.Connection) -> None:
    """Begin a transaction as a writer, and wait a minute for another one to end his."""
    execute_patiently(database, "BEGIN IMMEDIATE")


def execute_patiently(database: sqlite3.Connection, statement: str) -> None:
    """Run a statement that may have to wait for another process; a signal ends the wait."""
    until = time.monotonic() + _BUSY
    while True:
        try:
            database.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        else:
            return


def roll_back(database: sqlite3.Connection) -> None:
    """Undo what a transaction has written; where the disk is full SQLite has done so itself."""
    if database.in_transaction:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")


def prepare_tables(database: sqlite3.Connection, path: Path) -> None:
    """Have the tables of this version in a file, in one transaction.

    Raises UsageError for a file that is another's, or of a newer version, StoreError for one that
    has lost a table.
    """
    execute_patiently(database, "PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    begin(database)
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and not application and not version:
        _run(database, TABLES)
    elif application != APPLICATION:
        raise UsageError(
            f"{quoted(str(path))} is a database of another program, not a store of a sweep"
        )
    elif version > VERSION:
        detail = f"of version {version}, and this auditor reads up to {VERSION}: update it"
        raise UsageError(f"the store {quoted(str(path))} is {detail}")
    elif version < VERSION:
        database.create_function("blind_parts", 1, _blind_parts, deterministic=True)
        database.create_function("reworded", 1, reworded, deterministic=True)
        for statements in UPGRADES[version - 1 :]:
            _run(database, statements)
    _check(database, path)
    database.execute("COMMIT")


def _check(database: sqlite3.Connection, path: Path) -> None:
    found = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if lost := sorted(_TABLES - found):
        error = sqlite3.DatabaseError(f"it has no table {', '.join(lost)}")
        raise StoreError(store_fault(path, error))


def _run(database: sqlite3.Connection, statements: str) -> None:
    """Run them in the transaction that is open: executescript would end it first."""
    for statement in statements.split(";\n"):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def _blind_parts(content: bytes) -> int:
    """How many components of a packed outcome could not be audited; 0 where it is damaged."""
    try:
        text = decompress_text(content)
        if b'"parts":[{' not in text:  # which spares most outcomes the reading
            return 0
        return sum(part["verdict"] == "unaudited" for part in json.loads(text)["parts"])
    except (zlib.error, ValueError, KeyError, TypeError):
        return 0  # reading the outcome reports it; the other models are as good as before


# --- errors of SQLite and of a damaged store, as one line with what to do -----------------------

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


# --- what a store of an earlier version keeps, in the words of this one -------------------------
#
# A text is looked through as bytes and not parsed: names and texts of strangers stand in strings,
# whose quotes JSON escapes, so that no string looks like a key and its value.

# Kinds of findings, statuses of modules, and the dtype that scales are counted under.
_RENAMED = {
    b"absent": b"missing-component",
    b"bad-layout": b"bad-quantization",
    b"beside": b"other-weights",
    b"bookkeeping": b"quantization-data",
    b"disputed": b"formula-disputed",
    b"mis-shaped": b"mismatched",
    b"new": b"newly-initialized",
    b"twin": b"copy-differs",
}
_WORD = re.compile(rb'("(?:kind|status|dtype)"\s*:\s*")(%s)(?=")' % b"|".join(_RENAMED))
_KEYS = (
    (re.compile(rb'"from"(?=\s*:\s*(?:null|"closed-form"|"oracle"))'), b'"by"'),
    (re.compile(rb'"twins"(?=\s*:\s*\[)'), b'"torch_copies"'),
)


def reworded(content: bytes) -> bytes:
    """A packed outcome or snapshot of version 2, or what several have in common, as of version 3.

    One that is damaged stays as it is: who reads it says so.
    """
    try:
        text = decompress_text(content)
    except zlib.error:
        return content
    found = _WORD.sub(lambda match: match[1] + _RENAMED[match[2]], text)
    for key, name in _KEYS:
        found = key.sub(name, found)
    return content if found == text else compress_text(found)

"""Open or create the file of a store; raise an error if the file is not a store."""

import json
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from auditor.errors import StoreError, UsageError
from auditor.messages import quoted
from auditor.sweep.store.schema import APPLICATION, TABLES, VERSION
from auditor.writing import require_no_link

_BUSY = 60.0  # seconds that a writer waits for another writer
_STEP = 0.2  # seconds of one wait: SQLite handles no signals while it waits
# The program and the version that wrote a file, and the number of tables in the file.
_MARKS = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""
_REFUSED = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM))


def open_store(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a store for writing; create it if it does not exist.

    Raise UsageError if the file belongs to another program or another version, sqlite3.Error if it
    is damaged or locked, OSError if its folder cannot be created or its path leads through a link.
    """
    require_no_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return _prepared(path, path, stack)


def open_store_to_read(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a store in a read transaction, which sees a single state; errors as in `open_store`.

    The store may be in a read-only folder. SQLite reads a WAL store only if it can write a file
    next to it, or if the `immutable` flag declares that no process writes to the store, which holds
    for a read-only mount. But an immutable store is read without its -wal file: if that is not
    empty, both files are copied and the copy is read.
    """
    if not path.exists():
        raise UsageError(f"the store {quoted(str(path))} does not exist; `audit sweep` creates one")
    try:
        if path.is_symlink():  # nothing is written through it
            database = _connected(path, stack, "?mode=ro")
            _check(database, path)
        else:
            database = _prepared(path, path, stack)
    except sqlite3.Error as error:
        if _kind_of(error) not in _REFUSED:
            raise
        wal = Path(f"{path}-wal")
        if wal.exists() and wal.stat().st_size:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-audit-")))
            for file in (path, wal):
                shutil.copyfile(file, folder / file.name)
            database = _prepared(folder / path.name, path, stack)
        else:
            database = _connected(path, stack, "?mode=ro&immutable=1")
            _check(database, path)
    database.execute("BEGIN")
    return database


def _connected(file: Path, stack: ExitStack, options: str = "") -> sqlite3.Connection:
    address = f"{file.absolute().as_uri()}{options}"
    database = sqlite3.connect(address, timeout=_STEP, isolation_level=None, uri=True)
    stack.callback(database.close)
    return database


def _prepared(file: Path, path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Connect to `file`, and create the tables if it is empty; `path` is its name in errors.

    A file that is refused stays unchanged.
    """
    database = _connected(file, stack)
    execute_patiently(database, "BEGIN IMMEDIATE")
    with database:
        if database.execute(_MARKS).fetchone() == (0, 0, 0):
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
            for statement in TABLES.split(";\n"):  # executescript would end the transaction first
                database.execute(statement)
        _check(database, path)
    execute_patiently(database, "PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def execute_patiently(database: sqlite3.Connection, statement: str) -> None:
    """Run a statement; wait up to a minute for another process. A signal interrupts the wait."""
    until = time.monotonic() + _BUSY
    while True:
        try:
            database.execute(statement)
        except sqlite3.OperationalError as error:
            if _kind_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        else:
            return


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise UsageError if the file is not a store of this version."""
    application, version, _ = database.execute(_MARKS).fetchone()
    name = quoted(str(path))
    if application != APPLICATION:
        raise UsageError(f"{name} is a database of another program, expected the store of a sweep")
    if version != VERSION:
        detail = f"has version {version}, expected {VERSION}"
        ways = "move it away and sweep again, or use the hf-audit that created it"
        raise UsageError(f"the store {name} {detail}; {ways}")


# --- errors of SQLite and of damaged stores, as one line with a remedy ---------------------------

_RESUME = "outcomes are stored, and the same command resumes the sweep"


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, and of decoding stored rows, into StoreErrors."""
    try:
        yield
    except (sqlite3.Error, zlib.error, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"the store {quoted(str(path))} {_fault(path, error)}") from None


def _kind_of(error: Exception) -> int:
    """Return SQLite's primary error code, or SQLITE_CORRUPT for an error of another library."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _fault(path: Path, error: Exception) -> str:
    """Describe an error of the store and its remedy."""
    if path.is_dir():
        return "is a folder, expected a file"
    match _kind_of(error):
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
            return f"cannot be written, the disk is full or damaged ({error}); make room: {_RESUME}"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            places = f"the file and its folder {quoted(str(path.parent))}"
            return f"cannot be opened ({error}); make {places} writable"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"was locked by another sweep for a minute; wait for it: {_RESUME}"
        case sqlite3.SQLITE_NOTADB:
            detail = "is not an SQLite database, or its beginning is damaged"
            return f"{detail}; move it away, or name another file"
        case _:
            ways = "`sqlite3 STORE .recover` saves what it can; move the file away to start again"
            return f"is damaged: {error}; {ways}"

"""A store's file as it is opened: made, taken over from an earlier version, or refused."""

import json
import re
import shutil
import sqlite3
import tempfile
import time
import zlib
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import quote

from auditor.errors import StoreError, UsageError
from auditor.messages import quoted
from auditor.sweep.store.earlier_words import reworded
from auditor.sweep.store.faults import store_errors, store_fault
from auditor.sweep.store.packing import decompress_text
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

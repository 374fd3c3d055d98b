"""A store's file as it is opened: made, taken over from an earlier version, or refused."""

import json
import sqlite3
import zlib
from pathlib import Path

from auditor.containers.words import quoted
from auditor.errors import UsageError
from auditor.sweep.store.packing import unpack
from auditor.sweep.store.schema import APPLICATION, FROM_1, TABLES, VERSION


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Have the tables of this version in a file, in one transaction.

    Raises UsageError for a file that is another's, or of a newer version.
    """
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("BEGIN IMMEDIATE")
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables and not application and not version:
        _run(database, TABLES)
    elif application != APPLICATION:
        raise UsageError(f"{quoted(str(path))} is a database of something else, no store of ours")
    elif version > VERSION:
        detail = f"of version {version}, and this auditor reads up to {VERSION}: update it"
        raise UsageError(f"the store {quoted(str(path))} is {detail}")
    elif version < VERSION:
        database.create_function("blind_parts", 1, _blind_parts, deterministic=True)
        _run(database, FROM_1)
    database.execute("COMMIT")


def _run(database: sqlite3.Connection, statements: str) -> None:
    """Run them in the transaction that is open: executescript would end it first."""
    for statement in statements.split(";\n"):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {VERSION}")


def _blind_parts(content: bytes) -> int:
    """How many components of a packed outcome could not be audited; 0 where it is damaged."""
    try:
        text = unpack(content)
        if b'"parts":[{' not in text:  # which spares most outcomes the reading
            return 0
        return sum(part["verdict"] == "unaudited" for part in json.loads(text)["parts"])
    except (zlib.error, ValueError, KeyError, TypeError):
        return 0  # who reads the outcome says so; the other models are as good as before

"""What is in a store, to hold two of them together."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from auditor.sweep.store.schema import merged_object

TABLES = (
    *("nights", "planned", "listings", "snapshots"),
    *("outcomes", "failures", "contents", "commits"),
)


def contents(store: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything in a store but the times and the numbers of plans, which say how often it ran.

    A row that shares a content which is not there is an error.
    """
    with closing(sqlite3.connect(store)) as database:
        database.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")]  # noqa: S608 - ours
            for name in TABLES
        }
    shared = {row["digest"]: row["content"] for row in tables["contents"]}
    for rows in tables.values():
        for row in rows:
            for time in ("started", "finished", "plan"):
                row.pop(time, None)
            if "verdict" in row:
                rest = shared[row["shared"]] if row["shared"] else None
                row["content"] = {**merged_object(row["content"], rest), "fetched": None}
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}

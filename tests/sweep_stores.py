"""What is in a store, to hold two of them together."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from auditor.sweep.store import unpack


def contents(store: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything in a store but the times and the numbers of plans, which say how often it ran."""
    with closing(sqlite3.connect(store)) as database:
        database.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in database.execute(f"SELECT * FROM {name}")]  # noqa: S608 - ours
            for name in ("nights", "planned", "listings", "snapshots", "outcomes", "failures")
        }
    for rows in tables.values():
        for row in rows:
            for time in ("started", "finished", "recorded", "seconds", "plan"):
                row.pop(time, None)
            if "verdict" in row:
                row["content"] = {**json.loads(unpack(row["content"])), "fetched": None}
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}

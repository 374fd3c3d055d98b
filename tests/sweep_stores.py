"""What is in a store, to hold two of them together; and a moment to disturb whoever fills one."""

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from hub import Fault

from auditor.sweep.store import unpack


class After(Fault):
    """Spoils nothing; sets `event` once so many requests have come."""

    requests: int

    def bites(self, request, answer):
        del request, answer
        self.left.append(None)
        if len(self.left) == self.count:
            self.event.set()
        return False

    def __init__(self, count):
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "left", [])
        object.__setattr__(self, "event", threading.Event())


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

"""The record of what each fix replaced, `FOLDER/.audit-fix.json`: an undo needs it.

It is written as one of the files of the fix, so it exists if and only if the fix was done.
"""

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from auditor.checkpoint.snapshot import FileState
from auditor.fixing.journal import Entry, decoded, encoded
from auditor.fixing.staging import stage_text

RECORD = ".audit-fix.json"


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of every fix that can be undone, in the order in which they were taken."""

    version: Literal[1] = 1
    fixes: tuple[tuple[Entry, ...], ...] = ()


def read_record(folder: Path) -> Record:
    """Return the folder's record; an empty one if there is none. Raise FixError if it is broken."""
    path = folder / RECORD
    if not os.path.lexists(path):
        return Record()
    return decoded(path, Record, "remove it, and undo what was fixed before by hand")


def record_entry(
    work: Path, number: int, fixes: tuple[tuple[Entry, ...], ...], before: FileState | None
) -> Entry:
    """Stage the record of these fixes under a free number; or its removal if there are none."""
    if not fixes:
        return Entry(file=RECORD, how="remove", before=before)
    stage_text(work / str(number), encoded(Record(fixes=fixes)))
    return Entry(file=RECORD, how="replace", staged=str(number), before=before)

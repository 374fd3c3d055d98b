"""The table of formats that are recognised, and reconciled at most in part.

A format is recognised by the first bytes of its main file, or by the name of that file and its
first bytes. A file that was not opened (on the Hub) is recognised by its name.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, json

from auditor.containers.weight_formats import (
    PartialFile,
    Table,
    TensorFault,
    UnfollowedError,
    UnsafeFileError,
    parse_of,
)
from auditor.errors import CheckpointError
from auditor.messages import named


class OtherFormat(Struct, frozen=True, kw_only=True):
    """A format: how its main file is recognised, what is read of it, and what a user can do."""

    name: str
    known_by: str  # how a person recognises it, in Markdown
    files: str  # a pattern of the main file's path, in lower case; "": only its bytes show it
    start: str = ""  # a pattern of its first 512 bytes, in Latin-1; "": its name suffices
    by_start: bool = False  # whether those bytes suffice, whatever the name
    by_name: bool = True  # whether the name suffices for a file that was not opened
    module: str = ""  # whose parse(file, sparse) reads it, and returns None for another format
    is_followed: bool = False  # whether that module follows each pickle in it
    in_parts: bool = False  # whether a weight file of it alone is no model
    read: str = "the first bytes"
    to_do: str


# The first row that fits is a file's format. `docs/checkpoints.md` is written from this table.
_DATA = Path(__file__).parents[1] / "data" / "other_formats.json"
OTHER_FORMATS = json.decode(_DATA.read_bytes(), type=tuple[OtherFormat, ...])


def format_of(file: str, start: bytes) -> OtherFormat | None:
    """Return the format of a file with these first bytes; None if it is not in the table."""
    for row in OTHER_FORMATS:
        is_named = _has_name(row, file)
        if (is_named or row.by_start) and _starts_with(row, start):
            return row
    return None


def formats_by_name(files: Iterable[str]) -> Iterator[tuple[OtherFormat, str]]:
    """Yield the format of each file that was not opened and whose name shows it."""
    rows = [row for row in OTHER_FORMATS if row.by_name]
    for file in files:
        if row := next((row for row in rows if _has_name(row, file)), None):
            yield row, file


def is_in_parts(files: Iterable[str]) -> bool:
    """Return whether files are parts of a format of which no file alone is a model."""
    rows = [row for row in OTHER_FORMATS if row.by_name and row.in_parts]
    return any(_has_name(row, file) for file in files for row in rows)


def read_format(file: str, sparse: PartialFile, row: OtherFormat) -> Table | None:
    """Return what a file of the format declares; None if it is of another format after all.

    Raise UnsafeFileError if loading it may run code.
    """
    if not row.module:
        return Table(file=file, tensors=())
    try:
        table: Table | None = parse_of(row.module)(file, sparse)
    except (UnsafeFileError, UnfollowedError):
        raise
    except CheckpointError as error:
        fault = f"{named(file)} cannot be read as {row.name}: {error}"
        return Table(file=file, tensors=(), faults=(TensorFault((), fault),))
    return table


def _has_name(row: OtherFormat, file: str) -> bool:
    return re.fullmatch(rf"(?:.*/)?(?:{row.files})", file.lower(), re.DOTALL) is not None


def _starts_with(row: OtherFormat, start: bytes) -> bool:
    return not row.start or re.match(row.start.encode("latin-1"), start, re.DOTALL) is not None

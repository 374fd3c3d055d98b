"""The records at the end of a zip archive, which say where its directory lies.

torch reads them with miniz, which takes the last record that has room behind it whatever its
comment's length, and follows a zip64 locator whether or not a field asks for it. Other readers do
neither, so that one file can be two archives. What can be read in two ways is refused here.
"""

from struct import Struct
from typing import NamedTuple

from auditor.containers.partial_file import PartialFile
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span

_MARK, _MARK64, _MARK_LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END = Struct("<4sHHHHIIH")
_END64 = Struct("<4sQHHIIQQQQ")
_LOCATOR = Struct("<4sIQI")
_COMMENT = 0xFFFF  # bytes of the longest comment
_UNCOUNTED = 12  # bytes of the zip64 record that its own length leaves out: its mark and the length


class _Numbers(NamedTuple):
    """What both records say, the wide one in 64 bits."""

    disk: int
    first_disk: int
    here: int  # entries on this disk
    entries: int
    length: int  # bytes of the directory
    start: int


_FULL = _Numbers(0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)  # "see the zip64 record"


class End(NamedTuple):
    """Where the directory lies: it ends where the records begin."""

    entries: int
    length: int
    start: int


def find_end(file: str, sparse: PartialFile) -> End:
    """What the records at the end say; raises CheckpointError where two readers could differ."""
    at, record = _last(file, sparse)
    narrow = _Numbers(*_END.unpack(record)[1:7])
    numbers, stop = _with_zip64(file, sparse, narrow, at)
    if numbers.disk or numbers.first_disk or numbers.here != numbers.entries:
        raise CheckpointError(f"{named(file)} is one disk of a zip archive that has several")
    if numbers.start + numbers.length != stop:
        raise CheckpointError(
            f"{named(file)} has a lying zip directory: {numbers.entries:,} entries in "
            f"{numbers.length:,} bytes at byte {numbers.start:,}, which does not end where its end "
            f"record begins, at byte {stop:,}"
        )
    return End(numbers.entries, numbers.length, numbers.start)


def _last(file: str, sparse: PartialFile) -> tuple[int, bytes]:
    """Offset and bytes of the last record that has room behind it; its comment ends the file."""
    size = sparse.size
    start = max(0, size - _END.size - _LOCATOR.size - _END64.size)
    tail = sparse.read(Span(start, size))
    if not tail[-_END.size :].startswith(_MARK):
        start = max(0, size - _END.size - _COMMENT)
        tail = sparse.read(Span(start, size))
    at = tail.rfind(_MARK, 0, max(0, len(tail) - _END.size + len(_MARK)))
    if at < 0:
        raise CheckpointError(
            f"{named(file)} begins as a zip archive and does not end as one: it is truncated, or "
            f"something was written behind it (no end of a zip directory in its last "
            f"{len(tail):,} bytes)"
        )
    record = tail[at : at + _END.size]
    declared, found = _END.unpack(record)[-1], len(tail) - at - _END.size
    if declared != found:
        raise CheckpointError(
            f"{named(file)} begins as a zip archive and does not end as one: the end of its "
            f"directory declares a comment of {declared:,} bytes, and {found:,} follow it"
        )
    return start + at, record


def _with_zip64(file: str, sparse: PartialFile, narrow: _Numbers, at: int) -> tuple[_Numbers, int]:
    """The numbers, and where the first of the records begins that say them."""
    fault = CheckpointError(f"{named(file)} has a zip64 directory whose records contradict it")
    asked = any(one == full for one, full in zip(narrow, _FULL, strict=True))
    locator = sparse.read(Span(max(0, at - _LOCATOR.size), at))
    if not locator.startswith(_MARK_LOCATOR):
        if asked:
            raise fault
        return narrow, at
    if len(locator) < _LOCATOR.size:
        raise fault
    _, disk, place, disks = _LOCATOR.unpack(locator)
    stop = at - _LOCATOR.size
    if disk or disks != 1 or place + _END64.size > stop:
        raise fault
    mark, length, _, _, *fields = _END64.unpack(sparse.read(Span(place, place + _END64.size)))
    wide = _Numbers(*fields)
    agree = all(one in {of, full} for one, of, full in zip(narrow, wide, _FULL, strict=True))
    if mark != _MARK64 or place + _UNCOUNTED + length != stop or not agree:
        raise fault
    return wide, place

"""The two stored copies of a tied tensor, compared byte for byte before a fix prefers one."""

from pathlib import Path

from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader.local_file import open_regular_file
from auditor.errors import SourceError
from auditor.findings import Duplicate
from auditor.tensors import Span
from auditor.values.placing import Placed, place_tensors

_BLOCK = 1 << 22  # bytes that are read at once


def copies_are_equal(snapshot: Snapshot, folder: Path, found: tuple[Duplicate, ...]) -> bool:
    """Whether each tensor that is stored under two names has the same bytes under both.

    Return False if the bytes of a copy cannot be read.
    """
    placed = {one.tensor.name: one for one in place_tensors(snapshot, folder)[0]}
    pairs = [
        (placed.get(copy.name), placed.get(of))
        for finding in found
        for copy, of in zip(finding.tensors, finding.of, strict=True)
        if copy.name != of
    ]
    if len(pairs) < sum(len(finding.tensors) for finding in found):
        return False  # a name in two files: only one of the two places is known
    try:
        return all(one and other and _have_same_bytes(one, other) for one, other in pairs)
    except SourceError:
        return False


def _have_same_bytes(one: Placed, other: Placed) -> bool:
    if (one.dtype, one.span.length) != (other.dtype, other.span.length):
        return False
    with open_regular_file(one.path) as first, open_regular_file(other.path) as second:
        for done in range(0, one.span.length, _BLOCK):
            length = min(_BLOCK, one.span.length - done)
            here, there = (
                file.read(Span(span.start + done, span.start + done + length)).data
                for file, span in ((first, one.span), (second, other.span))
            )
            if here != there:
                return False
    return True

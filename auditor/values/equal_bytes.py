"""Compare the bytes of the tensors that two checkpoints store alike.

Local files are read block by block, in bounded memory. Files on the Hub are compared by the sha256
in their listing: equal files have equal tensors; which tensors of other files differ is not known.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from auditor.checkpoint.snapshot import Snapshot, Source, WeightHeader
from auditor.comparing import BytesCompared
from auditor.downloader.local_file import BLOCK, RegularFile
from auditor.downloader.waits import ProgressLines, ReadingProgress, numbers_read
from auditor.tensors import StoredTensor
from auditor.values.base_files import digests
from auditor.values.placing import Placed, open_files, place_tensors

Pair = tuple[StoredTensor, StoredTensor]


def compare_bytes(
    before: Snapshot, after: Snapshot, pairs: Sequence[Pair], say: Callable[[str], None]
) -> BytesCompared:
    """Compare the pairs of tensors, by their bytes if both are on this machine, else by files.

    Raise SourceError if a file cannot be read, or has changed since its header was read.
    """
    is_known = before.commit is not None or before.source is Source.BUNDLED
    if is_known and (before.model, before.commit) == (after.model, after.commit):
        return BytesCompared(equal=tuple(tensor.name for tensor, _ in pairs))
    if before.folder is None or after.folder is None:
        return _by_files(before, after, pairs)
    return _by_bytes(before, after, pairs, say)


def _by_bytes(
    before: Snapshot, after: Snapshot, pairs: Sequence[Pair], say: Callable[[str], None]
) -> BytesCompared:
    first, second = (
        {(one.tensor.file, one.tensor.name): one for one in reversed(placed_tensors(snapshot))}
        for snapshot in (before, after)
    )
    placed = [
        (first.get((one.file, one.name)), second.get((other.file, other.name)))
        for one, other in pairs
    ]
    both = [(one, other) for one, other in placed if one is not None and other is not None]
    size, done = sum(one.span.length for one, _ in both), 0
    talk = ProgressLines.of(say)
    progress = ReadingProgress(talk.progress, numbers_read)
    equal: list[str] = []
    others: list[str] = []
    with (
        open_files(one for one, _ in both) as files,
        open_files(other for _, other in both) as other_files,
    ):
        for one, other in both:
            is_equal = _is_equal(files[one.path], one, other_files[other.path], other)
            (equal if is_equal else others).append(one.tensor.name)
            done += one.span.length
            progress(done, size)
    talk.progress(None)
    return BytesCompared(
        equal=tuple(equal),
        other=tuple(others),
        unknown=len(pairs) - len(both),
        why_unknown="their files do not state where they are",
    )


def placed_tensors(snapshot: Snapshot) -> tuple[Placed, ...]:
    placed, _ = place_tensors(snapshot, snapshot.folder or Path())
    return placed


def _is_equal(file: RegularFile, one: Placed, other_file: RegularFile, other: Placed) -> bool:
    """Return whether two tensors have the same bytes; one place in one file is not read."""
    if one.span.length != other.span.length:
        return False
    if file.state == other_file.state and one.span == other.span:
        return True
    block, other_block = bytearray(BLOCK), bytearray(BLOCK)
    for start in range(0, one.span.length, BLOCK):
        length = min(BLOCK, one.span.length - start)
        if length < BLOCK:
            block, other_block = bytearray(length), bytearray(length)
        file.read_into(memoryview(block), one.span.start + start)
        other_file.read_into(memoryview(other_block), other.span.start + start)
        if block != other_block:
            return False
    return True


# --- by the digests of files --------------------------------------------------------------------


def _by_files(before: Snapshot, after: Snapshot, pairs: Sequence[Pair]) -> BytesCompared:
    """Compare files by sha256; a local file is only read if the other side lists its size."""
    first, second = _digest_by_file(before, after), _digest_by_file(after, before)
    heads = {head.name: head for head in before.headers}
    other_heads = {head.name: head for head in after.headers}
    equal: list[str] = []
    differing: dict[str, bool] = {}  # whether the headers are equal, by A's file
    for one, other in pairs:
        digest, other_digest = first.get(one.file), second.get(other.file)
        if digest is not None and digest == other_digest:
            equal.append(one.name)
        elif _differ(digest, other_digest, heads.get(one.file), other_heads.get(other.file)):
            prefixes = heads[one.file].prefix, other_heads[other.file].prefix
            is_same = prefixes[0] == prefixes[1] != b""
            differing[one.file] = differing.get(one.file, True) and is_same
    return BytesCompared(
        equal=tuple(equal),
        other_files=tuple(differing),
        same_headers=bool(differing) and all(differing.values()),
        unknown=len(pairs) - len(equal),
        why_unknown="their files are not both on this machine, and no equal sha256 is listed",
    )


def _differ(
    digest: str | None,
    other_digest: str | None,
    head: WeightHeader | None,
    other_head: WeightHeader | None,
) -> bool:
    """Return whether two files with the same tensors are known to have other bytes."""
    if head is None or other_head is None or _names(head) != _names(other_head):
        return False
    if None in {digest, other_digest}:
        return None not in {head.size, other_head.size} and head.size != other_head.size
    return digest != other_digest


def _names(head: WeightHeader) -> frozenset[str] | None:
    parsed = head.parsed
    return None if isinstance(parsed, Exception) else frozenset(one.name for one in parsed.tensors)


def _digest_by_file(snapshot: Snapshot, other: Snapshot) -> dict[str, str | None]:
    digest = digests(snapshot.folder)
    read = {head.name for head in snapshot.headers}
    sizes = {file.size for file in other.files}
    return {
        file.name: digest(file)
        for file in snapshot.files
        if file.name in read and (file.sha256 is not None or file.size in sizes)
    }

"""Compare the bytes of two checkpoints: of the tensors that both store, or of complete files.

Local files are read block by block, in bounded memory. Files on the Hub are compared by the sha256
in their listing: equal files have equal tensors; which tensors of other files differ is not known.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot, Source, WeightHeader
from auditor.comparing import BytesCompared
from auditor.downloader.local_file import file_sha256
from auditor.downloader.model_argument import HubModel
from auditor.downloader.waits import ProgressLines, ReadingProgress, numbers_read
from auditor.errors import CheckpointError
from auditor.messages import quoted
from auditor.tensors import StoredTensor
from auditor.values.tensor_bytes import LocalBytes, Placed, equal_bytes, opened, place_tensors

Pair = tuple[StoredTensor, StoredTensor]
Digest = Callable[[RepoFile], str | None]  # returns the sha256 of a file, None if unknown


class ListedModel(NamedTuple):
    """The files of a model, on this machine or on the Hub."""

    name: str
    files: Sequence[RepoFile]
    commit: str | None = None
    folder: Path | None = None
    fetched: Fetched = Fetched()

    @property
    def title(self) -> str:
        return f"{quoted(self.name)}{f' @ {self.commit[:12]}' if self.commit else ''}"


def listed_on_hub(model: HubModel, token: str | None, say: Callable[[str], None]) -> ListedModel:
    """List the files of a model on the Hub; raise SourceError if that fails."""
    from auditor.downloader.hub import read_listing  # noqa: PLC0415 - 0.1 s

    listing, fetched = read_listing(model, token, say)
    return ListedModel(listing.model_id, listing.files, listing.commit, fetched=fetched)


def digests(folder: Path | None) -> Digest:
    """Return a function that returns a file's listed digest, or computes it from the local file.

    Each local file is read once. The function raises SourceError if the file was replaced or
    changed since it was listed.
    """
    digest_by_path: dict[str, str] = {}

    def digest(file: RepoFile) -> str | None:
        if file.sha256 is not None or folder is None:
            return file.sha256
        if file.name not in digest_by_path:
            digest_by_path[file.name] = file_sha256(folder / file.name, expected=file.state)
        return digest_by_path[file.name]

    return digest


def is_same_file(
    file: RepoFile, other: RepoFile, digest: Digest, other_digest: Digest
) -> bool | None:
    """Return whether two files have the same bytes; None if a digest is unknown.

    Digests are only computed if the sizes may be equal.
    """
    if None not in {file.size, other.size} and file.size != other.size:
        return False
    both = (digest(file), other_digest(other))
    return None if None in both else both[0] == both[1]


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
        {(one.tensor.file, one.tensor.name): one for one in reversed(place_tensors(snapshot)[0])}
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
        opened(one for one, _ in both) as data,
        opened(other for _, other in both) as other_data,
    ):
        for one, other in both:
            is_equal = _is_one_place(data, one, other_data, other) or (
                one.span.length == other.span.length
                and equal_bytes(data, one, other_data, other)[0]
            )
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


def _is_one_place(data: LocalBytes, one: Placed, other_data: LocalBytes, other: Placed) -> bool:
    """Return whether two tensors are one span of one file, such as a blob of the cache."""
    states = data.files[one.path].state, other_data.files[other.path].state
    return states[0] == states[1] and one.span == other.span


def _by_files(before: Snapshot, after: Snapshot, pairs: Sequence[Pair]) -> BytesCompared:
    """Compare the files of the pairs by sha256."""
    digest, other_digest = digests(before.folder), digests(after.folder)
    files, other_files = _weight_files(before), _weight_files(after)
    results: dict[tuple[str, str], bool | None] = {}
    differing: dict[str, bool] = {}  # whether the headers are equal, by A's file
    for names in dict.fromkeys((one.file, other.file) for one, other in pairs):
        results[names] = None
        if names[0] not in files or names[1] not in other_files:
            continue
        (head, file), (other_head, other_file) = files[names[0]], other_files[names[1]]
        results[names] = is_same_file(file, other_file, digest, other_digest)
        if results[names] is False and _names(head) == _names(other_head):
            is_same_header = head.prefix == other_head.prefix != b""
            differing[names[0]] = differing.get(names[0], True) and is_same_header
    equal = tuple(one.name for one, other in pairs if results[one.file, other.file])
    return BytesCompared(
        equal=equal,
        other_files=tuple(differing),
        same_headers=bool(differing) and all(differing.values()),
        unknown=len(pairs) - len(equal),
        why_unknown="their files are not both on this machine, and no equal sha256 is listed",
    )


def _weight_files(snapshot: Snapshot) -> dict[str, tuple[WeightHeader, RepoFile]]:
    """Return the header and the listing's entry of each weight file."""
    listed = {file.name: file for file in snapshot.files}
    return {
        head.name: (head, listed.get(head.name, RepoFile(name=head.name, size=head.size)))
        for head in snapshot.headers
    }


def _names(head: WeightHeader) -> frozenset[str]:
    parsed = head.parsed
    tensors = () if isinstance(parsed, CheckpointError) else parsed.tensors
    return frozenset(one.name for one in tensors)

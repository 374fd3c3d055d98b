"""The reader of NeMo's .nemo: a tar archive of model_config.yaml, weights and tokenizers.

Each member is looked at like a file of a folder: a pickle in it is followed.
"""

from collections.abc import Iterator
from tarfile import HeaderError, TarInfo

from auditor.containers import code_in_files
from auditor.containers.weight_formats import (
    FilePart,
    NeedsBytes,
    PartialFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
)
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.names.parts import file_name
from auditor.tensors import Span, StoredTensor

_BLOCK = 512
_MOST_MEMBERS = 2000
_CONFIG = "model_config.yaml"


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the tensors of the weights, and a fault if the archive ends too soon.

    Raise UnsafeFileError if a member may run code, UnfollowedError for a compressed archive.
    """
    if not file.lower().endswith(".nemo"):
        return Table(file=file, tensors=())
    if not code_in_files.is_tar(sparse):
        table = Table(file=file, tensors=())
        raise UnfollowedError(f"{named(file)} is a compressed archive, and not unpacked", table)
    tensors: list[StoredTensor] = []
    names: set[str] = set()
    size_faults: list[str] = []
    doubts: list[str] = []
    for name, member in _members(sparse):
        names.add(file_name(name))
        if member.stop > sparse.size:
            size_faults.append(
                f"{named(file)} is truncated: its member {named(name)} ends at byte "
                f"{member.stop:,} of {sparse.size:,}"
            )
            break
        try:
            tensors.extend(_tensors(f"{file}/{name}", member, sparse))
        except UnfollowedError as error:
            doubts.append(str(error))
    faults = size_faults or [
        f"{named(file)} lacks {what}"
        for what, is_there in (
            (_CONFIG, _CONFIG in names),
            ("weights (model_weights.ckpt)", any(map(_is_weights, names))),
        )
        if not is_there
    ]
    tensors.sort(key=lambda one: one.name)
    table = Table(file=file, tensors=tuple(tensors), size_faults=tuple(faults))
    if doubts:
        raise UnfollowedError(doubts[0], table)
    return table


def _is_weights(name: str) -> bool:
    return name.endswith((".ckpt", ".distcp", ".safetensors", ".pt", "metadata.json", ".zarray"))


def _members(sparse: PartialFile) -> Iterator[tuple[str, Span]]:
    """Yield the name and the bytes of each file in the archive, as its header declares them."""
    at, count = 0, 0
    while at + _BLOCK <= sparse.size:
        block = sparse.read(Span(at, at + _BLOCK))
        if not block.strip(b"\0"):
            return
        try:
            info = TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except HeaderError as error:
            raise CheckpointError(f"its member at byte {at:,} has no header: {error}") from None
        count += 1
        if count > _MOST_MEMBERS:
            raise CheckpointError(f"it has more than {_MOST_MEMBERS:,} members")
        start = at + _BLOCK
        if info.isreg() and info.size >= 0:
            name = info.name.removeprefix("./").encode(errors="replace").decode()
            yield name, Span(start, start + info.size)
        at = start + -(-max(0, info.size) // _BLOCK) * _BLOCK


def _tensors(name: str, member: Span, sparse: PartialFile) -> tuple[StoredTensor, ...]:
    """Follow a member as a file of its own; return its tensors, if it has any."""
    try:
        table = code_in_files.parse(name, _Member.of(sparse, member))
    except NeedsBytes as needs:
        span = needs.span
        raise NeedsBytes(Span(member.start + span.start, member.start + span.stop)) from None
    except (UnsafeFileError, UnfollowedError):
        raise
    except CheckpointError:
        return ()
    if table.imports:
        raise UnsafeFileError(f"{named(name)} is a pickle", table.imports)
    return table.tensors


class _Member(PartialFile, frozen=True):
    """A member of an archive as a file of its own."""

    archive: PartialFile
    start: int

    @classmethod
    def of(cls, archive: PartialFile, span: Span) -> "_Member":
        start, length = span.start, span.length
        parts = (
            FilePart(max(0, part.start - start), part.data[max(0, start - part.start) :][:length])
            for part in archive.parts
            if part.start < span.stop and start < part.stop
        )
        inside = (one._replace(data=one.data[: length - one.start]) for one in parts)
        return cls(length, tuple(inside), archive, start)

    def read(self, span: Span) -> bytes:
        if not 0 <= span.start <= span.stop <= self.size:
            return super().read(span)  # which raises the error
        try:
            return self.archive.read(Span(self.start + span.start, self.start + span.stop))
        except NeedsBytes:
            raise NeedsBytes(span) from None

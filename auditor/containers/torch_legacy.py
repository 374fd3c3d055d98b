"""The legacy form of torch.save: five pickles, then the storages, each behind eight bytes.

The pickles are a magic number, the protocol, facts about the machine, the value and the keys of
the storages. torch supplies storages to the pickle of the value alone.
"""

from typing import NamedTuple

from auditor.containers.pickle_machine import MAX_PICKLE, follow_pickle
from auditor.containers.pickle_values import FollowedPickle
from auditor.containers.torch_storages import Held, storages
from auditor.containers.weight_formats import NeedsBytes, PartialFile, not_followed
from auditor.messages import named, quoted
from auditor.tensors import Span

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
_MAGIC, _PROTOCOL, _FACTS, _VALUE, _KEYS = range(5)
_FIRST = 64 * 1024  # bytes of the first read; doubled until they suffice
_LENGTH = 8  # bytes before each storage
_TAR = 512  # bytes of the first block of a tar archive


class LegacyFile(NamedTuple):
    """The pickles of a file, up to the first with a fault, and where its storages lie."""

    pickles: list[FollowedPickle]
    fault: str | None  # why torch does not load the file, a verb first
    held: Held

    @property
    def value(self) -> FollowedPickle:
        return self.pickles[_VALUE]


def read_legacy(file: str, sparse: PartialFile) -> LegacyFile:
    """Follow the pickles of the file; raise UnsafeFileError if torch reads something else."""
    if _is_tar(sparse.read(Span(0, min(sparse.size, _TAR)))):
        raise not_followed(file, "is a tar archive, as torch wrote before version 0.1.10")
    pickles = _pickles(file, sparse)
    if fault := _fault(pickles):
        return LegacyFile(pickles, fault, Held({}, {}))
    return LegacyFile(pickles, None, _held(file, pickles, sparse.size))


def _is_tar(block: bytes) -> bool:
    """Whether torch.load reads the file with tarfile, which it tries before pickles."""
    from tarfile import HeaderError, TarInfo  # noqa: PLC0415 - few files are of the legacy form

    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except HeaderError:
        return False
    return True


def _pickles(file: str, sparse: PartialFile) -> list[FollowedPickle]:
    """Follow the pickles that torch.load would read, up to the first with a fault."""
    data = next((part.data for part in sparse.parts if part.start == 0), b"")
    pickles: list[FollowedPickle] = []
    at = 0
    while len(pickles) <= _KEYS:
        followed = follow_pickle(data, at)
        if followed.fault and followed.fault.truncated and len(data) < sparse.size:
            if len(data) >= MAX_PICKLE:
                raise not_followed(
                    file, f"has pickles of more than {MAX_PICKLE:,} bytes", followed.outside
                )
            raise NeedsBytes(Span(0, min(sparse.size, max(_FIRST, 2 * len(data)), MAX_PICKLE)))
        pickles.append(followed)
        at = followed.stop
        if followed.fault or (len(pickles) == 1 and followed.value != MAGIC):
            break
    sparse.read(Span(0, min(at, sparse.size)))  # a snapshot keeps the bytes that were used
    return pickles


def _fault(pickles: list[FollowedPickle]) -> str | None:
    """Return why torch refuses the pickles, a verb first; None if it reads them."""
    if fault := pickles[-1].fault:
        return f"has a pickle that {fault.reason}"
    if [pickle.value for pickle in pickles[:_FACTS]] != [MAGIC, PROTOCOL]:
        return "is a pickle without the magic number and the protocol of torch.save"
    if any(pickles[which].persistent for which in (_MAGIC, _PROTOCOL, _FACTS, _KEYS)):
        return "has a storage in a pickle for which torch supplies none"
    keys = pickles[_KEYS].value
    if not isinstance(keys, list):
        return "has keys of storages that are not a list"
    known = storages(pickles[_VALUE])
    for key in keys:
        if not isinstance(key, str) or key not in known:
            shown = quoted(key) if isinstance(key, str) else "whose key is not a string"
            return f"holds the storage {shown}, which its value does not use"
    return None


def _held(file: str, pickles: list[FollowedPickle], size: int) -> Held:
    """Return where the storages lie; they follow the pickles in the order of the keys."""
    known, keys, start = storages(pickles[_VALUE]), pickles[_KEYS].value, pickles[_KEYS].stop
    spans: dict[str, Span] = {}
    at = start
    for key in keys if isinstance(keys, list) else ():
        spans[key] = Span(at + _LENGTH, at + _LENGTH + known[key].length)
        at = spans[key].stop
    faults = {
        key: f"its storage {quoted(key)} is not among the keys of the file"
        for key in known
        if key not in spans
    }
    if at == size:
        return Held(spans, faults)
    fault = (
        f"{named(file)} is {'truncated' if size < at else 'too long'}: it has {size:,} bytes, "
        f"expected {at:,}: {start:,} of pickles and {at - start:,} of storages"
    )
    return Held(spans, faults, (fault,))

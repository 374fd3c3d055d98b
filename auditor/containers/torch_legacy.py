"""The legacy form of torch.save: five pickles, then the storages, each behind eight bytes.

The pickles are a magic number, the protocol, facts about the machine, the value and the keys of
the storages. Only of the value torch gives the unpickler a persistent_load, which makes storages.
"""

from typing import NamedTuple

from auditor.containers.pickle_interpreter import follow_pickle
from auditor.containers.pickle_reader import MAX_PICKLE
from auditor.containers.pickle_values import Ran
from auditor.containers.torch_storages import Held, asked_keys, storages
from auditor.containers.weight_formats import NeedsBytes, PartialFile
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
_MAGIC, _PROTOCOL, _FACTS, _VALUE, _KEYS = range(5)
_FIRST = 64 * 1024  # bytes of a file that are looked at first; doubled until they suffice
_LENGTH = 8  # bytes before each storage
_TAR = 512  # bytes of a tar archive's first block


class LegacyFile(NamedTuple):
    """What a legacy file says: its pickles, up to one with a fault, and what that fault is."""

    runs: list[Ran]
    broken: str | None  # why torch.save did not write it, or how it is broken; then `held` is empty
    held: Held

    @property
    def value(self) -> Ran:
        """The pickle of the value, with what all of them would import."""
        value = self.runs[_VALUE]
        return Ran(
            value=value.value,
            stop=value.stop,
            globals=tuple(dict.fromkeys(name for ran in self.runs for name in ran.globals)),
            calls=tuple(call for ran in self.runs for call in ran.calls),
            persistent=value.persistent,
        )


def read_legacy(file: str, sparse: PartialFile) -> LegacyFile:
    """The pickles of the file, followed; raises CheckpointError where torch reads something else.

    torch.load asks first whether the file is a tar archive, whatever it begins with.
    """
    if _is_tar(sparse.read(Span(0, min(sparse.size, _TAR)))):
        raise CheckpointError(
            f"{named(file)} is a tar archive as well as a pickle, and torch.load reads the archive"
        )
    runs = _pickles(file, sparse)
    if broken := _fault(runs):
        return LegacyFile(runs, f"{named(file)}{broken}", Held({}, {}))
    return LegacyFile(runs, None, _held(file, runs, sparse.size))


def _is_tar(block: bytes) -> bool:
    """What torch.load finds out by tarfile; the sum over the block is all that shows it."""
    from tarfile import HeaderError, TarInfo  # noqa: PLC0415 - few files are of the legacy form

    try:
        TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except HeaderError:
        return False
    return True


def _pickles(file: str, sparse: PartialFile) -> list[Ran]:
    """The pickles that the file begins with, up to one that has a fault or is of no use here."""
    data = next((part.data for part in sparse.parts if part.start == 0), b"")
    runs: list[Ran] = []
    at = 0
    while len(runs) <= _KEYS:
        ran = follow_pickle(data, at)
        if ran.truncated and len(data) < sparse.size:
            if len(data) >= MAX_PICKLE:
                raise CheckpointError(
                    f"{named(file)} has pickles of more than {len(data):,} bytes; "
                    f"{MAX_PICKLE:,} are the most that are read"
                )
            raise NeedsBytes(Span(0, min(sparse.size, max(_FIRST, 2 * len(data)), MAX_PICKLE)))
        runs.append(ran)
        at = ran.stop
        if ran.fault or (len(runs) == 1 and ran.value != MAGIC):
            break
    sparse.read(Span(0, min(at, sparse.size)))  # what was used, and no more, is kept
    return runs


def _fault(runs: list[Ran]) -> str | None:
    """What makes torch refuse the pickles: behind the file's name."""
    if runs[-1].fault:
        return f": its pickle {runs[-1].fault}"
    if [ran.value for ran in runs[:_FACTS]] != [MAGIC, PROTOCOL]:
        lacks = "its magic number and its protocol are not there"
        return f" is a pickle that torch.save did not write: {lacks}"
    if any(runs[which].persistent for which in (_MAGIC, _PROTOCOL, _FACTS, _KEYS)):
        return ": a pickle beside that of its value asks for a storage, and torch has none for it"
    keys = runs[_KEYS].value
    if not isinstance(keys, list):
        return ": the keys of its storages are not a list"
    asked = asked_keys(runs[_VALUE])
    for key in keys:
        if not isinstance(key, str) or key not in asked:
            shown = quoted(key) if isinstance(key, str) else "what is not a string"
            return f": it says that it holds the storage {shown}, for which its value does not ask"
    return None


def _held(file: str, runs: list[Ran], size: int) -> Held:
    known, keys, head = storages(runs[_VALUE]), runs[_KEYS].value, runs[_KEYS].stop
    spans: dict[str, Span] = {}
    at = head
    for key in (key for key in keys if key in known) if isinstance(keys, list) else ():
        spans[key] = Span(at + _LENGTH, at + _LENGTH + known[key].length)
        at = spans[key].stop
    faults = {
        key: f"its storage {quoted(key)} is not among those that the file says it holds"
        for key in known
        if key not in spans
    }
    if at == size:
        return Held(spans, faults)
    fault = (
        f"{named(file)} is {'truncated' if size < at else 'too long'}: its pickles have "
        f"{head:,} bytes and its storages {at - head:,}, {at:,} in all, and it has {size:,}"
    )
    return Held(spans, faults, (fault,))

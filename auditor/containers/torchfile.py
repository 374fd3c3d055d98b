"""A file of torch.save: its tensors, from the zip directory and data.pkl, or from five pickles.

Since torch 1.6 such a file is a zip archive with a pickle of the value, `data.pkl`, and an entry
`data/KEY` for each storage. The legacy form is five pickles (a magic number, the protocol, facts
about the machine, the value, the keys of the storages) and then the storages, each behind eight
bytes of length. A pickle is followed and never loaded: see `pickles`.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers import zips
from auditor.containers.imports import strange
from auditor.containers.jsons import lfs_fault
from auditor.containers.kinds import Fault, Table
from auditor.containers.magic import identity
from auditor.containers.pickle_machine import MAX_PICKLE
from auditor.containers.pickled import Ran
from auditor.containers.pickles import follow
from auditor.containers.sparse import NeedsBytes, Sparse
from auditor.containers.state_dict import StateDict, is_dict, state_dict
from auditor.containers.torch_tensors import Storage, View, storage
from auditor.containers.words import named, quoted
from auditor.errors import CheckpointError
from auditor.tensors import Span, StoredTensor, natural_key

MAGIC = 0x1950A86A20F9469CFC6C  # of the legacy form
_LEGACY_PROTOCOL = 1001
_PICKLES = 5
_FIRST = 64 * 1024  # bytes of a legacy file that are looked at first; doubled until they suffice
_ALIGNED = 64  # bytes; where torch's writer lets the data of an entry begin
_FIELD = 4  # bytes of the head of an extra field in a local header
_U32_MAX = 2**32 - 1
_LENGTH = 8  # bytes before each storage of the legacy form
_MOST_FAULTS = 20  # of one file; more are counted
_TAR = slice(257, 262)


class _Held(NamedTuple):
    """Where the storages of a file lie, and what follows from that."""

    spans: Mapping[str, Span]  # by key
    faults: Mapping[str, str]  # by key: what is wrong with a storage
    size_faults: tuple[str, ...] = ()


def parse(file: str, sparse: Sparse) -> Table:
    """The tensors of a file of torch.save; raises CheckpointError where it is none."""
    if sparse.size == 0:
        raise CheckpointError(f"{named(file)} is empty: 0 bytes")
    head = sparse.read(Span(0, min(sparse.size, 32)))
    if head.startswith(b"PK\x03\x04"):
        return _zipped(file, sparse)
    if head.startswith((b"\x80", b"L119547037146038801333356L")):
        return _legacy(file, sparse)
    head = sparse.read(Span(0, min(sparse.size, 1024)))
    if fault := lfs_fault(named(file), head):
        raise CheckpointError(fault)
    if follow(head).globals:  # a pickle of protocol 0 or 1 has no mark of its own
        return _legacy(file, sparse)
    raise CheckpointError(f"{named(file)} {_other(head)}")


def _other(head: bytes) -> str:
    """What a file is that begins as none of torch.save does; the verb first."""
    if head[_TAR] == b"ustar":
        return "is a tar archive, as torch wrote before 0.1.10; load it once and save it again"
    known = "a safetensors file, perhaps" if head[8:9] == b"{" else identity(head)
    return f"is {known}, not a file of torch.save" if known else "is no file of torch.save"


# --- the zip form -----------------------------------------------------------------------------


def _zipped(file: str, sparse: Sparse) -> Table:
    archive = zips.directory(file, sparse)
    top = next(iter(archive.entries), "").partition("/")[0]
    entry = archive.entries.get(f"{top}/data.pkl")
    if f"{top}/constants.pkl" in archive.entries:
        raise CheckpointError(
            f"{named(file)} is a TorchScript archive, a program with its tensors (constants.pkl), "
            f"which from_pretrained does not load; save its state_dict() with torch.save"
        )
    if entry is None:
        names = ", ".join(quoted(name) for name in islice(archive.entries, 3))
        raise CheckpointError(
            f"{named(file)} is a zip archive without {quoted(f'{top}/data.pkl')}, so none of "
            f"torch.save; it holds {names or 'nothing'}"
        )
    ran = follow(zips.content(archive, entry, sparse, MAX_PICKLE))
    return _table(file, ran, _entries(archive, f"{top}/data/", _storages(ran)))


def _entries(archive: zips.Archive, folder: str, storages: Mapping[str, Storage]) -> _Held:
    spans: dict[str, Span] = {}
    faults: dict[str, str] = {}
    for key, held in storages.items():
        entry = archive.entries.get(folder + key)
        if entry is None:
            faults[key] = f"its storage {quoted(key)} is not in the archive"
            continue
        if entry.size != held.length:
            faults[key] = (
                f"its storage {quoted(key)} has {entry.size:,} bytes in the archive, and the "
                f"pickle declares {held.length:,}"
            )
        start = _data_start(entry)
        spans[key] = Span(start, start + held.length)
    return _Held(spans, faults)


def _data_start(entry: zips.Entry) -> int:
    """Where torch's writer lets an entry's data begin, as far as the directory tells.

    Behind a field of padding, and 64-bit sizes where they are needed, at the next multiple of 64.
    Reading the local headers would take a request for each storage.
    """
    large, far = entry.packed >= _U32_MAX, entry.header >= _U32_MAX
    wide = _FIELD + 16 * large + 8 * far if large or far else 0
    start = -(-(entry.least + _FIELD + wide) // _ALIGNED) * _ALIGNED
    return start if start + entry.packed <= entry.stop else entry.least


# --- the legacy form --------------------------------------------------------------------------


def _legacy(file: str, sparse: Sparse) -> Table:
    runs = _pickles(file, sparse)
    if runs[-1].fault or [ran.value for ran in runs[:2]] != [MAGIC, _LEGACY_PROTOCOL]:
        return _no_legacy(file, runs)
    value, keys = runs[3], runs[4]
    storages = _storages(value)
    order = [key for key in keys.value if key in storages] if isinstance(keys.value, list) else []
    spans: dict[str, Span] = {}
    at = keys.stop
    for key in dict.fromkeys(order):
        spans[key] = Span(at + _LENGTH, at + _LENGTH + storages[key].length)
        at = spans[key].stop
    faults = {
        key: f"its storage {quoted(key)} is not among those that the file says it holds"
        for key in storages
        if key not in spans
    }
    size_faults = () if at == sparse.size else (_size_fault(file, keys.stop, at, sparse.size),)
    merged = _merged(runs)
    return _table(file, merged, _Held(spans, faults, size_faults))


def _pickles(file: str, sparse: Sparse) -> list[Ran]:
    """The pickles that the file begins with, up to one that has a fault or is of no use here."""
    data = next((part.data for part in sparse.parts if part.start == 0), b"")
    runs: list[Ran] = []
    at = 0
    while len(runs) < _PICKLES:
        ran = follow(data, at)
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


def _merged(runs: list[Ran]) -> Ran:
    """The value's pickle, with what all of them would import."""
    return Ran(
        value=runs[3].value,
        stop=runs[3].stop,
        globals=tuple(dict.fromkeys(name for ran in runs for name in ran.globals)),
        calls=tuple(call for ran in runs for call in ran.calls),
        persistent=runs[3].persistent,
    )


def _no_legacy(file: str, runs: list[Ran]) -> Table:
    """A pickle that torch.save did not write, or one that breaks off."""
    last = runs[-1]
    if last.fault:
        broken = f"{named(file)}: its pickle {last.fault}"
    else:
        lacks = "its magic number and its protocol are not there"
        broken = f"{named(file)} is a pickle, and none of torch.save: {lacks}"
    return _broken(file, _all_imports(runs), broken)


def _all_imports(runs: list[Ran]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for ran in runs for line in strange(ran)))


def _size_fault(file: str, head: int, expected: int, size: int) -> str:
    return (
        f"{named(file)} is {'truncated' if size < expected else 'too long'}: its pickles have "
        f"{head:,} bytes and its storages {expected - head:,}, {expected:,} in all, and it has "
        f"{size:,}"
    )


# --- both -------------------------------------------------------------------------------------


def _storages(ran: Ran) -> dict[str, Storage]:
    """Every storage that the pickle names, by key; of two of one key the first."""
    found: dict[str, Storage] = {}
    for kept in ran.persistent:
        held = storage(kept)
        if isinstance(held, Storage):
            found.setdefault(held.key, held)
    return found


def _broken(file: str, imports: tuple[str, ...], broken: str) -> Table:
    return Table(file=file, tensors=(), imports=imports, broken=broken)


def _table(file: str, ran: Ran, held: _Held) -> Table:
    if ran.fault:
        return _broken(file, strange(ran), f"{named(file)}: its pickle {ran.fault}")
    found = state_dict(ran.value)
    if found.fault:
        return _broken(file, strange(ran), f"{named(file)}: its value {found.fault}")
    if not (found.tensors or found.unreadable or is_dict(ran.value)):
        broken = f"{named(file)} holds no tensors where a state dict is due"
        return _broken(file, strange(ran), broken)
    tensors = [
        StoredTensor(name, view.dtype, view.shape, prod(view.shape), file, _span(view, held))
        for name, view in found.tensors.items()
    ]
    tensors.sort(key=lambda tensor: tensor.name)
    return Table(
        file=file,
        tensors=tuple(tensors),
        size_faults=held.size_faults,
        notes=(f"{named(file)}: {found.note}",) if found.note else (),
        shared=_shared(found.tensors),
        imports=strange(ran),
        faults=_limited(file, list(_faults(found, held))),
    )


def _span(view: View, held: _Held) -> Span:
    """Where the tensor's bytes begin, and as many as it has: strides may spread them wider."""
    start = held.spans.get(view.storage.key, Span(0, 0)).start + view.start
    return Span(start, start + view.length)


def _shared(tensors: Mapping[str, View]) -> Mapping[str, str]:
    first: dict[tuple[str, int, int, int], str] = {}
    shared: dict[str, str] = {}
    for name in sorted(tensors, key=natural_key):
        view = tensors[name]
        if view.length and first.setdefault(view.place, name) != name:
            shared[name] = first[view.place]
    return MappingProxyType(shared)


def _faults(found: StateDict, held: _Held) -> Iterator[Fault]:
    for name, reason in found.unreadable.items():
        yield Fault((name,), f"tensor {quoted(name)} {reason}")
    for name, view in found.tensors.items():
        key, length = view.storage.key, view.storage.length
        if key in held.faults:
            yield Fault((name,), f"tensor {quoted(name)}: {held.faults[key]}")
        elif key in held.spans and held.spans[key].length != length:
            two = f"{held.spans[key].length:,} bytes and with {length:,}"
            yield Fault(
                (name,), f"tensor {quoted(name)}: its storage {quoted(key)} is declared with {two}"
            )
        elif view.stop > view.storage.length:
            yield Fault((name,), f"tensor {quoted(name)} {_overrun(view)}")


def _overrun(view: View) -> str:
    return (
        f"{view.dtype} {view.shape} reaches to byte {view.stop:,} of its storage "
        f"{quoted(view.storage.key)}, which has {view.storage.length:,}"
    )


def _limited(file: str, faults: list[Fault]) -> tuple[Fault, ...]:
    shown = [Fault(names, f"{named(file)}: {reason}") for names, reason in faults[:_MOST_FAULTS]]
    rest = faults[_MOST_FAULTS:]
    if rest:
        names = tuple(name for fault in rest for name in fault.names)
        shown.append(Fault(names, f"{named(file)}: {len(rest):,} more faults of such kinds"))
    return tuple(shown)

"""The reader of torch.save files: a zip directory and data.pkl, or five pickles.

Since torch 1.6 such a file is a zip archive with a pickle of the value, `data.pkl`, and an entry
`data/KEY` for each storage (`torch_archive`). The legacy form is five pickles (a magic number, the
protocol, facts about the machine, the value, the keys of the storages), then the storages, each
behind eight bytes; torch supplies storages only to the pickle of the value.

A pickle is interpreted without running code, never loaded (`pickle_machine`): its opcodes are
followed. If a file cannot be followed to its end although torch.load may not raise for it, the
error is UnsafeFileError: the file may run code.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from tarfile import HeaderError, TarInfo
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from auditor.bounded.json_text import lfs_fault
from auditor.bounded.pickle_machine import MAX_LINES, MAX_PICKLE, follow_pickle
from auditor.bounded.pickle_names import FollowedPickle, is_known, renamed
from auditor.bounded.pickle_opcodes import Opcodes, read_opcodes
from auditor.containers.state_dict import StateDict, is_dict, state_dict
from auditor.containers.torch_archive import open_archive
from auditor.containers.torch_tensors import (
    Storage,
    StoragePlaces,
    TensorView,
    storage_faults,
    storages,
)
from auditor.containers.weight_formats import (
    MODULES,
    PICKLES,
    START,
    NeedsBytes,
    PartialFile,
    Table,
    TensorFault,
    UnsafeFileError,
    format_by_magic,
    not_followed,
)
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span, StoredTensor, natural_key

_MOST_FAULTS = 20  # most faults listed of one file; more are counted
_SHOWN = 5  # most refused values listed of one file
# Files that transformers, diffusers and PEFT load; their value has to be the state dict.
_LOADED_AS_IS = re.compile(r"(.*/)?(diffusion_)?(pytorch|adapter)_model[^/]*\.bin", re.DOTALL)
# What joblib.load and pandas.read_pickle decompress: gzip, bzip2, xz, lzma, lz4, zstandard, zlib.
COMPRESSED = (
    *(b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\x00\x00", b"\x04\x22M\x18", b"\x28\xb5\x2f\xfd"),
    *(b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
)
_LONGEST_MAGIC = max(map(len, COMPRESSED))
_START = 1024  # bytes that show a Git LFS pointer, a web page or another format


# The legacy form: five pickles.
MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
_MAGIC, _PROTOCOL, _FACTS, _VALUE, _KEYS = range(5)
_FIRST = 64 * 1024  # bytes of the first read; doubled until they suffice
_LENGTH = 8  # bytes before each storage
_PROTO = 0x80  # the opcode at the start of a pickle of protocol 2 and later
_TAR = 512  # bytes of the first block of a tar archive


_TO_EXPORT = (
    "load_from_checkpoint of its LightningModule reads it, and save_pretrained of the model inside "
    "writes files for from_pretrained"
)


class LegacyFile(NamedTuple):
    """The pickles of a legacy file, up to the first with a fault, and its storages' positions."""

    pickles: list[FollowedPickle]
    fault: str | None  # why torch does not load the file; begins with a verb
    places: StoragePlaces

    @property
    def value(self) -> FollowedPickle:
        return self.pickles[_VALUE]


class FollowedFile(NamedTuple):
    """The pickle of a torch.save file's value, and the positions of its storages."""

    pickle: FollowedPickle
    places: StoragePlaces
    is_legacy: bool


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the tensors of a torch.save file; raise CheckpointError for any other file.

    The error is UnsafeFileError if loading the file may run code and its tensors are not known.
    """
    pickle, places, is_legacy = followed(file, sparse)
    return _table(file, pickle, places, legacy=is_legacy)


def followed(file: str, sparse: PartialFile) -> FollowedFile:
    """Follow the pickle of a torch.save file; raise the errors of `parse`."""
    if sparse.size == 0:
        raise CheckpointError(f"{named(file)} is empty: 0 bytes")
    if sparse.read(Span(0, min(sparse.size, 32))).startswith(b"PK\x03\x04"):
        archive = open_archive(file, sparse)
        pickle = follow_pickle(archive.pickle(sparse))
        if fault := pickle.fault:
            raise _unusable_error(file, pickle, f"has a pickle that {fault.reason}")
        return FollowedFile(pickle, archive.places(storages(pickle)), is_legacy=False)
    legacy = read_legacy(file, sparse)
    if legacy.fault:
        raise _legacy_error(file, legacy, sparse)
    return FollowedFile(_join(legacy), legacy.places, is_legacy=True)


def _legacy_error(file: str, legacy: LegacyFile, sparse: PartialFile) -> CheckpointError:
    """Return the error for a file that is neither a zip archive nor torch.save's pickles."""
    first = legacy.pickles[0]
    start = sparse.read(Span(0, min(sparse.size, _LONGEST_MAGIC)))
    if file.lower().endswith(PICKLES) and start.startswith(COMPRESSED):
        return not_followed(file, "is compressed")
    names = opcodes_at_start(sparse).names
    runs_nothing = not (start.startswith(b"\x80") or names)
    if runs_nothing or (first.fault and not first.fault.may_go_on and not first.outside):
        prefix = sparse.read(Span(0, min(sparse.size, _START)))
        message = lfs_fault(named(file), prefix) or _other_format_error(file, prefix)
        if message:
            return CheckpointError(message)
    if len(legacy.pickles) == 1 and not first.fault and first.stop < sparse.size:
        excess = sparse.size - first.stop
        return not_followed(file, f"has {excess:,} bytes behind its pickle", first.outside)
    is_complete = len(legacy.pickles) == 1 and not first.fault
    is_other = is_complete and not file.lower().endswith(tuple(MODULES))
    joined = _join(legacy)
    if not joined.outside and joined.fault and joined.fault.may_go_on:
        found = (pair and renamed(*(part.decode("latin-1") for part in pair)) for pair in names)
        lines = (named(one.path) for one in found if one and not is_known(one))
        joined = replace(joined, outside=tuple(dict.fromkeys(lines))[:MAX_LINES])
    return _unusable_error(file, joined, "is a pickle" if is_other else legacy.fault or "")


def _other_format_error(file: str, prefix: bytes) -> str | None:
    """Return the sentence for a file in a format other than pickle; None if it may be a pickle."""
    if prefix.startswith(b"\x80"):
        return None
    kind = "a safetensors file, perhaps" if prefix[8:9] == b"{" else format_by_magic(prefix)
    fault = f"is {kind}, not a file of torch.save" if kind else "is not a file of torch.save"
    return f"{named(file)} {fault}"


def opcodes_at_start(sparse: PartialFile) -> Opcodes:
    """Read the opcodes at the start of a file, up to the bound of a pickle."""
    length = START
    while True:
        data = sparse.read(Span(0, min(sparse.size, length)))
        opcodes = read_opcodes(data, sparse.size)
        if not opcodes.is_cut or length >= MAX_PICKLE or (opcodes.names and data[0] == _PROTO):
            return opcodes
        length = min(max(_FIRST, 2 * length), MAX_PICKLE)


def _join(legacy: LegacyFile) -> FollowedPickle:
    """Return the value's pickle (the last pickle if one is faulty) with all pickles' imports."""
    last = legacy.pickles[-1] if legacy.fault else legacy.value
    lines = (line for pickle in legacy.pickles for line in pickle.outside)
    refused = (reason for pickle in legacy.pickles for reason in pickle.refused)
    return FollowedPickle(
        value=last.value,
        stop=last.stop,
        outside=tuple(dict.fromkeys(lines)),
        refused=tuple(dict.fromkeys(refused)),
        persistent=last.persistent,
        fault=last.fault,
    )


def _unusable_error(file: str, pickle: FollowedPickle, reason: str) -> CheckpointError:
    """Return the error for a file without tensors; the reason begins with a verb."""
    if pickle.fault and pickle.fault.may_go_on:
        return not_followed(file, reason, pickle.outside)
    if pickle.outside:
        return UnsafeFileError(f"{named(file)} {reason}", pickle.outside)
    return CheckpointError(f"{named(file)} {reason}")


def _table(file: str, pickle: FollowedPickle, places: StoragePlaces, *, legacy: bool) -> Table:
    state = state_dict(pickle.value, opened=_LOADED_AS_IS.fullmatch(file) is None)
    if state.fault:
        raise _unusable_error(file, pickle, f"has a value that {state.fault}")
    if not (state.tensors or state.unreadable or is_dict(pickle.value)):
        raise _unusable_error(file, pickle, "holds no tensors; a state dict holds some by name")
    tensors = [
        StoredTensor(name, view.dtype, view.shape, prod(view.shape), file, _span(view, places))
        for name, view in state.tensors.items()
    ]
    tensors.sort(key=lambda tensor: tensor.name)
    faults = [
        *_faults(state, places, storages(pickle)),
        *(
            TensorFault((), f"a value that is not a tensor {reason}")
            for reason in storage_faults(pickle, legacy=legacy)
            if reason not in state.unreadable.values()
        ),
        *_refused_values(pickle),
    ]
    return Table(
        file=file,
        tensors=tuple(tensors),
        size_faults=places.size_faults,
        notes=(f"{named(file)}: {state.note}",) if state.note else (),
        to_do=_TO_EXPORT if state.is_of_lightning else "",
        shared=_shared(state.tensors),
        imports=pickle.outside,
        faults=_limit(file, faults),
    )


def _span(view: TensorView, places: StoragePlaces) -> Span:
    """Return a tensor's span in the file, which is exact only if its numbers are contiguous."""
    start = places.spans.get(view.storage.key, Span(0, 0)).start + view.start
    return Span(start, start + view.length)


def _shared(tensors: Mapping[str, TensorView]) -> Mapping[str, str]:
    first: dict[tuple[str, int, int, int], str] = {}
    shared: dict[str, str] = {}
    for name in sorted(tensors, key=natural_key):
        view = tensors[name]
        if view.length and first.setdefault(view.place, name) != name:
            shared[name] = first[view.place]
    return MappingProxyType(shared)


def _faults(
    state: StateDict, places: StoragePlaces, storage_by_key: Mapping[str, Storage]
) -> Iterator[TensorFault]:
    """Yield faults of tensors that are unreadable or do not fit their storages, and of storages."""
    used = {view.storage.key for view in state.tensors.values()}
    for key, fault in places.faults.items():
        if key not in used:  # torch.load raises for it, whatever uses the storage
            yield TensorFault((), f"a value that is not a tensor of the model: {fault}")
    for name, reason in state.unreadable.items():
        yield TensorFault((name,), f"tensor {quoted(name)} {reason}")
    for name, view in state.tensors.items():
        storage, tensor = view.storage, f"tensor {quoted(name)}"
        declared_first = storage_by_key.get(storage.key, storage)
        if storage.key in places.faults:
            yield TensorFault((name,), f"{tensor}: {places.faults[storage.key]}")
        elif declared_first != storage:
            declarations = f"as {declared_first.described} and as {storage.described}"
            yield TensorFault(
                (name,), f"{tensor}: its storage {quoted(storage.key)} is declared {declarations}"
            )
        elif view.stop > storage.length:
            yield TensorFault(
                (name,),
                f"{tensor} {view.dtype} {view.shape} reaches to byte {view.stop:,} of its storage "
                f"{quoted(storage.key)}, which has {storage.length:,}",
            )


def _refused_values(pickle: FollowedPickle) -> Iterator[TensorFault]:
    """Yield one fault for all harmless values that torch refuses by default."""
    if not pickle.refused:
        return
    examples, count = pickle.refused[:_SHOWN], len(pickle.refused) - _SHOWN
    more = f" and {count:,} more" if count > 0 else ""
    yield TensorFault(
        (),
        f"torch.load(weights_only=True), and with it from_pretrained, refuses {', '.join(examples)}"
        f"{more}; save only tensors, numbers and strings, by pickle protocol 2",
    )


def _limit(file: str, faults: list[TensorFault]) -> tuple[TensorFault, ...]:
    limited = [
        TensorFault(names, f"{named(file)}: {reason}") for names, reason in faults[:_MOST_FAULTS]
    ]
    more = faults[_MOST_FAULTS:]
    if more:
        names = tuple(name for fault in more for name in fault.names)
        limited.append(TensorFault(names, f"{named(file)}: {len(more):,} more faults"))
    return tuple(limited)


# --- the legacy form ------------------------------------------------------------------------------


def read_legacy(file: str, sparse: PartialFile) -> LegacyFile:
    """Follow the pickles of a legacy file; raise UnsafeFileError if torch reads a tar archive.

    Raise it also if the pickles are longer than MAX_PICKLE bytes.
    """
    if is_tar(sparse.read(Span(0, min(sparse.size, _TAR)))):
        raise not_followed(file, "is a tar archive, as torch wrote before version 0.1.10")
    pickles = _pickles(file, sparse)
    if fault := _fault(pickles):
        return LegacyFile(pickles, fault, StoragePlaces({}, {}))
    return LegacyFile(pickles, None, _places(file, pickles, sparse.size))


def is_tar(block: bytes) -> bool:
    """Return whether torch.load reads the file as a tar archive, which it tries first."""
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
        pickle = follow_pickle(data, at)
        if pickle.fault and pickle.fault.truncated and len(data) < sparse.size:
            if len(data) >= MAX_PICKLE:
                raise not_followed(
                    file, f"has pickles of more than {MAX_PICKLE:,} bytes", pickle.outside
                )
            raise NeedsBytes(Span(0, min(sparse.size, max(_FIRST, 2 * len(data)), MAX_PICKLE)))
        pickles.append(pickle)
        at = pickle.stop
        if pickle.fault or (len(pickles) == 1 and pickle.value != MAGIC):
            break
    sparse.read(Span(0, min(at, sparse.size)))  # a snapshot keeps the bytes that were used
    return pickles


def _fault(pickles: list[FollowedPickle]) -> str | None:
    """Return why torch refuses the pickles, starting with a verb; None if it reads them."""
    if fault := pickles[-1].fault:
        return f"has a pickle that {fault.reason}"
    if [pickle.value for pickle in pickles[:_FACTS]] != [MAGIC, PROTOCOL]:
        return "is a pickle without the magic number and the protocol of torch.save"
    if any(pickles[place].persistent for place in (_MAGIC, _PROTOCOL, _FACTS, _KEYS)):
        return "has a storage in a pickle that may not have one"
    keys = pickles[_KEYS].value
    if not isinstance(keys, list):
        return "has keys of storages that are not a list"
    used_storages = storages(pickles[_VALUE])
    for key in keys:
        if not isinstance(key, str) or key not in used_storages:
            label = quoted(key) if isinstance(key, str) else "whose key is not a string"
            return f"holds the storage {label}, which its value does not use"
    return None


def _places(file: str, pickles: list[FollowedPickle], size: int) -> StoragePlaces:
    """Return the positions of the storages, which follow the pickles in key order."""
    by_key, keys, start = storages(pickles[_VALUE]), pickles[_KEYS].value, pickles[_KEYS].stop
    spans: dict[str, Span] = {}
    at = start
    for key in keys if isinstance(keys, list) else ():
        spans[key] = Span(at + _LENGTH, at + _LENGTH + by_key[key].length)
        at = spans[key].stop
    faults = {
        key: f"its storage {quoted(key)} is not among the keys of the file"
        for key in by_key
        if key not in spans
    }
    if at == size:
        return StoragePlaces(spans, faults)
    fault = (
        f"{named(file)} is {'truncated' if size < at else 'too long'}: it has {size:,} bytes, "
        f"expected {at:,}: {start:,} of pickles and {at - start:,} of storages"
    )
    return StoragePlaces(spans, faults, (fault,))

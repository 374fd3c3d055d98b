"""A file of torch.save: its tensors, from the zip directory and data.pkl, or from five pickles.

Since torch 1.6 such a file is a zip archive with a pickle of the value, `data.pkl`, and an entry
`data/KEY` for each storage (`torch_archive`); before, it was five pickles and then the storages
(`torch_legacy`). A pickle is followed and never loaded: see `pickles`. What torch.load would
unpickle is what is read here, or the file is refused.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType

from auditor.containers.bounded_json import lfs_fault
from auditor.containers.magic import format_by_magic
from auditor.containers.pickle_imports import unknown_imports
from auditor.containers.pickle_interpreter import follow_pickle
from auditor.containers.pickle_values import Ran
from auditor.containers.state_dict import StateDict, is_dict, state_dict
from auditor.containers.torch_archive import open_archive
from auditor.containers.torch_legacy import read_legacy
from auditor.containers.torch_storages import Held, Storage, storage_faults, storages
from auditor.containers.torch_tensors import TensorView
from auditor.containers.weight_formats import PartialFile, Table, TensorFault
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span, StoredTensor, natural_key

_MOST_FAULTS = 20  # of one file; more are counted
# What transformers, diffusers and PEFT look for. They take the file's value for the state dict.
_LOADED_WHOLE = re.compile(r"(.*/)?(diffusion_)?(pytorch|adapter)_model[^/]*\.bin", re.DOTALL)
_TAR = slice(257, 262)


def parse(file: str, sparse: PartialFile) -> Table:
    """The tensors of a file of torch.save; raises CheckpointError for any other file."""
    if sparse.size == 0:
        raise CheckpointError(f"{named(file)} is empty: 0 bytes")
    prefix = sparse.read(Span(0, min(sparse.size, 32)))
    if prefix.startswith(b"PK\x03\x04"):
        return _zipped(file, sparse)
    if prefix.startswith((b"\x80", b"L119547037146038801333356L")):
        return _legacy(file, sparse)
    prefix = sparse.read(Span(0, min(sparse.size, 1024)))
    if fault := lfs_fault(named(file), prefix):
        raise CheckpointError(fault)
    if follow_pickle(prefix).globals:  # a pickle of protocol 0 or 1 has no mark of its own
        return _legacy(file, sparse)
    raise CheckpointError(f"{named(file)} {_other(prefix)}")


def _zipped(file: str, sparse: PartialFile) -> Table:
    archive = open_archive(file, sparse)
    ran = follow_pickle(archive.pickle(sparse))
    return _table(file, ran, archive.held(storages(ran)), legacy=False)


def _legacy(file: str, sparse: PartialFile) -> Table:
    read = read_legacy(file, sparse)
    if read.broken:
        lines = dict.fromkeys(line for ran in read.runs for line in unknown_imports(ran))
        return _broken(file, tuple(lines), read.broken)
    return _table(file, read.value, read.held, legacy=True)


def _is_loaded_whole(file: str) -> bool:
    return _LOADED_WHOLE.fullmatch(file) is not None


def _other(prefix: bytes) -> str:
    """What a file is that does not begin as files of torch.save do; the verb first."""
    if prefix[_TAR] == b"ustar":
        return "is a tar archive, as torch wrote before 0.1.10; load it once and save it again"
    known = "a safetensors file, perhaps" if prefix[8:9] == b"{" else format_by_magic(prefix)
    return f"is {known}, not a file of torch.save" if known else "is not a file of torch.save"


def _broken(file: str, imports: tuple[str, ...], broken: str) -> Table:
    return Table(file=file, tensors=(), imports=imports, broken=broken)


def _table(file: str, ran: Ran, held: Held, *, legacy: bool) -> Table:
    if ran.fault:
        return _broken(file, unknown_imports(ran), f"{named(file)}: its pickle {ran.fault}")
    found = state_dict(ran.value, opened=not _is_loaded_whole(file))
    if found.fault:
        return _broken(file, unknown_imports(ran), f"{named(file)}: its value {found.fault}")
    if not (found.tensors or found.unreadable or is_dict(ran.value)):
        broken = f"{named(file)} holds no tensors; a state dict holds some by name"
        return _broken(file, unknown_imports(ran), broken)
    tensors = [
        StoredTensor(name, view.dtype, view.shape, prod(view.shape), file, _span(view, held))
        for name, view in found.tensors.items()
    ]
    tensors.sort(key=lambda tensor: tensor.name)
    faults = [*_faults(found, held, storages(ran)), *_unmade(ran, found, legacy=legacy)]
    return Table(
        file=file,
        tensors=tuple(tensors),
        size_faults=held.size_faults,
        notes=(f"{named(file)}: {found.note}",) if found.note else (),
        shared=_shared(found.tensors),
        imports=unknown_imports(ran),
        faults=_limited(file, faults),
    )


def _span(view: TensorView, held: Held) -> Span:
    """Where the tensor's bytes begin, and as many as it has: strides may spread them wider."""
    start = held.spans.get(view.storage.key, Span(0, 0)).start + view.start
    return Span(start, start + view.length)


def _shared(tensors: Mapping[str, TensorView]) -> Mapping[str, str]:
    first: dict[tuple[str, int, int, int], str] = {}
    shared: dict[str, str] = {}
    for name in sorted(tensors, key=natural_key):
        view = tensors[name]
        if view.length and first.setdefault(view.place, name) != name:
            shared[name] = first[view.place]
    return MappingProxyType(shared)


def _faults(found: StateDict, held: Held, first: Mapping[str, Storage]) -> Iterator[TensorFault]:
    """`first`: of each key the storage that torch makes, and gives for the key ever after."""
    for name, reason in found.unreadable.items():
        yield TensorFault((name,), f"tensor {quoted(name)} {reason}")
    for name, view in found.tensors.items():
        storage, tensor = view.storage, f"tensor {quoted(name)}"
        made = first.get(storage.key, storage)
        if storage.key in held.faults:
            yield TensorFault((name,), f"{tensor}: {held.faults[storage.key]}")
        elif made != storage:
            two = f"as {made.said} and as {storage.said}"
            yield TensorFault(
                (name,), f"{tensor}: its storage {quoted(made.key)} is declared {two}"
            )
        elif view.stop > storage.length:
            yield TensorFault((name,), f"{tensor} {_overrun(view)}")


def _unmade(ran: Ran, found: StateDict, *, legacy: bool) -> Iterator[TensorFault]:
    """What torch refuses to make, beside the tensors that are known for it already."""
    for reason in storage_faults(ran, legacy=legacy):
        if reason not in found.unreadable.values():
            yield TensorFault((), f"a value beside its tensors {reason}")


def _overrun(view: TensorView) -> str:
    return (
        f"{view.dtype} {view.shape} reaches to byte {view.stop:,} of its storage "
        f"{quoted(view.storage.key)}, which has {view.storage.length:,}"
    )


def _limited(file: str, faults: list[TensorFault]) -> tuple[TensorFault, ...]:
    shown = [
        TensorFault(names, f"{named(file)}: {reason}") for names, reason in faults[:_MOST_FAULTS]
    ]
    rest = faults[_MOST_FAULTS:]
    if rest:
        names = tuple(name for fault in rest for name in fault.names)
        shown.append(TensorFault(names, f"{named(file)}: {len(rest):,} more faults of such kinds"))
    return tuple(shown)

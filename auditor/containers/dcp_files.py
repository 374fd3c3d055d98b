"""The reader of the files that a torch DCP's .metadata names; its tensors are not read."""

from auditor.bounded.pickle_machine import MAX_PICKLE, follow_pickle
from auditor.bounded.pickle_names import Call, Global, PickledDict
from auditor.containers.index import shard_fault
from auditor.containers.weight_formats import (
    NeededFile,
    PartialFile,
    Table,
    UnsafeFileError,
    not_followed,
)
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.names.parts import folder_of
from auditor.tensors import Span

_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the .distcp files with the bytes that they need; None for another pickle."""
    if not file.endswith(".metadata"):
        return None
    pickle = follow_pickle(sparse.read(Span(0, min(sparse.size, MAX_PICKLE))))
    if pickle.outside:
        raise UnsafeFileError(f"{named(file)} is a pickle", pickle.outside)
    if pickle.fault and (pickle.fault.may_go_on or sparse.size > MAX_PICKLE):
        raise not_followed(file, f"is a pickle that {pickle.fault.reason}")
    if pickle.fault:
        raise CheckpointError(f"it {pickle.fault.reason}")
    least: dict[str, int] = {}
    storage = _attributes(pickle.value).get("storage_data")
    for _, info in storage.pairs if isinstance(storage, PickledDict) else ():
        match _attributes(info, _INFO):
            case {"relative_path": str(path), "offset": int(offset), "length": int(length)}:
                if fault := shard_fault(path):
                    raise CheckpointError(f"{named(file)} names {quoted(path)}, which {fault}")
                least[path] = max(least.get(path, 0), offset + length)
    if not least:
        return None
    folder = folder_of(file)
    needs = (NeededFile(f"{folder}{path}", size) for path, size in sorted(least.items()))
    return Table(file=file, tensors=(), needs=tuple(needs))


def _attributes(value: object, path: str = "") -> dict[object, object]:
    """Return the attributes of a pickled object, of the class at `path` if that is given."""
    match value:
        case Call(callee=Global() as callee, state=PickledDict(pairs=pairs)) if (
            not path or callee.path == path
        ):
            return {key: item for key, item in pairs if isinstance(key, str)}
        case _:
            return {}

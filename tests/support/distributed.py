"""Distributed checkpoints as torch writes them, without torch: .metadata and its .distcp files."""

import io
import pickle
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from support.torch_files import STORAGES, zipped

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"
_WIDTH = {"F32": 4, "BF16": 2, "I64": 8}
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "I64": "int64"}
Table = Mapping[str, tuple[str, tuple[int, ...]]]
_OVERHEAD = 1000  # bytes of a zip archive around a chunk


class Name:
    """A class or function that is pickled by name, and is not imported."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        raise AssertionError("a pickled name is never called")

    def __reduce__(self) -> str:
        return self.name


class Called:
    """An object that is pickled as a call."""

    def __init__(self, callee: Name, *args: object) -> None:
        self.callee, self.args = callee, args

    def __reduce__(self) -> tuple[object, ...]:
        return self.callee, self.args


class _Pickler(pickle._Pickler):  # noqa: SLF001 - the C pickler imports what it pickles by name
    def save_global(self, obj: Any, name: str | None = None) -> None:
        self.save(obj.module if isinstance(obj, Name) else obj.__module__)
        self.save(obj.name if isinstance(obj, Name) else name or obj.__qualname__)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)


_CLASSES: dict[tuple[str, str], type] = {}


def made(module: str, name: str, state: object) -> object:
    """Return an object that is pickled as an instance of a class, with a state."""
    kind = _CLASSES.setdefault((module, name), type(name, (), {"__module__": module}))
    instance = kind()
    if isinstance(state, dict):
        instance.__dict__.update(state)
        return instance
    with_state = type(name, (), {"__module__": module, "__getstate__": lambda _: state})
    with_state.__qualname__ = name
    return with_state()


def size(shape: Sequence[int]) -> object:
    return Called(Name("torch", "Size"), tuple(shape))


def _tensor(
    dtype: str, shape: Sequence[int], chunks: Sequence[tuple[Sequence[int], ...]]
) -> object:
    layout = Called(Name("torch.serialization", "_get_layout"), "torch.strided")
    memory = Called(Name(METADATA, "_MEM_FORMAT_ENCODING"), 0)
    state = (Name("torch", _DTYPES[dtype]), layout, False, memory, False)
    parts = [
        made(METADATA, "ChunkStorageMetadata", {"offsets": size(at), "sizes": size(of)})
        for at, of in chunks
    ]
    fields = {"properties": made(METADATA, "TensorProperties", state), "size": size(shape)}
    return made(METADATA, "TensorStorageMetadata", {**fields, "chunks": parts})


def _rows(shape: Sequence[int], ranks: int) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Return the chunks of a tensor that is sharded by rows, the last ones shorter or absent."""
    if not shape:
        return [((), ())]
    length = max(1, -(-shape[0] // ranks))
    rest = tuple(shape[1:])
    starts = range(0, shape[0], length)
    chunks = [((at, *(0 for _ in rest)), (min(length, shape[0] - at), *rest)) for at in starts]
    return chunks or [((0,) * len(shape), tuple(shape))]


def write_dcp(folder: Path, table: Table, *, spoil: str = "", **form: Any) -> None:
    """Write a checkpoint of a table; `spoil` is a fault, and the words after it are names.

    `gap`: the last chunk of each named tensor is absent; `overlap`: it begins a row earlier;
    `lost` and `short`: a .distcp file; `escape`: the files are in the folder above.
    """
    content, lengths = dcp_bytes(table, spoil=spoil, **form)
    fault, _, word = spoil.partition(" ")
    folder.mkdir(parents=True, exist_ok=True)
    if spoil != "lost .metadata":
        (folder / ".metadata").write_bytes(content)
    for rank, length in enumerate(lengths):
        if (fault, word) != ("lost", str(rank)):
            cut = 1 if (fault, word) == ("short", str(rank)) else 0
            (folder / f"__{rank}_0.distcp").write_bytes(bytes(length - cut))


def dcp_bytes(
    table: Table,
    *,
    ranks: int = 1,
    keys: Sequence[str] = (),
    optimizer: bool = False,
    spoil: str = "",
) -> tuple[bytes, list[int]]:
    """Return .metadata, and the lengths of the files that it needs."""
    fault, _, word = spoil.partition(" ")
    tensors, plans, places, used = {}, {}, {}, [0] * ranks
    everything = {(*keys, name): one for name, one in table.items()}
    if optimizer:
        state = {("optim", "state", name, "exp_avg"): one for name, one in table.items()}
        everything |= {**state, ("optim", "param_groups", "0"): None}
    for path, one in everything.items():
        full = ".".join(path)
        plans[full] = path
        if one is None:
            tensors[full] = made(METADATA, "BytesStorageMetadata", {})
            chunks, width = [(None, (1,))], 4
        else:
            dtype, shape = one
            chunks, width = _rows(shape, ranks), _WIDTH[dtype]
            if fault == "gap" and word in full:
                chunks = chunks[:-1]
            if fault == "overlap" and word in full:
                (at, of) = chunks[-1]
                chunks[-1] = ((at[0] - 1, *at[1:]), of)
            tensors[full] = _tensor(dtype, shape, chunks)
        for rank, (at, of) in enumerate(chunks):
            place = {"fqn": full, "index": rank, "offset": None if at is None else size(at)}
            length = width * prod(of) + _OVERHEAD
            parent = "../" if fault == "escape" else ""
            info = {
                "relative_path": f"{parent}__{rank}_0.distcp",
                "offset": used[rank],
                "length": length,
            }
            used[rank] += length
            places[made(METADATA, "MetadataIndex", place)] = made(FILESYSTEM, "_StorageInfo", info)
    metadata = made(
        METADATA,
        "Metadata",
        {"state_dict_metadata": tensors, "planner_data": plans, "storage_data": places},
    )
    content = io.BytesIO()
    _Pickler(content, 4).dump(metadata)
    return content.getvalue(), used


# --- files of ranks ------------------------------------------------------------------------------


class _Storage:
    """A storage of torch, which is pickled as a persistent id."""

    def __init__(self, dtype: str, key: int, numel: int) -> None:
        self.id = ("storage", Name("torch", STORAGES[dtype][0]), str(key), "cpu", numel)


class _TorchPickler(_Pickler):
    def persistent_id(self, obj: object) -> object:
        return obj.id if isinstance(obj, _Storage) else None


def torch_file(value: object, lengths: Sequence[int] = ()) -> bytes:
    """Return a file of torch.save of a value, with storages of zeros."""
    content = io.BytesIO()
    _TorchPickler(content, 4).dump(value)
    return zipped(content.getvalue(), lengths)


def _rebuilt(key: int, dtype: str, shape: Sequence[int]) -> object:
    strides = [prod(shape[place + 1 :]) for place in range(len(shape))]
    storage = _Storage(dtype, key, prod(shape))
    args = (storage, 0, tuple(shape), tuple(strides), False, None)
    return Called(Name("torch._utils", "_rebuild_tensor_v2"), *args)


def _saved(table: Table) -> tuple[dict[str, object], list[int]]:
    items = list(enumerate(table.items()))
    tensors = {name: _rebuilt(key, *one) for key, (name, one) in items}
    return tensors, [_WIDTH[dtype] * prod(shape) for dtype, shape in table.values()]


def write_zero(  # noqa: PLR0913 - a keyword for each choice
    folder: Path,
    table: Table,
    *,
    stage: int = 2,
    ranks: int = 2,
    lost: Sequence[str] = (),
    latest: str = "global_step5",
) -> None:
    """Write a checkpoint of DeepSpeed; the files of `lost` are absent."""
    tensors, lengths = _saved(table)
    shapes = {name: size(shape) for name, (_, shape) in table.items()}
    fields = {
        "module": tensors if stage < 3 else {},
        "param_shapes": [shapes],
        "dp_world_size": ranks,
        "ds_config": {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}},
    }
    states = torch_file(fields, lengths if stage < 3 else ())
    kind = Called(Name("deepspeed.runtime.zero.config", "ZeroStageEnum"), stage)
    scaler = made("deepspeed.runtime.fp16.loss_scaler", "LossScaler", {"cur_scale": 1.0})
    optimizer = torch_file({"optimizer_state_dict": {"zero_stage": kind, "loss_scaler": scaler}})
    own = [f"zero_pp_rank_{rank}_mp_rank_00" for rank in range(ranks)]
    files = {f"bf16_{one}_optim_states.pt": optimizer for one in own}
    models = ["mp_rank_00"] if stage < 3 else own
    files |= {f"{one}_model_states.pt": states for one in models}
    inside = folder / "global_step5"
    inside.mkdir(parents=True)
    for name, content in files.items():
        if name not in lost:
            (inside / name).write_bytes(content)
    (folder / "latest").write_text(latest)


def write_verl(folder: Path, table: Table, *, ranks: int = 2, lost: Sequence[int] = ()) -> None:
    """Write the files of the ranks of FSDP in verl, whose tensors are sharded by rows."""
    tensor = "torch.distributed.tensor"
    for rank in range(ranks):
        state, lengths = {}, []
        for key, (name, (dtype, shape)) in enumerate(table.items()):
            part = (max(0, min(-(-shape[0] // ranks), shape[0] - rank * -(-shape[0] // ranks))),)
            local = _rebuilt(key, dtype, (*part, *shape[1:]))
            lengths.append(_WIDTH[dtype] * prod((*part, *shape[1:])))
            shard = made(f"{tensor}.placement_types", "Shard", {"dim": 0})
            spec = made(f"{tensor}._dtensor_spec", "DTensorSpec", {"placements": (shard,)})
            of = (Name(tensor, "DTensor"), Name("torch", _DTYPES[dtype]), tuple(shape), (1,), 0)
            functions = (Name("torch._utils", "_rebuild_wrapper_subclass"), Name(tensor, "DTensor"))
            parts = {"_local_tensor": local, "_spec": spec}
            rebuild = Name("torch._tensor", "_rebuild_from_type_v2")
            state[name] = Called(rebuild, *functions, of, parts)
        if rank not in lost:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"model_world_size_{ranks}_rank_{rank}.pt"
            path.write_bytes(torch_file(state, lengths))


WRITERS = {"dcp": write_dcp, "zero": write_zero, "verl": write_verl}

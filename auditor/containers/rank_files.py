"""The readers of files that each rank of a training writes: DeepSpeed's ZeRO, and FSDP as in verl.

One file describes the complete model, and the others are needed beside it. DeepSpeed (0.19,
runtime/engine.py, utils/zero_to_fp32.py): `module` of mp_rank_00_model_states.pt has the tensors of
ZeRO 1 and 2; for ZeRO 3, param_shapes has their shapes, and dp_world_size ranks have the numbers.
verl (fsdp_checkpoint_manager.py): each of N ranks writes model_world_size_N_rank_R.pt, a state dict
of DTensors, which have the shape of the complete tensor and the part of the rank.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod

from auditor.bounded.pickle_names import Call, FollowedPickle, Global, PickledDict
from auditor.containers import torch_file
from auditor.containers.rank_names import OF_OPTIMIZER, OF_VERL, ranks_in
from auditor.containers.state_dict import LIGHTNING, attribute_of, state_dict
from auditor.containers.torch_tensors import DTYPES, TensorView, Unreadable, dimensions, tensor_view
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.names.parts import file_name, folder_of
from auditor.tensors import StoredTensor

_MODEL = "mp_rank_00_model_states.pt"
_PARTITIONED = 3  # the stage of ZeRO from which on each rank has a part of each parameter
_MOST_RANKS = 10_000
_FORWARD = "_forward_module."  # Lightning's wrapper around the module
_JOIN_ZERO = (
    "zero_to_fp32 of an installed DeepSpeed (python -m deepspeed.utils.zero_to_fp32) joins them; "
    "the zero_to_fp32.py in a checkpoint's folder is code that was not examined"
)
_JOIN_VERL = "python -m verl.model_merger merge --backend fsdp joins them"
Fields = Mapping[str, object]


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the tensors of the complete model, and the files of the other ranks.

    Raise UnsafeFileError if loading the file may run code, CheckpointError for another file.
    """
    pickle = torch_file.followed(file, sparse).pickle
    last = file_name(file)
    if verl := OF_VERL.fullmatch(last):
        return _of_verl(file, pickle, int(verl[1]))
    if optimizer := OF_OPTIMIZER.fullmatch(last):
        return _of_optimizer(file, pickle, optimizer)
    return _of_deepspeed(file, pickle)


# --- DeepSpeed -----------------------------------------------------------------------------------


def _of_deepspeed(file: str, pickle: FollowedPickle) -> Table:
    fields = _fields(pickle.value)
    stage, ranks = _stage(fields), fields.get("dp_world_size")
    if not isinstance(fields.get("module"), Call | PickledDict):
        raise CheckpointError(f"{named(file)} has no module, which DeepSpeed writes")
    if type(ranks) is not int or not 0 < ranks <= _MOST_RANKS:
        raise CheckpointError(f"{named(file)}: dp_world_size is not a number of ranks")
    module = state_dict(fields["module"])
    tensors = {name: (view.dtype, view.shape) for name, view in module.tensors.items()}
    if stage >= _PARTITIONED:
        tensors = dict(_partitioned(fields, module.tensors))
    if LIGHTNING in fields:
        tensors = {name.removeprefix(_FORWARD): one for name, one in tensors.items()}
        attribute = attribute_of(tensors)
        tensors = {name.removeprefix(attribute): one for name, one in tensors.items()}
    needs = tuple(_zero_files(file, stage, ranks, _is_bf16(fields)))
    kind = f"of ZeRO stage {stage}" if stage else "without ZeRO"
    what = f"a checkpoint of DeepSpeed {kind}, {ranks:,} ranks, {len(tensors):,} tensors"
    return _table(file, pickle, tensors, needs=needs, what=what, joins=_JOIN_ZERO)


def _partitioned(
    fields: Fields, module: Mapping[str, TensorView]
) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Yield the parameters by their declared shapes, tied ones, and the buffers."""
    groups = fields.get("param_shapes")
    shapes: dict[str, tuple[int, ...]] = {}
    for group in (*(groups if isinstance(groups, list) else ()), fields.get("frozen_param_shapes")):
        for name, size in _fields(group).items():
            if (shape := dimensions(size)) is not None:
                shapes[name] = shape
    tied = {
        name: shapes[source]
        for name, source in _fields(fields.get("shared_params")).items()
        if isinstance(source, str) and source in shapes
    }
    usual = next((view.dtype for view in module.values()), "F32")
    for name, shape in {**tied, **shapes}.items():
        yield name, (module[name].dtype if name in module else usual, shape)
    buffers = fields.get("buffer_names")
    for name in buffers if isinstance(buffers, list) else ():
        if name in module:
            yield name, (module[name].dtype, module[name].shape)


def _stage(fields: Fields) -> int:
    """Return the stage of ZeRO: 3 if each rank has a part of each parameter."""
    zero = _fields(_fields(fields.get("ds_config")).get("zero_optimization"))
    match zero.get("stage"):
        case int(stage) | Call(args=(int(stage),)):
            return stage
        case _:
            return _PARTITIONED if fields.get("param_shapes") else 0


def _is_bf16(fields: Fields) -> bool:
    config = _fields(fields.get("ds_config"))
    return any(_fields(config.get(key)).get("enabled") is True for key in ("bf16", "bfloat16"))


def _zero_files(file: str, stage: int, ranks: int, is_bf16: bool) -> Iterator[NeededFile]:  # noqa: FBT001 - as DeepSpeed names it
    """Yield the files of all ranks; bf16_ in the name of an optimizer's depends on the version."""
    folder = folder_of(file)
    prefixes = ("bf16_", "") if is_bf16 else ("", "bf16_")
    for rank in range(ranks if stage else 0):
        own = f"zero_pp_rank_{rank}_mp_rank_00"
        if stage >= _PARTITIONED:
            yield NeededFile(f"{folder}{own}_model_states.pt")
        first, second = (f"{folder}{prefix}{own}_optim_states.pt" for prefix in prefixes)
        yield NeededFile(first, instead=second)


def _of_optimizer(file: str, pickle: FollowedPickle, match: re.Match[str]) -> Table:
    """Return what a rank's optimizer needs: the model's states, whose names are not known."""
    state = _fields(_fields(pickle.value).get("optimizer_state_dict"))
    stage = state.get("zero_stage")
    is_partitioned = isinstance(stage, Call) and stage.args == (_PARTITIONED,)
    own = f"zero_pp_rank_{match[2]}_" if is_partitioned else ""
    needs = (NeededFile(f"{folder_of(file)}{own}mp_rank_{match[3]}_model_states.pt"),)
    what = "the optimizer of a checkpoint of DeepSpeed"
    return _table(file, pickle, {}, needs=needs, what=what, joins=_JOIN_ZERO)


# --- verl ----------------------------------------------------------------------------------------


def _of_verl(file: str, pickle: FollowedPickle, ranks: int) -> Table:
    if not 0 < ranks <= _MOST_RANKS:
        raise CheckpointError(f"{named(file)} names {ranks:,} ranks")
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, value in _fields(pickle.value).items():
        view = complete_shape(value) or tensor_view(value)
        if isinstance(view, TensorView):
            tensors[name] = (view.dtype, view.shape)
        elif view is not None and not isinstance(view, Unreadable):
            tensors[name] = view
    start = file[: file.rindex("_rank_")]
    needs = tuple(NeededFile(f"{start}_rank_{rank}.pt") for rank in range(ranks))
    what = f"rank {ranks_in(file)[0]} of {ranks:,} of an FSDP checkpoint as verl writes it"
    what += f", {len(tensors):,} tensors"
    return _table(file, pickle, tensors, needs=needs, what=what, joins=_JOIN_VERL)


def complete_shape(value: object) -> tuple[str, tuple[int, ...]] | None:
    """Return the dtype and shape of the complete tensor of a DTensor; None for another value."""
    match value:
        case Call(
            callee=Global("torch._tensor", "_rebuild_from_type_v2"),
            args=(
                Global(name="_rebuild_wrapper_subclass"),
                Global(name="DTensor"),
                (Global(name="DTensor"), Global("torch", dtype), size, *_),
                _,
            ),
        ) if dtype in DTYPES:
            shape = dimensions(size)
            return None if shape is None else (DTYPES[dtype][0], shape)
        case _:
            return None


# --- both ----------------------------------------------------------------------------------------


def _fields(value: object) -> Fields:
    """Return the items of a pickled dict whose keys are strings; {} for anything else."""
    match value:
        case PickledDict(pairs=pairs) | Call(callee=Global("collections", _), pairs=list(pairs)):
            return {key: item for key, item in pairs if isinstance(key, str)}
        case _:
            return {}


def _table(  # noqa: PLR0913 - the parts of a table
    file: str,
    pickle: FollowedPickle,
    tensors: Mapping[str, tuple[str, tuple[int, ...]]],
    *,
    needs: tuple[NeededFile, ...],
    what: str,
    joins: str,
) -> Table:
    return Table(
        file=file,
        tensors=tuple(
            StoredTensor(name, dtype, shape, prod(shape), file, None)
            for name, (dtype, shape) in sorted(tensors.items())
        ),
        imports=pickle.outside,
        needs=needs,
        notes=(f"{named(file)} is {what}; from_pretrained does not read it",),
        to_do=joins,
    )

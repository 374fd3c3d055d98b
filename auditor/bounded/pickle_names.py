"""The classes and functions that a harmless pickle may import, and how each may be called.

The first list is that of torch's own `weights_only` loader. The names in the other lists build
plain values, and `weights_only` refuses them. A call has exactly the form that pickle, torch or
numpy writes, so that no argument can ask for gigabytes or forge the layout of memory.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from math import prod
from pathlib import Path

from msgspec import Struct, json


class Global(Struct, frozen=True):
    """A class or a function that a pickle imports, under its name in Python 3."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


class PickledDict(Struct, eq=False):
    """A dict's items in the order in which they were set; a key may occur twice."""

    pairs: list[tuple[object, object]]


class PickledSet(Struct, eq=False):
    """A set's items in the order in which they were added."""

    items: list[object]


class Call(Struct, eq=False):
    """A record of a call, in place of the call's result, which is never computed."""

    callee: object
    args: tuple[object, ...]
    pairs: list[tuple[object, object]] | None = None  # items that are set on the result
    state: object = None  # the state that sets its attributes
    has_state: bool = False


class Persistent(Struct, eq=False):
    """An object that the loader supplies for a key: one of torch's storages."""

    key: object


class PickleFault(Struct, frozen=True, kw_only=True):
    """The reason why a pickle was not followed to its end."""

    reason: str  # begins with a verb: "uses the opcode INST at byte 12"
    may_go_on: bool  # whether an unpickler may continue, and run code that was not followed
    truncated: bool = False  # whether the bytes end before the pickle does


class FollowedPickle(Struct, frozen=True, kw_only=True):
    """The result of following a pickle to its end or to its fault."""

    value: object
    stop: int  # offset after the pickle
    outside: tuple[str, ...]  # a line for each name that is not on the list
    refused: tuple[str, ...]  # harmless names that torch.load(weights_only=True) refuses
    persistent: tuple[Persistent, ...]
    fault: PickleFault | None = None
    is_calling: bool = False  # whether an unknown name is called


_KINDS: dict[type, str] = {
    Global: "an import",
    Persistent: "a storage",
    PickledDict: "a dict",
    PickledSet: "a set",
    Call: "the result of a call",
}


_DCP = "torch.distributed.checkpoint"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"  # before torch 2.3
_PROPERTIES = (f"{_DCP}.metadata.TensorProperties", f"{_SHARDED}.TensorProperties")
_PATHS = tuple(
    f"{module}.{name}"
    for module in ("pathlib", "pathlib._local")  # the second is Python 3.13's
    for name in ("PosixPath", "WindowsPath")
)


def kind(value: object) -> str:
    return _KINDS.get(type(value)) or f"a value of type {type(value).__name__}"


def is_key(value: object) -> bool:
    """Return whether the value can be a dict key or a set item, without hashing it."""
    if isinstance(value, tuple):
        return all(item is None or isinstance(item, str | bytes | int | float) for item in value)
    if isinstance(value, Call) and isinstance(value.callee, Global):
        return value.callee.path == f"{_DCP}.metadata.MetadataIndex"
    return value is None or isinstance(value, str | bytes | int | float)


# --- names and calls ------------------------------------------------------------------------------

# Written by tools/rebuild_pickle_names.py; a test compares it with the installed libraries.
_DATA = Path(__file__).parents[1] / "data" / "pickle_names.json"
_LISTS: Mapping[str, list[str]] = json.decode(_DATA.read_bytes(), type=dict[str, list[str]])

WEIGHTS_ONLY = frozenset(_LISTS["weights_only"])
_ENUMS = frozenset(_LISTS["enums"]) | {
    *(f"{_DCP}.metadata._MEM_FORMAT_ENCODING", f"{_DCP}.planner.WriteItemType"),
    f"{_SHARDED}.MEM_FORMAT_ENCODING",
    "megatron.core.enums.ModelType",
    "deepspeed.runtime.zero.config.ZeroStageEnum",
    "deepspeed.runtime.zero.offload_config.OffloadDeviceEnum",
}
# The parts of a DTensor; each module had another name before torch 2.5.
_TENSOR = ("torch.distributed.tensor", "torch.distributed._tensor")
_PLACEMENTS = ("Shard", "Replicate", "Partial", "_Partial", "_StridedShard", "DTensorSpec")
_SPECS = ("torch.distributed.tensor._dtensor_spec", "torch.distributed._tensor.placement_types")
_NAMED_TUPLES = frozenset(
    f"{module}.{name}" for module in _SPECS for name in ("TensorMeta", "ShardOrderEntry")
)
_DTENSORS = frozenset(
    f"{module}{api}.DTensor" for module in _TENSOR for api in ("", ".api", "._api")
)
# The dataclasses of a distributed checkpoint's .metadata, and argparse's plain object.
_PLAIN_OBJECTS = frozenset(_LISTS["plain_objects"]) | {
    *("argparse.Namespace", f"{_DCP}.filesystem._StorageInfo", f"{_DCP}.metadata.Metadata"),
    *(f"{_DCP}.metadata.{kind}StorageMetadata" for kind in ("Tensor", "Chunk", "Bytes")),
    *(f"{_DCP}.metadata.{name}" for name in ("MetadataIndex", "StorageMeta", "TensorProperties")),
    *(f"{_DCP}.planner.{name}" for name in ("SavePlan", "WriteItem", "TensorWriteData")),
    f"{_SHARDED}.TensorProperties",
    *(f"deepspeed.runtime.fp16.loss_scaler.{kind}LossScaler" for kind in ("", "Dynamic")),
    "deepspeed.utils.tensor_fragment.fragment_address",
    *(f"{module}.placement_types.{name}" for module in _TENSOR for name in _PLACEMENTS),
    *(f"{module}.DTensorSpec" for module in _SPECS),
    *("torch.distributed.device_mesh.DeviceMesh", "torch.distributed._mesh_layout._MeshLayout"),
    "torch.distributed._mesh_layout._FlatLayout",
}
_FACTORIES = frozenset(
    f"builtins.{name}" for name in ("dict", "float", "int", "list", "set", "str")
)
_PLAIN_VALUES = frozenset(
    {
        *("builtins.bytes", "builtins.frozenset", "builtins.range", "builtins.slice"),
        *("collections.defaultdict", *_PATHS),
        *("numpy.dtype", "numpy.ndarray"),
        *("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"),
        *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
        *("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"),
    }
)
_KNOWN = WEIGHTS_ONLY | _ENUMS | _PLAIN_OBJECTS | _FACTORIES | _PLAIN_VALUES
_KNOWN |= _NAMED_TUPLES | _DTENSORS

# Names of Python 2 -> names of Python 3.
_RENAMED = {("__builtin__", "xrange"): Global("builtins", "range")}
_RENAMED_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}

_REBUILD = "torch._utils._rebuild_"
_MOST_DIMENSIONS = 64
_METHODS = frozenset(dir(OrderedDict))
_PLANNED = (f"{_DCP}.planner.SavePlan", "items")  # an attribute of a plain object
# numpy's codes of types: numbers with their bytes, strings with their length, objects.
_DTYPE = re.compile(r"[biufc](1|2|4|8|16)|[SU][0-9]{1,6}|O[48]")
_OBJECT_FLAGS = 63  # of a dtype of objects, which has references


def renamed(module: str, name: str) -> Global:
    """Return the Python 3 name for a name that Python 2 may have pickled."""
    renamed = _RENAMED.get((module, name))
    return renamed or Global(_RENAMED_MODULES.get(module, module), name)


def is_known(name: Global) -> bool:
    """Return whether a pickle may import the name; never a dotted name (an attribute look-up)."""
    return "." not in name.name and name.path in _KNOWN


def result_of(name: Global, args: tuple[object, ...]) -> object | None:
    """Return the record of a call's result; None if no library writes a call of this form."""
    if name.path.startswith(_REBUILD):
        return Call(name, args)
    if not _is_written(name.path, args):
        return None
    match (name.path, *args):
        case ("_codecs.encode" | "builtins.bytearray" | "builtins.bytes", *content):
            return _octets(content)
        case ("builtins.set" | "builtins.frozenset", list(items)):
            return PickledSet(items)
        case _:
            return Call(name, args)


def _octets(args: list[object]) -> bytes:
    match args:
        case [str(text), _]:
            return text.encode("latin-1")
        case [bytes(content)]:
            return content
        case _:
            return b""


def new_object(name: Global, args: tuple[object, ...]) -> Call | None:
    """Return the record of `name.__new__(*args)`; None if the class is not a known plain class."""
    if name.path in _NAMED_TUPLES:
        return Call(name, args)
    return Call(name, args) if name.path in _PLAIN_OBJECTS and not args else None


def may_have_state(call: Call, state: object) -> bool:
    """Return whether the state has the form that libraries write for the call's result."""
    path = call.callee.path if isinstance(call.callee, Global) else ""
    is_plain = path in _PLAIN_OBJECTS and not isinstance(state, tuple)
    if path == "collections.OrderedDict" or is_plain:
        return isinstance(state, PickledDict) and all(
            isinstance(key, str) and (key not in _METHODS or (path, key) == _PLANNED)
            for key, _ in state.pairs
        )
    match (path, state):
        case (_, tuple(values)) if path in _PROPERTIES:
            return all(isinstance(value, bool | Global | Call) for value in values)
        case ("numpy.dtype", (3, "<" | ">" | "|" | "=", None, None, None, *sizes)):
            return sizes == _sizes_of_dtype(call)
        case (
            "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct",
            (1, tuple(shape), dtype, bool(), bytes() | list() as content),
        ):
            return _fits(content, shape, dtype)
        case _:
            return path.startswith(_REBUILD) or path == "torch.nn.parameter.Parameter"


def _is_written(path: str, args: tuple[object, ...]) -> bool:  # noqa: C901, PLR0911, PLR0912 - a case for each form
    match (path, *args):
        case (
            ("builtins.bytes" | "builtins.bytearray" | "collections.Counter",)
            | ("collections.OrderedDict" | "collections.defaultdict",)
            | ("builtins.bytearray", bytes())
            | ("builtins.complex", float(), float())
            | ("builtins.range", int(), int(), int())
            | ("builtins.slice", int() | None, int() | None, int() | None)
            | ("collections.Counter", PickledDict())
            | ("collections.defaultdict", None)
            | ("torch.device", str())
            | ("torch.device", str(), int())
            | ("torch.nn.parameter.Parameter", Call())
            | ("torch.nn.parameter.Parameter", Call(), bool())
            | ("torch.serialization._get_layout", str())
        ):
            return True
        case ("_codecs.encode" | "builtins.bytearray", str(text), "latin1" | "latin-1"):
            return max(text, default="") <= "\xff"
        case ("builtins.set" | "builtins.frozenset", list(items)):
            return all(map(is_key, items))
        case ("collections.OrderedDict", list(items)):  # of Python 2
            return all(map(_is_pair, items))
        case ("collections.defaultdict", Global() as factory):
            return factory.path in _FACTORIES
        case (_, *parts) if path in _PATHS:
            return all(isinstance(part, str) for part in parts)
        case ("torch.Size", tuple(shape)):
            return _is_shape(shape)
        case ("torch._tensor._rebuild_from_type_v2", Global() as function, Global(), tuple(), _):
            return function.path.startswith(_REBUILD)
        case ("numpy.dtype", str(name), 0, 1):
            return _DTYPE.fullmatch(name) is not None
        case (
            "numpy.core.multiarray._reconstruct" | "numpy._core.multiarray._reconstruct",
            Global("numpy", "ndarray"),
            (0,),
            b"b",
        ):
            return True
        case (
            "numpy.core.multiarray.scalar" | "numpy._core.multiarray.scalar",
            dtype,
            bytes(content),
        ):
            return _fits(content, (), dtype)
        case (
            "numpy.core.numeric._frombuffer" | "numpy._core.numeric._frombuffer",
            bytes(content),
            dtype,
            tuple(shape),
            "C" | "F",
        ):
            return _fits(content, shape, dtype)
        case (_, str() | int()):
            return path in _ENUMS
        case _:
            return False


def _is_pair(item: object) -> bool:
    match item:
        case (key, _):
            return is_key(key)
        case _:
            return False


def _is_shape(value: tuple[object, ...]) -> bool:
    return len(value) <= _MOST_DIMENSIONS and all(
        type(number) is int and 0 <= number < 2**63 for number in value
    )


def _sizes_of_dtype(dtype: Call) -> list[int]:
    """Return the size, alignment and flags that numpy writes into the state of a dtype."""
    match dtype.args:
        case (str(name), *_) if name[0] in "SU":
            return [int(name[1:]), 1, 0] if name[0] == "S" else [4 * int(name[1:]), 4, 8]
        case (str(name), *_) if name[0] == "O":
            return [-1, -1, _OBJECT_FLAGS]
        case _:
            return [-1, -1, 0]


def _item_size(dtype: object) -> int | None:
    """Return the bytes of one element; 0 for objects, None for what is not a dtype."""
    match dtype:
        case Call(callee=Global("numpy", "dtype"), args=(str(name), *_)):
            return 0 if name[0] == "O" else int(name[1:]) * (4 if name[0] == "U" else 1)
        case _:
            return None


def _fits(content: bytes | list[object], shape: tuple[object, ...], dtype: object) -> bool:
    """Return whether bytes, or a list of objects, fill a numpy array of this shape and dtype."""
    size = _item_size(dtype)
    if size is None or not _is_shape(shape) or isinstance(content, list) != _has_objects(dtype):
        return False
    count = prod(number for number in shape if isinstance(number, int))
    return len(content) == (count if isinstance(content, list) else size * count)


def _has_objects(dtype: object) -> bool:
    return isinstance(dtype, Call) and isinstance(dtype.args[0], str) and dtype.args[0][0] == "O"

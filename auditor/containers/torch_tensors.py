"""A tensor of a torch pickle: which numbers of which storage, in which shape. Nothing is built."""

from collections.abc import Callable, Mapping
from itertools import starmap
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers.pickled import Call, Global, Persistent
from auditor.containers.words import quoted

# torch's dtypes -> the name that the safetensors format has for it, in upper case where it has
# none; and the bytes of an element. What packs two numbers to a byte is counted in bytes here.
DTYPES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "float64": ("F64", 8),
        "float32": ("F32", 4),
        "float16": ("F16", 2),
        "bfloat16": ("BF16", 2),
        "complex32": ("C32", 4),
        "complex64": ("C64", 8),
        "complex128": ("C128", 16),
        "int64": ("I64", 8),
        "int32": ("I32", 4),
        "int16": ("I16", 2),
        "int8": ("I8", 1),
        "uint64": ("U64", 8),
        "uint32": ("U32", 4),
        "uint16": ("U16", 2),
        "uint8": ("U8", 1),
        "bool": ("BOOL", 1),
        "float8_e4m3fn": ("F8_E4M3", 1),
        "float8_e5m2": ("F8_E5M2", 1),
        "float8_e8m0fnu": ("F8_E8M0", 1),
        "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
        "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
        "float4_e2m1fn_x2": ("F4", 1),
        "qint8": ("QINT8", 1),
        "quint8": ("QUINT8", 1),
        "qint32": ("QINT32", 4),
    }
)
_STORAGES: Mapping[str, str] = MappingProxyType(
    {
        "DoubleStorage": "float64",
        "FloatStorage": "float32",
        "HalfStorage": "float16",
        "BFloat16Storage": "bfloat16",
        "ComplexFloatStorage": "complex64",
        "ComplexDoubleStorage": "complex128",
        "LongStorage": "int64",
        "IntStorage": "int32",
        "ShortStorage": "int16",
        "CharStorage": "int8",
        "ByteStorage": "uint8",
        "BoolStorage": "bool",
        "QInt8Storage": "qint8",
        "QUInt8Storage": "quint8",
        "QInt32Storage": "qint32",
    }
)
_BYTES = frozenset({"UntypedStorage", "_UntypedStorage"})
_LARGEST = 2**63
_MOST_DIMENSIONS = 64  # torch's own bound
_DEEPEST = 8  # wrappers around one tensor: a Parameter, a subclass, its state


class Storage(NamedTuple):
    """A run of bytes that tensors are views of."""

    key: str  # zip: the entry's name in data/
    dtype: str | None  # of torch; None: bytes, and each tensor says what it makes of them
    length: int  # bytes


class View(NamedTuple):
    """A tensor: some numbers of a storage."""

    storage: Storage
    dtype: str  # of the safetensors format, or like one of its names
    shape: tuple[int, ...]
    start: int  # bytes from the storage's start to the first number
    length: int  # bytes of all its numbers
    stop: int  # of the byte behind the last number that it reaches

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Tensors of the same place hold the same numbers, if perhaps in another shape."""
        return self.storage.key, self.start, self.length, self.stop


class Unreadable(NamedTuple):
    """A tensor of which no more can be said than why."""

    reason: str  # the verb first


def storage(value: Persistent) -> Storage | Unreadable:
    """The storage that a persistent id means: ('storage', class, key, device, numel, view)."""
    match value.key:
        case ("storage", Global(name=name), str(key), _, int(numel), *rest) if (
            name in _STORAGES or name in _BYTES
        ) and 0 <= numel < _LARGEST:
            if any(part is not None for part in rest):
                return Unreadable("is a view of a storage, as torch wrote them before 0.4")
            dtype = _STORAGES.get(name)
            return Storage(key, dtype, numel * (DTYPES[dtype][1] if dtype else 1))
        case ("storage", Global(name=name), *_) if name not in _STORAGES:
            return Unreadable(f"has a storage of the unknown kind {quoted(name)}")
        case str():
            return Unreadable("was saved by pickle protocol 0, which torch itself cannot load")
        case _:
            return Unreadable("has a storage that no version of torch names so")


def tensor(value: object) -> View | Unreadable | None:
    """The tensor that a value is; None: it is none."""
    for _ in range(_DEEPEST):
        if not (isinstance(value, Call) and isinstance(value.callee, Global)):
            return None
        args = value.args
        match (value.callee.module, value.callee.name, args):
            case ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state", tuple()):
                value = args[0] if args else None
            case ("torch.nn.parameter", "Parameter" | "Buffer", tuple()):
                value = args[0] if args else None
            case ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2", tuple()):
                value = Call("REDUCE", args[0], args[2]) if len(args) > 2 else None  # noqa: PLR2004 - function, class, its arguments
            case ("torch._utils", str(name), tuple()) if name in _READERS:
                return _READERS[name](args)
            case ("torch._utils", str(name), _) if name.startswith("_rebuild_"):
                return Unreadable(f"is of a kind that is not read ({name})")
            case _:
                return None
    return Unreadable("is wrapped too often to be read")


def _strided(args: tuple[object, ...]) -> View | Unreadable:
    """(storage, offset, size, stride, ...); the dtype is the storage's."""
    match args:
        case (Persistent() as kept, int(offset), size, stride, *_):
            held = storage(kept)
            if isinstance(held, Unreadable):
                return held
            if held.dtype is None:
                return Unreadable("is a view of bytes, and says no dtype")
            return _view(held, held.dtype, offset, size, stride)
        case _:
            return Unreadable("is not built as torch builds tensors")


def _typed(args: tuple[object, ...]) -> View | Unreadable:
    """(storage, offset, size, stride, requires_grad, hooks, dtype, ...); the storage is bytes."""
    match args:
        case (Persistent() as kept, int(offset), size, stride, _, _, Global("torch", dtype), *_):
            held = storage(kept)
            return (
                held if isinstance(held, Unreadable) else _view(held, dtype, offset, size, stride)
            )
        case _:
            return Unreadable("is not built as torch builds tensors")


def _sparse(_args: tuple[object, ...]) -> Unreadable:
    return Unreadable("is sparse: its numbers and their places are stored, which are not read")


def _meta(_args: tuple[object, ...]) -> Unreadable:
    return Unreadable("was saved from the meta device: it has a shape and no numbers")


def _view(
    held: Storage, dtype: str, offset: int, size: object, stride: object
) -> View | Unreadable:
    shape, steps = _whole_numbers(size), _whole_numbers(stride)
    if dtype not in DTYPES:
        return Unreadable(f"has the dtype {quoted(dtype)}, which is not known")
    if shape is None or steps is None or len(shape) != len(steps) or not 0 <= offset < _LARGEST:
        return Unreadable("has no shape, stride and offset that a tensor can have")
    name, width = DTYPES[dtype]
    reach = sum(starmap(_reach, zip(shape, steps, strict=True)))
    count = prod(shape)
    start = offset * width
    stop = start + (reach + 1) * width if count else 0  # an empty view may begin anywhere
    if name == "F4" and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    return View(held, name, shape, start, count * width, stop)


def _reach(dimension: int, step: int) -> int:
    return (dimension - 1) * step


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    """The dimensions of a shape: a tuple, or torch.Size of one."""
    if isinstance(value, Call) and value.callee == Global("torch", "Size"):
        value = value.args[0] if isinstance(value.args, tuple) and value.args else None
    if not isinstance(value, tuple | list) or len(value) > _MOST_DIMENSIONS:
        return None
    numbers = tuple(number for number in value if type(number) is int and 0 <= number < _LARGEST)
    return numbers if len(numbers) == len(value) else None


_READERS: Mapping[str, Callable[[tuple[object, ...]], View | Unreadable]] = MappingProxyType(
    {
        "_rebuild_tensor": _strided,
        "_rebuild_tensor_v2": _strided,
        "_rebuild_tensor_v3": _typed,
        "_rebuild_qtensor": _strided,
        "_rebuild_sparse_tensor": _sparse,
        "_rebuild_sparse_csr_tensor": _sparse,
        "_rebuild_meta_tensor_no_storage": _meta,
    }
)

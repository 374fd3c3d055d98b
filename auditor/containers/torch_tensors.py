"""The storages of a torch pickle (blocks of bytes), and the tensors that are views of them."""

import re
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from auditor.bounded.pickle_names import Call, FollowedPickle, Global, Persistent, PickledDict
from auditor.messages import quoted
from auditor.tensors import Span

# torch's dtypes -> the name of the safetensors format, or torch's own in upper case, and the bytes
# of an element. A dtype that packs two numbers to a byte is counted in bytes.
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
_HALF = re.compile("[\ud800-\udfff]")
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
_PARTS = 5  # items of a storage's key; the legacy form adds the storage of which it is a view


class Storage(NamedTuple):
    """A block of bytes of which tensors are views."""

    key: str  # zip: the entry's name in data/
    dtype: str | None  # torch's dtype; None: bytes, each tensor has its own dtype
    length: int  # bytes

    @property
    def described(self) -> str:
        return f"{self.length:,} bytes of {self.dtype or 'any kind'}"


class StoragePlaces(NamedTuple):
    """The positions of the storages of a file, and their faults."""

    spans: Mapping[str, Span]  # by key
    faults: Mapping[str, str]  # by key: a sentence about a faulty storage
    size_faults: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """A tensor whose dtype and shape are not known."""

    reason: str  # the reason, which begins with a verb


def storages(pickle: FollowedPickle) -> dict[str, Storage]:
    """Return the storages that the pickle declares, by key; the first if a key is repeated."""
    declared: dict[str, Storage] = {}
    for persistent in pickle.persistent:
        source = storage(persistent)
        if isinstance(source, Storage):
            declared.setdefault(source.key, source)
    return declared


def storage_faults(pickle: FollowedPickle, *, legacy: bool) -> list[str]:
    """Return the reasons why torch raises for storages, each once, starting with a verb."""
    reasons: dict[str, None] = {}
    for persistent in pickle.persistent:
        source = storage(persistent)
        if isinstance(source, Unreadable):
            reasons[source.reason] = None
        elif legacy and source.dtype is None:
            reasons["has a storage of bytes, which torch.load does not read in this form"] = None
        elif isinstance(persistent.key, tuple) and len(persistent.key) != _PARTS + legacy:
            count = len(persistent.key)
            reasons[f"has a storage key of {count} parts, expected {_PARTS + legacy}"] = None
    return list(reasons)


def storage(value: Persistent) -> Storage | Unreadable:
    """Return the storage for a persistent id ('storage', class, key, device, numel, view)."""
    match value.key:
        case ("storage", Global(name=name), str(key), str(), int(numel), *rest) if (
            (name in _STORAGES or name in _BYTES) and 0 <= numel < _LARGEST and is_text(key)
        ):
            if any(part is not None for part in rest):
                return Unreadable("is a view of a storage, as torch wrote them before 0.4")
            dtype = _STORAGES.get(name)
            return Storage(key, dtype, numel * (DTYPES[dtype][1] if dtype else 1))
        case ("storage", Global(name=name), *_) if name not in _STORAGES:
            return Unreadable(f"has a storage of the unknown kind {quoted(name)}")
        case _:
            return Unreadable("has a storage key that no version of torch writes")


def is_text(text: str) -> bool:
    """Return whether a string has no surrogates (halves of characters)."""
    return text.isascii() or not _HALF.search(text)


_MOST_DIMENSIONS = 64  # torch's own bound
_UTILS = "torch._utils."
_FIRST = 4  # arguments: storage, offset, size and stride
_WITH_DTYPE = 7  # arguments up to the dtype
_DEEPEST = 8  # wrappers around one tensor: a Parameter, a subclass, its state


class TensorView(NamedTuple):
    """A tensor: a view of some numbers of a storage."""

    storage: Storage
    dtype: str  # safetensors' name, or one in its style
    shape: tuple[int, ...]
    start: int  # bytes from the storage's start to the first number
    length: int  # bytes of all its numbers
    stop: int  # offset in the storage after the last number of the view

    @property
    def place(self) -> tuple[str, int, int, int]:
        """A key that is equal for tensors with the same bytes, whatever their shapes."""
        return self.storage.key, self.start, self.length, self.stop


_ODD = Unreadable("is not built as torch builds tensors")
_CHANGED = Unreadable("is given a state that may change its shape once it is built")


def tensor_view(value: object) -> TensorView | Unreadable | None:
    """Return the tensor that a pickled value stands for; None if it is not a tensor."""
    fault: Unreadable | None = None
    for _ in range(_DEEPEST):
        if not (isinstance(value, Call) and isinstance(value.callee, Global)):
            return None
        if value.has_state and not _is_of_variable(value.state):
            fault = _CHANGED
        args = value.args
        match (value.callee.path, args):
            case ("torch.nn.parameter.Parameter", (inner, *_)):
                value = inner
            case ("torch._utils._rebuild_parameter", (inner, _, _)):
                value = inner
            case ("torch._utils._rebuild_parameter_with_state", (inner, _, _, state)):
                fault = fault or _state_fault(state)
                value = inner
            case (
                "torch._tensor._rebuild_from_type_v2",
                (Global() as function, _, tuple(inner_args), state),
            ):
                fault = fault or _state_fault(state)
                value = Call(function, inner_args)
            case (str(path), _) if path in _READERS:
                return fault or _READERS[path](args)
            case (str(path), _) if path.startswith(f"{_UTILS}_rebuild_"):
                return Unreadable(f"is of a kind that is not read ({path.removeprefix(_UTILS)})")
            case _:
                return None
    return Unreadable("has too many wrappers to be read")


def _is_of_variable(state: object) -> bool:
    """Return whether a tensor's pickled state has the form that torch wrote before 0.4."""
    match state:
        case (bool(), bool(), _):
            return True
        case _:
            return False


def _state_fault(state: object) -> Unreadable | None:
    """Return a fault if a tensor's pickled state, which sets attributes, replaces its data."""
    for part in state if isinstance(state, tuple) else (state,):
        if part is None:
            continue
        pairs = _attributes(part)
        names = [key if isinstance(key, str) else "data" for key, _ in pairs or ()]
        if pairs is None or any(name == "data" or name.startswith("__") for name in names):
            return _CHANGED
    return None


def _attributes(state: object) -> list[tuple[object, object]] | None:
    """Return the items of a state that sets attributes; None if it is not a plain dict."""
    match state:
        case PickledDict(pairs=pairs):
            return pairs
        case Call(
            callee=Global("collections", "OrderedDict"), args=(), pairs=pairs, has_state=False
        ):
            return pairs or []
        case _:
            return None


def _tensor(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Return the tensor for the arguments (storage, offset, size, stride)."""
    match args:
        case (Persistent() as key, int(offset), size, stride):
            source = storage(key)
            if isinstance(source, Unreadable):
                return source
            if source.dtype is None:
                return Unreadable("is a view of bytes without a dtype")
            return _view(source, source.dtype, offset, size, stride)
        case _:
            return _ODD


def _tensor_v2(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Return the tensor for (storage, offset, size, stride, requires_grad, hooks[, metadata])."""
    match args:
        case (*first, bool(), _) | (*first, bool(), _, PickledDict()) if len(first) == _FIRST:
            return _tensor(tuple(first))
        case _:
            return _ODD


def _quantized(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Return the tensor for (storage, offset, size, stride, quantizer, requires_grad, hooks)."""
    match args:
        case (*first, tuple(), bool(), _) if len(first) == _FIRST:
            return _tensor(tuple(first))
        case _:
            return _ODD


def _tensor_v3(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Return the tensor for (storage, offset, size, stride, ..., hooks, dtype[, metadata])."""
    *first, metadata = args if len(args) > _WITH_DTYPE else (*args, PickledDict([]))
    match first:
        case (
            Persistent() as key,
            int(offset),
            size,
            stride,
            bool(),
            _,
            Global("torch", dtype),
        ) if isinstance(metadata, PickledDict):
            source = storage(key)
            if isinstance(source, Unreadable):
                return source
            return _view(source, dtype, offset, size, stride)
        case _:
            return _ODD


_SPARSE = Unreadable("is sparse: numbers and positions are stored, which are not read")
_META = Unreadable("was saved from the meta device: it has a shape and no numbers")


def _view(
    source: Storage, dtype: str, offset: int, size: object, stride: object
) -> TensorView | Unreadable:
    shape, steps = dimensions(size), dimensions(stride)
    if dtype not in DTYPES:
        return Unreadable(f"has the unknown dtype {quoted(dtype)}")
    start = dimensions((offset,))
    if shape is None or steps is None or len(shape) != len(steps) or start is None:
        return Unreadable("has an impossible shape, stride or offset")
    name, width = DTYPES[dtype]
    reach = sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    count = prod(shape)
    if count >= _LARGEST:
        return Unreadable("has more numbers than a tensor can have")
    stop = offset * width + (reach + 1) * width if count else 0  # an empty view may begin anywhere
    if name == "F4" and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    return TensorView(source, name, shape, offset * width, count * width, stop)


def dimensions(value: object) -> tuple[int, ...] | None:
    """Return the integers of a tuple or a torch.Size; None for anything else."""
    if isinstance(value, Call) and value.callee == Global("torch", "Size"):
        value = value.args[0]
    if not isinstance(value, tuple | list) or len(value) > _MOST_DIMENSIONS:
        return None
    numbers = tuple(number for number in value if type(number) is int and 0 <= number < _LARGEST)
    return numbers if len(numbers) == len(value) else None


_READERS: Mapping[str, Callable[[tuple[object, ...]], TensorView | Unreadable]] = MappingProxyType(
    {
        "torch._utils._rebuild_tensor": _tensor,
        "torch._utils._rebuild_tensor_v2": _tensor_v2,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_qtensor": _quantized,
        "torch._utils._rebuild_sparse_tensor": lambda _: _SPARSE,
        "torch._utils._rebuild_meta_tensor_no_storage": lambda _: _META,
    }
)

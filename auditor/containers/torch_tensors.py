"""The tensors of a torch pickle: which numbers of which storage, in which shape."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers.pickle_values import Call, Global, Persistent, PickledDict
from auditor.containers.torch_storages import DTYPES, Storage, Unreadable, storage
from auditor.messages import quoted

_LARGEST = 2**63
_MOST_DIMENSIONS = 64  # torch's own bound
_UTILS = "torch._utils."
_FIRST = 4  # arguments: storage, offset, size and stride
_WITH_DTYPE = 7  # arguments up to the dtype
_DEEPEST = 8  # wrappers around one tensor: a Parameter, a subclass, its state


class TensorView(NamedTuple):
    """A tensor: some numbers of a storage."""

    storage: Storage
    dtype: str  # of the safetensors format, or spelled like its names
    shape: tuple[int, ...]
    start: int  # bytes from the storage's start to the first number
    length: int  # bytes of all its numbers
    stop: int  # offset in the storage behind the last number that it reaches

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Tensors of equal place hold the same numbers, perhaps in different shapes."""
        return self.storage.key, self.start, self.length, self.stop


_ODD = Unreadable("is not built as torch builds tensors")
_CHANGED = Unreadable("is given a state that may change its shape once it is built")


def tensor_view(value: object) -> TensorView | Unreadable | None:
    """Return the tensor that a value is; None if it is not a tensor."""
    changed: Unreadable | None = None
    for _ in range(_DEEPEST):
        if not (isinstance(value, Call) and isinstance(value.callee, Global)):
            return None
        if value.has_state and not _is_of_variable(value.state):
            changed = _CHANGED
        args = value.args
        match (value.callee.path, args):
            case ("torch.nn.parameter.Parameter", (inner, *_)):
                value = inner
            case ("torch._utils._rebuild_parameter", (inner, _, _)):
                value = inner
            case ("torch._utils._rebuild_parameter_with_state", (inner, _, _, state)):
                changed = changed or _by_attributes(state)
                value = inner
            case (
                "torch._tensor._rebuild_from_type_v2",
                (Global() as function, _, tuple(inner_args), state),
            ):
                changed = changed or _by_attributes(state)
                value = Call(function, inner_args)
            case (str(path), _) if path in _READERS:
                return changed or _READERS[path](args)
            case (str(path), _) if path.startswith(f"{_UTILS}_rebuild_"):
                return Unreadable(f"is of a kind that is not read ({path.removeprefix(_UTILS)})")
            case _:
                return None
    return Unreadable("is wrapped too often to be read")


def _is_of_variable(state: object) -> bool:
    """Whether a state is (requires_grad, volatile, hooks), as before torch 0.4: without a shape."""
    match state:
        case (bool(), bool(), _):
            return True
        case _:
            return False


def _by_attributes(state: object) -> Unreadable | None:
    """Return the fault of a state that gives a tensor other numbers; each key is an attribute."""
    for part in state if isinstance(state, tuple) else (state,):
        if part is None:
            continue
        pairs = _attributes(part)
        if pairs is None or any(not isinstance(key, str) or _rules(key) for key, _ in pairs):
            return _CHANGED
    return None


def _rules(name: str) -> bool:
    return name == "data" or name.startswith("__")


def _attributes(state: object) -> list[tuple[object, object]] | None:
    """Return the items of a dict that becomes attributes; None if it is not a plain dict."""
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
    """Read (storage, offset, size, stride)."""
    match args:
        case (Persistent() as key, int(offset), size, stride):
            held = storage(key)
            if isinstance(held, Unreadable):
                return held
            if held.dtype is None:
                return Unreadable("is a view of bytes without a dtype")
            return _view(held, held.dtype, offset, size, stride)
        case _:
            return _ODD


def _tensor_v2(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Read (storage, offset, size, stride, requires_grad, hooks[, metadata])."""
    match args:
        case (*first, bool(), _) | (*first, bool(), _, PickledDict()) if len(first) == _FIRST:
            return _tensor(tuple(first))
        case _:
            return _ODD


def _quantized(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Read (storage, offset, size, stride, quantizer, requires_grad, hooks)."""
    match args:
        case (*first, tuple(), bool(), _) if len(first) == _FIRST:
            return _tensor(tuple(first))
        case _:
            return _ODD


def _tensor_v3(args: tuple[object, ...]) -> TensorView | Unreadable:
    """Read (storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])."""
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
            held = storage(key)
            if isinstance(held, Unreadable):
                return held
            return _view(held, dtype, offset, size, stride)
        case _:
            return _ODD


def _sparse(_args: tuple[object, ...]) -> Unreadable:
    return Unreadable("is sparse: its numbers and their places are stored, which are not read")


def _meta(_args: tuple[object, ...]) -> Unreadable:
    return Unreadable("was saved from the meta device: it has a shape and no numbers")


def _view(
    held: Storage, dtype: str, offset: int, size: object, stride: object
) -> TensorView | Unreadable:
    shape, steps = _whole_numbers(size), _whole_numbers(stride)
    if dtype not in DTYPES:
        return Unreadable(f"has the unknown dtype {quoted(dtype)}")
    start = _whole_numbers((offset,))
    if shape is None or steps is None or len(shape) != len(steps) or start is None:
        return Unreadable("has no shape, stride and offset that a tensor can have")
    name, width = DTYPES[dtype]
    reach = sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    count = prod(shape)
    if count >= _LARGEST:
        return Unreadable("has more numbers than a tensor can have")
    stop = offset * width + (reach + 1) * width if count else 0  # an empty view may begin anywhere
    if name == "F4" and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    return TensorView(held, name, shape, offset * width, count * width, stop)


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    """Return the dimensions of a shape: a tuple, or torch.Size of one."""
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
        "torch._utils._rebuild_sparse_tensor": _sparse,
        "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    }
)

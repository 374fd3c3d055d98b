"""The classes and functions that a harmless pickle may import, and how each may be called.

The first list is that of torch's own `weights_only` loader. The others build plain values, and
`weights_only` refuses them. A call has exactly the form that pickle, torch or numpy writes, so that
no argument can ask for gigabytes or forge the layout of memory.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType

from msgspec import json

from auditor.containers.pickle_values import Call, Global, PickledDict, PickledSet, is_key

# Written by tools/rebuild_pickle_names.py; a test compares it with the installed libraries.
_DATA = Path(__file__).parents[1] / "data" / "pickle_names.json"
_LISTS: Mapping[str, list[str]] = json.decode(_DATA.read_bytes(), type=dict[str, list[str]])

WEIGHTS_ONLY = frozenset(_LISTS["weights_only"])
_ENUMS = frozenset(_LISTS["enums"])
_PLAIN_OBJECTS = frozenset(_LISTS["plain_objects"]) | {"argparse.Namespace"}

# Names of Python 2 -> names of Python 3.
_RENAMED = {("__builtin__", "xrange"): Global("builtins", "range")}
_RENAMED_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}

_MOST_DIMENSIONS = 64
_METHODS = frozenset(dir(OrderedDict))
_NUMBERS = re.compile(r"[biufc](1|2|4|8|16)")  # numpy's name of a kind of numbers, and its bytes
_NUMPY_DTYPE = "numpy.dtype"
_RECONSTRUCT = frozenset(
    {"numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"}
)
_DTYPE_STATE = (None, None, None, -1, -1, 0)  # of a dtype that is one number; before it the order


def renamed(module: str, name: str) -> Global:
    """The name in Python 3 of what Python 2 may have pickled."""
    known = _RENAMED.get((module, name))
    return known or Global(_RENAMED_MODULES.get(module, module), name)


def is_known(name: Global) -> bool:
    """Whether a pickle may import the name; a dot in it would look inside an object."""
    return "." not in name.name and (
        name.path in WEIGHTS_ONLY
        or name.path in _TAKES
        or name.path in _REFERENCES
        or name.path in _ENUMS
        or name.path in _PLAIN_OBJECTS
    )


def is_class(value: object) -> bool:
    """Whether the value is a class that a default dict calls without arguments."""
    return isinstance(value, Global) and value.path in _FACTORIES


def result_of(name: Global, args: tuple[object, ...]) -> object | None:
    """The result of a call in its known form; None if the call has another form."""
    path = name.path
    takes = _TAKES.get(path) or (_is_value if path in _ENUMS else None)
    if takes is None and path.startswith("torch._utils._rebuild_") and path in WEIGHTS_ONLY:
        return Call(name, args)
    if takes is None or not takes(args):
        return None
    match path, args:
        case ("_codecs.encode", (str(text), _)):
            return text.encode("latin-1")
        case ("builtins.bytes" | "builtins.bytearray", _):
            return _octets(args)
        case ("builtins.set" | "builtins.frozenset", (list(items),)):
            return PickledSet(items)
        case _:
            return Call(name, args)


def new_object(name: Global, args: tuple[object, ...]) -> Call | None:
    """The result of `name.__new__(*args)`; None if the class is not a plain one."""
    return Call(name, args) if name.path in _PLAIN_OBJECTS and not args else None


def may_have_state(call: Call, state: object) -> bool:
    """Whether the state is one that the library writes for the result of this call."""
    path = call.callee.path if isinstance(call.callee, Global) else ""
    if path == "collections.OrderedDict" or path in _PLAIN_OBJECTS:
        return isinstance(state, PickledDict) and all(
            isinstance(key, str) and key not in _METHODS for key, _ in state.pairs
        )
    if path == _NUMPY_DTYPE:
        return _is_dtype_state(state)
    if path in _RECONSTRUCT:
        return _is_array_state(state)
    return path.startswith("torch._utils._rebuild_") or path == "torch.nn.parameter.Parameter"


# --- forms of arguments ---------------------------------------------------------------------------

_Takes = Callable[[tuple[object, ...]], bool]


def _are(*kinds: type | tuple[type, ...]) -> _Takes:
    """A test for exactly so many arguments of these types."""
    return lambda args: len(args) == len(kinds) and all(map(isinstance, args, kinds))


def _any_of(*forms: _Takes) -> _Takes:
    return lambda args: any(form(args) for form in forms)


def _is_value(args: tuple[object, ...]) -> bool:
    return len(args) == 1 and isinstance(args[0], str | int)


def _is_latin1(args: tuple[object, ...]) -> bool:
    """(text, "latin1"): how Python 2 and protocol 2 write bytes."""
    match args:
        case (str(text), "latin1" | "latin-1"):
            return max(text, default="") <= "\xff"
        case _:
            return False


def _octets(args: tuple[object, ...]) -> bytes:
    match args:
        case (bytes(content),):
            return content
        case (str(text), _):
            return text.encode("latin-1")
        case _:
            return b""


def _is_items(args: tuple[object, ...]) -> bool:
    """([item, ...],): how sets are written."""
    match args:
        case (list(items),):
            return all(map(is_key, items))
        case _:
            return False


def _is_pairs(args: tuple[object, ...]) -> bool:
    """([[key, value], ...],): how Python 2 wrote an OrderedDict."""
    match args:
        case (list(items),):
            return all(
                isinstance(one, list | tuple) and len(one) == 2 and is_key(one[0])  # noqa: PLR2004 - key, value
                for one in items
            )
        case _:
            return False


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= _MOST_DIMENSIONS
        and all(type(number) is int and 0 <= number < 2**63 for number in value)
    )


def _is_factory(args: tuple[object, ...]) -> bool:
    return args in ((), (None,)) or (len(args) == 1 and is_class(args[0]))


def _is_typed(args: tuple[object, ...]) -> bool:
    """(function, class, arguments, state): a tensor of a subclass, or one with attributes."""
    match args:
        case (Global() as function, Global(), tuple(), _):
            return function.path.startswith("torch._utils._rebuild_")
        case _:
            return False


def _is_numpy_dtype(args: tuple[object, ...]) -> bool:
    """('f4', False, True); older versions wrote 0 and 1."""
    match args:
        case (str(name), 0, 1):
            return _NUMBERS.fullmatch(name) is not None
        case _:
            return False


def _is_dtype_state(state: object) -> bool:
    match state:
        case (3, "<" | ">" | "|" | "=", *rest):
            return tuple(rest) == _DTYPE_STATE
        case _:
            return False


def _width(dtype: object) -> int | None:
    """The bytes of one number of a numpy dtype; None if the value is not one."""
    match dtype:
        case Call(callee=Global("numpy", "dtype"), args=(str(name), *_)):
            return int(name[1:])
        case _:
            return None


def _is_scalar(args: tuple[object, ...]) -> bool:
    match args:
        case (dtype, bytes(content)):
            return len(content) == _width(dtype)
        case _:
            return False


def _is_empty_array(args: tuple[object, ...]) -> bool:
    match args:
        case (Global("numpy", "ndarray"), (0,), b"b"):
            return True
        case _:
            return False


def _is_array_state(state: object) -> bool:
    match state:
        case (1, shape, dtype, bool(), bytes(content)):
            return _fits(content, shape, dtype)
        case _:
            return False


def _is_array_of_bytes(args: tuple[object, ...]) -> bool:
    match args:
        case (bytes(content), dtype, shape, "C" | "F"):
            return _fits(content, shape, dtype)
        case _:
            return False


def _fits(content: bytes, shape: object, dtype: object) -> bool:
    width = _width(dtype)
    if width is None or not isinstance(shape, tuple) or not _is_shape(shape):
        return False
    return len(content) == width * prod(shape)


_WHOLE = (int, type(None))
_TAKES: Mapping[str, _Takes] = MappingProxyType(
    {
        "_codecs.encode": _is_latin1,
        "builtins.bytes": _are(),
        "builtins.bytearray": _any_of(_are(), _are(bytes), _is_latin1),
        "builtins.complex": _are(float, float),
        "builtins.frozenset": _is_items,
        "builtins.range": _are(int, int, int),
        "builtins.set": _is_items,
        "builtins.slice": _are(_WHOLE, _WHOLE, _WHOLE),
        "collections.Counter": _any_of(_are(), _are(PickledDict)),
        "collections.OrderedDict": _any_of(_are(), _is_pairs),
        "collections.defaultdict": _is_factory,
        "pathlib.PosixPath": lambda args: all(isinstance(part, str) for part in args),
        "pathlib.WindowsPath": lambda args: all(isinstance(part, str) for part in args),
        "torch.Size": lambda args: len(args) == 1 and _is_shape(args[0]),
        "torch._tensor._rebuild_from_type_v2": _is_typed,
        "torch.device": _any_of(_are(str), _are(str, int)),
        "torch.nn.parameter.Parameter": bool,
        "torch.serialization._get_layout": _are(str),
        _NUMPY_DTYPE: _is_numpy_dtype,
        **dict.fromkeys(_RECONSTRUCT, _is_empty_array),
        "numpy.core.multiarray.scalar": _is_scalar,
        "numpy._core.multiarray.scalar": _is_scalar,
        "numpy.core.numeric._frombuffer": _is_array_of_bytes,
        "numpy._core.numeric._frombuffer": _is_array_of_bytes,
    }
)
_FACTORIES = frozenset(
    f"builtins.{name}" for name in ("dict", "float", "int", "list", "set", "str")
)
_REFERENCES = _FACTORIES | {"numpy.ndarray"}  # imported, never called

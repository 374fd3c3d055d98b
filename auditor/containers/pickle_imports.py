"""Which names the pickle of a state dict may import, and a line for each that it may not.

The names are those that torch's own `weights_only` loader lets pass (2.13), and those of Python
and numpy that build plain values. Each is a class or a function without any effect but its value.
"""

from collections.abc import Iterator
from itertools import product

from auditor.containers.pickle_values import Call, Global, Persistent, Ran
from auditor.messages import named, quoted

_REBUILD = (
    "_rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor _rebuild_tensor "
    "_rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage "
    "_rebuild_nested_tensor _rebuild_wrapper_subclass _rebuild_sparse_csr_tensor "
    "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor"
)
_DTYPES = (
    "float16 float32 float64 bfloat16 half float double complex32 complex64 complex128 cfloat "
    "cdouble chalf uint8 int8 int16 int32 int64 short int long bool uint16 uint32 uint64 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 "
    "qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
)
_SCHEMES = (
    "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric "
    "per_channel_affine_float_qparams"
)
_KINDS = (
    "Double Float Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble "
    "QInt8 QUInt8 QInt32 QUInt4x2 QUInt2x4 Typed Untyped"
)
_PLACES = ("torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse")
_MODULES = {
    "collections": "OrderedDict Counter defaultdict",
    "copyreg": "_reconstructor",
    "copy_reg": "_reconstructor",
    "_codecs": "encode",
    "torch": f"{_DTYPES} {_SCHEMES} Size device Tensor",
    "torch.nn.parameter": "Parameter Buffer",
    "torch.serialization": "_get_layout",
    "torch.storage": "TypedStorage UntypedStorage _TypedStorage _UntypedStorage",
    "torch._utils": _REBUILD,
    "torch._tensor": "_rebuild_from_type _rebuild_from_type_v2",
    "numpy": "dtype ndarray",
    "numpy.core.multiarray": "scalar _reconstruct",
    "numpy._core.multiarray": "scalar _reconstruct",
    "numpy.core.numeric": "_frombuffer",
    "numpy._core.numeric": "_frombuffer",
}
_PLAIN = (
    "set frozenset bytearray bytes complex list dict tuple int float bool str slice range object"
)

KNOWN: frozenset[Global] = frozenset(
    {Global(module, name) for module, names in _MODULES.items() for name in names.split()}
    | {Global(module, name) for module in ("builtins", "__builtin__") for name in _PLAIN.split()}
    | {
        Global(place, kind + what)
        for place, kind, what in product(_PLACES, _KINDS.split(), ("Storage", "Tensor"))
    }
)

MAX_LINES = 50  # of one file; more are counted
_ARGUMENTS = 4  # that a line shows
_LONG = 2**64
_DO_CALL = frozenset({"REDUCE", "INST", "OBJ"})


def unknown_imports(ran: Ran) -> tuple[str, ...]:
    """A line for each name that is not known, with what would be done to it; in file order."""
    calls: dict[object, Call] = {}
    times: dict[object, int] = {}
    takers: dict[object, Call] = {}  # the first call that is given a name as an argument
    for call in ran.calls:
        callee = _callee(call)
        calls.setdefault(callee, call)
        times[callee] = times.get(callee, 0) + 1
        for arg in call.args if isinstance(call.args, tuple) else ():
            if isinstance(arg, Global):
                takers.setdefault(arg, call)
    lines = [
        _called(name, calls[name], times[name]) if name in calls else _named(name, takers.get(name))
        for name in ran.globals
        if name not in KNOWN
    ]
    lines += _changed(ran)
    if None in calls:
        lines.append(f"what is not an import is called or given state, {times[None]:,} times")
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more:,} more") if more > 0 else tuple(lines)


def _callee(call: Call) -> Global | None:
    """The name that is called; None: what is called came from somewhere else."""
    match call.callee:
        case Global() as name:
            return name
        case Persistent(key=("module", Global() as name, *_)):  # a class with its source, legacy
            return name
        case _:
            return None


def global_name(name: Global) -> str:
    """`torch._utils._rebuild_tensor_v2`; quoted where it is not plain."""
    return named(f"{name.module}.{name.name}")


def _changed(ran: Ran) -> Iterator[str]:
    """Known names whose own attributes the pickle would set."""
    for call in ran.calls:
        if call.how == "BUILD" and isinstance(call.callee, Global) and call.callee in KNOWN:
            yield f"{global_name(call.callee)}: its attributes are set"


def _named(name: Global, taker: Call | None) -> str:
    callee = _callee(taker) if taker else None
    if callee is None:
        return f"{global_name(name)}, imported and not called"
    return f"{global_name(name)}, imported and handed to {global_name(callee)}"


def _called(name: Global, call: Call, times: int) -> str:
    if call.how == "BUILD":
        return f"{global_name(name)}, imported, and its attributes are set"
    method = "" if call.how in _DO_CALL else ".__new__"
    state = ", then given state" if call.built else ""
    often = f", {times:,} times" if times > 1 else ""
    return f"{global_name(name)}{method}({_arguments(call.args)}){state}{often}"


def _arguments(args: object) -> str:
    if not isinstance(args, tuple):
        return _argument(args)
    shown = [_argument(arg) for arg in args[:_ARGUMENTS]]
    return ", ".join([*shown, "..."] if len(args) > _ARGUMENTS else shown)


def _argument(value: object) -> str:
    match value:
        case str() | bytes():
            return quoted(value if isinstance(value, str) else value.decode("ascii", "replace"))
        case Global():
            return global_name(value)
        case int() if abs(value) >= _LONG:
            return "a long integer"
        case None | bool() | int() | float():
            return str(value)
        case _:
            return "..."

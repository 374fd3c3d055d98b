"""The storages that a torch pickle asks for: runs of bytes that tensors are views of."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers.pickle_values import Global, Persistent, Ran, is_class, is_text
from auditor.messages import quoted
from auditor.tensors import Span

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
_PARTS = 5  # of a storage's name in a pickle; the legacy form says of what it is a view, too


class Storage(NamedTuple):
    """A run of bytes that tensors are views of."""

    key: str  # zip: the entry's name in data/
    dtype: str | None  # of torch; None: bytes, and each tensor says what it makes of them
    length: int  # bytes

    @property
    def said(self) -> str:
        return f"{self.length:,} bytes of {self.dtype or 'any kind'}"


class Held(NamedTuple):
    """Where the storages of a file lie, and what follows from that."""

    spans: Mapping[str, Span]  # by key
    faults: Mapping[str, str]  # by key: what is wrong with a storage
    size_faults: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """A tensor of which no more can be said than why."""

    reason: str  # the verb first


def storages(ran: Ran) -> dict[str, Storage]:
    """Every storage that the pickle names, by key; of two of one key the first."""
    found: dict[str, Storage] = {}
    for kept in ran.persistent:
        held = storage(kept)
        if isinstance(held, Storage):
            found.setdefault(held.key, held)
    return found


def storage_faults(ran: Ran, *, legacy: bool) -> list[str]:
    """Why torch raises where it is asked for a storage, the verb first; each reason once."""
    found: dict[str, None] = {}
    for kept in ran.persistent:
        if legacy and is_class(kept):
            continue
        held = storage(kept)
        if isinstance(held, Unreadable):
            found[held.reason] = None
        elif isinstance(kept.key, tuple) and len(kept.key) != _PARTS + legacy:
            found[f"has a storage of {len(kept.key)} parts, not {_PARTS + legacy}"] = None
    return list(found)


def asked_keys(ran: Ran) -> set[str]:
    """The keys by which the pickle asks for storages, whatever else it says of them."""
    found: set[str] = set()
    for kept in ran.persistent:
        match kept.key:
            case ("storage", _, str(key), *_):
                found.add(key)
            case _:
                pass
    return found


def storage(value: Persistent) -> Storage | Unreadable:
    """The storage that a persistent id means: ('storage', class, key, device, numel, view)."""
    match value.key:
        case ("storage", Global(name=name), str(key), _, int(numel), *rest) if (
            (name in _STORAGES or name in _BYTES) and 0 <= numel < _LARGEST and is_text(key)
        ):
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

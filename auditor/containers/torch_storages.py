"""The storages of a torch pickle: runs of bytes that tensors are views of."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.containers.pickle_values import FollowedPickle, Global, Persistent
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
_PARTS = 5  # of a storage's key in a pickle; the legacy form adds of what it is a view


class Storage(NamedTuple):
    """A run of bytes that tensors are views of."""

    key: str  # zip: the entry's name in data/
    dtype: str | None  # of torch; None: bytes, and each tensor declares its own
    length: int  # bytes

    @property
    def described(self) -> str:
        return f"{self.length:,} bytes of {self.dtype or 'any kind'}"


class Held(NamedTuple):
    """The places of the storages of a file, and what is wrong with them."""

    spans: Mapping[str, Span]  # by key
    faults: Mapping[str, str]  # by key: what is wrong with a storage
    size_faults: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """A tensor whose dtype and shape are not known."""

    reason: str  # a verb first


def storages(pickle: FollowedPickle) -> dict[str, Storage]:
    """Return the storages that the pickle declares, by key; of two with one key the first."""
    declared: dict[str, Storage] = {}
    for persistent in pickle.persistent:
        one = storage(persistent)
        if isinstance(one, Storage):
            declared.setdefault(one.key, one)
    return declared


def storage_faults(pickle: FollowedPickle, *, legacy: bool) -> list[str]:
    """Return why torch raises for a storage, a verb first; each reason once."""
    reasons: dict[str, None] = {}
    for persistent in pickle.persistent:
        one = storage(persistent)
        if isinstance(one, Unreadable):
            reasons[one.reason] = None
        elif legacy and one.dtype is None:
            reasons["has a storage of bytes, which torch.load does not read in this form"] = None
        elif isinstance(persistent.key, tuple) and len(persistent.key) != _PARTS + legacy:
            count = len(persistent.key)
            reasons[f"has a storage key of {count} parts, expected {_PARTS + legacy}"] = None
    return list(reasons)


def storage(value: Persistent) -> Storage | Unreadable:
    """Return the storage of a key: ('storage', class, key, device, numel, view)."""
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
    """Whether a string is made of characters: a pickle may hold halves of some (surrogates)."""
    return text.isascii() or not _HALF.search(text)

"""Stored tensors, byte spans, dtypes and their widths; the order of names; the depth of modules."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 8,
        "F4": 4,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
        "U8": 8,
        "I8": 8,
        "F8_E5M2": 8,
        "F8_E4M3": 8,
        "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8,
        "I16": 16,
        "U16": 16,
        "F16": 16,
        "BF16": 16,
        "I32": 32,
        "U32": 32,
        "F32": 32,
        "C64": 64,
        "F64": 64,
        "I64": 64,
        "U64": 64,
    }
)

# Spellings of dtypes in torch, in quantization and in file names -> the dtypes of safetensors.
FOUR_BIT = "4-bit"  # dtypes of quantized layouts that safetensors does not have
SPELT_DTYPES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("fp16", "float16", "half"), "F16"),
        **dict.fromkeys(("bfloat16", "bf16"), "BF16"),
        **dict.fromkeys(("fp32", "float32", "float", "full"), "F32"),
        **dict.fromkeys(("fp64", "float64", "double"), "F64"),
        **dict.fromkeys(("fp8", "f8", "float8", "float8_e4m3fn", "e4m3"), "F8_E4M3"),
        **dict.fromkeys(("float8_e5m2", "e5m2"), "F8_E5M2"),
        **dict.fromkeys(("int8", "8bit", "8-bit", "q8"), "I8"),
        **dict.fromkeys(("uint8",), "U8"),
        **dict.fromkeys(("int4", "4bit", "4-bit", "nf4", "fp4", "q4"), FOUR_BIT),
    }
)


def dtype_as_stored(spelt: str) -> str:
    """Return the safetensors dtype, `BF16` for `torch.bfloat16`; an unknown dtype in capitals."""
    plain = spelt.strip().lower().removeprefix("torch.")
    return SPELT_DTYPES.get(plain, plain.upper())


class Span(NamedTuple):
    """A span of a file's bytes: from `start` to `stop`, without the byte at `stop`."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def http_range(self) -> str:
        """The value of a Range header, which includes the last byte: `bytes=0-7` is eight bytes."""
        return f"bytes={self.start}-{self.stop - 1}"


class StoredTensor(NamedTuple):
    """A tensor as a file's header declares it.

    It is a NamedTuple because a model may have ninety thousand tensors, and making a frozen
    dataclass takes about three times as long.
    """

    name: str
    dtype: str | None  # of the safetensors format; None: only an index names it
    shape: tuple[int, ...] | None  # as stored, e.g. (out, in); None: only an index names it
    elements: int | None  # the product of the shape; None: only an index names it
    file: str  # path inside the repo, "/" between folders
    span: Span | None  # bytes of the file's data section; None: only an index names it


_FLOATS = ("F", "BF", "C")  # prefixes of the floating-point dtypes of safetensors


def is_float(dtype: str) -> bool:
    """Return whether a dtype is float or complex, so that its numbers may come from training."""
    return dtype.startswith(_FLOATS)


def learned(tensor: StoredTensor) -> int:
    """Return the number of parameters in a tensor, judged by its dtype and shape.

    The number is 0 for integers and booleans, which are not trained, and for a tensor that only an
    index names. Dtypes that safetensors does not have (INT4, Q4_K) count as packed parameters.
    """
    if tensor.elements is None or tensor.dtype is None:
        return 0
    packed = tensor.dtype not in DTYPE_BITS
    return tensor.elements if packed or is_float(tensor.dtype) else 0


# The most characters of all tensor names of a file: 5 million, or 80 per name if that is more. A
# character takes up to ten bytes of memory. The 92,000 names of DeepSeek-V3 have 52 characters on
# average, the 208,000 names of Kimi K2 Thinking 65.
MAX_CHARACTERS = 5 * 1024 * 1024
MAX_AVERAGE = 80
_DIGITS = re.compile(r"[0-9]+")
_LONG = 512  # characters in which numbers sort by value; four times the longest real name
_SHORT = 256  # longer names are hostile and not cached


def natural_key(name: str) -> tuple[str, str]:
    """Return a sort key for natural order: layer.2, layer.2.x, layer.10, layer-a.

    Numbers are padded to 20 digits, the length of the largest u64; the name itself decides between
    "01" and "1". Padding does not fail on a name of 5,000 digits, which int() rejects, and sorts
    90,000 names in 0.11 s. Only the first characters of a name are padded, because eight million
    numbers of one digit would take 160 MB.
    """
    pad = _padded if len(name) <= _SHORT else _padded.__wrapped__
    return "\0".join(map(pad, name[:_LONG].split("."))), name


def naturally_sorted(items: Iterable[_T], name: Callable[[_T], str]) -> list[_T]:
    """Sort items naturally by their names; items with one name keep their order."""
    return sorted(items, key=lambda item: natural_key(name(item)))


def names_fault(names: Collection[str]) -> str | None:
    """Return `has N characters of tensor names, ...` if names exceed the limits; else None."""
    characters, most = sum(map(len, names)), max(MAX_CHARACTERS, MAX_AVERAGE * len(names))
    if characters <= most:
        return None
    return f"has {characters:,} characters of tensor names, expected at most {most:,}"


class Depth(NamedTuple):
    """The depth of a module listing: `bert.encoder` is at depth 2, the complete model at 0."""

    most: int
    # The depth to which modules of numbered layers are listed; None lists them like other modules.
    # `encoder.layer.0` is at depth 3; a hostile BERT with 5,625 layers has modules in each of them.
    layers: int | None = None

    def cut(self, prefix: str) -> str:
        """Return the prefix if it is listed, else that of the closest listed module around it."""
        most = min(self.most, MAX_CHARACTERS)  # no name has as many parts
        parts = prefix.split(".", most)[:most]
        if self.layers is not None:
            for place in range(self.layers, len(parts)):
                if parts[place].isdecimal():
                    return ".".join(parts[: place + 1])
        return ".".join(parts)

    def lists(self, prefix: str) -> bool:
        """Return whether the module with this prefix is listed."""
        return self.cut(prefix) == prefix

    def at_most(self, most: int) -> "Depth":
        return self._replace(most=min(self.most, most))

    def one_deeper(self) -> "Depth":
        return Depth(self.most + 1, None if self.layers is None else self.layers + 1)

    def inside(self, layer: int) -> "Depth | None":
        """Return the depth inside a layer at depth `layer`; None if the layer is not listed."""
        if layer > self.most:
            return None
        if self.layers is None:
            return Depth(self.most - layer)
        return Depth(0) if layer > self.layers else Depth(self.most - layer, self.layers - layer)


@lru_cache(maxsize=4096)  # a model's names consist of few parts
def _padded(part: str) -> str:
    return _DIGITS.sub(lambda digits: digits[0].zfill(20), part)

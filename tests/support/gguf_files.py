"""GGUF files: written here byte by byte, so that they can be wrong, without the field's library."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from auditor.containers.gguf import GgufHeader, parse
from auditor.containers.weight_formats import FilePart, NeedsBytes, PartialFile, merged_parts
from auditor.tensors import Span

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LETTERS = dict(zip((*range(8), U64, I64, F64), "BbHhIif?Qqd", strict=True))
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144)}  # type: (numbers, bytes)


class Tensor(NamedTuple):
    """One line of the table; shape (out, in), as PyTorch has it."""

    name: str
    shape: Sequence[int] = (2, 32)
    type: int = 0
    offset: int | None = None  # None: where the one before it ends

    @property
    def length(self) -> int:
        numbers, width = BLOCKS.get(self.type, (1, 4))
        return prod(self.shape) // numbers * width


Pair = tuple[str, int, Any]


def packed(order: str, letter: str, *values: Any) -> bytes:
    return struct.pack(f"{order}{letter}", *values)


def string(text: str | bytes, order: str = "<", *, length: int | None = None) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return packed(order, "Q", len(content) if length is None else length) + content


def array(kind: int, items: Sequence[Any], order: str = "<", *, count: int | None = None) -> bytes:
    head = packed(order, "IQ", kind, len(items) if count is None else count)
    if kind in _LETTERS and items and not isinstance(items[0], bytes):
        return head + packed(order, f"{len(items)}{_LETTERS[kind]}", *items)
    return head + b"".join(value(kind, item, order) for item in items)


def value(kind: int, content: Any, order: str = "<") -> bytes:
    """What stands behind a type; bytes stand as they are, an array is (type, items)."""
    if isinstance(content, bytes):
        return content
    if kind == STRING:
        return string(content, order)
    if kind == ARRAY:
        return array(*content, order)
    return packed(order, _LETTERS[kind], content)


def gguf_bytes(  # noqa: PLR0913 - one keyword for each thing that can be wrong
    pairs: Iterable[Pair] = (),
    tensors: Iterable[Tensor] = (),
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
    counts: tuple[int | None, int | None] = (None, None),
    data: bool = True,
) -> bytes:
    """A whole file; `counts` of tensors and pairs, true ones where None."""
    pairs, tensors = tuple(pairs), tuple(tensors)
    n_tensors = len(tensors) if counts[0] is None else counts[0]
    n_pairs = len(pairs) if counts[1] is None else counts[1]
    head = b"GGUF" + packed(order, "IQQ", version, n_tensors, n_pairs)
    lines = [head]
    for key, kind, content in pairs:
        lines += (string(key, order), packed(order, "I", kind), value(kind, content, order))
    end = 0
    for tensor in tensors:
        lines += (string(tensor.name, order), packed(order, "I", len(tensor.shape)))
        lines += (packed(order, "Q", size) for size in reversed(tensor.shape))
        offset = end if tensor.offset is None else tensor.offset
        lines.append(packed(order, "IQ", tensor.type, offset))
        end += tensor.length + -tensor.length % alignment
    head = b"".join(lines)
    return head + bytes(-len(head) % alignment) + (bytes(end) if data else b"")


def model_pairs(arch: str, values: Mapping[str, int], *, tokens: int = 0) -> list[Pair]:
    """The metadata of a model: `model_pairs("llama", {"block_count": 2})`."""
    pairs: list[Pair] = [("general.architecture", STRING, arch)]
    pairs += [(f"{arch}.{key}", U32, number) for key, number in values.items()]
    if tokens:
        pairs.append(("tokenizer.ggml.tokens", ARRAY, (STRING, ["a"] * tokens)))
    return pairs


def read(content: bytes, file: str = "m.gguf") -> GgufHeader:
    return parse(file, PartialFile(len(content), (FilePart(0, content),)))


class Reading(NamedTuple):
    """What reading by ranges came to."""

    header: GgufHeader
    spans: tuple[Span, ...]  # as asked for


def read_by_ranges(content: bytes, file: str = "m.gguf") -> Reading:
    """As a source reads that has nothing at first."""
    parts: tuple[FilePart, ...] = ()
    spans: list[Span] = []
    while True:
        try:
            return Reading(parse(file, PartialFile(len(content), parts)), tuple(spans))
        except NeedsBytes as needs:
            spans.append(needs.span)
            part = FilePart(needs.span.start, content[needs.span.start : needs.span.stop])
            parts = merged_parts((*parts, part))

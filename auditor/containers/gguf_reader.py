"""The reader of single values of a GGUF header; it raises NeedsBytes for missing bytes."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from auditor.containers.weight_formats import NeedsBytes, PartialFile
from auditor.errors import CheckpointError
from auditor.messages import quoted
from auditor.tensors import Span


class Skipped(NamedTuple):
    """A value that is too long to keep, such as the tokens of a vocabulary."""

    kind: str  # the type of its items: "string", "f32"; "byte" for a string
    length: int


_Order = Literal["big", "little"]
Value = bool | int | float | str | Skipped | tuple["Value", ...]

# Reads end at a multiple of this number of bytes. It is small, because a snapshot keeps the bytes,
# and the last of them may be tensor data.
_CHUNK = 4 * 1024
# Bytes of the first request, and of the longest request: each request is three times as long as
# all before it. A header without a tokenizer has 30 kB; that of Llama 3, 128,256 tokens and 280,147
# merges, has 7.8 MB and takes four requests; that of Gemma 3, with 14.8 MB, takes six.
_FIRST = 256 * 1024
_LONGEST = 4 * 1024 * 1024
# Limits of the values that are kept: the longest array (a number for each layer) and the longest
# string, and the total of both.
_MOST_KEPT = 1024
_LONGEST_KEPT = 64 * 1024
_MOST_VALUES = 65_536
_MOST_TEXT = 2 * 1024 * 1024
_LONGEST_KEY = 65_535  # bytes, as the specification has it
# Levels of nested arrays; the specification allows them, no known writer makes them, llama.cpp
# refuses them.
_DEEPEST = 4
# Items that have to be read one by one, in arrays of strings and of arrays. The largest known
# vocabulary, of 262,144 tokens, has another 515,000 merges.
_MOST_ITEMS = 1_200_000

_STRING, _ARRAY, _BOOL, U32 = 8, 9, 7, 4
_SCALARS: Mapping[int, tuple[str, str, int]] = MappingProxyType(
    {  # number: (name, struct's letter, bytes)
        0: ("u8", "B", 1),
        1: ("i8", "b", 1),
        2: ("u16", "H", 2),
        3: ("i16", "h", 2),
        U32: ("u32", "I", 4),
        5: ("i32", "i", 4),
        6: ("f32", "f", 4),
        _BOOL: ("bool", "B", 1),
        10: ("u64", "Q", 8),
        11: ("i64", "q", 8),
        12: ("f64", "d", 8),
    }
)
_LEAST = {_STRING: 8, _ARRAY: 12}  # bytes of an empty value
# The types of values, by number.
NAMES = {**{number: name for number, (name, *_) in _SCALARS.items()}, 8: "string", 9: "array"}


class Cursor:
    """A reading position in a file; reading past its end raises CheckpointError."""

    def __init__(self, sparse: PartialFile) -> None:
        self.big_endian = False
        self.size = sparse.size
        self._sparse = sparse
        self._window = b""  # bytes of the file from `_base` on
        self._base = 0
        self._at = 0  # in the window
        self._items = 0  # the number of items read one by one
        self._values = 0  # the number of values kept in arrays
        self._text = 0  # the number of bytes kept in strings

    @property
    def place(self) -> int:
        """Return the position in the file, in bytes."""
        return self._base + self._at

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes; the position stays."""
        self._fill(count, "it")
        return self._window[self._at : self._at + count]

    def take(self, count: int, label: str) -> bytes:
        self._fill(count, label)
        self._at += count
        return self._window[self._at - count : self._at]

    def skip(self, count: int, label: str) -> None:
        """Advance without reading; the skipped bytes need not have been fetched."""
        self._require_room(count, label)
        self._at += count
        if self._at > len(self._window):
            self._base, self._window, self._at = self.place, b"", 0

    def u32(self, label: str) -> int:
        return int.from_bytes(self.take(4, label), self._order)

    def u64(self, label: str) -> int:
        return int.from_bytes(self.take(8, label), self._order)

    def name(self, label: str) -> str:
        """Read a string that has to be text: a key, or a tensor's name."""
        length = self.u64(label)
        if length > _LONGEST_KEY:
            self._require_room(length, label)
            raise CheckpointError(
                f"has {length:,} bytes for {label}, expected at most {_LONGEST_KEY:,}"
            )
        content = self.take(length, label)
        try:
            return content.decode()
        except UnicodeDecodeError:
            text = quoted(content.decode(errors="backslashreplace"))
            raise CheckpointError(f"has {text} for {label}, which is not UTF-8") from None

    def type_of(self, kind: int) -> str:
        """Return the name of a value's type; the position, before the value, stays."""
        if kind != _ARRAY or self.size - self.place < 4:  # noqa: PLR2004 - bytes of a type
            return NAMES.get(kind, "")
        return f"array of {NAMES.get(int.from_bytes(self.peek(4), self._order), '')}"

    def value(self, kind: int, key: str, depth: int = 0) -> Value:
        """Read the value of a key, or skip it if it is too long to keep."""
        if kind == _STRING:
            length = self.u64(f"the length of {key}")
            if length > _LONGEST_KEPT or self._text + length > _MOST_TEXT:
                self.skip(length, f"the value of {key}")
                return Skipped("byte", length)
            self._text += length
            return self.take(length, f"the value of {key}").decode(errors="replace")
        if kind == _ARRAY:
            if depth == _DEEPEST:
                raise CheckpointError(f"nests the arrays of {key} more than {_DEEPEST} levels deep")
            return self._array(key, depth + 1)
        if kind not in _SCALARS:
            raise CheckpointError(f"has value type {kind:,} for {key}, expected 0 to {max(NAMES)}")
        return self._scalars(kind, 1, key)[0]

    @property
    def _order(self) -> _Order:
        return "big" if self.big_endian else "little"

    def _array(self, key: str, depth: int) -> Value:
        kind = self.u32(f"the item type of {key}")
        count = self.u64(f"the length of {key}")
        if kind not in NAMES:
            raise CheckpointError(f"has item type {kind:,} for {key}, expected 0 to {max(NAMES)}")
        least = _SCALARS[kind][2] if kind in _SCALARS else _LEAST[kind]
        self._require_room(count * least, f"{key}, {count:,} items of {least} bytes at least")
        is_kept = count <= _MOST_KEPT and self._values + count <= _MOST_VALUES
        if kind in _SCALARS:
            if is_kept:
                self._values += count
                return self._scalars(kind, count, key)
            self.skip(count * least, key)
            return Skipped(NAMES[kind], count)
        self._items += count
        if self._items > _MOST_ITEMS or (kind == _ARRAY and not is_kept):
            raise CheckpointError(
                f"has too many items in its arrays, up to {key}: expected at most {_MOST_ITEMS:,}"
            )
        if not is_kept:
            self._skip_strings(count, key)
            return Skipped(NAMES[kind], count)
        self._values += count
        return tuple(self.value(kind, key, depth) for _ in range(count))

    def _scalars(self, kind: int, count: int, key: str) -> tuple[bool | int | float, ...]:
        _, letter, width = _SCALARS[kind]
        content = self.take(count * width, f"the value of {key}")
        values = struct.unpack(f"{'>' if self.big_endian else '<'}{count}{letter}", content)
        return tuple(map(bool, values)) if kind == _BOOL else values

    def _skip_strings(self, count: int, key: str) -> None:
        """Skip `count` strings, such as a vocabulary, without a method call for each.

        The lengths of 100,000 strings take 15 ms this way, and 70 ms with `u64` and `skip`.
        """
        unpack = struct.Struct(">Q" if self.big_endian else "<Q").unpack_from
        while count:
            self._fill(8, key)
            window, at, last = self._window, self._at, len(self._window) - 8
            while count and at <= last:
                (length,) = unpack(window, at)
                at += 8 + length
                count -= 1
            # The last string may end after the window, or after the file.
            self._at = min(at, len(window))
            self.skip(at - self._at, f"an item of {key}")

    def _require_room(self, count: int, label: str) -> None:
        if count > self.size - self.place:
            raise CheckpointError(
                f"ends in the middle of {label}: expected {count:,} bytes from byte "
                f"{self.place:,} on, and the file has {self.size:,}"
            )

    def _fill(self, count: int, label: str) -> None:
        """Fill the window with `count` bytes from the position on."""
        if self._at + count <= len(self._window):
            return
        self._require_room(count, label)
        unread = self._window[self._at :]
        self._base, self._at = self.place, 0
        parts, position = [unread], self._base + len(unread)
        while position < self._base + count:
            stop = min((position // _CHUNK + 1) * _CHUNK, self.size)
            try:
                parts.append(self._sparse.read(Span(position, stop)))
            except NeedsBytes:
                length = min(max(3 * position, _FIRST), _LONGEST)
                raise NeedsBytes(
                    Span(position, max(stop, min(position + length, self.size)))
                ) from None
            position = stop
        self._window = b"".join(parts)

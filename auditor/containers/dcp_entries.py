"""The entries of a torch DCP's .metadata: tensors with their chunks, and chunks' places in files.

torch pickles each entry as some hundred opcodes of one form, so 91,000 tensors are 9 million
opcodes. `EntryShortcut` follows an entry in that form by a few patterns; any other form is followed
opcode by opcode, and `tensor_entry` and `stored_place` read its records.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from auditor.bounded.pickle_machine import Machine
from auditor.bounded.pickle_names import Call, Global, PickledDict
from auditor.tensors import Span

_METADATA = "torch.distributed.checkpoint.metadata"
_TENSOR, _CHUNK = f"{_METADATA}.TensorStorageMetadata", f"{_METADATA}.ChunkStorageMetadata"
_INDEX = f"{_METADATA}.MetadataIndex"
_BYTES = f"{_METADATA}.BytesStorageMetadata"
_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
_PROPERTIES = (
    f"{_METADATA}.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
)
_MOST_DIMENSIONS = 64
_LARGEST = 2**63

Shape = tuple[int, ...]
_T = TypeVar("_T")


class Chunk(NamedTuple):
    """A part of a tensor: the place of its first element, and its shape."""

    offsets: Shape
    sizes: Shape


class TensorEntry(NamedTuple):
    """A tensor of a distributed checkpoint."""

    dtype: str  # torch's name, "bfloat16"
    shape: Shape
    chunks: tuple[Chunk, ...]


class StoredPlace(NamedTuple):
    """The bytes of a chunk, or of an object that is not a tensor."""

    name: str
    offsets: Shape | None  # of the chunk; None: an object
    path: str  # of the file, relative to the folder of .metadata
    span: Span
    is_packed: bool  # whether the bytes were transformed (compressed) when they were written


# --- records -------------------------------------------------------------------------------------


def attributes(value: object, *paths: str) -> dict[str, object] | None:
    """Return the attributes of a pickled object of one of these classes, else None."""
    match value:
        case Call(callee=Global(path=path), state=PickledDict(pairs=pairs)) if path in paths:
            return {key: item for key, item in pairs if isinstance(key, str)}
        case _:
            return None


def tensor_entry(value: object) -> TensorEntry | None:
    """Return the tensor that a record describes; None for any other record."""
    if isinstance(value, TensorEntry):
        return value
    fields = attributes(value, _TENSOR) or {}
    dtype, shape = _dtype(fields.get("properties")), _shape(fields.get("size"))
    chunks = fields.get("chunks")
    parts = tuple(map(_chunk, chunks)) if isinstance(chunks, list) else (None,)
    if dtype is None or shape is None or None in parts:
        return None
    return TensorEntry(dtype, shape, tuple(part for part in parts if part))


def is_object(value: object) -> bool:
    """Return whether a record stands for an object that is not a tensor."""
    return isinstance(value, Call) and value.callee == Global(*_BYTES.rsplit(".", 1))


def stored_place(key: object, value: object) -> StoredPlace | None:
    """Return the place that an entry of storage_data gives; None for any other entry."""
    if isinstance(value, StoredPlace):
        return value
    index, info = attributes(key, _INDEX) or {}, attributes(value, _INFO) or {}
    name, offsets = index.get("fqn"), _shape(index.get("offset"))
    path, start, length = (info.get(one) for one in ("relative_path", "offset", "length"))
    is_known = offsets is not None or index.get("offset") is None
    if not (isinstance(name, str) and is_known and isinstance(path, str)):
        return None
    if not (type(start) is int and type(length) is int and min(start, length) >= 0):
        return None
    is_packed = bool(info.get("transform_descriptors"))
    return StoredPlace(name, offsets, path, Span(start, start + length), is_packed)


def _chunk(value: object) -> Chunk | None:
    fields = attributes(value, _CHUNK) or {}
    offsets, sizes = _shape(fields.get("offsets")), _shape(fields.get("sizes"))
    return None if offsets is None or sizes is None else Chunk(offsets, sizes)


def _dtype(value: object) -> str | None:
    """Return the dtype of TensorProperties, whose state is a tuple or a dict."""
    dtype: object
    match value:
        case Call(callee=Global(path=path), state=(dtype, *_)) if path in _PROPERTIES:
            pass
        case _:
            dtype = (attributes(value, *_PROPERTIES) or {}).get("dtype")
    return dtype.name if isinstance(dtype, Global) and dtype.module == "torch" else None


def _shape(value: object) -> Shape | None:
    match value:
        case Call(callee=Global("torch", "Size"), args=(tuple(numbers),)) | tuple(numbers):
            pass
        case _:
            return None
    is_shape = len(numbers) <= _MOST_DIMENSIONS and all(
        type(number) is int and 0 <= number < _LARGEST for number in numbers
    )
    return tuple(numbers) if is_shape else None


# --- many opcodes at once ------------------------------------------------------------------------

# Opcodes as Python's C pickler writes them in protocols 4 and 5, without those of frames, inside
# of which an entry is followed opcode by opcode. The first byte of each gives its length, so that
# a pattern has one reading.
_REF = rb"(?:h.|j.{4})"  # BINGET, LONG_BINGET
_INT = rb"(?:K.|M..|J.{4}|\x8a\x05.{5}|\x8a\x06.{6})"  # BININT1, BININT2, BININT, LONG1
_NUMBERS = (
    rb"(\)|" + _INT + rb"\x85\x94|" + _INT + rb"{2}\x86\x94|" + _INT + rb"{3}\x87\x94|"
    rb"\(" + _INT + rb"{4,64}t\x94)"
)
_SIZE = _NUMBERS + rb"\x85\x94R\x94"
_NEW = rb"\)\x81\x94\}\x94\("  # an object without arguments, and the dict of its state


def _compiled(*parts: bytes) -> re.Pattern[bytes]:
    return re.compile(b"".join(parts), re.DOTALL)


_ONE_INT = _compiled(_INT)
_ONE_REF = _compiled(_REF)
_LAYOUT = rb"[\x88\x89]"
_TENSOR_START = _compiled(
    *(rb"\x94(", _REF, _NEW, _REF, _REF, rb"\)\x81\x94\(", _REF, _REF, _LAYOUT, _REF, _LAYOUT),
    *(rb"t\x94b", _REF, _REF, rb")", _SIZE, rb"(", _REF, rb"\]\x94)(\(?)"),
)
_CHUNK_ENTRY = _compiled(
    *(rb"(", _REF, _NEW, _REF, _REF, rb")", _SIZE, rb"(", _REF, _REF, rb")", _SIZE, rb"ub")
)
_PLACE_START = _compiled(rb"(", _REF, _NEW, _REF, rb")(?:(", _REF, rb")|\x8c(.))")
_PLACE_END = _compiled(
    *(rb"(", _REF, rb")(?:N|", _INT, rb")(?:(", _REF, rb")N|(", _REF, _REF, rb")", _SIZE, rb")ub("),
    *(_REF, _NEW, _REF, rb")(", _REF, rb")(", _REF, rb")(", _INT, rb")(", _REF, rb")"),
    *(rb"(", _INT, rb")(", _REF, rb"N)?ub"),
)
_PLAN = _compiled(rb"(", _REF, rb")(", _REF, rb")(?:(\x85)|\x8c(.))")


def _number(written: bytes) -> int:
    """Return the number of an opcode: BININT1 and BININT2 have no sign, the others have one."""
    start = 2 if written[0] == _LONG1 else 1
    is_signed = written[0] not in b"KM"
    return int.from_bytes(written[start:], "little", signed=is_signed)


_LONG1 = 0x8A


def _reference(written: bytes) -> int:
    """Return the place of the memo that BINGET or LONG_BINGET reads."""
    return int.from_bytes(written[1:], "little")


def _tensor_dtype(found: tuple[object, ...]) -> str | None:
    """Return the dtype if the references of a tensor's entry lead where torch's do, else None."""
    match found:
        case (
            Global(path=tensor),
            "properties",
            Global(path=properties),
            Global("torch", dtype),
            Call(),
            Call(),
            "size",
            Global("torch", "Size"),
            "chunks",
        ) if tensor == _TENSOR and properties in _PROPERTIES:
            return dtype
        case _:
            return None


def _is_chunk(found: tuple[object, ...]) -> bool:
    match found:
        case (Global(path=chunk), "offsets", Global(path="torch.Size"), "sizes", Global() as size):
            return chunk == _CHUNK and size.path == "torch.Size"
        case _:
            return False


def _is_place(found: tuple[object, ...]) -> bool:
    """Return whether the references of an entry of storage_data lead where torch's do."""
    paths = tuple(one.path if isinstance(one, Global) else one for one in found)
    without_size = paths[:4] + paths[5:] if paths[4:5] == ("torch.Size",) else paths
    usual = (_INDEX, "fqn", "index", "offset", _INFO, "relative_path", "offset", "length")
    return without_size in {usual, (*usual, "transform_descriptors")}


class EntryShortcut:
    """A shortcut for pickles (`pickle_machine`) through entries in the usual form."""

    starts = frozenset((b"\x8c", b"h", b"j"))

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: dict[bytes, tuple[object, Any]] = {}  # references -> a check, and its answer
        self._numbers: dict[bytes, Shape] = {b")": ()}

    def __call__(self, machine: Machine, at: int) -> int | None:
        """Follow as many entries as there are in a row."""
        stop: int | None = None
        while following := self._entry(machine, at):
            at = stop = following
            machine.spend()
        return stop

    def _entry(self, machine: Machine, at: int) -> int | None:
        code = self._data[at : at + 1]
        if code == b"\x8c":
            return self._tensor(machine, at)
        if code not in self.starts:
            return None
        after = at + (2 if code == b"h" else 5)
        if self._data[after : after + 1] == b")":
            return self._place(machine, at)
        return self._plan(machine, at)

    def _text(self, at: int, length: int) -> str | None:
        """Return a short text; None if it is not ASCII, so that it is left to the machine."""
        text = self._data[at : at + length]
        return text.decode() if len(text) == length and text.isascii() else None

    def _shape(self, written: bytes) -> Shape | None:
        """Return the numbers of a pickled tuple; None if one is negative."""
        shape = self._numbers.get(written)
        if shape is None:
            shape = tuple(map(_number, _ONE_INT.findall(written)))
            if min(shape) < 0:
                return None
            self._numbers[written] = shape
        return shape

    def _tensor(self, machine: Machine, at: int) -> int | None:
        """Follow a name, and the tensor of this name with all its chunks."""
        data, start = self._data, at + 2
        stop = start + data[at + 1] if at + 1 < len(data) else start
        head = _TENSOR_START.match(data, stop)
        if head is None:
            return None
        name = self._text(start, stop - start)
        references, numbers, chunks_key, mark = head.groups()
        dtype = self._checked(machine, references + chunks_key, _tensor_dtype)
        shape = self._shape(numbers)
        if name is None or dtype is None or shape is None:
            return None
        place, added = head.end(), 7 + bool(shape)
        chunks: list[Chunk] = []
        while entry := _CHUNK_ENTRY.match(data, place):
            first, offsets, second, sizes = entry.groups()
            chunk = Chunk(self._shape(offsets) or (), self._shape(sizes) or ())
            is_sound = len(chunk.offsets) == len(chunk.sizes) == len(shape)
            if not is_sound or not self._checked(machine, first + second, _is_chunk):
                return None
            chunks.append(chunk)
            added += 6 + 2 * bool(shape)
            machine.spend()
            place = entry.end()
            if not mark:
                break
        end = b"eub" if mark else b"aub"
        if not chunks or not data.startswith(end, place):
            return None
        memo = len(machine.memo) + machine.skipped
        machine.memo[memo] = name
        machine.skipped += added
        machine.stack += (name, TensorEntry(str(dtype), shape, tuple(chunks)))
        return place + len(end)

    def _place(self, machine: Machine, at: int) -> int | None:
        """Follow an entry of storage_data; the key goes into its value, and None is the key."""
        head = _PLACE_START.match(self._data, at)
        if head is None:
            return None
        name, place = self._name(machine, head)
        end = _PLACE_END.match(self._data, place)
        if end is None or not isinstance(name, str):
            return None
        index, no_offset, offset, numbers, info, path_key, begin, start, size, length, more = (
            end.groups()
        )
        references = head[1] + index + (no_offset or offset) + info + begin + size + (more or b"")
        offsets = None if numbers is None else self._shape(numbers)
        path = machine.memo.get(_reference(path_key))
        first, count = _number(start), _number(length)
        if (offsets is None) != (numbers is None) or first < 0 or count < 0:
            return None
        if not (isinstance(path, str) and self._checked(machine, references, _is_place)):
            return None
        if head[3] is not None:  # the new name follows the object and its dict
            machine.memo[len(machine.memo) + machine.skipped + 2] = name
        machine.skipped += 4 + (0 if offsets is None else 2 + bool(offsets))
        span = Span(first, first + count)
        machine.stack += (None, StoredPlace(name, offsets, path, span, is_packed=False))
        return end.end()

    def _name(self, machine: Machine, head: re.Match[bytes]) -> tuple[object, int]:
        """Return the name that an entry refers to or has, and the offset after it."""
        if head[3] is None:
            return machine.memo.get(_reference(head[2])), head.end()
        stop = head.end() + head[3][0]
        is_whole = self._data[stop : stop + 1] == b"\x94"
        return self._text(head.end(), head[3][0]) if is_whole else None, stop + 1

    def _plan(self, machine: Machine, at: int) -> int | None:
        """Follow an entry of planner_data: a name, and its one or two keys in the saved dicts."""
        plan = _PLAN.match(self._data, at)
        if plan is None:
            return None
        name_key, first_key, _, length = plan.groups()
        name, first = (
            machine.memo.get(_reference(name_key)),
            machine.memo.get(_reference(first_key)),
        )
        if not (isinstance(name, str) and isinstance(first, str)):
            return None
        place, end = plan.end(), b"\x94"
        keys: tuple[str, ...] = (first,)
        if length is not None:
            second = self._text(place, length[0])
            place, end = place + length[0], b"\x94\x86\x94"
            if second is None:
                return None
            keys = (first, second)
        if not self._data.startswith(end, place):
            return None
        if length is not None:
            machine.memo[len(machine.memo) + machine.skipped] = keys[-1]
        machine.skipped += 1
        machine.stack += (name, keys)
        return place + len(end)

    def _checked(
        self, machine: Machine, references: bytes, check: Callable[[tuple[object, ...]], _T]
    ) -> _T | None:
        """Return the check's answer for what the references lead to, which does not change."""
        known = self._known.get(references)
        if known is None:
            found = (machine.memo.get(_reference(one)) for one in _ONE_REF.findall(references))
            known = self._known[references] = (check, check(tuple(found)))
        return known[1] if known[0] is check else None

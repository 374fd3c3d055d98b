"""Files of torch.save made by hand, sound and spoilt, without torch."""

import io
import pickle
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.torch_file import MAGIC, parse
from auditor.containers.weight_formats import FilePart, PartialFile, Table
from auditor.downloader.headers import Received, read_parsed_header
from auditor.tensors import Span

STORAGES = {
    "F32": ("FloatStorage", 4),
    "F16": ("HalfStorage", 2),
    "BF16": ("BFloat16Storage", 2),
    "I64": ("LongStorage", 8),
}

U16, U32 = 2**16 - 1, 2**32 - 1  # "see the zip64 record"

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def text(value: str) -> bytes:
    """The opcode of a string."""
    content = value.encode()
    return b"X" + struct.pack("<I", len(content)) + content


def number(value: int) -> bytes:
    """The opcode of a whole number."""
    if value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def shape_of(numbers: Iterable[int]) -> bytes:
    return b"(" + b"".join(map(number, numbers)) + b"t"


def tensor(  # noqa: PLR0913 - one for each thing that a test may spoil
    key: str,
    dtype: str,
    shape: tuple[int, ...],
    *,
    numel: int | None = None,
    at: int = 0,
    legacy: bool = False,
) -> bytes:
    """The opcodes that rebuild a contiguous tensor from an offset of a storage."""
    storage, _ = STORAGES[dtype]
    strides = [1]
    for dimension in reversed(shape[1:]):
        strides.insert(0, strides[0] * dimension)
    count = strides[0] * shape[0] if shape else 1
    held = b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text(key) + text("cpu")
    held += number(count if numel is None else numel) + (b"NtQ" if legacy else b"tQ")
    size = shape_of(shape) + shape_of(strides[: len(shape)])
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + held + number(at) + size + hooks + b"tR"


def pickled(items: Mapping[str, bytes]) -> bytes:
    """The pickle of a dict from names to the results of the opcodes."""
    return b"\x80\x02}(" + b"".join(text(name) + one for name, one in items.items()) + b"u."


def state(tensors: Tensors, *, legacy: bool = False) -> bytes:
    """The pickle of a state dict whose tensors have a storage each: 0, 1, ..."""
    items = enumerate(tensors.items())
    return pickled({name: tensor(str(n), *one, legacy=legacy) for n, (name, one) in items})


def lengths(tensors: Tensors) -> list[int]:
    found = []
    for dtype, shape in tensors.values():
        count = STORAGES[dtype][1]
        for dimension in shape:
            count *= dimension
        found.append(count)
    return found


def zipped(
    content: bytes, storages: Iterable[int] = (), *, pack: int = zipfile.ZIP_STORED, top="archive"
) -> bytes:
    """An archive with the pickle as data.pkl, and storages of zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", pack) as archive:
        archive.writestr(f"{top}/data.pkl", content)
        for key, length in enumerate(storages):
            archive.writestr(f"{top}/data/{key}", bytes(length))
        archive.writestr(f"{top}/version", "3\n")
    return out.getvalue()


def torch_bytes(tensors: Tensors) -> bytes:
    """A whole file of torch.save: `torch_bytes({"a": ("F32", (2, 3))})`."""
    return zipped(state(tensors), lengths(tensors))


def write_large(path: Path, tensors: Tensors) -> Path:
    """Write a file of torch.save to disk, with holes for its storages and zip64 records."""
    entries = [("data.pkl", state(tensors), 0)]
    entries += [(f"data/{key}", b"", length) for key, length in enumerate(lengths(tensors))]
    entries.append(("version", b"3\n", 0))
    directory = b""
    with path.open("wb") as file:
        for name, content, hole in entries:
            directory += _write_entry(file, f"archive/{name}".encode(), content, hole)
        at, count = file.tell(), len(entries)
        file.write(directory)
        end = file.tell()
        facts = (44, 45, 45, 0, 0, count, count, end - at, at)
        file.write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", *facts))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, U16, U16, U32, U32, 0))
    return path


def _write_entry(file: BinaryIO, name: bytes, content: bytes, hole: int) -> bytes:
    """Write one entry and return its line of the directory, with a 64-bit offset."""
    size, start = len(content) + hole, file.tell()
    padding = -(start + 30 + len(name) + 4) % 64
    lengths_of = (size, size, len(name))
    file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 45, *[0] * 5, *lengths_of, 4 + padding))
    file.write(name + b"FB" + struct.pack("<H", padding) + bytes(padding) + content)
    file.seek(hole, io.SEEK_CUR)
    wide = struct.pack("<2HQ", 1, 8, start)
    if not start:  # as torch's writer does, for an offset that fits into 32 bits
        wide = b""
    fields = (45, 45, *[0] * 5, *lengths_of, len(wide), *[0] * 4, U32 if wide else 0)
    return struct.pack("<4s6H3I5H2I", b"PK\1\2", *fields) + name + wide


def legacy_bytes(content: bytes, keys: Iterable[str] = (), data: bytes = b"") -> bytes:
    """A legacy file around the pickle: magic number, protocol, facts, value, keys, data."""
    head = [pickle.dumps(value, protocol=2) for value in (MAGIC, 1001, {"little_endian": True})]
    return b"".join((*head, content, pickle.dumps([*keys], protocol=2), data))


def whole(content: bytes) -> PartialFile:
    return PartialFile(len(content), (FilePart(0, content),) if content else ())


def parsed(content: bytes, file: str = "pytorch_model.bin") -> Table:
    return parse(file, whole(content))


def read(content: bytes, file: str = "pytorch_model.bin") -> tuple[WeightHeader, list[Span]]:
    """Return the header that a reader of ranges keeps, and the spans that it read."""
    asked: list[Span] = []

    def receive(span: Span, _end) -> Received:
        asked.append(span)
        return Received(content[span.start : span.stop], len(content))

    return read_parsed_header(file, len(content), receive, parse), asked

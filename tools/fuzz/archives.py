"""A writer of zip archives, whose every field can be changed."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

U16, U32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class Record:
    """An entry, in the file and in the directory; each field of the directory may be false."""

    name: bytes
    data: bytes = b""
    deflated: bool = False
    flags: int = 0
    attributes: int = 0
    local_name: bytes | None = None  # None: as in the directory
    local_extra: bytes = b""
    extra: bytes = b""
    comment: bytes = b""
    size: int | None = None  # as the directory says it; None: as it is
    packed: int | None = None
    header: int | None = None
    method: int | None = None
    wide: bool = False  # whether the directory has sizes and offset in a zip64 field
    streamed: bool = False  # sizes follow the data, as torch writes them
    hidden: bool = False  # in the file and not in the directory


@dataclass(frozen=True)
class Form:
    """An archive; each field of its end records may be false."""

    records: tuple[Record, ...]
    order: tuple[int, ...] | None = None  # of the directory, by places in the file
    before: bytes = b""
    gap: bytes = b""  # between the directory and its end
    comment: bytes = b""
    declared: int | None = None  # bytes of the comment
    zip64: bool = False
    narrow: dict[str, int] = field(default_factory=dict)  # what the end record says instead
    broad: dict[str, int] = field(default_factory=dict)  # and the zip64 record
    place: int | None = None  # of the zip64 record, by its locator
    after: bytes = b""


def written(form: Form) -> bytes:
    out = bytearray(form.before)
    lines = [b"" if record.hidden else _line(record, len(out), out) for record in form.records]
    order = form.order or tuple(range(len(lines)))
    listed = [lines[number] for number in order if number < len(lines) and lines[number]]
    start, directory = len(out), b"".join(listed)
    out += directory + form.gap
    facts = {"disk": 0, "first": 0, "here": len(listed), "count": len(listed)}
    facts |= {"length": len(directory), "start": start}
    narrow = facts | form.narrow
    if form.zip64:
        wide, at = facts | form.broad, len(out)
        out += struct.pack("<4sQHH", b"PK\6\6", 44, 45, 45)
        disk, first, *rest = wide.values()
        out += struct.pack("<IIQQQQ", disk & U32, first & U32, *rest)
        place = at if form.place is None else form.place
        out += struct.pack("<4sIQI", b"PK\6\7", 0, place, 1)
    comment = len(form.comment) if form.declared is None else form.declared
    out += struct.pack("<4s4H2IH", b"PK\5\6", *narrow.values(), comment & U16)
    return bytes(out + form.comment + form.after)


def _line(record: Record, at: int, out: bytearray) -> bytes:
    """Append the entry to the file and return its line of the directory."""
    data = _deflated(record.data) if record.deflated else record.data
    method = (8 if record.deflated else 0) if record.method is None else record.method
    crc, size, packed = zlib.crc32(record.data), len(record.data), len(data)
    flags = record.flags | (8 if record.streamed else 0)
    name = record.name if record.local_name is None else record.local_name
    inside = (0, 0, 0) if record.streamed else (crc, packed, size)
    out += struct.pack("<4s5H3I", b"PK\3\4", 20, flags, method, 0, 0, *inside)
    out += struct.pack("<2H", len(name), len(record.local_extra)) + name + record.local_extra
    out += data
    if record.streamed:
        out += struct.pack("<4s3I", b"PK\7\x08", crc, packed, size)
    return _central(record, method, flags, (crc, packed, size, at))


def _central(record: Record, method: int, flags: int, facts: tuple[int, int, int, int]) -> bytes:
    crc, packed, size, at = facts
    size = size if record.size is None else record.size
    packed = packed if record.packed is None else record.packed
    at = at if record.header is None else record.header
    extra = record.extra
    if record.wide:
        extra += struct.pack("<2H3Q", 1, 24, size, packed, at)
        size = packed = at = U32
    name, comment = record.name, record.comment
    line = struct.pack("<4s6H", b"PK\1\2", 45, 20, flags, method, 0, 0)
    line += struct.pack("<3I", crc, packed & U32, size & U32)
    line += struct.pack("<5H", len(name), len(extra) & U16, len(comment), 0, 0)
    return line + struct.pack("<2I", record.attributes, at & U32) + name + extra + comment


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def torch_form(
    pickle: bytes, storages: Sequence[bytes] = (), folder: bytes = b"archive", **ending: object
) -> Form:
    """An archive as torch.save writes it, except for its padding."""
    named = [(b"data.pkl", pickle), (b"byteorder", b"little")]
    named += [(b"data/%d" % number, data) for number, data in enumerate(storages)]
    named += [(b"version", b"3\n")]
    records = tuple(Record(folder + b"/" + name, data, streamed=True) for name, data in named)
    return Form(records, **ending)  # type: ignore[arg-type] # fields of Form


def mutated(form: Form, random: Random, hostile: bytes) -> Form:
    """Change one thing about the archive; `hostile` is a pickle that calls."""
    return random.choice(_CHANGES)(form, random, hostile)


def _some(form: Form, random: Random) -> int:
    return random.randrange(len(form.records))


def _changed(form: Form, number: int, **fields: object) -> Form:
    records = list(form.records)
    records[number] = replace(records[number], **fields)  # type: ignore[arg-type] # of Record
    return replace(form, records=tuple(records))


def _with(form: Form, record: Record, at: int) -> Form:
    return replace(form, records=(*form.records[:at], record, *form.records[at:]))


def _odd(random: Random, form: Form) -> int:
    """A false number for a field."""
    near = [0, 1, 30, 46, U16, U32, 2**31, 2**63, len(form.records), random.randrange(2000)]
    return random.choice(near)


def _again(form: Form, random: Random, hostile: bytes) -> Form:
    """Add an entry again: under its name, in another case, or in another folder."""
    name = random.choice(form.records).name
    changes = (
        lambda: name,
        name.upper,
        name.swapcase,
        lambda: name.replace(b"data.pkl", b"Data.pkl"),
        lambda: name.replace(b"archive", b"Archive"),
        lambda: b"other/" + name.partition(b"/")[2],
        lambda: name + b"/",
        lambda: name + b"\0x",
        lambda: b"./" + name,
        lambda: b"archive/data.pkl",
        lambda: b"archive/constants.pkl",
        lambda: b"archive/.data/version",
        lambda: b"A" * random.choice((497, 512)) + b"/constants.pkl",
    )
    data = random.choice((hostile, b"", b"3\n", b"little"))
    record = Record(random.choice(changes)(), data, streamed=random.random() < 0.5)
    return _with(form, record, random.randrange(len(form.records) + 1))


def _order(form: Form, random: Random, _hostile: bytes) -> Form:
    order = list(range(len(form.records)))
    random.shuffle(order)
    return replace(form, order=tuple(order[: random.choice((len(order), len(order) - 1))]))


def _field(form: Form, random: Random, _hostile: bytes) -> Form:
    name = random.choice(("size", "packed", "header", "method", "flags", "attributes"))
    values = {"flags": (1, 8, 32, 64, 0x800, 0x2000), "attributes": (0x10, 0x20), "method": (0, 8)}
    value = random.choice(values.get(name, (_odd(random, form),)))
    return _changed(form, _some(form, random), **{name: value})


def _dressed(form: Form, random: Random, hostile: bytes) -> Form:
    number = _some(form, random)
    record = form.records[number]
    extra = random.choice(
        (
            struct.pack("<2H8s", 1, 8, bytes(8)),
            struct.pack("<2H24s", 1, 24, random.randbytes(24)),
            b"FB\4\0ZZZZ",
            b"xy\xff\0",
            struct.pack("<2H3Q", 1, 24, *(random.randrange(300) for _ in range(3))),
        )
    )
    fields = random.choice(
        (
            {"deflated": True},
            {"wide": True},
            {"streamed": not record.streamed},
            {"extra": extra},
            {"extra": extra, "size": U32},
            {"local_extra": extra},
            {"local_name": record.name[:-1] + b"x"},
            {"local_name": b""},
            {"comment": b"PK\5\6" + bytes(18)},
            {"hidden": True},
            {"data": hostile},
            {"data": record.data[: len(record.data) // 2]},
            {"name": record.name.swapcase()},
        )
    )
    return _changed(form, number, **fields)


def _ending(form: Form, random: Random, hostile: bytes) -> Form:
    other = written(torch_form(hostile))
    inner = other[other.rindex(b"PK\5\6") :]
    keys = ("disk", "first", "here", "count", "length", "start")
    key = random.choice(keys)
    full = {"length": U32, "start": U32}.get(key, U16)
    value = random.choice((0, 1, full, _odd(random, form))) & full
    inside = len(written(form)) // 2
    return random.choice(
        (
            lambda: replace(form, zip64=True),
            lambda: replace(form, zip64=True, narrow={key: full}),
            lambda: replace(form, zip64=True, narrow=dict.fromkeys(keys[2:4], U16)),
            lambda: replace(form, zip64=True, broad={key: _odd(random, form)}),
            lambda: replace(form, zip64=True, place=random.choice((0, inside, U32))),
            lambda: replace(form, narrow={key: value}),
            lambda: replace(form, comment=inner),
            lambda: replace(form, comment=b"PK\5\6" + bytes(random.randrange(40))),
            lambda: replace(form, comment=bytes(random.randrange(9)), declared=random.randrange(9)),
            lambda: replace(form, after=inner),
            lambda: replace(form, after=other),
            lambda: replace(form, after=b"\0"),
            lambda: replace(form, before=other),
            lambda: replace(form, before=b"PK\3\4" + bytes(random.randrange(60))),
            lambda: replace(form, gap=random.choice((b"\0", b"PK\5\5\0\0", inner, other))),
        )
    )()


_CHANGES = (_again, _order, _field, _dressed, _dressed, _ending, _ending)

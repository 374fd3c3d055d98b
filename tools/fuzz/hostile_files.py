"""Files that run a command when torch loads them, and are a good checkpoint to another reader.

One for each way that is known. Each is written around a good pickle with its storages.
"""

import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from fuzz import archives, programs
from fuzz.judges import data_pkl

_EMPTY = b"\x80\2}."
_MAGIC, _PROTOCOL = b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\2M\xe9\3."


@cache
def hostile_files() -> tuple[bytes, ...]:
    """Return the files that the fuzzer changes: around an empty dict, and with hostile pickles."""
    pickles = (programs.HOSTILE, *programs.CROSSING, *programs.HANDMADE[:6])
    forms = (archives.torch_form(pickle) for pickle in pickles)
    return (*map(archives.written, forms), *around(_EMPTY).values())


def around(good: bytes, storages: Sequence[bytes] = ()) -> Mapping[str, bytes]:
    """Return a file for each known way, by a name."""
    form = archives.torch_form(good, storages)
    bad = programs.HOSTILE
    crossed = archives.torch_form(crossing(good), storages)
    found = {
        "a frame that ends inside an argument": archives.written(crossed),
        "a zip64 locator that no field asks for": _two_directories(form, bad, "zip64"),
        "a comment whose length does not fit": _two_directories(form, bad, "comment"),
        "an end record inside the comment": _two_directories(form, bad, "inside"),
        "names that differ in case": _other_case(form, bad),
        "a name twice": _other_case(form, bad, b"archive/data.pkl"),
        "a tar archive that begins as a pickle": tar_and_pickle(bad),
        "a pickle in the place of the magic number": legacy(bad, 0),
    }
    return MappingProxyType(found)


def crossing(good: bytes) -> bytes:
    """A pickle that calls in a string; the string's length lies on both sides of a frame's end.

    Whoever knows no frames reads four bytes of length, and steps over the call. The unpickler in C
    drops the two that the frame has, and takes four zeros behind it for the length.
    """
    inside = b"\0\0" + programs.CALL + b"."
    length = struct.pack("<I", len(inside))
    frame = b"\x95" + struct.pack("<Q", 3) + b"X" + length[:2]
    return b"\x80\4" + frame + length[2:] + inside + b"0" + good


def _other_case(form: archives.Form, bad: bytes, name: bytes = b"archive/Data.pkl") -> bytes:
    """Write a name twice; which entry torch finds depends on the number of other entries."""
    records = (*form.records, archives.Record(name, bad))
    content = b""
    for count in range(64):
        more = tuple(archives.Record(b"archive/x/%d" % number) for number in range(count))
        content = archives.written(replace(form, records=(*records, *more)))
        if data_pkl(content) == bad:
            break
    return content


def _two_directories(form: archives.Form, bad: bytes, how: str) -> bytes:
    """Write two archives in one file; a reader sees one of them by how it finds the directory."""
    records, hostile = form.records, archives.torch_form(bad).records
    both = archives.written(archives.Form((*records, *hostile)))
    at = both.index(b"PK\1\2")
    lines = [b"PK\1\2" + line for line in both[at : both.rindex(b"PK\5\6")].split(b"PK\1\2")[1:]]
    first, second = b"".join(lines[: len(records)]), b"".join(lines[len(records) :])

    def end(count: int, directory: bytes, start: int, comment: int) -> bytes:
        facts = (0, 0, count, count, len(directory), start, comment)
        return struct.pack("<4s4H2IH", b"PK\5\6", *facts)

    body = both[:at] + second
    if how == "zip64":
        wide = (44, 45, 45, 0, 0, len(hostile), len(hostile), len(second), at)
        out = body + first + struct.pack("<4sQHHIIQQQQ", b"PK\6\6", *wide)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, len(body + first), 1)
        return out + end(len(records), first, len(body), 0)
    comment = end(len(hostile), second, at, 7 if how == "comment" else 0)
    return body + first + end(len(records), first, len(body), len(comment)) + comment


def tar_and_pickle(bad: bytes) -> bytes:
    """A sound file of the legacy form whose first 512 bytes are the header of a tar archive.

    The header's fields lie in a string that the third pickle drops; the first member holds the
    other pickles, and the one storage of the value reaches to the end of the archive.
    """
    head = _MAGIC + _PROTOCOL + b"\x80\2X" + struct.pack("<I", 512 - 28)
    size, out = 0, b""
    for _ in range(2):  # the storage's size is known once all is written
        tail = b"0}." + _one_tensor(size) + b"\x80\2]X\1\0\0\x000a." + struct.pack("<Q", size)
        out = _tar(tail, bad)
        size = len(out) - 512 - len(tail)
    block = bytearray(out[:512])
    block[:100] = head.ljust(100, b".")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + out[512:]


def _one_tensor(size: int) -> bytes:
    """A state dict of the legacy form with one tensor of so many bytes."""
    count = b"J" + struct.pack("<i", size)
    kept = b"(X\7\0\0\0storagectorch\nByteStorage\nX\1\0\0\x000X\3\0\0\0cpu" + count + b"NtQ"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + kept + b"K\0" + count + b"\x85K\1\x85"
    return b"\x80\2}X\1\0\0\0a" + made + b"\x89ccollections\nOrderedDict\n)RtRs."


def _tar(first: bytes, bad: bytes) -> bytes:
    members = (("first", first), ("storages", b"I0\n.]."), ("tensors", b"I0\n."), ("pickle", bad))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def legacy(value: bytes, place: int = 3) -> bytes:
    """The legacy form with the pickle in place of one of the five."""
    parts = [_MAGIC, _PROTOCOL, b"}.", b"}.", b"]."]
    parts[place] = value
    return b"".join(parts)

"""Zip directories: as Python's zipfile reads them, and refused where they lie."""

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_files import parsed, state, whole, zipped

from auditor.containers.zips import content, directory
from auditor.errors import CheckpointError

NAMES = st.from_regex(r"[a-zé]{1,3}(/[a-z]{1,3})?", fullmatch=True)
FILES = st.dictionaries(NAMES, st.binary(max_size=200), max_size=5)
METHODS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])


def archive(files, method=zipfile.ZIP_STORED, comment=b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        made.comment = comment
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


@given(FILES, METHODS, st.binary(max_size=50))
def test_what_zipfile_writes_is_read(files, method, comment):
    sparse = whole(archive(files, method, comment))
    found = directory("a.bin", sparse)
    assert list(found.entries) == list(files)
    assert {
        name: content(found, entry, sparse, 10**6) for name, entry in found.entries.items()
    } == files


def test_a_zip64_directory_is_read():
    """With the fields that torch's writer makes wide whatever their values."""
    plain = archive({"a/b": b"abc"})
    at = plain.rindex(b"PK\5\6")
    _, _, _, _, count, length, start, _ = struct.unpack("<4sHHHHIIH", plain[at:])
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    narrow = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    sparse = whole(plain[:at] + record + locator + narrow)
    found = directory("a.bin", sparse)
    assert content(found, found.entries["a/b"], sparse, 9) == b"abc"


GOOD = zipped(state({"a": ("F32", (2, 3))}), [24])
CENTRAL = GOOD.index(b"PK\1\2")
SECOND = GOOD.index(b"PK\1\2", CENTRAL + 1)
END = GOOD.rindex(b"PK\5\6")
BOMB = zipped(b"\x80\x02]" + b"N0" * 30_000_000 + b".", pack=zipfile.ZIP_DEFLATED)


def with_u32(at: int, value: int, base: bytes = GOOD) -> bytes:
    return base[:at] + struct.pack("<I", value) + base[at + 4 :]


def with_u16(at: int, value: int) -> bytes:
    return GOOD[:at] + struct.pack("<H", value) + GOOD[at + 2 :]


def understated() -> bytes:
    """A bomb whose directory says that it unpacks to a hundred bytes."""
    at = BOMB.index(b"PK\1\2")
    return with_u32(22, 100, with_u32(at + 24, 100, BOMB))


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (GOOD[:-30], "does not end as one: it is truncated"),
        (GOOD + b"x", "does not end as one"),
        (with_u16(END + 10, 9), "breaks off at byte|lying zip directory"),
        (with_u32(END + 12, 2**31), "zip directory of 3 entries in 2,147,483,648 bytes"),
        (with_u32(END + 12, 2**20), "lying zip directory"),
        (with_u32(END + 16, len(GOOD)), "lying zip directory"),
        (with_u32(END + 16, 3), "breaks off at byte 3, before its 3 entries"),
        (with_u16(END + 10, 0xFFFF), "zip64 directory whose records contradict"),
        (with_u32(CENTRAL + 42, 2**31), "overlaps what follows it|reaches"),
        (with_u32(SECOND + 42, 0), "overlaps what follows it"),
        (with_u32(CENTRAL + 20, 10**9), "stored as it is, with 1,000,000,000 bytes in the file"),
        (with_u32(CENTRAL + 24, 10**9), "and 1,000,000,000 outside it"),
        (with_u16(CENTRAL + 10, 12), "is packed by method 12"),
        (with_u16(CENTRAL + 8, 1), "is encrypted"),
        (with_u32(CENTRAL + 24, 2**32 - 1), "lacks its 64-bit sizes"),
        (GOOD.replace(b"archive/data/0", b"../././../etc0"), "'../././../etc0', which leaves"),
        (GOOD.replace(b"archive/data/0", b"/etc/passwd/00"), "which leaves the archive"),
        (GOOD.replace(b"archive/data/0", b"a\\chive/data/0"), "which leaves the archive"),
        (GOOD[:4] + b"\xff" * 6 + GOOD[10:], "another in its own header than in the directory"),
        (GOOD.replace(b"archive/data.pkl", b"archive/data.pkx", 1), "another in its own header"),
        (archive({"a": b"x"}), "a zip archive without 'a/data.pkl'"),
        (archive({"a/data.pkl": b".", "a/constants.pkl": b"."}), "is a TorchScript archive"),
        (BOMB, "has 60,000,004 bytes; 8,388,608 are the most"),
        (understated(), "unpacks to more bytes; its directory says 100"),
    ],
)
def test_a_lying_directory_is_told(spoilt, said):
    with pytest.raises(CheckpointError, match=said):
        parsed(spoilt)


def test_a_name_that_is_there_twice_is_told():
    twice = archive({"a/data.pkl": b"}.", "a/data.pkx": b"cos\nsystem\n(tR."})
    with pytest.raises(CheckpointError, match=r"has 'a/data.pkl' twice"):
        parsed(twice.replace(b"a/data.pkx", b"a/data.pkl"))


def test_a_packed_data_pkl_is_read_as_torch_reads_it():
    table = parsed(zipped(state({"a": ("F32", (2, 3))}), [24], pack=zipfile.ZIP_DEFLATED))
    assert [(one.name, one.shape) for one in table.tensors] == [("a", (2, 3))]
    assert table.faults == ()

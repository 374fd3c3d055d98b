"""Zip directories: as Python's zipfile reads them, and refused where they lie."""

import io
import struct
import zipfile

import pytest
from auditor.containers.zip_directory import entry_content, read_directory
from hypothesis import given
from hypothesis import strategies as st
from support.torch_files import parsed, state, whole, zipped

from auditor.errors import CheckpointError

WORDS = st.text("abczé", min_size=1, max_size=3)
NAMES = WORDS | st.builds("{}/{}".format, WORDS, WORDS)
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
    found = read_directory("a.bin", sparse)
    assert list(found.entries) == list(files)
    assert {
        name: entry_content(found, entry, sparse, 10**6) for name, entry in found.entries.items()
    } == files


def test_a_zip64_directory_is_read():
    """With the fields that torch's writer makes wide whatever their values."""
    plain = archive({"a/b": b"abc"})
    at = plain.rindex(b"PK\5\6")
    _, _, _, _, count, length, start, _ = struct.unpack("<4sHHHHIIH", plain[at:])
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)
    narrow = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    for end in (narrow, plain[at:]):  # whether or not a field asks for it
        sparse = whole(plain[:at] + record + locator + end)
        found = read_directory("a.bin", sparse)
        assert entry_content(found, found.entries["a/b"], sparse, 9) == b"abc"
    for wrong in (
        plain[:at] + record + locator[:8] + bytes(8) + locator[16:] + plain[at:],
        plain[:at] + record[:40] + bytes(8) + record[48:] + locator + plain[at:],
        plain[:at] + b"\0" + record[1:] + locator + plain[at:],
        plain[:at] + locator + plain[at:],
        plain[:at] + record + bytes(20) + narrow,
    ):
        with pytest.raises(CheckpointError, match="zip64 directory whose records contradict"):
            read_directory("a.bin", whole(wrong))


GOOD = zipped(state({"a": ("F32", (2, 3))}), [24])
CENTRAL = GOOD.index(b"PK\1\2")
SECOND = GOOD.index(b"PK\1\2", CENTRAL + 1)
END = GOOD.rindex(b"PK\5\6")


def with_u32(at: int, value: int, base: bytes = GOOD) -> bytes:
    return base[:at] + struct.pack("<I", value) + base[at + 4 :]


def with_u16(at: int, value: int, base: bytes = GOOD) -> bytes:
    return base[:at] + struct.pack("<H", value) + base[at + 2 :]


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return zipped(b"\x80\x02]" + b"N0" * 30_000_000 + b".", pack=zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (GOOD[:-30], "does not end as one: it is truncated"),
        (GOOD + b"x", "does not end as one"),
        (with_u16(END + 10, 9), "one disk of a zip archive"),
        (with_u16(END + 10, 4, with_u16(END + 8, 4)), "breaks off at byte"),
        (with_u16(END + 10, 2, with_u16(END + 8, 2)), "the 2 entries of its zip directory take"),
        (with_u32(END + 12, 2**31), "lying zip directory: 3 entries in 2,147,483,648 bytes"),
        (with_u32(END + 12, 2**20), "lying zip directory"),
        (with_u32(END + 16, len(GOOD)), "lying zip directory"),
        (with_u32(END + 16, 3), "lying zip directory"),
        (with_u16(END + 10, 0xFFFF), "zip64 directory whose records contradict"),
        (with_u32(CENTRAL + 42, 2**31), "overlaps what follows it|reaches"),
        (with_u32(SECOND + 42, 0), "overlaps what follows it"),
        (with_u32(CENTRAL + 20, 10**9), "stored as it is, with 1,000,000,000 bytes in the file"),
        (with_u32(CENTRAL + 24, 10**9), "and 1,000,000,000 outside it"),
        (with_u16(CENTRAL + 10, 12), "is packed by method 12"),
        (with_u16(CENTRAL + 10, 8, with_u32(CENTRAL + 20, 0)), "deflated, with 0 bytes in"),
        (with_u16(CENTRAL + 10, 8, with_u32(CENTRAL + 24, 10**9)), "deflated, with .* outside it"),
        (with_u16(CENTRAL + 8, 1), "is encrypted"),
        (with_u32(CENTRAL + 24, 2**32 - 1), "lacks its 64-bit sizes"),
        (GOOD.replace(b"archive/data/0", b"../././../etc0"), "'../././../etc0', which leaves"),
        (GOOD.replace(b"archive/data/0", b"/etc/passwd/00"), "which leaves the archive"),
        (GOOD.replace(b"archive/data/0", b"a\\chive/data/0"), "which leaves the archive"),
        (GOOD[:4] + b"\xff" * 6 + GOOD[10:], "another in its own header than in the directory"),
        (GOOD.replace(b"archive/data.pkl", b"archive/data.pkx", 1), "another in its own header"),
        (with_u16(CENTRAL + 8, 0x20), "is encrypted, or a patch"),
        (with_u16(CENTRAL + 34, 1), "is on disk 1"),
        (with_u32(CENTRAL + 38, 0x10), "a folder by its attributes and a file by its name"),
        (with_u16(END + 20, 1), "declares a comment of 1 bytes, and 0 follow"),
        (b"PK\3\4" + GOOD, "lying zip directory"),
        (archive({"a" * 509 + "/x": b""}), "of 511 bytes|without"),
        (archive({"a" * 510 + "/x": b""}), "of 512 bytes; 511 are the most"),
        (archive({"a/data.pkl": b".", "a/version": b"3", "b/x": b""}), "outside the folder of"),
        (archive({"b/x": b"", "a/data.pkl": b".", "a/version": b"3"}), "without 'b/data.pkl'"),
        (archive({"a/data.pkl": b"."}), "has no entry 'a/version'"),
        (archive({"a/data.pkl": b".", "a/Constants.pkl": b"."}), "is a TorchScript archive"),
        (archive({"a": b"x"}), "a zip archive without 'a/data.pkl'"),
        (archive({"a/data.pkl": b".", "a/constants.pkl": b"."}), "is a TorchScript archive"),
    ],
)
def test_a_lying_directory_is_told(spoilt, said):
    with pytest.raises(CheckpointError, match=said):
        parsed(spoilt)


@pytest.mark.slow
def test_a_bomb_is_told_whatever_its_directory_says(bomb):
    with pytest.raises(CheckpointError, match="has 60,000,004 bytes; 8,388,608 are the most"):
        parsed(bomb)
    at = bomb.index(b"PK\1\2")
    understated = with_u32(22, 100, with_u32(at + 24, 100, bomb))
    with pytest.raises(CheckpointError, match="unpacks to more bytes; its directory says 100"):
        parsed(understated)


@pytest.mark.parametrize("name", [b"a/data.pkl", b"a/Data.pkl", b"A/DATA.PKL"])
def test_a_name_that_is_there_twice_is_told(name):
    twice = archive({"a/data.pkl": b"}.", "a/data.pkx": b"cos\nsystem\n(tR."})
    with pytest.raises(CheckpointError, match=rf"has '{name.decode()}' twice, as torch compares"):
        parsed(twice.replace(b"a/data.pkx", name))


def test_a_packed_data_pkl_is_read_as_torch_reads_it():
    table = parsed(zipped(state({"a": ("F32", (2, 3))}), [24], pack=zipfile.ZIP_DEFLATED))
    assert [(one.name, one.shape) for one in table.tensors] == [("a", (2, 3))]
    assert table.faults == ()

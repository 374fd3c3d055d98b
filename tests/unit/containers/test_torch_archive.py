"""Archives of torch.save: read as torch reads them, or not followed."""

import io
import struct
import zipfile

import pytest
from support.torch_files import parsed, state, zipped

from auditor.containers.weight_formats import UnsafeFileError
from auditor.errors import CheckpointError

STATE = state({"a": ("F32", (2, 3))})
GOOD = zipped(STATE, [24])
CENTRAL = GOOD.index(b"PK\1\2")
SECOND = GOOD.index(b"PK\1\2", CENTRAL + 1)
END = GOOD.rindex(b"PK\5\6")


def archive(files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


def with_u32(at: int, value: int, base: bytes = GOOD) -> bytes:
    return base[:at] + struct.pack("<I", value) + base[at + 4 :]


def with_u16(at: int, value: int, base: bytes = GOOD) -> bytes:
    return base[:at] + struct.pack("<H", value) + base[at + 2 :]


def with_zip64(narrow: bytes = GOOD[END:], *, place: int = END, own: int = 44) -> bytes:
    """The archive with the records for 64 bits that torch's writer adds."""
    _, _, _, _, count, length, start, _ = struct.unpack("<4s4H2IH", GOOD[END:])
    facts = (own, 45, 45, 0, 0, count, count, length, start)
    record = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", *facts)
    return GOOD[:END] + record + struct.pack("<4sIQI", b"PK\6\7", 0, place, 1) + narrow


def test_what_zipfile_packs_is_read(subtests):
    for pack in [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]:
        with subtests.test(pack=pack):
            table = parsed(zipped(STATE, [24], pack=pack))
            assert [(one.name, one.shape) for one in table.tensors] == [("a", (2, 3))]
            assert table.faults == ()


def test_the_records_for_64_bits_are_read_whether_or_not_a_field_asks_for_them():
    full = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    for content in (with_zip64(), with_zip64(full)):
        assert [one.name for one in parsed(content).tensors] == ["a"]


def test_an_archive_that_two_readers_may_read_differently_is_not_followed(subtests):
    for spoilt, reason in [
        (GOOD + b"x", "bytes behind the end of its zip directory"),
        (GOOD + GOOD[END:], "that its end record contradicts"),
        (with_u16(END + 10, 9), "that its end record contradicts"),
        (with_u16(END + 10, 4, with_u16(END + 8, 4)), "has 3 entries .*, expected 4"),
        (with_zip64(place=END - 1), "that its end record contradicts"),
        (with_u32(SECOND + 42, 0), "not in a row from byte 0"),
        (with_u32(CENTRAL + 20, 10**9), "has 1,000,000,000 bytes for"),
        (with_u16(CENTRAL + 10, 12), "encrypted or packed in an unusual way"),
        (with_u16(CENTRAL + 8, 1), "encrypted or packed in an unusual way"),
        (with_u16(GOOD.rindex(b"PK\1\2") + 28, 999), "an entry reaches past its end"),
        (with_u32(CENTRAL + 38, 0x10), "is a folder by its attributes"),
        (GOOD[:4] + b"\xff" * 6 + GOOD[10:], "local header of data.pkl that is not"),
        (GOOD.replace(b"archive/data/0", b"../././../etc0"), "'../././../etc0', which torch.save"),
        (archive({"a/version": b"3"}), "is a zip archive without data.pkl"),
        (archive({"a/data.pkl": b".", "a/Constants.pkl": b"."}), "is a TorchScript archive"),
    ]:
        with (
            subtests.test(spoilt=spoilt, reason=reason),
            pytest.raises(UnsafeFileError, match=f"may run code: not followed, it .*{reason}"),
        ):
            parsed(spoilt)


def test_a_name_that_occurs_twice_is_not_followed(subtests):
    for name in [b"a/data.pkl", b"a/Data.pkl"]:
        with subtests.test(name=name):
            twice = archive({"a/data.pkl": b"}.", "a/data.pkx": b"cos\nsystem\n(tR."})
            with pytest.raises(
                UnsafeFileError, match=f"has two entries '{name.decode()}', compared without case"
            ):
                parsed(twice.replace(b"a/data.pkx", name))


def test_an_archive_without_an_end_is_truncated_and_not_unsafe():
    with pytest.raises(CheckpointError, match=r"it is truncated, or") as raised:
        parsed(GOOD[:-30])
    assert not isinstance(raised.value, UnsafeFileError)


def test_an_archive_that_torch_does_not_open_for_want_of_a_version_is_not_unsafe():
    with pytest.raises(CheckpointError, match=r"has no entry 'version'") as raised:
        parsed(archive({"a/data.pkl": b"}."}))
    assert not isinstance(raised.value, UnsafeFileError)


@pytest.mark.slow
def test_a_pickle_that_inflates_beyond_its_size_is_not_followed():
    bomb = zipped(b"\x80\x02]" + b"N" * 60_000_000 + b".", pack=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsafeFileError, match=r"a pickle of 60,000,004 bytes, at most 8,388,608"):
        parsed(bomb)
    at = bomb.index(b"PK\1\2")
    understated = with_u32(22, 100, with_u32(at + 24, 100, bomb))
    with pytest.raises(UnsafeFileError, match=r"does not inflate to the declared 100 bytes"):
        parsed(understated)

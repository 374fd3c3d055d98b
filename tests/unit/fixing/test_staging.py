"""Copies of weight files: the new header, and the very bytes that come after the old one."""

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditor.errors import FixError
from auditor.fixing.local_files import state_of
from auditor.fixing.new_files import BLOCK
from auditor.fixing.staging import stage_replacement

# A test for each example would be slow, and each writes files of its own.
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def copied(folder, before, after, data):
    source, target = folder / "source", folder / "target"
    target.unlink(missing_ok=True)
    source.write_bytes(before + data)
    stage_replacement(source, state_of(source.stat()), before, after, target)
    return target.read_bytes()


def numbers(length):
    return bytes(at * 7 % 251 for at in range(length))


@pytest.fixture(params=["copy_file_range", "missing", "refused"])
def way(request, monkeypatch):
    """What the platform does about copies: the kernel makes them, cannot, or refuses to."""

    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "not here")

    if request.param == "missing":
        monkeypatch.delattr(os, "copy_file_range")
    elif request.param == "refused":
        monkeypatch.setattr(os, "copy_file_range", refuse)
    return request.param


@shared
@given(
    old=st.integers(0, 3 * BLOCK),
    blocks=st.integers(0, 2),
    length=st.integers(0, 3 * BLOCK) | st.sampled_from([BLOCK, 2 * BLOCK]),
)
def test_the_data_comes_after_the_new_header_byte_for_byte(old, blocks, length, tmp_path, way):
    before, data = b"o" * old, numbers(length)
    after = b"n" * (old + blocks * BLOCK)
    assert copied(tmp_path, before, after, data) == after + data, way


def test_whole_blocks_are_copied_to_the_start_of_blocks(tmp_path, monkeypatch):
    """Only such can be shared by two files."""
    real, asked = os.copy_file_range, []

    def recorded(source, target, count, start, to):
        asked.append((count, start, to))
        return real(source, target, count, start, to)

    monkeypatch.setattr(os, "copy_file_range", recorded)
    copied(tmp_path, b"o" * 1000, b"n" * (1000 + BLOCK), numbers(5 * BLOCK))
    (_, first, _), (rest, start, to) = asked
    assert first == 1000
    assert (start % BLOCK, to % BLOCK) == (0, 0)
    assert rest == 6 * BLOCK - (BLOCK - 1000) - BLOCK


def test_no_byte_of_the_data_comes_into_the_process(tmp_path, monkeypatch):
    written = []
    real = os.write
    monkeypatch.setattr(
        os, "write", lambda file, data: written.append(len(data)) or real(file, data)
    )
    monkeypatch.setattr(os, "read", None)
    copied(tmp_path, b"o" * 100, b"n" * 100, numbers(100_000))
    assert written == [100]


@pytest.mark.parametrize("change", ["size", "time", "header"])
def test_a_file_that_changed_is_refused(change, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"header" + numbers(50))
    seen = state_of(source.stat())
    if change == "size":
        source.write_bytes(b"header" + numbers(51))
        os.utime(source, ns=(seen.modified, seen.modified))
    elif change == "time":
        os.utime(source, ns=(1, 1))
    else:
        source.write_bytes(b"HEADER" + numbers(50))
        os.utime(source, ns=(seen.modified, seen.modified))
    with pytest.raises(FixError, match="changed since it was audited"):
        stage_replacement(source, seen, b"header", b"HEADER", tmp_path / "target")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "file").write_bytes(b"header")
    (tmp_path / "source").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="symbolic links"):
        stage_replacement(
            tmp_path / "source",
            state_of((tmp_path / "file").stat()),
            b"header",
            b"HEADER",
            tmp_path / "target",
        )

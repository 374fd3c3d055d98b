"""A header that an interrupted run left half written is finished, unless somebody wrote to it."""

import pytest
from support.folder_fixes import fix
from support.stopped_fixes import spoiled_folder

from auditor.errors import FixError
from auditor.fixing import journal
from auditor.fixing.carrying_out import finish_interrupted

SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A folder whose fix was interrupted before it wrote the first header in place."""
    folder = spoiled_folder(tmp_path / "model", 2)

    def write_nothing(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_write_header", write_nothing)
        with pytest.raises(OSError, match="Input/output error"):
            fix(folder, in_place=True)
    return folder


def headers_of(folder):
    """The old header of the first shard, and the new one of the same length."""
    staged = (folder / ".audit-fix").glob("[0-9]*")
    both = next(one.read_bytes() for one in staged if one.read_bytes().count(b"__metadata__") == 2)
    return both[len(both) // 2 :], both[: len(both) // 2]


def write_start(path, start):
    with path.open("r+b") as file:
        file.write(start)


@pytest.mark.parametrize("block", [1, 64, 512])
def test_blocks_of_the_old_header_and_of_the_new_one_are_written_anew(interrupted, block):
    """A power cut leaves pages in any order."""
    [first, second] = headers_of(interrupted)
    torn = b"".join(
        (first, second)[at // block % 2][at : at + block] for at in range(0, len(first), block)
    )
    assert torn not in {first, second}
    write_start(interrupted / SHARD, torn)
    assert finish_interrupted(interrupted)
    assert (interrupted / SHARD).read_bytes().startswith(second)
    assert not (interrupted / ".audit-fix").exists()


def test_a_header_that_somebody_else_wrote_is_left(interrupted):
    old, _ = headers_of(interrupted)
    other = old.replace(b"F32", b"I32", 1)
    write_start(interrupted / SHARD, other)
    with pytest.raises(FixError, match="has changed since it was audited"):
        finish_interrupted(interrupted)
    assert (interrupted / SHARD).read_bytes().startswith(other)

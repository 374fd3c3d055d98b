"""Whatever another program does to a folder while it is fixed or undone, no file is lost.

Before a call that writes, drawn at random, another program creates, replaces or removes a file.
"""

import os
import shutil
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.folder_fixes import fix
from support.stopped_fixes import spoiled_folder

from auditor.errors import FixError
from auditor.fixing import renaming
from auditor.fixing.carrying_out import finish_interrupted
from auditor.fixing.undo import undo_fix

CALLS = (
    "open",
    "fchmod",
    "fsync",
    "link",
    "rename",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
    "write",
)
SHARD, OTHER = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
FILES = ("config.json", "model.safetensors.index.json", SHARD, OTHER, ".audit-fix.json")
ENDINGS = ("", "", ".orig", ".header.orig")
REAL = {name: getattr(os, name) for name in CALLS}
LIMIT = 300  # calls of a fix and more


def replaced(path, content):
    """Write another file and give it the name, as a training run that saves does."""
    with open(path.with_name("new"), "wb") as file:  # noqa: PTH123 - not counted
        file.write(content)
    path.with_name("new").replace(path)


def created(path, content):
    if not os.path.lexists(path):
        replaced(path, content)


def removed(path, _):
    path.unlink(missing_ok=True)


def linked(path, content):
    """The file's name is a link now, and the file another one."""
    if path.is_file() and not path.is_symlink():
        replaced(path.with_name("target"), content)
        path.unlink()
        path.symlink_to("target")


@contextmanager
def before_call(point, act):
    """Run `act` before the call of that number; the calls that `act` makes are not counted."""
    left, acting = [point], []

    def counted(real):
        def call(*args, **options):
            if not acting:
                left[0] -= 1
                if left[0] == 0:
                    acting.append(True)
                    act()
                    acting.clear()
            return real(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(REAL[name]))
        patch.setattr(os, "supports_follow_symlinks", {*os.supports_follow_symlinks, os.link})
        patch.setattr(renaming, "_rename", counted(renaming._rename))  # noqa: SLF001
        yield


def contents(folder):
    """The content of every file of the folder, those of the work folder included."""
    return {path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def starts(tmp_path_factory):
    place = tmp_path_factory.mktemp("fixes")
    return place, spoiled_folder(place / "spoiled", 2)


ACTS = {"replaced": replaced, "created": created, "removed": removed, "linked": linked}


@given(st.data())
@settings(max_examples=120)
def test_a_fix_loses_no_file_of_anybody(starts, data):
    place, spoiled = starts
    shutil.rmtree(place / "model", ignore_errors=True)
    folder = shutil.copytree(spoiled, place / "model")
    in_place, is_undo = data.draw(st.booleans()), data.draw(st.booleans())
    mine = {path.name: path.read_bytes() for path in folder.iterdir()}
    name = data.draw(st.sampled_from(FILES)) + data.draw(st.sampled_from(ENDINGS))
    act = ACTS[data.draw(st.sampled_from(sorted(ACTS)))]
    point = data.draw(st.integers(1, 60 if is_undo else LIMIT // 2))
    if is_undo:
        fix(folder, in_place=in_place)
    destroyed, theirs = set(), b"of another program"

    def meddle():
        before = contents(folder)
        act(folder / name, theirs)
        destroyed.update(before - contents(folder))
        if theirs not in contents(folder):
            destroyed.add(theirs)

    destroyed.add(theirs)
    with (
        before_call(point, lambda: (destroyed.discard(theirs), meddle())),
        suppress(FixError, OSError),
    ):
        undo_fix(folder) if is_undo else fix(folder, in_place=in_place)
    for _ in range(2):  # a journal may be left
        expected = {theirs} if in_place else {theirs, *mine.values()}
        assert expected - destroyed <= contents(folder), (name, act.__name__, point)
        if in_place:  # the old header is kept, and the data stays
            for shard in {SHARD, OTHER} - {name}:
                length = 8 + int.from_bytes(mine[shard][:8], "little")
                assert (folder / shard).read_bytes()[length:] == mine[shard][length:]
                kept = any(one.startswith(mine[shard][:length]) for one in contents(folder))
                assert kept or mine[shard][:length] in destroyed
        with suppress(FixError, OSError):
            finish_interrupted(folder)

"""An undo leaves the folder as it was before the fix, or changes nothing and says why."""

import json
import os
import shutil
import stat

import pytest
from huggingface_hub import constants
from support.folder_fixes import LAYERS, fix
from support.stopped_fixes import spoiled_folder

from auditor.errors import FixError
from auditor.fixing import journal
from auditor.fixing.carrying_out import finish_interrupted
from auditor.fixing.journal import RECORD
from auditor.fixing.json_edits import Edit, edited_json
from auditor.fixing.undo import undo_fix

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    folder = spoiled_folder(tmp_path / "model", 2)
    (folder / "config.json").chmod(0o640)
    (folder / SHARD).chmod(0o604)
    return folder


def files_of(folder):
    """Content and mode of everything in the folder."""
    return {path.name: (path.read_bytes(), path.stat().st_mode) for path in folder.iterdir()}


def edit_json(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("in_place", [False, True])
def test_after_an_undo_the_folder_is_as_it_was_before_the_fix(folder, in_place):
    before = files_of(folder)
    fix(folder, in_place=in_place)
    assert files_of(folder) != before
    undone = undo_fix(folder)
    assert files_of(folder) == before
    assert set(undone.restored) == set(before)
    headers = {f"{name}.header.orig" for name in before if name.endswith(".safetensors")}
    assert set(undone.removed) == (headers if in_place else set())


def test_an_index_that_the_fix_added_is_removed(folder):
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    assert fix(folder)
    undo_fix(folder)
    (folder / INDEX).unlink()
    before = files_of(folder)
    fix(folder)
    written = json.loads((folder / INDEX).read_text())["weight_map"]
    assert written == {name.removeprefix("module."): file for name, file in index.items()}
    assert undo_fix(folder).removed == (INDEX,)
    assert files_of(folder) == before


def test_the_last_of_two_fixes_is_undone_first(folder):
    states = [files_of(folder)]
    fix(folder)
    states.append(files_of(folder))
    edit_json(folder / "config.json", **{LAYERS: 4})
    states.append(files_of(folder))
    assert fix(folder) == ("config.json.orig.1",)
    undo_fix(folder)
    assert files_of(folder) == states[2]
    with pytest.raises(FixError, match=r"config\.json' has changed since audit fix wrote it"):
        undo_fix(folder)
    assert files_of(folder) == states[2]


def test_two_fixes_are_undone_if_the_edit_between_them_is_taken_back(folder):
    states = [files_of(folder)]
    fix(folder)
    config = (folder / "config.json").stat()
    edit_json(folder / "config.json", **{LAYERS: 4})
    fix(folder)
    undo_fix(folder)
    edit = Edit((LAYERS,), None, 2)
    (folder / "config.json").write_bytes(edited_json(states[0]["config.json"][0], (edit,)))
    os.utime(folder / "config.json", ns=(config.st_atime_ns, config.st_mtime_ns))
    undo_fix(folder)
    assert files_of(folder) == states[0]


def test_a_copy_of_the_folder_can_be_undone(folder):
    before = files_of(folder)
    fix(folder)
    copy = shutil.copytree(folder, folder.parent / "copy")
    undo_fix(copy)
    assert files_of(copy) == before


def appended(path):
    with path.open("ab") as file:
        file.write(b" ")


def with_same_size_and_time(path):
    status = path.stat()
    path.write_bytes(path.read_bytes().replace(b"2", b"7"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def trained_on(path):
    """Other weights under the same header."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def linked(path):
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("config.json", appended, "has changed since audit fix wrote it"),
        ("config.json", with_same_size_and_time, "has changed since audit fix wrote it"),
        ("config.json", os.unlink, "has changed since audit fix wrote it"),
        ("config.json", linked, "has changed since audit fix wrote it"),
        (SHARD, trained_on, "has changed since audit fix wrote it"),
        ("config.json.orig", os.unlink, "not the file that audit fix kept"),
        (f"{SHARD}.orig", appended, "not the file that audit fix kept"),
        (f"{SHARD}.orig", linked, "not the file that audit fix kept"),
        (RECORD, os.unlink, "there is no audit fix to undo"),
        (RECORD, appended, None),
        (RECORD, trained_on, "was not written by this version of audit fix"),
    ],
)  # fmt: skip
def test_nothing_is_undone_if_a_file_has_changed_since(folder, name, change, why):
    fix(folder)
    change(folder / name)
    before = files_of(folder)
    if why is None:  # a blank after JSON is JSON
        undo_fix(folder)
        return
    with pytest.raises(FixError, match=why):
        undo_fix(folder)
    assert files_of(folder) == before


def test_a_header_that_was_written_in_place_is_undone_after_training(folder):
    """Only names are taken back: the new weights stay."""
    fix(folder, in_place=True)
    trained_on(folder / SHARD)
    content = (folder / SHARD).read_bytes()
    undo_fix(folder)
    start = 8 + int.from_bytes(content[:8], "little")
    assert (folder / SHARD).read_bytes()[start:] == content[start:]


def test_a_header_is_not_written_into_a_hard_link(folder):
    fix(folder, in_place=True)
    os.link(folder / SHARD, folder.parent / "backup")
    before = files_of(folder)
    with pytest.raises(FixError, match="2 hard links"):
        undo_fix(folder)
    assert files_of(folder) == before


def test_a_folder_without_a_fix_has_nothing_to_undo(folder):
    with pytest.raises(FixError, match="there is no audit fix to undo"):
        undo_fix(folder)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("steps", range(5))
def test_an_undo_finishes_a_fix_that_was_interrupted_and_undoes_it(
    folder, in_place, steps, monkeypatch
):
    before = files_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_take", interrupted(steps))
        with pytest.raises(OSError, match="Input/output error"):
            fix(folder, in_place=in_place)
    undo_fix(folder)
    assert files_of(folder) == before


def interrupted(steps):
    """Take that many steps, then fail."""
    real, counted = journal._take, iter(range(steps))  # noqa: SLF001

    def take(*args):
        if next(counted, None) is None:
            raise OSError(5, "Input/output error")
        real(*args)

    return take


SHIPPED = {
    "added": lambda entry: entry | {"how": "replace", "before": None, "kept": ""},
    "replaced": lambda entry: entry,
    "header": lambda entry: entry | {"how": "header", "staged": "5"},
    "long": lambda entry: entry | {"written": entry["written"] | {"length": 10**12}},
}


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("seal", [None, "", "0" * 64, 5])
def test_a_record_that_came_with_the_folder_is_not_obeyed(folder, shipped, seal, monkeypatch):
    """A stranger knows all that the record says of the files, and has another key."""
    with monkeypatch.context() as patch:
        patch.setattr(journal, "own_key", lambda: b"of a stranger")
        fix(folder)
    record = json.loads((folder / RECORD).read_text())
    record["fixes"] = [list(map(SHIPPED[shipped], record["fixes"][0]))]
    if seal is not None:
        record["seal"] = seal
    (folder / RECORD).write_text(json.dumps(record))
    before = files_of(folder)
    for act in (undo_fix, fix):
        with pytest.raises(
            FixError, match="was not written by this version of audit fix, run by you"
        ):
            act(folder)
        assert files_of(folder) == before


def test_a_journal_that_came_with_the_folder_is_not_obeyed(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(journal, "own_key", lambda: b"of a stranger")
        patch.setattr(journal, "_take", interrupted(0))
        with pytest.raises(OSError, match="Input/output error"):
            fix(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for act in (undo_fix, finish_interrupted):
        with pytest.raises(
            FixError, match="was not written by this version of audit fix, run by you"
        ):
            act(folder)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("home", ["file", "file/below", "new"])
def test_without_a_place_for_the_key_a_fix_is_done_and_not_undone(home, folder, monkeypatch):
    (folder.parent / "file").write_bytes(b"")
    monkeypatch.setattr(constants, "HF_HOME", str(folder.parent / home))
    journal.own_key.cache_clear()
    try:
        fix(folder)
        journal.own_key.cache_clear()  # as in another process
        if home == "new":
            undo_fix(folder)
            assert stat.S_IMODE((folder.parent / "new/hf-audit/fix.key").stat().st_mode) == 0o600
        else:
            with pytest.raises(FixError, match="was not written by"):
                undo_fix(folder)
    finally:
        journal.own_key.cache_clear()


def test_the_record_is_no_more_open_than_a_new_file(folder):
    fix(folder)
    (folder / "new").touch()
    assert (folder / RECORD).stat().st_mode == (folder / "new").stat().st_mode

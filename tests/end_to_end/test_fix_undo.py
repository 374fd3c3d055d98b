"""`audit fix FOLDER --undo`: what the command prints, and with which code it ends."""

import json

import pytest
from support.running import run
from support.stopped_fixes import contents_of, spoiled_folder


@pytest.fixture
def folder(tmp_path):
    return spoiled_folder(tmp_path / "model", 2)


def test_an_undo_puts_back_the_old_files_and_a_second_one_has_nothing_to_do(folder):
    before = contents_of(folder)
    assert run("fix", str(folder), "--apply").returncode == 0
    undone = run("fix", str(folder), "--undo")
    assert (undone.returncode, undone.stdout, contents_of(folder)) == (0, "", before)
    [line] = undone.stderr.splitlines()
    assert line.startswith("audit: put back: 'config.json', 'model-00001")
    again = run("fix", str(folder), "--undo")
    assert (again.returncode, contents_of(folder)) == (3, before)
    assert "there is no audit fix to undo" in again.stderr


def test_an_undo_is_printed_as_json(folder):
    names = sorted(contents_of(folder))
    assert run("fix", str(folder), "--apply", "--in-place").returncode == 0
    undone = run("fix", str(folder), "--undo", "--format", "json")
    headers = [f"{name}.header.orig" for name in names if name.endswith(".safetensors")]
    assert json.loads(undone.stdout) == {"restored": names, "removed": headers}


def test_a_quiet_undo_prints_nothing(folder):
    assert run("fix", str(folder), "--apply", "--quiet").returncode == 0
    undone = run("fix", str(folder), "--undo", "--quiet")
    assert (undone.returncode, undone.stdout, undone.stderr) == (0, "", "")


@pytest.mark.parametrize("option", [("--apply",), ("--in-place",), ("--as", "BertModel")])
def test_an_undo_takes_no_option_of_a_fix(folder, option):
    refused = run("fix", str(folder), "--undo", *option)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_an_undo_takes_a_folder(folder):
    refused = run("fix", str(folder / "config.json"), "--undo")
    assert refused.returncode == 2
    assert "is not a folder" in refused.stderr

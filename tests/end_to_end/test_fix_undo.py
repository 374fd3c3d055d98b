"""What `audit fix` leaves as it was: the rest of a config, and after `--undo` everything."""

import json
import re

import pytest
from support.running import run
from support.stopped_fixes import contents_of, spoiled_folder


@pytest.fixture
def folder(tmp_path):
    return spoiled_folder(tmp_path / "model", 2)


def test_a_config_changes_only_where_the_plan_changes_it(folder):
    config = (folder / "config.json").read_bytes().replace(b"\n", b"\r\n")
    odd = b'{\r\n\t"big" : 1234567890123456789012345678901, "inf":1e400,"two":1,"two": 2.50,\r\n'
    config = odd + config.removeprefix(b"{\r\n")
    (folder / "config.json").write_bytes(config)
    done = run("fix", str(folder), "--apply")
    assert done.returncode == 0, done.stderr
    layers = re.compile(rb'(?<="num_hidden_layers": )\d+')
    assert (folder / "config.json").read_bytes() == layers.sub(b"2", config) != config


def test_an_undo_restores_the_old_files_and_a_second_one_changes_nothing(folder):
    before = contents_of(folder)
    assert run("fix", str(folder), "--apply").returncode == 0
    undone = run("fix", str(folder), "--undo")
    assert (undone.returncode, undone.stdout, contents_of(folder)) == (0, "", before)
    [line] = undone.stderr.splitlines()
    assert line.startswith("audit: restored: 'config.json', 'model-00001")
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

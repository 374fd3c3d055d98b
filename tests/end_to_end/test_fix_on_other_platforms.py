"""`audit fix` without flock, owners, extended attributes and copies by the kernel."""

import shutil
import subprocess
import sys
from itertools import product

import pytest
from support import other_platform
from support.examples import one_in
from support.running import run
from support.stopped_fixes import contents_of, spoiled_folder

PLATFORMS = ("windows", "macos")


@pytest.fixture
def folder(tmp_path):
    return spoiled_folder(tmp_path / "model", 2)


def run_on(platform, *args):
    command = [sys.executable, other_platform.__file__, platform, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "options"), one_in(3, product(PLATFORMS, ((), ("--in-place",))))
)
def test_a_fix_and_its_undo_are_those_of_linux(platform, options, folder, tmp_path):
    expected = shutil.copytree(folder, tmp_path / "expected")
    assert run("fix", str(expected), "--apply", *options).returncode == 0
    before = contents_of(folder)
    done = run_on(platform, "fix", str(folder), "--apply", *options)
    assert (done.returncode, contents_of(folder)) == (0, contents_of(expected)), done.stderr
    undone = run_on(platform, "fix", str(folder), "--undo")
    assert (undone.returncode, contents_of(folder)) == (0, before), undone.stderr
    assert not (folder / ".audit-fix").exists()


@pytest.mark.slow
def test_without_flock_a_lock_that_was_left_is_named(folder):
    before = contents_of(folder)
    work = folder / ".audit-fix"
    work.mkdir()
    (work / "lock").touch()
    refused = run_on("windows", "fix", str(folder), "--apply")
    assert (refused.returncode, contents_of(folder)) == (3, before)
    assert f"remove '{work / 'lock'}'" in refused.stderr
    (work / "lock").unlink()
    assert run_on("windows", "fix", str(folder), "--apply").returncode == 0

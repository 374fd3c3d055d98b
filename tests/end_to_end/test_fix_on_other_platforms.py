"""`audit fix` without copies by the kernel."""

import subprocess
import sys

import pytest
from support import other_platform
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
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_fix_is_that_of_linux(platform, folder, tmp_path):
    assert run("fix", str(folder), "--apply", "--to", str(tmp_path / "linux")).returncode == 0
    before = contents_of(folder)
    done = run_on(platform, "fix", str(folder), "--apply")
    assert (done.returncode, contents_of(folder)) == (0, before), done.stderr
    assert contents_of(tmp_path / "model.fixed") == contents_of(tmp_path / "linux")

"""The command without what Windows and macOS lack gives the output that it gives with it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support import other_platform
from support.bad_input.making import whole
from support.stopped_fixes import contents_of, spoiled_folder
from support.sweep_models import healthy
from support.value_files import write_numbers

PLATFORMS = ("windows", "macos")
LAUNCHER = other_platform.__file__
COMMAND_LINES = {
    "folder": ("MODEL", "--format", "json"),
    "values": ("MODEL", "--values", "--statistics", "--format", "json"),
    "explain": ("explain", "bert"),
    "usage error": ("check", "--bogus"),
}
# Imports every module but that of the cluster, whose library is not ours.
IMPORT_ALL = """
import importlib, pkgutil, sys
from support.other_platform import take_away
take_away(sys.argv[1])
import auditor
others = ("auditor.sweep.cluster", "auditor.integrations.training")
for found in pkgutil.walk_packages(auditor.__path__, "auditor."):
    if not found.name.startswith(others):
        importlib.import_module(found.name)
print("imported")
"""


def run(env, *args: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *args],
        env=env,
        capture_output=True,
        encoding=encoding,
        timeout=120,
        check=False,
    )


@pytest.fixture
def env(tmp_path):
    return {**os.environ, "HF_HOME": str(tmp_path / "hf"), "NO_COLOR": "1", "COLUMNS": "100"}


def test_a_command_has_the_same_output_without_the_names_of_a_platform(subtests, env, tmp_path):
    for args in COMMAND_LINES.values():
        with subtests.test(args=args):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            model = str(whole(place / "m"))
            given = [model if arg == "MODEL" else arg for arg in args]
            expected, *others = (
                run(env, LAUNCHER, platform, *given) for platform in ("linux", *PLATFORMS)
            )
            assert expected.returncode in {0, 1, 2}
            for ran in others:
                found = (ran.returncode, ran.stdout, ran.stderr)
                assert found == (expected.returncode, expected.stdout, expected.stderr)


def test_numbers_are_the_same_in_a_file_with_holes_and_several_threads(subtests, env, tmp_path):
    for platform in PLATFORMS:
        with subtests.test(platform=platform):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = write_numbers(
                place / "model.safetensors", {"a": np.arange(5000, dtype=np.float32)}
            )
            size = path.stat().st_size
            header = json.loads(
                path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")]
            )
            assert header["a"]["data_offsets"] == [0, 20_000]
            with path.open("r+b") as file:
                file.truncate(size - 20_000)
                file.truncate(size)
            args = (str(path), "--values", "--format", "json")
            expected, found = (run(env, LAUNCHER, each, *args) for each in ("linux", platform))
            assert json.loads(expected.stdout)["values"] == json.loads(found.stdout)["values"]
            assert found.stderr == expected.stderr


def test_a_model_of_the_hub_has_the_same_report(subtests, hub, hub_env):
    for platform in PLATFORMS:
        with subtests.test(platform=platform):
            hub.clear()
            hub.add("org/m", healthy(1))
            args = ("org/m", "--format", "json")
            expected, found = (run(hub_env, LAUNCHER, each, *args) for each in ("linux", platform))
            assert (found.returncode, found.stderr) == (0, "")
            reports = [json.loads(ran.stdout) for ran in (expected, found)]
            for report in reports:
                del report["fetched"]["seconds"]
            assert reports[0] == reports[1]


def test_every_module_can_be_imported(subtests, env):
    for platform in PLATFORMS:
        with subtests.test(platform=platform):
            path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
            ran = run(env | {"PYTHONPATH": path}, "-c", IMPORT_ALL, platform)
            assert (ran.stdout, ran.stderr) == ("imported\n", "")


def test_a_console_of_few_characters_changes_no_exit_code(subtests, env, tmp_path):
    for encoding in ["cp1252", "cp437", "ascii"]:
        with subtests.test(encoding=encoding):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            model = str(whole(place / "m"))
            given = env | {"PYTHONIOENCODING": encoding}
            ran = run(given, LAUNCHER, "windows", model, "-v", encoding=encoding)
            assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
            assert "Traceback" not in ran.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the lists are of names that Linux has")
def test_each_name_that_is_taken_away_is_there_before():
    for names_of_os, names_of_signal in other_platform.LACKING.values():
        assert set(names_of_os) <= set(dir(os))
        assert set(names_of_signal) <= set(dir(signal))


@pytest.mark.slow
def test_a_fix_is_that_of_linux(subtests, env, tmp_path):
    for platform in PLATFORMS:
        with subtests.test(platform=platform):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = spoiled_folder(place / "model", 2)
            before = contents_of(folder)
            for each in ("linux", platform):
                options = ("--apply", "--to", str(place / each))
                done = run(env, LAUNCHER, each, "fix", str(folder), *options)
                assert (done.returncode, contents_of(folder)) == (0, before), done.stderr
            assert contents_of(place / platform) == contents_of(place / "linux")

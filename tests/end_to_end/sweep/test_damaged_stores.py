"""A store that is full, damaged or out of reach: one line that helps, exit 3, nothing lost."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from support.hub import Stall
from support.mounts import mounted, remount
from support.nightly_stores import THIRD, plain, store_of
from support.running import run
from support.sweep_models import planted
from support.sweep_stores import contents

SWEEP = ("sweep", "--author", "sweep", "--night", "n1", "--processes", "1")


@pytest.fixture
def models(hub):
    for name, files, _ in planted(40):
        hub.add(name, files)
    return hub


@pytest.fixture
def store(tmp_path):
    """A store of thirty models, of which a page holds a few."""
    path = tmp_path / "sweep.sqlite"
    store_of(path, {THIRD: [plain(f"o/m{number:02}") for number in range(30)]})
    return path


def swept(store, env, *options):
    done = run(*SWEEP, "--store", str(store), *options, env=env)
    return done.returncode, done.stderr


def reported(store, env):
    folder = str(store.parent / "out")
    done = run("report", str(store), "-o", folder, "--fail-on", "never", env=env)
    return done.returncode, done.stderr


def zero(path, start, stop):
    content = bytearray(path.read_bytes())
    content[start:stop] = bytes(min(stop, len(content)) - start)
    path.write_bytes(content)


def drop(path, table):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"DROP TABLE {table}")
        database.commit()


def folder_in_its_place(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    "zeroed beginning": (lambda path: zero(path, 0, 100), "is not an SQLite database"),
    "zeroed pages": (lambda path: zero(path, 4096, 10**9), "is damaged: "),
    "no outcomes": (lambda path: drop(path, "outcomes"), "is damaged: no such table: "),
    "half of it": (lambda path: os.truncate(path, path.stat().st_size // 2), "is damaged: "),
    "a folder": (folder_in_its_place, "is a folder, expected a file"),
}


@pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_store_is_one_line(damage, why, store, hub_env):
    damage(store)
    for code, said in (swept(store, hub_env), reported(store, hub_env)):
        assert (code, said.count("\n")) == (3, 1)
        assert said.startswith(f"audit: the store '{store}' {why}"), said


@pytest.mark.parametrize("name", ["snapshots", "outcomes", "contents"])
def test_a_row_that_does_not_unpack_is_never_a_traceback(name, models, hub_env, tmp_path):
    path = tmp_path / "s.sqlite"
    assert swept(path, hub_env)[0] == 1
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE {name} SET content = x'00'")  # noqa: S608 - ours
        database.execute("UPDATE outcomes SET catalogue = 'before'")
        database.commit()
    del models
    for code, said in (swept(path, hub_env), reported(path, hub_env)):
        assert code in {0, 1, 3}
        assert "Traceback" not in said


def test_a_full_disk_loses_nothing_and_the_sweep_continues_once_there_is_room(
    models, hub_env, tmp_path
):
    del models
    undisturbed = tmp_path / "undisturbed.sqlite"
    assert swept(undisturbed, hub_env)[0] == 1
    with mounted(tmp_path / "small", "64k") as place:
        store = place / "sweep.sqlite"
        stopped = 0
        for size in range(64, 4096, 320):
            remount(place, f"size={size}k")
            code, said = swept(store, hub_env, "--quiet")
            if code != 3:
                break
            assert said.startswith(f"audit: the store '{store}' cannot be written, the disk is ")
            assert said.count("\n") == 1
            stopped += 1
        assert (code, said) == (1, "")
        assert stopped > 1
        assert contents(store) == contents(undisturbed)


def test_a_sweep_that_fails_ends_while_its_threads_still_read(models, hub_env, tmp_path):
    """Compiled code that comes back after the interpreter has ended calls what is not there."""
    models.misbehave(fault=Stall(), path="*/m00005/resolve/*")
    code = (
        "import atexit, resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\n"
        "atexit.register(print, 'the interpreter has ended', file=sys.stderr)\n"
        "from auditor.cli import main\n"
        f"sys.argv = ['audit', *{SWEEP!r}, '--store', {str(tmp_path / 's.sqlite')!r}, '--quiet']\n"
        "main()\n"
    )
    env = {**hub_env, "HF_HUB_DOWNLOAD_TIMEOUT": "60"}
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "cannot be written, the disk is full or damaged (" in done.stderr


def leave_a_log(path):
    """As after a kill: what was written last stands in the -wal file alone."""
    copy = path.with_name("copy.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("UPDATE nights SET finished = '2026-01-01T00:00:00+00:00'")
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{copy}{end}")
    for end in ("", "-wal"):
        shutil.move(f"{copy}{end}", f"{path}{end}")


@pytest.mark.parametrize("logged", [False, True], ids=["closed", "with a log"])
def test_a_store_on_a_read_only_mount_is_reported_and_not_swept(logged, store, hub_env, tmp_path):
    with mounted(tmp_path / "mount", "8m") as place:
        there = place / "sweep.sqlite"
        shutil.copyfile(store, there)
        if logged:
            leave_a_log(there)
        remount(place, "ro")
        done = run("report", str(there), "-o", str(tmp_path / "there"), env=hub_env)
        assert (done.returncode, done.stderr.count("\n")) == (0, 1)
        code, said = swept(there, hub_env)
        assert (code, said.count("\n")) == (3, 1)
        assert f"the store '{there}' cannot be opened (" in said
        assert "writable" in said
        assert {file.name for file in place.iterdir()} <= {"sweep.sqlite", "sweep.sqlite-wal"}
    summary = (tmp_path / "there" / "summary.json").read_text()
    assert ("2026-01-01T00:00:00" in summary) == logged


def test_a_damaged_store_on_a_read_only_mount_is_one_line(store, hub_env, tmp_path):
    with mounted(tmp_path / "mount", "8m") as place:
        there = place / "sweep.sqlite"
        shutil.copyfile(store, there)
        zero(there, 4096, 10**9)
        remount(place, "ro")
        done = run("report", str(there), "-o", str(tmp_path / "out"), env=hub_env)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.startswith(f"audit: the store '{there}' is damaged: ")

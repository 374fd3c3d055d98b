"""An output replaces whatever lies at its path, goes through no link, and is complete or absent."""

import os
import socket
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.writing import (
    locked,
    output_file,
    replacing,
    require_no_link,
    write_atomically,
)


def a_socket(path, _):
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # an address has 107 bytes at most
        one.bind(path.name)
        os.chdir(here)


def linked(make):
    return lambda path, victim: path.symlink_to(make(path, victim))


def by_way_of(name, make):
    """A link to another one, or to a pipe, beside it."""

    def prepare(path, victim):
        make(path.with_name(name), victim)
        path.symlink_to(name)

    return prepare


def a_pipe(path, _):
    os.mkfifo(path)


# What a folder may have been given before we write into it; the victim is a file elsewhere.
PREPARED = {
    "nothing": lambda _, __: None,
    "a file": lambda path, _: path.write_bytes(b"old"),
    "a link": linked(lambda _, victim: victim),
    "a relative link": linked(lambda path, victim: os.path.relpath(victim, path.parent)),
    "a link to a link": by_way_of("second", lambda path, victim: path.symlink_to(victim)),
    "a link to nothing": linked(lambda _, victim: victim.with_name("new")),
    "a link to a folder": linked(lambda _, victim: victim.parent),
    "a link to itself": linked(lambda path, _: path.name),
    "a hard link": lambda path, victim: path.hardlink_to(victim),
    "a pipe": a_pipe,
    "a link to a pipe": by_way_of("pipe", a_pipe),
    "a socket": a_socket,
}
WRITERS = {"inside a folder": replacing, "named by the user": output_file}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("writing")


@given(st.data())
def test_whatever_lies_at_the_path_is_replaced_and_nothing_else_changes(place, data):
    base = place / str(len(list(place.iterdir())))
    (base / "elsewhere").mkdir(parents=True)
    victim, path = base / "elsewhere" / "victim", base / "out" / "models.csv"
    victim.write_bytes(b"theirs")
    path.parent.mkdir()
    PREPARED[data.draw(st.sampled_from(sorted(PREPARED)))](path, victim)
    write, is_whole = WRITERS[data.draw(st.sampled_from(sorted(WRITERS)))], data.draw(st.booleans())
    before = os.lstat(path) if os.path.lexists(path) else None
    try:
        with write(path) as file:
            file.write(b"new")
            assert is_whole
    except AssertionError:
        left = os.lstat(path) if os.path.lexists(path) else None
        assert (left and left.st_ino) == (before and before.st_ino)
    else:
        assert stat.S_ISREG(os.lstat(path).st_mode)
        assert path.read_bytes() == b"new"
    assert victim.read_bytes() == b"theirs"
    assert [one.name for one in victim.parent.iterdir()] == ["victim"]
    assert {one.name for one in path.parent.iterdir()} <= {"models.csv", "second", "pipe"}


LINKED = {
    "link": True,
    "link/new": False,
    "link/new/deeper": False,
    "real/link": True,
    "real/link/new": False,
    "real/../link/new": False,
}


@pytest.mark.parametrize("name", LINKED)
@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_link_below_the_current_folder_is_not_followed(name, is_absolute, tmp_path, monkeypatch):
    (tmp_path / "victim").mkdir()
    here = tmp_path / "checkout"
    (here / "real").mkdir(parents=True)
    for link in (here / "link", here / "real" / "link"):
        link.symlink_to(tmp_path / "victim")
    monkeypatch.chdir(here)
    path = here / name if is_absolute else Path(name)
    with pytest.raises(OSError, match=r"is a link to '.*victim'; name the path"):
        require_no_link(path)
    with (
        pytest.raises(OSError, match="is a link to"),
        output_file(path / "report.json") as file,
    ):
        file.write(b"x")
    assert list((tmp_path / "victim").iterdir()) == []
    monkeypatch.chdir(tmp_path / "victim")  # now the links lie elsewhere, and are the user's own
    if not is_absolute:
        path = here / name
    if LINKED[name]:
        with pytest.raises(OSError, match="is a link to"):
            require_no_link(path)
    else:
        require_no_link(path)


def test_a_folder_that_is_reached_through_a_link_is_written_to(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    monkeypatch.chdir(tmp_path / "way")
    for path in (Path("a.json"), Path("new/a.json"), tmp_path / "way" / "b.json"):
        with output_file(path) as file:
            file.write(b"x")
    assert sorted(one.name for one in (tmp_path / "real").rglob("*.json")) == ["a.json"] * 2 + [
        "b.json"
    ]


def test_a_pipe_that_is_read_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with output_file(tmp_path / "pipe") as file:
        file.write(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(os.lstat(tmp_path / "pipe").st_mode)


def test_an_open_file_is_written_to_where_it_stands(subtests, tmp_path):
    for name in ["/dev/fd/{}", "/proc/self/fd/{}", "/dev/../dev/fd/{}"]:
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            with (place / "log").open("ab") as log:
                log.write(b"old ")
                log.flush()
                with output_file(Path(name.format(log.fileno()))) as file:
                    file.write(b"new")
            assert (place / "log").read_bytes() == b"old new"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o137])
def test_a_file_has_the_mode_that_the_process_gives_to_new_files(mask, tmp_path, monkeypatch):
    old = os.umask(mask)
    try:
        monkeypatch.setattr(os, "umask", None)  # to read it is to change it, for all threads
        write_atomically(tmp_path / "file", b"x")
    finally:
        monkeypatch.undo()
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("has_flock", [True, False])
def test_a_lock_is_held_by_one_and_released_after_an_error(has_flock, tmp_path, monkeypatch):
    if not has_flock:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    held = locked(tmp_path, "lock")
    held.__enter__()
    with pytest.raises(BlockingIOError), locked(tmp_path, "lock", patience=0.01):
        pass
    assert held.__exit__(OSError, OSError(), None) is False
    with locked(tmp_path, "lock"):
        pass
    assert list(tmp_path.iterdir()) == []

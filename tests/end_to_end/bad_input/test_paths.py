"""Folders and files that are no checkpoint, or not all of one."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.bad_input.making import (
    CONFIG,
    GOOD_CONFIG,
    GOOD_WEIGHTS,
    INDEX,
    PAGE,
    SHARDS,
    WEIGHTS,
    assert_ended,
    sharded,
    whole,
)
from support.bad_input.running import CLEAN, FINDINGS, UNAUDITED, USAGE
from support.builders import safetensors_bytes

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(200)
PICKLE = b"PK\x03\x04\x00\x00\x08\x08" + bytes(500)


@dataclass(frozen=True, kw_only=True)
class Place:
    """What is made in an empty folder, which path is asked for, and what is said of it."""

    name: str
    make: Callable[[Path], object]
    path: str  # below the folder that `make` was given; "/..." is one of this machine
    code: int
    says: str | tuple[str, str]  # the line on stderr; or kind and reason of a finding


def nothing(_: Path) -> None:
    pass


def file(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def files(**contents: bytes) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / "m").mkdir()
        for name, content in contents.items():
            (folder / "m" / name.replace("__", ".")).write_bytes(content)

    return make


def in_place_of(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A clean folder in which something else has that name."""

    def make_all(folder: Path) -> None:
        path = whole(folder / "m") / name
        path.unlink(missing_ok=True)
        make(path)

    return make_all


def in_shards(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def make_all(folder: Path) -> None:
        path = sharded(folder / "m") / name
        path.unlink(missing_ok=True)
        make(path)

    return make_all


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("../blobs/nowhere")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the address of a socket has some hundred bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


PLACES = (
    Place(name="no such folder", make=nothing, path="m/", code=USAGE, says="does not exist"),
    Place(name="a long name", make=nothing, path="x" * 5000, code=USAGE, says="does not exist"),
    Place(name="an empty folder", make=files(), path="m", code=UNAUDITED, says="empty-repo: .*'"),
    Place(
        name="a folder with a config alone",
        make=files(config__json=GOOD_CONFIG),
        path="m",
        code=UNAUDITED,
        says="no-weights: .*m is a config alone: there are no weights to compare it with",
    ),
    Place(
        name="weights alone",
        make=files(model__safetensors=GOOD_WEIGHTS),
        path="m",
        code=UNAUDITED,
        says="no-config: .* has no config.json",
    ),
    Place(
        name="a folder of .bin files",
        make=files(config__json=GOOD_CONFIG, pytorch_model__bin=PICKLE),
        path="m",
        code=FINDINGS,
        says=("bad-header", "pytorch_model.bin begins as a zip archive and does not end as one"),
    ),
    Place(
        name="one shard of three alone",
        make=lambda folder: sharded(folder / "m"),
        path=f"m/{SHARDS[1]}",
        code=USAGE,
        says="is one shard of 3: give the folder",
    ),
    Place(
        name="a shard, its index gone",
        make=in_shards(INDEX, nothing),
        path="m",
        code=FINDINGS,
        says=("bad-index", f"no index names '{SHARDS[0]}'"),
    ),
    Place(
        name="an image", make=file("a.png", PNG), path="a.png", code=USAGE, says="is not a config"
    ),
    Place(name="noise", make=file("a", b"\xff" * 99), path="a", code=USAGE, says="is not a config"),
    Place(
        name="JSON that is a page",
        make=file("a.json", PAGE),
        path="a.json",
        code=FINDINGS,
        says=("bad-config", "^a.json is not JSON"),
    ),
    Place(
        name="a folder named config.json",
        make=in_place_of(CONFIG, Path.mkdir),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*config.json' is a folder, expected a file",
    ),
    Place(
        name="a pipe named model.safetensors",
        make=in_place_of(WEIGHTS, os.mkfifo),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*model.safetensors' is a named pipe",
    ),
    Place(
        name="a pipe",
        make=in_place_of(WEIGHTS, os.mkfifo),
        path=f"m/{WEIGHTS}",
        code=UNAUDITED,
        says="unreadable: .* is a named pipe",
    ),
    Place(
        name="a pipe named config.json",
        make=in_place_of(CONFIG, os.mkfifo),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*config.json' is a named pipe",
    ),
    Place(
        name="a pipe in place of a shard",
        make=in_shards(SHARDS[1], os.mkfifo),
        path="m",
        code=UNAUDITED,
        says=f"unreadable: .*{SHARDS[1]}' is a named pipe",
    ),
    Place(
        name="a socket named model.safetensors",
        make=in_place_of(WEIGHTS, a_socket),
        path="m",
        code=UNAUDITED,
        says="unreadable: .* is a socket",
    ),
    Place(
        name="a device behind config.json",
        make=in_place_of(CONFIG, zeros),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*config.json' is a link out of the folder",
    ),
    Place(
        name="a device behind model.safetensors",
        make=in_place_of(WEIGHTS, zeros),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*model.safetensors' is a link out of the folder",
    ),
    Place(
        name="a device", make=nothing, path="/dev/zero", code=UNAUDITED, says="unreadable: .*device"
    ),
    Place(
        name="a link to itself",
        make=in_place_of(CONFIG, loop),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*config.json' cannot be read: Too many levels of symbolic links",
    ),
    Place(
        name="weights that link to themselves",
        make=in_place_of(WEIGHTS, loop),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*model.safetensors' cannot be read: Too many levels",
    ),
    Place(
        name="a link to nothing",
        make=in_place_of(WEIGHTS, dangling),
        path="m",
        code=UNAUDITED,
        says="unreadable: .*model.safetensors' is a link out of the folder",
    ),
    Place(
        name="a shard that links to nothing",
        make=in_shards(SHARDS[1], dangling),
        path="m",
        code=UNAUDITED,
        says=f"unreadable: .*{SHARDS[1]}' is a link out of the folder",
    ),
    Place(
        name="a file in place of the folder",
        make=file("m", b""),
        path="m/config.json",
        code=USAGE,
        says="does not exist",
    ),
)


@pytest.mark.parametrize("place", [pytest.param(place, id=place.name) for place in PLACES])
def test_a_path_that_is_no_checkpoint_ends_with_a_reason(place, audit, tmp_path):
    folder = tmp_path / "input"
    folder.mkdir()
    place.make(folder)
    path = place.path if place.path.startswith("/") else f"{folder}/{place.path}"
    assert_ended(audit(path, "--format", "json"), place.code, place.says)


def test_a_folder_that_contains_itself_is_read_once(audit, tmp_path):
    folder = whole(tmp_path / "input")
    (folder / "again").symlink_to(".")
    assert audit(str(folder)).code == CLEAN


def test_a_sparse_file_of_a_terabyte_is_not_read(audit, tmp_path):
    folder = whole(tmp_path / "input")
    with (folder / WEIGHTS).open("r+b") as weights:
        weights.truncate(10**12)
    assert_ended(
        audit(str(folder), "--format", "json"), FINDINGS, ("bad-size", "is too long: .*000,000,000")
    )


def test_other_weight_files_of_the_folder_are_named_and_not_opened(audit, tmp_path):
    folder = whole(tmp_path / "input")
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "other.safetensors").write_bytes(safetensors_bytes({}))
    (folder / "tf_model.h5").write_bytes(b"")
    ran = audit(str(folder), "--format", "json")
    assert ran.code == CLEAN
    beside = [finding["names"] for finding in ran.outcome["findings"]]
    assert sorted(beside) == [["other.safetensors"], ["tf_model.h5"]]


def test_a_torch_copy_that_cannot_be_read_is_a_warning_of_its_own(audit, tmp_path):
    folder = whole(tmp_path / "input")
    (folder / "pytorch_model.bin").write_bytes(PICKLE)
    ran = audit(str(folder), "--format", "json")
    assert_ended(ran, FINDINGS, ("copy-differs", "begins as a zip archive .* it is not compared"))

"""Checkpoints on this machine: folders, single files, places in the Hugging Face cache."""

import json
import os
import socket
import tempfile
from pathlib import Path

import pytest
from support.builders import framed, safetensors_bytes

from auditor.checkpoint.selecting import other_weight_files
from auditor.checkpoint.snapshot import RepoFile, Source, TextFile
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader import headers
from auditor.downloader.fetching import fetch
from auditor.downloader.headers import FIRST_READ
from auditor.downloader.local_file import open_regular_file
from auditor.errors import Reason, SourceError, UsageError
from auditor.tensors import Span

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SHA = "ab" * 20
WEIGHTS = safetensors_bytes({"a": ("F32", (2, 3))})
HEAD = WEIGHTS[:-24]  # 24 bytes of data: 4 * 2 * 3


def index_of(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"t{n}": name for n, name in enumerate(shards)}}).encode()


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path / "model", {CONFIG: b"{}", ONE: WEIGHTS, "README.md": b"hello"})


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    files = {CONFIG: b"{}", INDEX: index_of(A, B), A: WEIGHTS, B: WEIGHTS, "old.bin": b"x"}
    return fill(tmp_path / "sharded", files)


def test_a_folder_is_read_by_its_heads(folder):
    snapshot = fetch(str(folder))
    assert snapshot.model == str(folder)
    assert (snapshot.source, snapshot.commit) == (Source.FOLDER, None)
    assert snapshot.config == TextFile(name=CONFIG, content=b"{}")
    assert [(head.name, head.size, head.prefix) for head in snapshot.headers] == [
        (ONE, len(WEIGHTS), HEAD)
    ]
    assert [file.name for file in snapshot.files] == ["README.md", CONFIG, ONE]
    assert (snapshot.partial, snapshot.fetched.requests) == (True, 0)


def test_the_path_stays_as_the_user_wrote_it(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert fetch("./model/").model == "./model/"


def test_all_shards_of_an_index_are_read(sharded):
    snapshot = fetch(str(sharded))
    assert [head.name for head in snapshot.headers] == [A, B]
    assert snapshot.index == TextFile(name=INDEX, content=index_of(A, B))
    assert (snapshot.unopened, other_weight_files(snapshot)) == ((), ("old.bin",))


def test_one_file_wins_over_an_index_as_in_transformers(sharded):
    fill(sharded, {ONE: WEIGHTS})
    snapshot = fetch(str(sharded))
    assert (snapshot.index, [head.name for head in snapshot.headers]) == (None, [ONE])
    assert other_weight_files(snapshot) == (A, B, INDEX, "old.bin")


def test_shards_that_are_absent_are_named(sharded):
    (sharded / B).unlink()
    snapshot = fetch(str(sharded))
    assert (snapshot.unopened, [head.name for head in snapshot.headers]) == ((B,), [A])


def test_shards_may_lie_in_a_folder_of_the_folder(tmp_path):
    files = {INDEX: index_of("parts/a.safetensors"), "parts/a.safetensors": WEIGHTS}
    snapshot = fetch(str(fill(tmp_path, files)))
    assert [head.name for head in snapshot.headers] == ["parts/a.safetensors"]
    assert snapshot.config is None


def test_a_broken_index_is_handed_on_and_nothing_is_opened(subtests, sharded):
    for index in [b"", index_of("../secret.safetensors")]:
        with subtests.test(index=index):
            fill(sharded, {INDEX: index})
            snapshot = fetch(str(sharded))
            assert snapshot.index == TextFile(name=INDEX, content=index)
            assert (snapshot.headers, snapshot.unopened) == ((), ())


def test_a_folder_with_a_config_alone_is_read_as_its_file(tmp_path):
    (tmp_path / CONFIG).write_bytes(b"{}")
    of_folder, of_file = fetch(str(tmp_path)), fetch(str(tmp_path / CONFIG))
    assert of_folder.config == of_file.config == TextFile(name=CONFIG, content=b"{}")
    assert (of_folder.source, of_folder.headers) == (of_file.source, ())
    assert of_folder.model == str(tmp_path)


def test_a_long_header_is_read_completely(folder):
    long = framed(b"{}".ljust(3 * FIRST_READ), bytes(9))
    fill(folder, {ONE: long})
    assert fetch(str(folder)).headers[0].prefix == long[:-9]


def test_only_the_head_of_a_large_file_is_read(folder):
    with (folder / ONE).open("r+b") as file:
        file.truncate(10**12)  # sparse: a terabyte that takes no room
    head = fetch(str(folder)).headers[0]
    assert (head.size, head.prefix) == (10**12, HEAD)


# One file


def test_a_weight_file_is_read_with_the_config_of_its_folder(folder):
    snapshot = fetch(str(folder / ONE))
    assert snapshot.source is Source.FILE
    assert (snapshot.config.content, snapshot.headers[0].prefix) == (b"{}", HEAD)
    assert [file.name for file in snapshot.files] == [CONFIG, ONE]
    assert other_weight_files(snapshot) == ()


def test_a_weight_file_or_a_single_shard_may_stand_alone(tmp_path):
    for name in ("any.safetensors", "model-00001-of-00001.safetensors"):
        snapshot = fetch(str(fill(tmp_path, {name: WEIGHTS}) / name))
        assert (snapshot.config, snapshot.headers[0].prefix) == (None, HEAD)


def test_an_index_stands_for_its_folder(sharded):
    fill(sharded, {ONE: WEIGHTS, "other.safetensors.index.json": index_of(B)})
    snapshot = fetch(str(sharded / "other.safetensors.index.json"))
    assert snapshot.index.name == "other.safetensors.index.json"
    assert [head.name for head in snapshot.headers] == [B]
    assert snapshot.config is not None


def test_a_snapshot_file_is_known_by_its_content(folder, tmp_path):
    original = fetch(str(folder))
    for name in ("any.json", "any.json.gz", "any.name"):
        fill(tmp_path, {name: dump(original, name)})
        snapshot = fetch(str(tmp_path / name))
        assert (snapshot.source, snapshot.origin) == (Source.SNAPSHOT, original.origin)
        assert (snapshot.model, snapshot.headers) == (original.model, original.headers)


def test_other_files_are_refused_by_what_they_are(subtests, tmp_path):
    for name, error, said in [
        ("model-00002-of-00003.safetensors", UsageError, "one shard of 3: give the folder"),
        ("notes.txt", UsageError, "is not a config .*, weights .* or a snapshot"),
        ("tf_model.h5", SourceError, "has a format that is not supported"),
    ]:
        with subtests.test(name=name, error=error, said=said):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            fill(place, {name: WEIGHTS})
            with pytest.raises(error, match=said):
                fetch(str(place / name))


def test_a_config_beyond_all_bounds_is_not_read(folder):
    with (folder / CONFIG).open("r+b") as file:
        file.truncate(10**9)
    error = refusal(folder)
    assert error.reason is Reason.TOO_LARGE
    assert "1,000,000,000 bytes, expected at most 16,777,216" in str(error)


# What is not a regular file


SPOILT = {
    "is a folder, expected a file": Path.mkdir,
    "is a named pipe, expected a file": os.mkfifo,
    "is a broken link": lambda path: path.symlink_to("nothing"),
    "is a link out of the folder, expected a file in it": lambda path: path.symlink_to("/dev/zero"),
}


def refusal(path: Path) -> SourceError:
    with pytest.raises(SourceError) as raised:
        fetch(str(path))
    return raised.value


def test_what_is_not_a_regular_file_is_neither_opened_nor_waited_for(tmp_path, subtests):
    for number, (fault, spoil) in enumerate(SPOILT.items()):
        for name in (CONFIG, INDEX, A):
            with subtests.test(fault=fault, name=name):
                files = {CONFIG: b"{}", INDEX: index_of(A, B), A: WEIGHTS, B: WEIGHTS}
                del files[name]
                folder = fill(tmp_path / f"{number}{name}", files)
                spoil(folder / name)
                error = refusal(folder)
                assert error.reason is Reason.UNREADABLE
                assert fault in str(error)


def test_a_pipe_or_a_socket_given_by_name_is_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.json")
    assert "is a named pipe" in str(refusal(tmp_path / "pipe.json"))
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s.safetensors")
        assert "is a socket" in str(refusal(Path("s.safetensors")))


def test_other_things_in_the_folder_do_no_harm(folder):
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nothing")
    (folder / "loop").symlink_to(folder)
    fill(folder, {".git/config": b"x", ".cache/x.bin": b"x"})
    (folder / os.fsdecode(b"\xff.bin")).write_bytes(b"x")
    snapshot = fetch(str(folder))
    assert other_weight_files(snapshot) == (".cache/x.bin",)
    assert {entry.name: entry.reason for entry in snapshot.skipped} == {
        ".git": "git",
        "\\xff.bin": "not-utf-8",
        "dangling": "broken-link",
        "loop": "folder-link",
        "pipe": "special",
    }


def test_a_file_that_changes_while_it_is_read_is_unreadable(folder):
    for size in (5, 5000):
        with open_regular_file(folder / ONE) as file:
            os.truncate(folder / ONE, size)
            with pytest.raises(SourceError, match="changed while it was read"):
                file.read(Span(0, 8))


def test_an_absurd_number_of_files_is_refused(folder, monkeypatch):
    monkeypatch.setattr("auditor.downloader.folder_listing.MAX_ENTRIES", 2)
    error = refusal(folder)
    assert (error.reason, "has more than 2 files and folders" in str(error)) == (
        Reason.TOO_LARGE,
        True,
    )


@pytest.mark.parametrize(
    ("bound", "fault"),
    [
        ({"size": 2 * len(HEAD) - 1}, "the headers of 2 files have"),
        ({"tensors": 1}, "the headers of 2 files have 2 tensors, expected at most 1 of one model"),
    ],
)
def test_headers_that_would_fill_the_memory_are_refused(sharded, monkeypatch, bound, fault):
    monkeypatch.setattr(headers, "MODEL", headers.MODEL._replace(**bound))
    error = refusal(sharded)
    assert error.reason is Reason.TOO_LARGE
    assert fault in str(error)


def test_a_header_longer_than_any_is_refused_before_it_is_read(folder):
    """The format allows it: the file could have 50 MB of names."""
    (folder / ONE).write_bytes((50_000_000).to_bytes(8, "little") + b"{" + b" " * 100_000)
    os.truncate(folder / ONE, 50_000_008)
    error = refusal(folder)
    assert error.reason is Reason.TOO_LARGE
    assert "has 50,000,008 bytes, expected at most 12,582,912" in str(error)


# The Hugging Face cache, by path


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model's folder as the cache lays it out: snapshots link to blobs."""
    model = tmp_path / "models--org--name"
    fill(model / "blobs", {"c": b"{}", "w": WEIGHTS})
    at = model / "snapshots" / SHA
    at.mkdir(parents=True)
    (at / CONFIG).symlink_to("../../blobs/c")
    (at / ONE).symlink_to("../../blobs/w")
    fill(model, {"refs/main": SHA.encode()})
    return model


def test_a_path_in_the_cache_has_the_model_and_the_commit(cached):
    snapshot = fetch(str(cached))
    assert (snapshot.model, snapshot.commit) == ("org/name", SHA)
    assert snapshot.source is Source.CACHE
    assert (snapshot.config.content, snapshot.headers[0].prefix) == (b"{}", HEAD)
    assert snapshot.files == (
        RepoFile(name=CONFIG, size=2),
        RepoFile(name=ONE, size=len(WEIGHTS)),
    )


def test_a_place_in_the_cache_is_known_from_within(cached, monkeypatch):
    monkeypatch.chdir(cached / "snapshots" / SHA)
    assert fetch(".").model == "org/name"


def test_of_several_snapshots_without_refs_none_is_guessed(cached):
    (cached / "refs" / "main").unlink()
    assert fetch(str(cached)).commit == SHA
    (cached / "snapshots" / ("cd" * 20)).mkdir()
    with pytest.raises(UsageError, match="2 snapshots and no refs/main"):
        fetch(str(cached))


def test_a_ref_that_points_to_nothing_is_unreadable(subtests, cached):
    for ref in [b"cd" * 20, b"../../..", b"\xff" * 40]:
        with subtests.test(ref=ref):
            fill(cached, {"refs/main": ref})
            error = refusal(cached)
            assert (error.reason, "which is not in the cache" in str(error)) == (
                Reason.UNREADABLE,
                True,
            )

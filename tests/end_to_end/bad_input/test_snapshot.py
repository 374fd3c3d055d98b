"""Snapshot files that are broken, of another version, or say what no repository can hold."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.bad_input.making import assert_ended, whole
from support.bad_input.running import CLEAN, USAGE

from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

NO = "is not a snapshot that can be read: .*"
HOSTILE = "../\x1b[31m\n"


def good(place: Path) -> bytes:
    """A snapshot that audits clean."""
    return dump(fetch(str(whole(place / "model"))))


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    return good(tmp_path_factory.mktemp("snapshot"))


def to(*path: object) -> Callable[[Any], Any]:
    """Sets the value at a path of the document, the last of the arguments."""
    *above, last, value = path

    def change(document: Any) -> None:
        place = document
        for key in above:
            place = place[key]
        place[last] = value

    return change


ENTRY = b'"data_offsets"'


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def bomb(mebibytes: int) -> str:
    """So many zeros, deflated: a flushed block stands for itself, so one does for all of them."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = stream.compress(bytes(2**20)) + stream.flush(zlib.Z_FULL_FLUSH)
    checksum = (mebibytes * 2**20 % 65521) << 16 | 1
    content = zlib.compress(b"")[:2] + block * mebibytes + stream.flush()
    return base64.b64encode(content + checksum.to_bytes(4)).decode()


def test_a_bomb_is_a_stream_that_zlib_unpacks():
    assert zlib.decompress(base64.b64decode(bomb(20))) == bytes(20 * 2**20)


BOMB = bomb(1024)


def heads(count: int, content: Callable[[], str]) -> Callable[[Any], Any]:
    """So many weight files with the same header."""

    def change(document: Any) -> None:
        entry = {"size": None, "deflated": content()}
        document["heads"] = [{"name": f"{n}.safetensors", **entry} for n in range(count)]

    return change


def parts(deflated: str) -> Callable[[Any], Any]:
    """A torch file of which so much was read."""
    name = "pytorch_model.bin"
    part = {"start": 0, "deflated": deflated}
    return to("heads", [{"name": name, "size": 2**40, "parts": [part]}])


def components(count: int, index: str) -> Callable[[Any], Any]:
    """So many models in folders, each with an index."""

    def change(document: Any) -> None:
        text = {"name": "model.safetensors.index.json", "deflated": index}
        empty = {"config": None, "heads": [], "torch_copies": [], "unopened": []}
        document["components"] = [{"name": str(n), "index": text, **empty} for n in range(count)]

    return change


BYTES = {
    "a bomb": (lambda _: gzip.compress(bytes(97 * 2**20), 1), "inflates to more than"),
    "a million lists": (
        lambda content: content.replace(b"{", b'{"x":[%s[]],' % (b"[]," * 1_000_000), 1),
        "some 2,000,0.. JSON values, expected at most 500,000",
    ),
    "10,000 levels deep": (lambda content: content + b"[" * 10_000, "is nested 10,00"),
}
VALUES = {
    "a hostile file": (
        to("files", 0, "name", HOSTILE),
        r"\\x1b\[31m\\n' leaves the repository",
    ),
    "a bomb for a header": (
        to("heads", 0, "deflated", BOMB),
        "heads: it inflates to more than 12,582,912",
    ),
    "five bombs for headers": (heads(5, lambda: bomb(12)), "headers have 62,914,560 bytes"),
    "four bombs for indexes": (components(4, bomb(32)), "texts and torch copies have 67,10"),
    "a bomb for a torch file": (parts(BOMB), "parts: it inflates to more than 25,165,824"),
    "300,000 tensors in three files": (
        heads(3, lambda: packed(ENTRY * 100_000)),
        "headers have 300,000 tensors, expected at most 250,000",
    ),
}


def test_an_impossible_snapshot_is_a_usage_error(content, audit, tmp_path, subtests):
    """The reader's unit tests have the other messages."""
    path = tmp_path / "m.json"
    for name, (change, says) in (BYTES | VALUES).items():
        with subtests.test(name=name):
            if name in BYTES:
                path.write_bytes(change(content))
            else:
                document = json.loads(content)
                change(document)
                path.write_text(json.dumps(document))
            assert_ended(audit(str(path), "--format", "json"), USAGE, NO + says)


def test_a_snapshot_of_a_hostile_model_is_audited(content, audit, tmp_path):
    document = json.loads(content)
    document["model"] = document["origin"] = HOSTILE
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    for form in ("json", "terminal", "csv"):
        ran = audit(str(path), "--format", form)
        assert (ran.code, ran.stderr) == (CLEAN, "")

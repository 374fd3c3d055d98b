"""Snapshot files that are broken, of another version, or say what no repository can hold."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.bad_input.making import assert_ended, whole
from support.bad_input.running import CLEAN, FINDINGS, UNAUDITED, USAGE

from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader import fetch

NO = "is not a snapshot that can be read: .*"
HOSTILE = "../\x1b[31m\n"


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    """A snapshot that audits clean."""
    return dump(fetch(str(whole(tmp_path_factory.mktemp("snapshot") / "model"))))


def to(*path: object) -> Callable[[Any], Any]:
    """Sets the value at a path of the document, the last of the arguments."""
    *above, last, value = path

    def change(document: Any) -> None:
        place = document
        for key in above:
            place = place[key]
        place[last] = value

    return change


def without(*path: object) -> Callable[[Any], Any]:
    *above, last = path

    def change(document: Any) -> None:
        place = document
        for key in above:
            place = place[key]
        del place[last]

    return change


BYTES = (
    ("cut off", lambda content: content[:-200], "is cut off|is not JSON"),
    ("rubbish after it", lambda content: content + b"}", "goes on after its JSON has ended"),
    ("not UTF-8", lambda content: content.replace(b"pooler", b"p\xffoler"), "is not UTF-8"),
    ("a key twice", lambda content: content.replace(b"{", b'{"model":1,', 1), "'model' twice"),
    ("gzip cut off", lambda content: gzip.compress(content)[:-20], "its gzip is broken"),
    ("gzip of noise", lambda _: b"\x1f\x8b" + bytes(range(256)), "its gzip is broken"),
    ("gzip of nothing", lambda _: gzip.compress(b""), "is empty"),
    ("gzip of a page", lambda _: gzip.compress(b"<html>"), "is not JSON"),
    ("a bomb", lambda _: gzip.compress(bytes(97 * 2**20), 1), "unpacks to more than"),
    ("10,000 levels deep", lambda content: content + b"[" * 10_000, "is nested 10,00"),
)
VALUES = (
    ("another version", to("version", 2), "version 2; 'hf-audit-snapshot', version 1 is read"),
    ("no version", without("version"), "version null"),
    ("another format", to("format", ["hf-audit-snapshot"]), "its format is a list"),
    ("no model", without("model"), "expected the keys"),
    ("a key more", to("extra", 1), "expected the keys"),
    ("a model that is a number", to("model", 1), "model: expected a string, found 1"),
    ("a commit that is a branch", to("commit", "main"), "commit: expected 40 hex digits, found"),
    ("files that are an object", to("files", {}), "files: expected a list, found an object"),
    ("files that are numbers", to("files", [1]), "files: expected an object, found 1"),
    ("a file above", to("files", 0, "name", "../../etc/passwd"), "leaves the repository"),
    ("a hostile file", to("files", 0, "name", HOSTILE), r"\\x1b\[31m\\n' leaves the repository"),
    (
        "a size below zero",
        to("files", 0, "size", -1),
        r"size: expected a whole number .*, found -1",
    ),
    (
        "a size with a point",
        to("heads", 0, "size", 1.5),
        r"size: expected a whole number .*, found 1\.5",
    ),
    (
        "a header that is a list",
        to("heads", 0, "header", []),
        "heads: expected a string, found a list",
    ),
    ("a length beyond 2^64", to("heads", 0, "length", 2**64), "length: .* below 2"),
    ("no header", without("heads", 0, "header"), "expected the keys"),
    ("half a character", to("config", "text", "\ud800"), "half a"),
    ("broken base64", to("config", {"name": "config.json", "base64": "!"}), "base64 is broken"),
    ("names out of order", lambda document: document["files"].reverse(), "not sorted"),
)
FAULTS = (
    ("a config that is none", to("config", "text", "{"), "bad-config", "^config.json is"),
    ("a header that is none", to("heads", 0, "header", "[]"), "bad-header", "its JSON begins with"),
    ("a length that is none", to("heads", 0, "length", 2**63), "bad-header", "declare"),
    ("a size that is none", to("heads", 0, "size", 5), "bad-size", "is truncated"),
)


@pytest.mark.parametrize(
    ("change", "says"), [pytest.param(change, says, id=name) for name, change, says in BYTES]
)
def test_bytes_that_are_no_snapshot_are_a_usage_error(change, says, content, audit, tmp_path):
    path = tmp_path / "m.json.gz"
    path.write_bytes(change(content))
    assert_ended(audit(str(path), "--format", "json"), USAGE, NO + f"({says})")


@pytest.mark.parametrize(
    ("change", "says"), [pytest.param(change, says, id=name) for name, change, says in VALUES]
)
def test_a_snapshot_that_says_what_cannot_be_is_a_usage_error(
    change, says, content, audit, tmp_path
):
    document = json.loads(content)
    change(document)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert_ended(audit(str(path), "--format", "json"), USAGE, NO + says)


@pytest.mark.parametrize("fault", [pytest.param(fault[1:], id=fault[0]) for fault in FAULTS])
def test_a_snapshot_of_a_broken_checkpoint_is_audited(fault, content, audit, tmp_path):
    change, kind, says = fault
    document = json.loads(content)
    change(document)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert_ended(audit(str(path), "--format", "json"), FINDINGS, (kind, says))
    assert audit(str(path)).code == FINDINGS


def test_a_snapshot_of_a_hostile_model_is_audited(content, audit, tmp_path):
    document = json.loads(content)
    document["model"] = document["origin"] = HOSTILE
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    for form in ("json", "terminal", "csv"):
        ran = audit(str(path), "--format", form)
        assert (ran.code, ran.stderr) == (CLEAN, "")


def test_a_snapshot_without_its_heads_has_no_weights_to_compare(content, audit, tmp_path):
    document = json.loads(content)
    document["heads"] = []
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert_ended(audit(str(path), "--format", "json"), UNAUDITED, "no-weights: .* a config alone")

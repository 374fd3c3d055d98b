"""`--verify`: which files of a download hold other bytes than the repository lists for them."""

import hashlib
import json

import numpy as np
import pytest
from support.hub import ServerError
from support.sampled_faults import raw
from support.value_files import write_numbers

import auditor
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.downloader.hub import parse_listing
from auditor.downloader.local_file import file_sha256, git_blob_id
from auditor.errors import Reason, UsageError

WEIGHTS, CONFIG = "model.safetensors", "config.json"


@pytest.fixture
def download(at_hub, tmp_path):
    """A folder with the very files of org/name on the Hub."""
    numbers = np.random.default_rng(0).standard_normal((64, 64))
    write_numbers(tmp_path / "local" / WEIGHTS, {"x.weight": raw(numbers, "F32")})
    (tmp_path / "local" / CONFIG).write_text('{"model_type": "bert"}')
    files = {name: (tmp_path / "local" / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    sha = at_hub.add("org/name", files)
    return tmp_path / "local", sha


def broken(path):
    """One bit of the last byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def kinds(outcome):
    return [(one.kind, one.file) for one in outcome.findings if one.kind == "bad-digest"]


def test_digests_are_those_of_other_programs(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"hello\n" * 300_000)
    assert file_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"hello\n")
    assert git_blob_id(path) == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert file_sha256(path).startswith("5891b5b522d5df08")  # sha256sum


def test_a_sound_download_is_said_to_be_so_and_a_broken_file_is_named(download):
    folder, sha = download
    outcome = auditor.audit(str(folder), verify_against="org/name")
    assert kinds(outcome) == []
    listed = f"2 of 2 files have the bytes that are listed by 'org/name' @ {sha[:12]}"
    assert listed in outcome.notes
    for name in (CONFIG, WEIGHTS):
        broken(folder / name)
    outcome = auditor.audit(str(folder), verify_against="org/name")
    assert kinds(outcome) == [("bad-digest", CONFIG), ("bad-digest", WEIGHTS)]
    reasons = [one.reason for one in outcome.findings if one.kind == "bad-digest"]
    assert "git blob id" in reasons[0]
    assert "sha256" in reasons[1]
    assert all(one.severity is auditor.Severity.ERROR for one in outcome.findings[:2])


def test_a_file_that_was_cut_is_named_without_reading_it(download):
    folder, _ = download
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-4])
    outcome = auditor.audit(str(folder), verify_against="org/name")
    assert kinds(outcome) == [("bad-digest", WEIGHTS)]


def test_a_snapshot_lists_what_the_hub_listed(download, tmp_path):
    folder, _ = download
    taken = fetch("org/name")
    place = tmp_path / "taken.json"
    place.write_bytes(dump(taken))
    again = load(place.read_bytes(), str(place))
    assert [(one.sha256, one.blob_id) for one in again.files] == [
        (one.sha256, one.blob_id) for one in taken.files
    ]
    broken(folder / WEIGHTS)
    outcome = auditor.audit(str(folder), verify_against=str(place))
    assert kinds(outcome) == [("bad-digest", WEIGHTS)]


def test_what_a_download_noted_of_its_files_is_enough(download):
    folder, sha = download
    notes = folder / ".cache/huggingface/download"
    notes.mkdir(parents=True)
    etags = {WEIGHTS: file_sha256(folder / WEIGHTS), CONFIG: git_blob_id(folder / CONFIG)}
    for name, etag in etags.items():
        (notes / f"{name}.metadata").write_text(f"{sha}\n{etag}\n1732280000.0\n")
    assert "2 of 2 files" in auditor.audit(str(folder), verify=True).notes[-1]
    broken(folder / WEIGHTS)
    assert kinds(auditor.audit(str(folder), verify=True)) == [("bad-digest", WEIGHTS)]


@pytest.mark.parametrize("reachable", [True, False])
def test_the_cache_is_compared_with_the_hub_or_with_the_names_of_its_blobs(
    at_hub, download, tmp_path, reachable
):
    folder, sha = download
    model = tmp_path / "models--org--name"
    snapshot = model / "snapshots" / sha
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    for name, digest in ((WEIGHTS, file_sha256), (CONFIG, git_blob_id)):
        blob = model / "blobs" / digest(folder / name)
        blob.write_bytes((folder / name).read_bytes())
        (snapshot / name).symlink_to(blob)
    if not reachable:
        at_hub.misbehave(fault=ServerError())
    outcome = auditor.audit(str(snapshot), verify=True)
    by = f"'org/name' @ {sha[:12]}" if reachable else "the download's metadata"
    assert outcome.notes[-1] == f"2 of 2 files have the bytes that are listed by {by}"
    broken(snapshot / WEIGHTS)
    assert kinds(auditor.audit(str(snapshot), verify=True)) == [("bad-digest", WEIGHTS)]


def test_where_nothing_is_listed_nothing_is_verified(download):
    folder, _ = download
    with pytest.raises(UsageError, match="no digests of the files of"):
        auditor.audit(str(folder), verify=True)
    with pytest.raises(UsageError, match="the files of 'org/name' are not on this machine"):
        auditor.audit("org/name", verify=True)
    (folder / "other.txt").write_text("mine")
    outcome = auditor.audit(str(folder), verify_against="org/name")
    assert any("'other.txt'" in one and "not listed" in one for one in outcome.unchecked)


def test_a_listing_that_cannot_be_had_is_an_outcome(download):
    folder, _ = download
    outcome = auditor.audit(str(folder), verify_against="org/gone")
    assert (outcome.verdict, outcome.reason) == ("unaudited", Reason.NOT_FOUND)
    with pytest.raises(UsageError, match="expected a model of the Hub or a snapshot"):
        auditor.audit(str(folder), verify_against=str(folder))


def test_an_invalid_digest_in_a_listing_is_ignored():
    for digest in ("", "x" * 64, "0" * 63, 5, None, ["0" * 64]):
        lfs = {"sha256": digest, "size": 1, "pointerSize": 1}
        siblings = [{"rfilename": "a", "size": 1, "lfs": lfs}, {"rfilename": "b", "blobId": digest}]
        answer = {"id": "org/name", "sha": "0" * 40, "siblings": siblings}
        listing = parse_listing(json.dumps(answer).encode(), "org/name")
        assert [(one.sha256, one.blob_id) for one in listing.files] == [(None, None)] * 2

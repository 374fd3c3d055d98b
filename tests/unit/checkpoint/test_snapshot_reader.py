"""Snapshot files: what is written is what is read, and strangers' files are held to it."""

import base64
import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import safetensors_bytes

from auditor.checkpoint.snapshot import (
    Component,
    Fetched,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.checkpoint.snapshot_reader import is_snapshot, load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump, dump_own, dump_shared, fingerprint
from auditor.errors import UsageError

NAMES = st.from_regex(r"[a-z]{1,3}(/[a-zé]{1,3})?\.(json|safetensors)", fullmatch=True)
CONTENT = st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8"))
SIZES = st.none() | st.integers(0, 2**63)
TEXTS = st.builds(TextFile, name=NAMES, content=CONTENT)


def in_order(values):
    return st.lists(values, max_size=4, unique_by=lambda value: value.name).map(
        lambda found: tuple(sorted(found, key=lambda value: value.name))
    )


def shared_of(snapshot):
    """The fields that `dump_shared` writes."""
    names = ("origin", "index", "headers", "unopened", "partial", "manifest", "components")
    return {name: getattr(snapshot, name) for name in names}


HEADS = in_order(st.builds(WeightHeader, name=NAMES, size=SIZES, prefix=CONTENT))
UNOPENED = st.lists(NAMES, max_size=3, unique=True).map(lambda names: tuple(sorted(names)))
COMPONENTS = st.builds(
    Component,
    folder=st.from_regex(r"[a-z]{1,3}(/[a-z]{1,2})?", fullmatch=True),
    config=st.none() | TEXTS,
    index=st.none() | TEXTS,
    headers=HEADS,
    torch_copies=HEADS,
    unopened=UNOPENED,
)


def by_folder(values):
    return st.lists(values, max_size=3, unique_by=lambda one: one.folder).map(
        lambda found: tuple(sorted(found, key=lambda one: one.folder))
    )


SNAPSHOTS = st.builds(
    Snapshot,
    model=st.text(max_size=9),
    commit=st.none() | st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    source=st.sampled_from(Source),
    origin=st.text(max_size=9),
    files=in_order(st.builds(RepoFile, name=NAMES, size=SIZES)),
    config=st.none() | TEXTS,
    index=st.none() | TEXTS,
    headers=HEADS,
    unopened=UNOPENED,
    manifest=st.none() | TEXTS,
    components=by_folder(COMPONENTS),
    partial=st.booleans(),
    fetched=st.builds(Fetched, requests=st.integers(0, 9)),
)


@given(SNAPSHOTS, st.sampled_from(["a.json", "a.json.gz"]))
def test_what_is_dumped_is_loaded(snapshot, path):
    loaded = load(dump(snapshot, path), path)
    assert loaded == replace(snapshot, source=Source.SNAPSHOT, fetched=Fetched())


@pytest.mark.slow
def test_as_many_tensors_as_are_audited_are_loaded():
    """DeepSeek-V3 has 91,991, and as many values of JSON as no config has."""
    head = safetensors_bytes(
        {f"layers.{n}.w": ("F8_E4M3", (1, 2)) for n in range(90_000)}, data=False
    )
    whole = replace(SMALL, headers=(WeightHeader(name="m.safetensors", size=None, prefix=head),))
    assert load(dump(whole), "x.json").headers == whole.headers


@given(SNAPSHOTS, st.sampled_from(["a.json", "a.json.gz"]))
def test_the_same_snapshot_makes_the_same_bytes(snapshot, path):
    again = load(dump(snapshot, path), path)
    assert dump(again, path) == dump(snapshot, path)
    assert is_snapshot(dump(snapshot, path))


@given(SNAPSHOTS)
def test_what_is_dumped_in_two_parts_is_joined(snapshot):
    own, shared = dump_own(snapshot), dump_shared(snapshot)
    assert load_own_and_shared(own, shared, "x.json") == load(dump(snapshot), "x.json")
    assert not json.loads(own).keys() & json.loads(shared).keys()


@given(SNAPSHOTS, SNAPSHOTS)
def test_snapshots_that_differ_by_name_commit_config_and_files_share_the_rest(snapshot, of):
    other = replace(snapshot, model=of.model, commit="c" * 40, config=of.config, files=of.files)
    assert dump_shared(other) == dump_shared(snapshot)
    again = load_own_and_shared(dump_own(other), dump_shared(snapshot), "x.json")
    assert again == load(dump(other), "x.json")


@given(SNAPSHOTS, SNAPSHOTS)
def test_a_fingerprint_is_the_same_where_what_is_shared_is_and_nowhere_else(one, other):
    for each in (other, replace(other, model=one.model, **shared_of(one))):
        prints = fingerprint(one), fingerprint(each)
        if None not in prints:
            assert (prints[0] == prints[1]) == (dump_shared(one) == dump_shared(each))


@given(SNAPSHOTS)
def test_a_usual_checkpoint_has_a_fingerprint_that_any_change_of_a_header_changes(snapshot):
    usual = replace(snapshot, index=None, manifest=None, components=())
    assert fingerprint(usual) is not None
    for at, head in enumerate(usual.headers):
        other = replace(head, prefix=head.prefix + b" ")
        heads = (*usual.headers[:at], other, *usual.headers[at + 1 :])
        assert fingerprint(replace(usual, headers=heads)) != fingerprint(usual)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_what_is_no_snapshot_is_a_usage_error_in_one_line(content):
    with pytest.raises(UsageError, match="is not a snapshot that can be read") as raised:
        load(content, "x.json")
    assert "\n" not in str(raised.value)


SMALL = Snapshot(
    model="org/name",
    commit="ab" * 20,
    source=Source.HUB,
    origin="a test",
    files=(RepoFile(name="a", size=1), RepoFile(name="b", size=2)),
    config=TextFile(name="config.json", content=b"{}"),
    headers=(WeightHeader(name="b", size=2, prefix=safetensors_bytes({"é": ("U8", (1,))})),),
)


def changed(*path, value) -> bytes:
    """SMALL's file with one value replaced."""
    document = json.loads(dump(SMALL))
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(document).encode()


def test_the_small_one_is_read():
    assert load(dump(SMALL), "x.json") == replace(SMALL, source=Source.SNAPSHOT)


@pytest.mark.parametrize(
    ("own", "shared", "fault"),
    [
        (dump_own(SMALL), dump_shared(SMALL)[:-9], "x.json is"),
        (dump_own(SMALL)[:-9], dump_shared(SMALL), "x.json is"),
        (b"[]", dump_shared(SMALL), "not a JSON object"),
        (b"{}", dump_shared(SMALL), r"expected the keys"),
        (dump_own(SMALL), b"{}", "its format is"),
        (dump_own(SMALL).replace(b"{", b'{"model": "x", ', 1), dump_shared(SMALL), "twice"),
    ],
)
def test_two_parts_that_are_none_of_a_snapshot_are_a_usage_error(own, shared, fault):
    with pytest.raises(UsageError, match=f"'x.json' is not a snapshot that can be read: .*{fault}"):
        load_own_and_shared(own, shared, "x.json")


def test_a_header_stands_in_the_file_as_text():
    head = json.loads(dump(SMALL))["heads"][0]
    assert head["header"].startswith('{"é":{"dtype":"U8"')
    assert head["length"] == len(SMALL.headers[0].prefix) - 8 - 1  # 1: the byte of data behind it


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (changed("format", value="other"), "'other'.*'hf-audit-snapshot'"),
        (changed("version", value=2), "version 2"),
        (changed("version", value=True), "version true"),
        (changed("extra", value=1), "expected the keys .*, found .*extra"),
        (changed("model", value=5), "model: expected a string, found 5"),
        (changed("commit", value="main"), "40 hex digits"),
        (changed("commit", value="A" * 40), "40 hex digits"),
        (changed("files", value={}), "files: expected a list, found an object"),
        (changed("files", 0, value="a"), "files: expected an object, found the string 'a'"),
        (changed("files", 0, "name", value="../../etc/passwd"), "leaves the repository"),
        (changed("files", 0, "name", value="/etc/passwd"), "leaves the repository"),
        (changed("files", 0, "name", value="z"), "not sorted"),
        (changed("files", 0, "name", value="b"), "there twice"),
        (
            changed("files", 0, "size", value=-1),
            r"size: expected a whole number below 2\*\*64, found -1",
        ),
        (
            changed("files", 0, "size", value=True),
            r"size: expected a whole number below 2\*\*64, found true",
        ),
        (
            changed("files", 0, "size", value=1.5),
            r"size: expected a whole number below 2\*\*64, found 1.5",
        ),
        (
            changed("files", 0, "size", value=2**64),
            r"size: expected a whole number below 2\*\*64, found 18446744073709551616",
        ),
        (changed("config", value=[]), "config: expected an object, found a list"),
        (changed("config", "text", value="\ud800"), "half a character"),
        (changed("config", value={"name": "c", "base64": "?"}), "its base64 is broken"),
        (changed("heads", 0, "length", value=2**64), "below 2\\*\\*64"),
        (changed("heads", 0, "length", value=-1), "below 2\\*\\*64"),
        (changed("heads", 0, "header", value=None), "heads: expected a string, found null"),
        (changed("unopened", value=["a", "a"]), "there twice"),
        (changed("partial", value=0), "partial: expected true or false, found 0"),
        (changed("unopened", value=[1]), "name: expected a string, found 1"),
        (dump(SMALL).replace(b'"version": 1', b'"version": 1, "version": 1'), "twice"),
        (dump(SMALL)[:-9], "can be read: x.json is"),
        (gzip.compress(dump(SMALL))[:-9], "gzip is broken"),
        (gzip.compress(b" " * (97 * 1024 * 1024)), "unpacks to more than"),
    ],
)
def test_a_strangers_file_is_held_to_the_format(content, fault):
    with pytest.raises(UsageError, match=fault):
        load(content, "x.json")


def test_bytes_that_are_no_text_stand_in_the_file_as_base64():
    odd = replace(SMALL, config=TextFile(name="config.json", content=b"\xff"))
    assert json.loads(dump(odd))["config"]["base64"] == base64.b64encode(b"\xff").decode()

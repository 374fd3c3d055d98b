"""Two snapshots share a key only if an audit reads the same of both."""

from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from auditor.checkpoint.skipped import SkippedEntry, SkipReason
from auditor.checkpoint.snapshot import (
    BaseModel,
    Component,
    Fetched,
    FileState,
    ModelCard,
    PublishedText,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.companions.companion_files import CompanionFile
from auditor.containers.index import parse_index
from auditor.containers.weight_formats import FilePart, Table
from auditor.sweep.workers.outcome_key import outcome_key

TEXT = TextFile(name="a.json", content=b'{"_name_or_path": "a"}')
HEADER = WeightHeader(name="model.safetensors", size=9, prefix=b"header")
FILE = RepoFile(name="model.safetensors", size=9)
BASE = BaseModel(model="o/base", config=TEXT)
COMPONENT = Component(folder="unet", config=TEXT, headers=(HEADER,))
SNAPSHOT = Snapshot(
    model="o/plain",
    commit="a" * 40,
    source=Source.HUB,
    origin="read from a test",
    files=(FILE,),
    config=TEXT,
    headers=(HEADER,),
)

INDEX = parse_index("a.json", b'{"weight_map": {"a": "b.safetensors"}}')
OTHER_TEXT = replace(TEXT, content=b"{}")
OTHER_HEADER = replace(HEADER, prefix=b"another")
# Of each field of each record another value, and whether an audit tells the two apart.
CHANGES: dict[Struct, dict[str, tuple[object, bool]]] = {
    SNAPSHOT: {
        "model": ("o/other", False),
        "commit": ("b" * 40, False),
        "source": (Source.CACHE, True),
        "origin": ("read elsewhere", True),
        "files": ((FILE, replace(FILE, name="tf_model.h5")), True),
        "skipped": ((SkippedEntry("sub", SkipReason.OUTSIDE),), True),
        "config": (OTHER_TEXT, True),
        "index": (TEXT, True),
        "packing": (TEXT, True),
        "settings": (TEXT, True),
        "headers": ((OTHER_HEADER,), True),
        "torch_copies": ((HEADER,), True),
        "unopened": (("model-2.safetensors",), True),
        "base": (BASE, True),
        "manifest": (TEXT, True),
        "components": ((COMPONENT,), True),
        "companions": ((), True),
        "pickles": ((HEADER,), True),
        "published": ((PublishedText(name="safetensors.total", text="9"),), True),
        "folder": (Path("model"), True),
        "card_base": ("o/base", False),
        "card": (ModelCard(licenses=("mit",)), False),
        "partial": (True, True),
        "fetched": (Fetched(requests=3), False),
    },
    FILE: {
        "name": ("other.safetensors", True),
        "size": (10, True),
        "sha256": ("a" * 64, False),
        "blob_id": ("a" * 40, False),
        "state": (FileState(inode=1, size=2, modified=3), False),
    },
    HEADER: {
        "name": ("other.safetensors", True),
        "size": (10, True),
        "prefix": (b"another", True),
        "parts": ((FilePart(0, b"GGUF"),), True),
        "known": (Table(file="model.safetensors", tensors=()), False),
        "state": (FileState(inode=1, size=2, modified=3), False),
    },
    TEXT: {"name": ("b.json", True), "content": (b"{}", True), "known": (INDEX, False)},
    BASE: {
        "model": ("o/other", True),
        "commit": ("b" * 40, True),
        "origin": ("read elsewhere", True),
        "config": (OTHER_TEXT, True),
        "reason": ("gated", True),
        "detail": ("why", True),
    },
    COMPONENT: {
        "folder": ("vae", True),
        "config": (OTHER_TEXT, True),
        "index": (TEXT, True),
        "headers": ((OTHER_HEADER,), True),
        "torch_copies": ((HEADER,), True),
        "unopened": (("model-2.safetensors",), True),
        "settings": (TEXT, True),
    },
}


def snapshot_with(record: Struct) -> Snapshot:
    """A snapshot that holds the record."""
    match record:
        case Snapshot():
            return record
        case RepoFile():
            return replace(SNAPSHOT, files=(record,))
        case WeightHeader():
            return replace(SNAPSHOT, headers=(record,))
        case TextFile():
            return replace(SNAPSHOT, config=record)
        case BaseModel():
            return replace(SNAPSHOT, base=record)
        case _:
            return replace(SNAPSHOT, components=(record,))


@pytest.mark.parametrize("record", CHANGES, ids=lambda one: type(one).__name__)
def test_each_field_of_each_record_has_a_change(record):
    """A field that is added to a record is a part of the key, or is named here."""
    assert CHANGES[record].keys() == set(record.__struct_fields__)


@pytest.mark.parametrize(
    ("record", "field", "value", "differs"),
    [
        pytest.param(record, field, value, differs, id=f"{type(record).__name__}.{field}")
        for record, changes in CHANGES.items()
        for field, (value, differs) in changes.items()
    ],
)
def test_a_field_that_an_audit_reads_is_a_part_of_the_key(record, field, value, differs):
    before, after = snapshot_with(record), snapshot_with(replace(record, **{field: value}))
    assert (outcome_key(before) != outcome_key(after)) is differs


def test_a_record_of_a_new_class_is_a_part_of_the_key():
    class Card(Struct, frozen=True):
        licence: str

    cards = (Card("mit"), Card("apache-2.0"))
    first, second = (replace(SNAPSHOT, published=(card,)) for card in cards)
    assert outcome_key(first) != outcome_key(second)


def test_a_value_of_an_unknown_type_is_an_error():
    with pytest.raises(TypeError, match="object"):
        outcome_key(replace(SNAPSHOT, published=(object(),)))


@pytest.mark.parametrize("name", ["o/of-7b", "o/8x7b", "o/v2-1.5b"])
def test_the_sizes_that_a_name_claims_are_a_part_of_the_key(name):
    claiming = replace(SNAPSHOT, model=name)
    assert outcome_key(claiming) != outcome_key(SNAPSHOT)
    assert outcome_key(claiming) == outcome_key(replace(claiming, model=f"other/it-{name[2:]}"))


def test_a_missing_commit_is_a_part_of_the_key():
    assert outcome_key(replace(SNAPSHOT, commit=None)) != outcome_key(SNAPSHOT)


@pytest.mark.parametrize(
    ("spelling", "alike"),
    [
        (b'{"_name_or_path": "elsewhere"}', True),
        (b'{"_name_or_path": ""}', True),
        (b'{"_name_or_path": "\xff"}', False),  # not UTF-8
        (b'{"_name_or_path": "\\ud800"}', False),  # half a character
        (b'{"_name_or_path": "a\nb"}', False),  # not JSON
        (b'{"_name_or_path": "a", "_name_or_path": "a"}', False),
        (b'{"x_name_or_path": "b"}', False),
        (b'{"_name_or_path": ["b"]}', False),
        (b'\xef\xbb\xbf{"_name_or_path": "a"}', False),
    ],
)
def test_only_plain_values_of_the_writers_of_a_config_are_left_out(spelling, alike):
    other = replace(SNAPSHOT, config=replace(TEXT, content=spelling))
    assert (outcome_key(other) == outcome_key(SNAPSHOT)) is alike


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("README.md", True),
        ("runs/Nov21/events.out.tfevents.1.host", True),
        ("training_args.bin", False),
        ("tokenizer.json", False),
        ("modeling_own.py", False),
        ("adapter_config.json", False),
        ("onnx/model.onnx", False),
    ],
)
def test_only_files_that_no_rule_looks_for_are_left_out(name, alike):
    other = replace(SNAPSHOT, files=(FILE, RepoFile(name=name, size=3)))
    assert (outcome_key(other) == outcome_key(SNAPSHOT)) is alike


def test_every_file_of_a_repository_of_several_models_is_a_part_of_the_key():
    several = replace(SNAPSHOT, manifest=TEXT)
    other = replace(several, files=(FILE, RepoFile(name="2_Normalize/README.md", size=3)))
    assert outcome_key(other) != outcome_key(several)


def test_companion_files_are_a_part_of_the_key():
    first, second = (
        replace(SNAPSHOT, companions=(CompanionFile("tokenizer_config.json", content),))
        for content in (b"{}", b'{"eos_token": "a"}')
    )
    assert len({outcome_key(SNAPSHOT), outcome_key(first), outcome_key(second)}) == 3
    again = replace(first, model="o/other", commit="b" * 40)
    assert outcome_key(again) == outcome_key(first)


def test_a_name_with_half_a_character_has_no_key():
    assert outcome_key(replace(SNAPSHOT, files=(RepoFile(name="\ud800", size=1),))) is None

"""A header under other names: the same tensors at the same places; an index of the headers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import framed, safetensors_bytes

from auditor.checkpoint.selecting import INDEX
from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.containers.safetensors import Header, parse_header, size_fault
from auditor.fixing.new_files import index_with_names, rebuilt_index, renamed_header
from auditor.report import Observed

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(
    lambda name: name != "__metadata__"
)
tables = st.dictionaries(
    names,
    st.tuples(st.sampled_from(["F32", "BF16", "U8"]), st.lists(st.integers(0, 5), max_size=3)),
    min_size=1,
    max_size=8,
)
metadata = st.none() | st.dictionaries(st.text(st.characters(codec="utf-8")), names, max_size=3)


def head_of(table, said=None) -> WeightHeader:
    content = safetensors_bytes(table, metadata=said)
    return WeightHeader(name="m.safetensors", size=len(content), prefix=content[:])


@given(table=tables, said=metadata, data=st.data())
def test_only_names_change_and_the_data_stays_aligned(table, said, data):
    head = head_of(table, said)
    others = data.draw(st.lists(names, min_size=len(table), max_size=len(table), unique=True))
    renames = dict(zip(table, others, strict=True))
    made = renamed_header(head, renames)
    before, after = head.parsed, made.parsed
    assert isinstance(before, Header)
    assert isinstance(after, Header)
    assert {one._replace(name=renames[one.name]) for one in before.tensors} == set(after.tensors)
    assert (after.metadata, after.data_length) == (before.metadata, before.data_length)
    assert after.header_length % 8 == 0
    assert size_fault(after, made.size) is None


@pytest.mark.parametrize(
    ("content", "renames", "why"),
    [
        (safetensors_bytes({"a": ("F32", (2,)), "b": ("F32", (2,))}), {"a": "b"}, "one name"),
        (safetensors_bytes({"a": ("F32", (2,))})[:-1], {"a": "b"}, "truncated"),
        (framed("{}x"), {"a": "b"}, "not JSON|continues"),
    ],
)
def test_a_failed_rename_is_reported(content, renames, why):
    head = WeightHeader(name="m.safetensors", size=len(content), prefix=content)
    with pytest.raises(ValueError, match=why):
        renamed_header(head, renames)


def test_the_header_is_what_the_library_reads(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    head = head_of({"a": ("F32", (2,)), "b": ("U8", (3,))}, {"format": "pt"})
    made = renamed_header(head, {"a": "x" * 5000})
    data = head.prefix[8 + head.parsed.header_length :]
    (tmp_path / "m").write_bytes(made.prefix + data)
    with safetensors.safe_open(tmp_path / "m", "np") as file:
        assert set(file.keys()) == {"x" * 5000, "b"}
        assert file.metadata() == {"format": "pt"}
    assert json.loads(made.prefix[8:])["b"]["data_offsets"] == [8, 11]
    assert parse_header("m", made.prefix).data_length == 11


# --- the index ---------------------------------------------------------------------------------

ODD = b'{"note": 1, "metadata": {"total_size": 7, "by": "me"}, "weight_map": {%b}}'


def folder_of(index: bytes | None, **names_by_file: str) -> Snapshot:
    """Weight files of one-byte tensors whose names are letters."""
    contents = {
        f"{file}.safetensors": safetensors_bytes(dict.fromkeys(names, ("U8", (1,))))
        for file, names in names_by_file.items()
    }
    return Snapshot(
        model="small",
        commit=None,
        source=Source.FOLDER,
        origin="",
        files=(),
        index=None if index is None else TextFile(name=INDEX, content=index),
        headers=tuple(
            WeightHeader(name=name, size=len(content), prefix=content)
            for name, content in contents.items()
        ),
    )


def rebuilt(snapshot: Snapshot) -> bytes:
    count = sum(len(head.parsed.tensors) for head in snapshot.headers)
    observed = Observed(
        files=1, bytes=count, tensors=count, elements=count, parameters=count, trainable=count
    )
    return rebuilt_index(snapshot, observed).content


def test_a_corrected_index_changes_where_the_headers_contradict_it_and_nowhere_else():
    old = ODD % b'"b":"one.safetensors" , "gone":"one.safetensors","a":"one.safetensors"'
    new = ODD.replace(b"7", b"3") % (
        b'"b":"one.safetensors","a":"two.safetensors" , "c":"two.safetensors"'
    )
    assert json.loads(rebuilt(folder_of(old, one="b", two="ac"))) == json.loads(new)


def test_an_index_that_is_right_stays_byte_for_byte():
    index = ODD.replace(b"7", b"1") % b'"b" :"one.safetensors"'
    assert rebuilt(folder_of(index, one="b")) == index


@pytest.mark.parametrize(
    "index", [None, b"not JSON", b'{"metadata": {}, "weight_map": {"a": "x", "a": "y"}}']
)
def test_an_index_without_a_sound_one_before_it_is_what_save_pretrained_writes(index):
    expected = {
        "metadata": {"total_size": 3},
        "weight_map": {"a": "two.safetensors", "b": "one.safetensors", "c": "two.safetensors"},
    }
    made = rebuilt(folder_of(index, one="b", two="ac"))
    assert made.decode() == json.dumps(expected, indent=2, sort_keys=True) + "\n"


def test_an_index_is_renamed_key_by_key():
    index = TextFile(name=INDEX, content=ODD % b'"m.b":"one.safetensors" , "a":"m.b"')
    renamed = index_with_names(index, {"m.b": "b"})
    assert json.loads(renamed.content) == json.loads(ODD % b'"b":"one.safetensors" , "a":"m.b"')


def test_an_index_that_cannot_be_read_is_not_renamed():
    index = TextFile(name=INDEX, content=b'{"weight_map": 5}')
    assert index_with_names(index, {"a": "b"}) is index

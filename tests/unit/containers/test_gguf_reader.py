"""The header of a GGUF file, against the field's own writer and reader, and hostile ones."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.gguf_files import (
    ARRAY,
    BLOCKS,
    F32,
    I32,
    STRING,
    U8,
    U32,
    Tensor,
    array,
    gguf_bytes,
    read,
    read_by_ranges,
    string,
)

from auditor.containers.gguf import GGML_TYPES, REMOVED_TYPES
from auditor.containers.gguf_reader import Skipped
from auditor.errors import CheckpointError

gguf = pytest.importorskip("gguf", reason="the field's own writer and reader")

# --- the types ----------------------------------------------------------------------------------


def test_every_type_has_the_name_and_the_sizes_that_the_gguf_package_gives_it():
    ours = {number: (kind.name, kind.block, kind.size) for number, kind in GGML_TYPES.items()}
    theirs = {int(t): (t.name, *size) for t, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: ours.get(number) for number in theirs} == theirs


def test_no_type_that_was_removed_is_known_as_a_type():
    assert not REMOVED_TYPES.keys() & GGML_TYPES.keys()
    assert not REMOVED_TYPES.keys() & set(map(int, gguf.GGMLQuantizationType))


# --- the laws -----------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=30)
names = st.text("abcXYZ019._-", min_size=1, max_size=60)
values = st.one_of(
    st.tuples(st.just("add_uint32"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("add_int64"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("add_uint8"), st.integers(0, 255)),
    st.tuples(st.just("add_bool"), st.booleans()),
    st.tuples(st.just("add_float64"), st.floats(allow_nan=False)),
    st.tuples(st.just("add_string"), texts.filter(bool)),
    st.tuples(st.just("add_array"), st.lists(st.integers(0, 1000), min_size=1, max_size=40)),
    st.tuples(st.just("add_array"), st.lists(texts, min_size=1, max_size=40)),
)
kinds = st.sampled_from(sorted(gguf.GGML_QUANT_SIZES))


@st.composite
def tensors(draw):
    kind = draw(kinds)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    outer = draw(st.lists(st.integers(1, 3), max_size=3))
    blocks = draw(st.integers(1, 3))
    return kind, (*outer, blocks * block), (*outer, blocks * size)


def written(path: Path, pairs, stored, alignment, **options) -> bytes:
    """The file that the gguf package makes of them."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, (add, content) in pairs.items():
        getattr(writer, add)(key, content)
    for name, (kind, _, in_bytes) in stored.items():
        plain = {"F32": np.float32, "F16": np.float16}.get(kind.name)
        if plain is None:
            writer.add_tensor(name, np.zeros(in_bytes, np.uint8), raw_dtype=kind)
        else:
            shape = (*in_bytes[:-1], in_bytes[-1] // np.dtype(plain).itemsize)
            writer.add_tensor(name, np.zeros(shape, plain))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@examples(60)
@given(
    pairs=st.dictionaries(names.map(lambda name: f"x.{name}"), values, max_size=6),
    stored=st.dictionaries(names, tensors(), max_size=6),
    big=st.booleans(),
    alignment=st.sampled_from([None, 8, 64, 4096]),
)
def test_what_the_gguf_package_writes_is_read_as_it_reads_it(
    tmp_path_factory, pairs, stored, big, alignment
):
    path = tmp_path_factory.mktemp("w") / "m.gguf"
    endian = gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    content = written(path, pairs, stored, alignment, endianess=endian)
    header, theirs = read(content), gguf.GGUFReader(path)
    assert header.metadata == {
        key: as_ours(field.contents())
        for key, field in theirs.fields.items()
        if not key.startswith("GGUF.")
    }
    assert header.big_endian == big
    assert header.data_start == theirs.data_offset
    assert {
        (t.name, t.dtype, t.shape, t.elements, t.span.start + header.data_start, t.span.length)
        for t in header.tensors
    } == {
        (t.name, t.tensor_type.name, shape_of(t), t.n_elements, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    }
    assert header.size_faults == ()


def shape_of(tensor):
    return tuple(map(int, tensor.shape[::-1]))


def as_ours(content):
    return tuple(map(as_ours, content)) if isinstance(content, list) else content


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(0, 300_000), st.integers(0, 3), st.integers(1, 40))
def test_a_header_read_by_ranges_is_the_header_of_the_complete_file(padding, tokens, count):
    pairs = [
        ("x.text", STRING, "a" * padding),
        ("x.tokens", ARRAY, (STRING, ["b" * 7] * (tokens * 4000))),
        ("x.scores", ARRAY, (F32, [0.0] * (tokens * 4000))),
        ("x.last", U32, 7),
    ]
    content = gguf_bytes(pairs, [Tensor(f"t{number}") for number in range(count)])
    assert read_by_ranges(content).header == read(content)


@given(st.data())
def test_a_header_cut_anywhere_is_refused_and_nothing_else(data):
    pairs = [("a", STRING, "text"), ("b", ARRAY, (U32, [1, 2])), ("c", ARRAY, (STRING, ["x"]))]
    whole = gguf_bytes(pairs, [Tensor("t"), Tensor("u")], data=False)
    cut = data.draw(st.integers(0, len(whole) - 33))
    with pytest.raises(CheckpointError, match=r"^m\.gguf "):
        read(whole[:cut])


@given(st.binary(max_size=300))
def test_whatever_follows_the_magic_is_read_or_refused(rest):
    """Any other exception fails the test."""
    with contextlib.suppress(CheckpointError):
        read(b"GGUF\x03\0\0\0" + rest)


# --- what is kept, and what is fetched ------------------------------------------------------------


def vocabulary(tokens: int, merges: int) -> bytes:
    """A file with a tokenizer of the size of Llama 3's: 128,256 tokens, 280,147 merges."""
    return gguf_bytes(
        [
            ("tokenizer.ggml.tokens", ARRAY, array(STRING, ["tokens"] * tokens)),
            ("tokenizer.ggml.scores", ARRAY, array(F32, [0.0] * tokens)),
            ("tokenizer.ggml.token_type", ARRAY, array(I32, [1] * tokens)),
            ("tokenizer.ggml.merges", ARRAY, array(STRING, ["merge of"] * merges)),
        ],
        [Tensor("token_embd.weight", (2, 32))],
    )


def test_a_vocabulary_is_stepped_over_and_its_length_is_kept():
    header = read(vocabulary(5000, 7000))
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped("string", 5000)
    assert header.length("tokenizer.ggml.tokens") == 5000
    assert header.metadata["tokenizer.ggml.scores"] == Skipped("f32", 5000)


@pytest.mark.slow
def test_the_header_of_llama_3_is_read_in_four_requests():
    content = vocabulary(128_256, 280_147)
    spans = read_by_ranges(content).spans
    assert len(content) > 7_000_000
    assert len(spans) == 4
    assert sum(span.length for span in spans) < 2 * len(content)


def test_a_long_string_is_stepped_over():
    header = read(gguf_bytes([("x", STRING, "a" * 70_000), ("y", STRING, "b")]))
    assert header.metadata == {"x": Skipped("byte", 70_000), "y": "b"}


def test_arrays_in_arrays_are_read():
    nested = array(ARRAY, [array(U8, [1, 2]), array(STRING, ["a"])])
    assert read(gguf_bytes([("x", ARRAY, nested)])).metadata["x"] == ((1, 2), ("a",))


# --- the size of the file ---------------------------------------------------------------------


def test_a_truncated_file_is_reported_with_its_lost_tensors():
    content = gguf_bytes([], [Tensor("t"), Tensor("u"), Tensor("v")])
    (fault,) = read(content[:-300]).size_faults
    assert re.fullmatch(
        r"m\.gguf is truncated: its header implies [\d,]+ \+ 768 = [\d,]+ bytes \(header, data\), "
        r"and it has [\d,]+; 2 of its 3 tensors are cut off or missing",
        fault,
    )


def test_the_padding_after_the_last_tensor_need_not_be_there():
    content = gguf_bytes([], [Tensor("t", (1,))])  # 4 bytes, and 28 of padding
    for missing in (0, 1, 28, 29):
        assert bool(read(content[: len(content) - missing]).size_faults) == (missing > 28)


def test_bytes_after_the_model_are_a_note_and_no_fault():
    header = read(gguf_bytes([], [Tensor("t")]) + bytes(100))
    assert header.size_faults == ()
    assert "continues for 100 bytes" in header.notes[0]


def test_a_name_that_llama_cpp_refuses_is_a_note():
    assert read(gguf_bytes([], [Tensor("t" * 63)])).notes == ()
    [note] = read(gguf_bytes([], [Tensor("t" * 64)])).notes
    assert note.startswith("m.gguf has 1 tensor names of more than 63 bytes")


# --- what is refused ------------------------------------------------------------------------------

GOOD = [Tensor("t")]
HUGE = 2**63
REFUSED = {
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 411553788\n",
        "is a Git LFS pointer to a file of 411,553,788 bytes",
    ),
    "version 1": (gguf_bytes(version=1), "is of GGUF version 1, of August 2023"),
    "2^63 tensors": (
        gguf_bytes(counts=(HUGE, 0)),
        r"declares 9,223,372,036,854,775,808 tensors, which take 24 bytes each",
    ),
    "many pairs": (
        gguf_bytes(counts=(0, 10_001)) + bytes(200_000),
        "declares 10,001 metadata pairs, expected at most 10,000",
    ),
    "a key past the end": (
        gguf_bytes(counts=(0, 1), alignment=1) + string("a", length=HUGE) + bytes(20),
        "ends in the middle of the key of metadata pair 0: expected 9,223,",
    ),
    "a key twice": (
        gguf_bytes([("a", U32, 1), ("a", U32, 1)]),
        "has the metadata key 'a' twice",
    ),
    "a string past the end": (
        gguf_bytes([("a", STRING, string("", length=HUGE))], GOOD),
        "ends in the middle of the value of 'a': expected 9,223,",
    ),
    "2^63 items": (
        gguf_bytes([("a", ARRAY, array(STRING, [], count=HUGE))], GOOD),
        "ends in the middle of 'a', 9,223,372,036,854,775,808 items of 8 bytes at least",
    ),
    "many arrays in an array": (
        gguf_bytes([("a", ARRAY, array(ARRAY, [array(U8, [])] * 2000))]),
        "has too many items in its arrays, up to 'a'",
    ),
    "an alignment of 0": (
        gguf_bytes([("general.alignment", U32, 0)], GOOD),
        "has a general.alignment of 0, expected a power of two",
    ),
    "a tensor twice": (gguf_bytes([], [Tensor("t"), Tensor("t")]), "has the tensor 't' twice"),
    "five dimensions": (
        gguf_bytes([], [Tensor("t", (1,) * 5)]),
        "of 5 dimensions, expected at most 4",
    ),
    "a size that overflows": (
        gguf_bytes([], [Tensor("t", (2**32, 2**32))], data=False),
        r"of \(4294967296, 4294967296\), whose size passes 2\^63 - 1",
    ),
    "a removed type": (
        gguf_bytes([], [Tensor("t", type=31)]),
        "of ggml type 31, Q4_0_4_4, which was removed",
    ),
    "an unknown type": (gguf_bytes([], [Tensor("t", type=999)]), "ggml type 999, expected 0 to 41"),
    "a row of half a block": (
        gguf_bytes([], [Tensor("t", (4, 16), type=2)]),
        r"Q4_0 \(4, 16\): rows of 16 are not a whole number of blocks of 32",
    ),
    "a gap": (
        gguf_bytes([], [Tensor("t"), Tensor("u", offset=512)]),
        "has tensor 'u' at byte 512 of the data, expected 256: 't' ends at 256",
    ),
}


def test_what_is_wrong_is_named_in_one_line(subtests):
    for content, says in REFUSED.values():
        with subtests.test(content=content, says=says):
            with pytest.raises(
                CheckpointError, match=f"^m.gguf {says}|^m.gguf has tensor .*{says}"
            ) as error:
                read(content)
            assert "\n" not in str(error.value)


def test_both_versions_are_read():
    for kind in BLOCKS:
        for version in (2, 3):
            content = gguf_bytes([("a", U32, 1)], [Tensor("t", (3, 256), kind)], version=version)
            (tensor,) = read(content).tensors
            assert (tensor.shape, tensor.dtype) == ((3, 256), GGML_TYPES[kind].name)

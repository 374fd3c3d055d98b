"""Headers: what is read, and what is said when something is wrong."""

import tracemalloc
from pathlib import Path

import pytest
from support.builders import framed, safetensors_bytes

from auditor.containers.safetensors import header_span, parse_header, size_fault
from auditor.errors import CheckpointError
from auditor.tensors import Span, StoredTensor

HEADERS = Path(__file__).parents[2] / "data" / "headers"
F = "model.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 440473133\n" % (
    b"0" * 64
)


def test_a_header_is_read_into_sorted_values():
    content = safetensors_bytes(
        {"b": ("F32", (2, 3)), "a": ("I64", ())}, metadata={"z": "1", "format": "pt"}
    )
    header = parse_header(F, content)
    assert header.file == F
    assert header.metadata == (("format", "pt"), ("z", "1"))
    assert header.tensors == (
        StoredTensor("a", "I64", (), 1, F, Span(24, 32)),
        StoredTensor("b", "F32", (2, 3), 6, F, Span(0, 24)),
    )
    assert header.data_length == 32
    assert 8 + header.header_length + header.data_length == len(content)


PUBLISHED = {  # file: (size, tensors, elements), by the repositories' own listings and arithmetic
    "overall": (702, 9, 9 * 6),
    "tiny-llm-cicd": (25_200, 16, (25_200 - 1_456) // 4),
    "bloom-00072": (57_530, 2, 2 * 14_336),
    "obfuscated_metadata": (1_095_104, 3, 256 + 100 * 768 + 768 * 256),
    "multiple_patterns": (1_095_160, 3, 256 + 100 * 768 + 768 * 256),
}


def test_published_headers_are_read(subtests):
    for name, value in PUBLISHED.items():
        with subtests.test(name=name):
            size, tensors, elements = value
            header = parse_header(name, (HEADERS / f"{name}.safetensors").read_bytes())
            assert size_fault(header, size) is None
            assert len(header.tensors) == tensors
            assert sum(tensor.elements for tensor in header.tensors) == elements


def test_a_published_truncated_file_is_reported_as_truncated():
    header = parse_header(F, (HEADERS / "all-minilm-l6-v2-truncated.safetensors").read_bytes())
    assert size_fault(header, 1_835_008) == (
        "model.safetensors is truncated: its header implies 8 + 11,320 + 90,852,864 = 90,864,192 "
        "bytes (length, header, data), and it has 1,835,008"
    )
    assert size_fault(header, 90_864_192) is None
    assert size_fault(header, None) is None
    assert "too long" in str(size_fault(header, 90_864_193))


def test_the_first_bytes_give_the_headers_span(subtests):
    for head, size in [
        (framed("{}", length=24_012)[:8], 400_000_000),
        (framed("{}", length=24_012)[:8], 24_020),
        (framed(' \n{"a', length=24_012), None),
        (framed('{"a"', bytes(100), length=24_012)[:12], None),
    ]:
        with subtests.test(head=head, size=size):
            assert header_span(F, head, size) == Span(8, 24_020)


def test_the_span_of_the_longest_header_is_given_and_no_longer_one():
    assert header_span(F, framed("", length=100_000_000), None) == Span(8, 100_000_008)
    with pytest.raises(CheckpointError, match="100,000,001 bytes of header, and the format allows"):
        header_span(F, framed("", length=100_000_001), None)


REFUSED = {
    "is empty: 0 bytes": b"",
    "is truncated: 7 bytes are too few for the eight of a header's length": b"\x02" + bytes(6),
    "is a Git LFS pointer to a file of 440,473,133 bytes, not the file: it was never": POINTER,
    "has no safetensors header: .* declare 0 bytes of header, and the shortest is two": bytes(8),
    "has no safetensors header: its JSON begins with '\\[', not with '{'": framed("[{}]"),
    "is a zip archive, as torch.save": b"PK\x03\x04\x00\x00\x08\x08\x00\x00",
    "is an HTML or XML page: perhaps": b"\n<html lang",
    "is bare JSON, without the eight bytes": b'{"a":{"dtype":"F32"}}',
    "is plain text": b"Entry not found",
}


def test_what_is_no_header_is_named_from_its_first_bytes(subtests):
    for message, value in REFUSED.items():
        with subtests.test(message=message):
            with pytest.raises(CheckpointError, match=f"^model.safetensors {message}"):
                header_span(F, value, None)
            with pytest.raises(CheckpointError, match=f"^model.safetensors {message}"):
                parse_header(F, value)


def test_a_header_that_passes_the_files_end_is_truncated_whatever_its_length_spells():
    head = b"\x80\x02" + bytes(6)  # 640 bytes; a pickle begins so too
    assert header_span(F, head, 648) == Span(8, 648)
    with pytest.raises(
        CheckpointError,
        match=r"^model.safetensors is truncated: its first eight bytes declare 640 bytes of "
        r"header, 8 \+ 640 = 648, and it has 647$",
    ):
        header_span(F, head, 647)


def one(entry: str) -> str:
    return f'{{"a":{entry}}}'


def tensor(dtype: str, shape: str, offsets: str) -> str:
    return one(f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}')


BROKEN = {
    "tensor 'a', F32 \\[2, 3\\], takes 24 bytes, but its data_offsets \\[0, 20\\] span 20": tensor(
        "F32", "[2,3]", "[0,20]"
    ),
    "tensor 'a', F4 \\[3\\], takes 12 bits, expected a whole number of bytes": tensor(
        "F4", "[3]", "[0,2]"
    ),
    "tensor 'a', U8 \\[4294967296, 4294967296\\], is too large": tensor(
        "U8", "[4294967296,4294967296]", "[0,0]"
    ),
    "tensor 'a' begins at byte 4 of the data and leaves a gap of 4: the data begins at 0": tensor(
        "U8", "[4]", "[4,8]"
    ),
    "tensor 'a': dtype is 'F128', expected one of BOOL, F4,": tensor("F128", "[]", "[0,16]"),
    "tensor 'a': data_offsets has 3 numbers, expected two": tensor("U8", "[2]", "[0,1,2]"),
    "tensor 'a' is a list of 2, expected dtype, shape and data_offsets": one('["U8",[2]]'),
    "its header has __metadata__ twice": '{"__metadata__":null,"__metadata__":null}',
}


def test_a_header_that_breaks_the_format_is_refused_with_place_and_numbers(subtests):
    for message, value in BROKEN.items():
        with (
            subtests.test(message=message),
            pytest.raises(CheckpointError, match=f"^model.safetensors: {message}"),
        ):
            parse_header(F, framed(value))


def test_an_overlap_names_both_tensors():
    header = (
        '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
        '"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}'
    )
    with pytest.raises(
        CheckpointError,
        match="tensor 'b' begins at byte 2 of the data and overlaps: tensor 'a' ends at 4",
    ):
        parse_header(F, framed(header))


NOT_JSON = {
    "is not JSON: Expecting ':' delimiter at line 2 column 6, before '1}'": '{\n "a" 1}',
    "continues after the end of its JSON: 'x' at line 1 column 4": "{} x",
    "is not UTF-8: byte 0xff at line 2 column 3": b'{\n "\xff":1}',
    "is not valid JSON: the number '1e999' is out of range": one('{"x":1e999}'),
    r"has the escape \\ud800, half a character": '{"\\ud800":1}',
}


def test_a_header_that_is_not_json_is_refused_with_the_place(subtests):
    for message, value in NOT_JSON.items():
        with (
            subtests.test(message=message),
            pytest.raises(CheckpointError, match=f"^the header of model.safetensors {message}"),
        ):
            parse_header(F, framed(value))


def test_a_header_of_millions_of_values_is_refused_before_they_take_memory():
    content = framed(one("[" + "[]," * 4_000_000 + "[]]"))
    tracemalloc.start()
    with pytest.raises(
        CheckpointError, match="has some 8,000,003 JSON values, expected at most 1,500,000"
    ):
        parse_header(F, content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(content)  # as lists they would take twenty times as much


@pytest.mark.slow
def test_ninety_thousand_tensors_are_not_too_many():
    tensors = {f"model.layers.{i}.weight": ("BF16", (1, 2)) for i in range(90_000)}
    header = parse_header(F, safetensors_bytes(tensors, data=False))
    assert len(header.tensors) == 90_000
    assert header.data_length == 90_000 * 4


def test_untrusted_names_are_quoted_and_cut():
    name = "\\u001b[31m" + "x" * 1000
    with pytest.raises(CheckpointError, match=r"^'a b\\n.safetensors': tensor ") as caught:
        parse_header("a b\n.safetensors", framed(f'{{"{name}":1}}'))
    assert "tensor '\\x1b[31mxxx" in str(caught.value)
    assert len(str(caught.value)) < 200

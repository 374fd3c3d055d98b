"""Law 6: a header of any length survives the ranged read."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import framed, safetensors_bytes

from auditor.downloader.headers import FIRST_READ, Received, read_safetensors_header
from auditor.tensors import Span

LEAST = len(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
EDGES = [FIRST_READ - 8 + step for step in (-2, -1, 0, 1, 2)]  # 8: the length itself


class Ranges:
    """A file that answers ranges as a 206 does, and keeps the record."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[Span] = []

    def read(self, span: Span, end) -> Received:  # noqa: ARG002 - needed by a 200 alone
        self.asked.append(span)
        return Received(self.content[span.start : span.stop], len(self.content))


class Whole(Ranges):
    """A file that answers every range with everything, as far as it is read."""

    def read(self, span: Span, end) -> Received:
        self.asked.append(span)
        first = self.content[: span.stop]
        stop = max(span.stop, end(first, len(self.content))) if span.start == 0 else span.stop
        return Received(self.content[span.start : stop], len(self.content))


def file_with_header(length: int, data: int = 0) -> bytes:
    tensors = {"a": ("U8", (data,))}
    header = safetensors_bytes(tensors, align=1, data=False)[8:]
    return framed(header.ljust(length), bytes(data))


@given(st.integers(LEAST, 3 * FIRST_READ), st.integers(0, 9), st.sampled_from([Ranges, Whole]))
@example(EDGES[0], 0, Ranges)
@example(EDGES[1], 1, Ranges)
@example(EDGES[2], 0, Ranges)
@example(EDGES[2], 9, Ranges)
@example(EDGES[3], 0, Ranges)
@example(EDGES[4], 9, Whole)
@example(LEAST, 0, Whole)
def test_a_header_of_any_length_survives(length, data, kind):
    length = max(length, LEAST + len(str(data)) - 1)
    content = file_with_header(length, data)
    source = kind(content)
    head = read_safetensors_header("model.safetensors", len(content), source.read)
    assert head.prefix == content[: 8 + length]
    assert head.size == len(content)
    assert len(source.asked) <= 2


@given(st.integers(LEAST, 3 * FIRST_READ))
def test_spans_neither_overlap_nor_leave_a_gap(length):
    content = file_with_header(length, 9 * FIRST_READ)
    source = Ranges(content)
    read_safetensors_header("model.safetensors", len(content), source.read)
    assert [span.start for span in source.asked] == [0, FIRST_READ][: len(source.asked)]
    assert source.asked[-1].stop == max(FIRST_READ, 8 + length)


@pytest.mark.parametrize("length", [LEAST, 24_012, 24_048, EDGES[2]])
def test_a_header_that_fits_is_read_at_once(length):
    source = Ranges(file_with_header(length, 9 * FIRST_READ))
    read_safetensors_header("model.safetensors", len(source.content), source.read)
    assert source.asked == [Span(0, FIRST_READ)]


def test_a_file_of_unknown_size_is_read_as_well():
    source = Ranges(file_with_header(LEAST))
    head = read_safetensors_header("model.safetensors", None, source.read)
    assert (head.prefix, head.size) == (source.content, len(source.content))


def test_an_empty_file_is_not_read():
    source = Ranges(b"")
    assert read_safetensors_header("model.safetensors", 0, source.read).prefix == b""
    assert source.asked == []


@pytest.mark.parametrize(
    "content",
    [
        framed(b"{}", bytes(FIRST_READ * 2), length=100_000_001),
        framed(b"{}", bytes(FIRST_READ * 2), length=2**64 - 1),
        framed(b"{}", bytes(FIRST_READ * 2), length=FIRST_READ * 3),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 411553788\n",
        b"<!doctype html><html>" + bytes(FIRST_READ * 2),
        b"abc",
    ],
    ids=["past the limit", "absurd", "past the end", "LFS pointer", "a page", "three bytes"],
)
def test_an_impossible_length_is_refused_by_the_bytes_that_show_it(content):
    source = Ranges(content)
    head = read_safetensors_header("model.safetensors", len(content), source.read)
    assert source.asked == [Span(0, min(FIRST_READ, len(content)))]
    assert head.prefix == content[:FIRST_READ]

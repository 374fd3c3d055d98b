"""Lists of models from a stream: bounded lines, each as soon as it has arrived."""

import io
import os

from hypothesis import given
from hypothesis import strategies as st

from auditor.streams import LONGEST_LINE, lines_of


class CountedStream(io.StringIO):
    """A stream that notes the longest piece that was read at once."""

    longest = 0

    def readline(self, size: int = -1, /) -> str:
        piece = super().readline(size)
        self.longest = max(self.longest, len(piece))
        return piece


LINES = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\r\n\0"), max_size=20),
        st.integers(LONGEST_LINE - 2, 3 * LONGEST_LINE).map(lambda length: "x" * length),
    )
)


@given(lines=LINES)
def test_every_line_is_read_once_and_a_line_with_its_break_within_the_bound_is_complete(lines):
    stream = CountedStream("".join(f"{line}\n" for line in lines))
    found = list(lines_of(stream))
    assert [line.number for line in found] == list(range(1, len(lines) + 1))
    for line, expected in zip(found, lines, strict=True):
        is_complete = len(expected) < LONGEST_LINE
        assert (line.fault == "") is is_complete
        assert line.text == (expected.strip() if is_complete else expected[: len(line.text)])
    assert stream.longest <= LONGEST_LINE + 1


def test_a_line_is_yielded_before_the_next_one_arrives():
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream, os.fdopen(writing, "w") as pipe:
        lines = lines_of(stream)
        for text in ("a/b", "c/d"):
            print(text, file=pipe, flush=True)
            assert next(lines).text == text
        pipe.close()
        assert list(lines) == []


def test_a_line_without_an_end_is_refused_before_more_of_it_arrives():
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream, os.fdopen(writing, "w") as pipe:
        print("\0" * (2 * LONGEST_LINE), end="", file=pipe, flush=True)
        assert "more than 4,096 characters" in next(lines_of(stream)).fault


def test_a_list_that_is_separated_by_zero_bytes_is_refused():
    [line] = lines_of(io.StringIO("a/b\0c/d\0"))
    assert line.fault.startswith("line 1 has a zero byte, expected one model on each line")

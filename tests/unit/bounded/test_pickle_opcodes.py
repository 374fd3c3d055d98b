"""The opcodes at the start of a file: whatever CPython's unpickler imports is read."""

import contextlib
import io
import pickle

from hypothesis import given
from hypothesis import strategies as st

from auditor.bounded.pickle_opcodes import read_opcodes

IMPORTS = st.sampled_from(
    [b"cos\nsystem\n", b"(ios\nsystem\n", b"\x8c\2os\x8c\6system\x93", b"V os\nc a\nb\n"]
)
LINES = [b"I0x1f\n", b"I5\0 x\n", b"I01\n", b"L5L\n", b"F1e3\n", b"Finf\n", b"S'a'\n", b'S"b"\n']
LINES += [b"Vtext\n", b"p0\n", b"g0\n", b"Pid\n"]
OTHERS = [b"K\1", b"M\1\1", b"J\1\0\0\0", b"X\1\0\0\0a", b"U\1a", b"C\1a", b"\x8a\1\1", b"\x80\2"]
OTHERS += [
    b"\x95" + bytes(8),
    b"q\0",
    b"h\0",
    b"\x94",
    *(bytes([one]) for one in b"()]}N012tRaeob."),
]
PIECES = IMPORTS | st.sampled_from([*LINES, *OTHERS]) | st.binary(max_size=2)


class Imports(pickle.Unpickler):
    """CPython's unpickler; it records imports in place of making them."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.names: list[str] = []

    def find_class(self, module: str, name: str):
        self.names.append(f"{module}.{name}")
        return dict

    def persistent_load(self, _key):
        return None


def imports(content: bytes) -> list[str]:
    unpickler = Imports(content)
    with contextlib.suppress(Exception):  # whatever these bytes are
        unpickler.load()
    return unpickler.names


@given(st.lists(PIECES, max_size=8).map(b"".join))
def test_whatever_cpython_imports_is_read(content):
    opcodes = read_opcodes(content, len(content))
    assert len(opcodes.names) >= bool(imports(content))


@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(0, 40))
def test_bytes_that_are_not_at_hand_are_not_called_harmless(content, length):
    part = content[:length]
    opcodes = read_opcodes(part, len(content))
    if imports(content) and not opcodes.names:
        assert opcodes.is_cut


def test_the_answers_of_servers_and_lists_of_words_are_not_taken_for_pickles():
    answers = ("Invalid username or password.", "Not Found", "No.", "Forbidden", "Bad Gateway")
    words = ("cat\ndog\nperson\n", "I love this\n", "import os\nimport sys\n\nprint()")
    for text in (*answers, *words):
        content = text.encode()
        opcodes = read_opcodes(content, len(content))
        assert not (opcodes.names and opcodes.is_credible), text

"""Docstrings are plain English: they begin with a noun phrase or a verb in the imperative."""

import ast

import pytest
from language import AVOIDED, avoided_by_package

# Docstrings of each package that still begin with a word to avoid; a number here only falls.
# `python tools/language.py` prints the numbers of today.
CEILINGS = {
    "audit": 18,
    "cli": 4,
    "companions": 20,
    "formats": 21,
}


def test_no_package_gains_a_docstring_that_begins_with_a_word_to_avoid():
    counts = avoided_by_package()
    above = {name: count for name, count in counts.items() if count > CEILINGS.get(name, 0)}
    assert above == {}, "print the docstrings: python tools/language.py --list PACKAGE"


@pytest.mark.parametrize(
    ("text", "is_avoided"),
    [
        ("What the file holds.", True),
        ("None: it is not.", True),
        ("The same for a folder.", True),
        ("Of the layers, the first.", True),
        ("Offsets of the tensors.", False),
        ("The sameness of two files.", False),
        ("Items of a list.", False),
        ("Return the items of a list.", False),
    ],
)
def test_a_word_to_avoid_is_a_whole_word_at_the_start(text, is_avoided):
    docstring = ast.get_docstring(ast.parse(f'"""{text}"""'))
    assert bool(AVOIDED.match(docstring)) is is_avoided

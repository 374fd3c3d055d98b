"""Docstrings are plain English: they begin with a noun phrase or a verb in the imperative."""

import ast

from language import AVOIDED, avoided_by_package


def test_no_docstring_begins_with_a_word_to_avoid():
    assert avoided_by_package() == {}, (
        "print the docstrings: python tools/language.py --list PACKAGE"
    )


def test_a_word_to_avoid_is_a_complete_word_at_the_start(subtests):
    for text, is_avoided in [
        ("What the file holds.", True),
        ("None: it is not.", True),
        ("The same for a folder.", True),
        ("Of the layers, the first.", True),
        ("Offsets of the tensors.", False),
        ("The sameness of two files.", False),
        ("Items of a list.", False),
        ("Return the items of a list.", False),
    ]:
        with subtests.test(text=text, is_avoided=is_avoided):
            docstring = ast.get_docstring(ast.parse(f'"""{text}"""'))
            assert bool(AVOIDED.match(docstring)) is is_avoided

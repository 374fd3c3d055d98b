"""The first screen of a typical fault of each cause: the cause, what to do, what is left."""

import re
from pathlib import Path

import pytest
from golden import SCREENS
from support.first_screens import first_screens

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers")
MOST_LINES = 13  # before the table of modules, without empty lines


@pytest.fixture(scope="module")
def screens(tmp_path_factory):
    return first_screens(tmp_path_factory.mktemp("faults"))


def test_the_first_screens_are_those_that_were_read_by_a_person(screens):
    assert screens == Path(SCREENS).read_text(encoding="utf-8"), "if this is meant: make rewrite"


def test_a_first_screen_is_short_and_says_once_what_to_do(screens):
    for screen in filter(None, screens.split("\n# ")):
        lines = screen.partition("\n")[2]
        assert lines.count("\N{RIGHTWARDS ARROW}") == ("NOT AUDITED" not in lines)
        assert len(list(filter(None, lines.splitlines()))) <= MOST_LINES
        assert len(re.findall(r"\(cause:\s", lines)) <= 1

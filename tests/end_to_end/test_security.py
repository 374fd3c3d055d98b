"""SECURITY.md says what the code does: its numbers are the code's, its commands are there."""

import re
from pathlib import Path

from fuzz.run import TARGETS
from rewrite_security import SECURITY, rewritten

ROOT = SECURITY.parent


def test_the_bounds_are_those_of_the_code():
    text = SECURITY.read_text()
    assert rewritten(text) == text
    assert text.count("<!-- bounds -->") == 1


def test_the_commands_and_files_that_it_names_are_there():
    text = SECURITY.read_text()
    targets = re.findall(r"`make ([a-z-]+)`", text)
    assert {"fuzz", "hostile"} <= set(targets)
    made = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(targets) <= made
    for path in re.findall(r"`((?:tests|tools|auditor)/[\w./]+)`", text):
        assert Path(ROOT, path).exists(), path


def test_every_fuzzer_is_named():
    text = SECURITY.read_text()
    assert [name for name in TARGETS if f"`{name}`" not in text] == []

"""What loaders print finds its entry, whose findings and causes exist."""

from pathlib import Path

import yaml

from auditor.formats import meanings
from auditor.formats.symptoms import SYMPTOMS, symptoms_in

MESSAGES = Path(__file__).parents[2] / "data" / "pasted_messages.yaml"


def test_every_pasted_message_finds_its_entry():
    messages = [row for rows in yaml.safe_load(MESSAGES.read_text()).values() for row in rows]
    assert len(messages) == 60
    found = {text: [one.name for one in symptoms_in(text)] for text, _ in messages}
    assert {text: found[text] for text, name in messages if name not in found[text]} == {}


def test_colours_and_line_ends_do_not_hide_a_message():
    pasted = "classifier.weight \x1b[31m|\x1b[0m\n  MISSING |"
    assert [one.name for one in symptoms_in(pasted)] == ["newly initialized"]
    assert symptoms_in("all is well; the pooler was loaded") == ()


def test_the_kinds_of_a_symptom_are_known():
    known = {one.name for one in (*meanings.kind_meanings(), *meanings.cause_meanings())}
    assert {kind for one in SYMPTOMS for kind in one.kinds} <= known

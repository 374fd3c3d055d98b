"""What the table of kinds and the docstrings of causes say, in whole sentences."""

import re
from pathlib import Path

from support.running import run

from auditor.diagnosis import causes as causes_folder
from auditor.diagnosis.known_causes import described_causes
from auditor.findings import Severity
from auditor.formats.meanings import cause_meanings, kind_meanings

SENTENCE = r"[A-Za-z`][^\n|]*[^\s.|]\."
EVERY = (*kind_meanings(), *cause_meanings())


def test_every_kind_and_cause_has_a_meaning_and_advice_errors_first():
    for meaning in EVERY:
        for said in (meaning.summary, meaning.to_do):
            assert re.fullmatch(SENTENCE, said), said
    ranks = [list(Severity).index(one.severity) for one in kind_meanings()]
    assert ranks == sorted(ranks)


def test_every_name_of_a_cause_that_a_module_can_say_is_described():
    """A cause is said by `cause="..."` or by a constant CAUSE: each has a docstring."""
    said = set()
    for path in Path(causes_folder.__path__[0]).glob("*.py"):
        said |= {*re.findall(r'\b(?:CAUSE|cause)\s*=\s*"([a-z-]+)"', path.read_text("utf-8"))}
    assert said
    assert said <= described_causes().keys()


def test_a_finding_and_a_cause_never_have_one_name():
    kinds, causes = ([one.name for one in each] for each in (kind_meanings(), cause_meanings()))
    assert set(kinds).isdisjoint(causes)
    assert len({*causes}) == len(causes)


# --- the command ------------------------------------------------------------------------------


def test_the_overview_names_each():
    found = run("explain-finding", env={"COLUMNS": "80", "HF_HUB_OFFLINE": "1"})
    assert found.returncode == 0
    assert max(map(len, found.stdout.splitlines())) <= 80
    named = {*re.findall(r"^  (\S+) ", found.stdout, re.MULTILINE)}
    assert {meaning.name for meaning in EVERY} <= named


def test_one_is_explained_in_full():
    found = run("explain-finding", "missing", "head-not-saved")
    assert found.returncode == 0
    finding, cause = found.stdout.split("head-not-saved (cause")
    assert "missing (finding, error)\n\nThe declared class needs the tensor" in finding
    assert "To do: Upload the weights again" in finding
    assert "To do: Set `tie_word_embeddings`" in cause


def test_a_name_that_is_nearly_one_is_met_with_a_suggestion():
    found = run("explain-finding", "wraper-prefix")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.splitlines() == [
        "audit: no finding and no cause is called 'wraper-prefix' (did you mean wrapper-prefix?)"
    ]

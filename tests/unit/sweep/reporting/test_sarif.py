"""SARIF 2.1.0: the structure that code-scanning pages require, and text that stays text."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.nightly_stores import finding, outcome_of, plain, store_of
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import HOSTILE, diagnosed
from support.sarif_schema import LOG

from auditor.formats.as_sarif import message
from auditor.sweep.reporting.night import Wanted, write_night

SECOND, THIRD = "2026-11-20", "2026-11-21"


@pytest.fixture
def sarif(tmp_path):
    """The run of the last of these nights."""

    def make(nights, **wanted):
        store = store_of(tmp_path / "sweep.sqlite", nights)
        path = tmp_path / "x.sarif"
        write_night(store, wanted=Wanted(folder=tmp_path / "out", sarif=path, **wanted))
        log = json.loads(path.read_bytes().decode("ascii"))
        Draft202012Validator(LOG).validate(log)
        return log["runs"][0]

    return make


A = finding("missing", "a.weight")


def test_errors_and_warnings_are_results_and_infos_are_not(sarif):
    outcome = outcome_of(every_kind())
    run = sarif({THIRD: [outcome, plain("o/clean")]})
    alarming = [one for one in outcome["findings"] if one["severity"] != "info"]
    assert [result["ruleId"] for result in run["results"]] == [one["kind"] for one in alarming]
    assert [result["level"] for result in run["results"]] == [one["severity"] for one in alarming]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {one["kind"] for one in alarming} <= rules
    assert "baselineState" not in run["results"][0]


def test_a_message_has_numbers_names_and_causes(sarif):
    said = {
        result["ruleId"]: result["message"]["text"]
        for result in sarif({THIRD: [outcome_of(diagnosed())]})["results"]
    }
    assert said == {
        "missing": "org/short: missing, 2 names, 5 parameters (encoder.layer.3.{{bias,weight}}): "
        "the declared class needs it and no file stores it. Cause: num_hidden_layers is 4, the "
        "files hold 3. Fix: set num_hidden_layers to 3 in "
        "config.json, or upload weights of a model with 4.",
        "unexpected": "org/short: unexpected, 1 name, 1 parameter (stray): no class of this "
        "family has it.",
    }


def test_results_have_their_state_of_the_night_before(sarif):
    other, gone = finding("unexpected", "b"), finding("missing", "gone")
    changed = {**other, "reason": "another reason"}
    run = sarif(
        {
            SECOND: [plain("o/a", A, other, gone)],
            THIRD: [plain("o/a", A, changed, finding("missing", "c"), commit="b" * 40)],
        }
    )
    assert [result["baselineState"] for result in run["results"]] == ["unchanged", "updated", "new"]
    assert run["baselineGuid"] != run["automationDetails"]["guid"]


def test_a_fingerprint_is_of_the_finding_and_not_of_the_night(sarif):
    twice = finding("missing", "a.weight", reason="once more")
    first = sarif({SECOND: [plain("o/a", A, twice), plain("o/b", A)]})
    second = sarif({THIRD: [plain("o/a", A, twice, commit="b" * 40), plain("o/b", A)]})
    prints = [
        [one["partialFingerprints"]["primaryLocationLineHash"] for one in run["results"]]
        for run in (first, second)
    ]
    assert prints[0] == prints[1]
    assert len({*prints[0]}) == 3


def test_what_the_baseline_accepts_is_suppressed(sarif, tmp_path):
    accepts = tmp_path / "baseline.toml"
    accepts.write_text('[[accept]]\nkind = "missing"\nmodel = "o/a"\nreason = "known"\n')
    run = sarif({THIRD: [plain("o/a", A), plain("o/b", A)]}, baseline=accepts)
    assert [one["suppressions"] for one in run["results"]] == [
        [{"kind": "external", "status": "accepted", "justification": "known"}],
        [],
    ]


@pytest.mark.parametrize(
    ("model", "file", "uri"),
    [
        ("o/a", "a.safetensors", "o/a/a.safetensors"),
        ("o/a", None, "o/a"),
        ("../..", "../etc/passwd", "%2E%2E/%2E%2E/%2E%2E/etc/passwd"),
        ("/o//a", "b c#?%.bin", "o/a/b%20c%23%3F%25.bin"),
        ("o/\u202ea", "\u00e9", "o/%5Cu202ea/%C3%A9"),
    ],
)
def test_a_place_is_a_relative_path_that_leads_nowhere_else(model, file, uri, sarif):
    run = sarif({THIRD: [plain(model, finding("missing", "a", file=file))]})
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


@given(st.text(st.characters(exclude_categories=()), min_size=1) | st.sampled_from(HOSTILE))
def test_no_text_makes_a_link_or_stands_for_an_argument(text):
    shown = message(text)
    assert not re.search(r"(?<!\\)(\\\\)*[\[\]]", shown)
    assert not re.search(r"(?<!\{)(\{\{)*\{(?!\{)", shown)
    assert not re.search(r"(?<!\})(\}\})*\}(?!\})", shown)
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layers.{0-3}", "layers.{{0-3}}"),
        ("[here](https://x)", r"\[here\](https://x)"),
        ("a\\[b](c)", r"a\\\[b\](c)"),
        ("a\x1b[31m", r"a\\x1b\[31m"),
        ("plain (2, 3)", "plain (2, 3)"),
    ],
)
def test_a_message_reads_as(text, shown):
    assert message(text) == shown

"""docs/notebook.ipynb is what its cells say, and a report shows itself in a notebook."""

import json
import re
import xml.etree.ElementTree as ET
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rewrite_notebook import NOTEBOOK, executed
from support.outcomes.examples import EXAMPLES, HOSTILE, diagnosed, gated, hostile

import auditor
from auditor.formats import as_json

pd = pytest.importorskip("pandas", reason="needs pandas")


def test_the_notebook_shows_the_results_of_its_cells():
    content = NOTEBOOK.read_text(encoding="utf-8")
    assert executed(content) == content


def test_an_outcome_is_shown_as_a_line_as_json_and_without_script(subtests):
    for name in EXAMPLES:
        with subtests.test(name=name):
            outcome = EXAMPLES[name]()
            assert repr(outcome).isprintable()
            assert len(repr(outcome)) < 400
            assert outcome.verdict in repr(outcome)
            assert json.loads(outcome.to_json()) == json.loads(as_json.render(outcome))
            assert json.loads(json.dumps(outcome.to_dict())) == json.loads(outcome.to_json())
            shown = outcome._repr_html_()
            assert shown.isascii()
            assert not re.search(r"<(script|style|iframe|link)\b", shown)
            assert {*re.findall(r'src="([a-z]+:[a-z/+]+)', shown)} <= {"data:image/svg+xml"}
            for drawn in re.findall(r'base64,([^"]*)"', shown):
                ET.fromstring(b64decode(drawn))  # noqa: S314 - our own


def test_the_first_lines_have_the_verdict_the_account_and_the_cause():
    shown = diagnosed()._repr_html_()
    assert "ERROR</strong> num_hidden_layers is 4, the files hold 3." in shown
    assert "15 used + 1 unexpected = 16 parameters stored" in shown
    assert "Fix (config-field): </strong>set num_hidden_layers to 3" in shown
    assert "is gated: accept its licence on the Hub" in gated()._repr_html_()


@given(st.sampled_from(HOSTILE))
def test_names_are_text(name):
    shown = hostile()._repr_html_()
    assert "<img src=x>" not in shown
    assert name.isprintable() or name not in shown


# --- frames -------------------------------------------------------------------------------------


def test_findings_of_a_frame_add_up_to_the_difference():
    report = auditor.audit("bert-base-chinese", source="bundled")
    frame = report.findings_frame()
    assert frame["explains"].sum() == 102_882_442 - 102_290_312
    assert str(frame["parameters"].dtype) == "Int64"


def test_tensors_of_a_frame_are_all_that_is_stored_and_what_is_not():
    report = auditor.audit("bert-base-chinese", source="bundled", target="BertForQuestionAnswering")
    frame = report.tensors_frame()
    stored = frame[frame["file"].notna()]
    assert len(stored) == report.observed.tensors
    assert stored["parameters"].sum() == report.observed.parameters
    assert stored["elements"].sum() == report.observed.elements
    fresh = frame[frame["status"] == "newly-initialized"]
    assert fresh["name"].tolist() == ["qa_outputs.weight", "qa_outputs.bias"]
    assert fresh["expected_shape"].tolist() == [(2, 768), (2,)]
    equal = frame[frame["status"] == "equal"]
    assert (equal["shape"] == equal["expected_shape"]).all()


def test_a_cause_is_a_row():
    [row] = diagnosed().diagnosis_frame().to_dict("records")
    assert (row["cause"], row["findings"], row["kinds"]) == ("config-field", 1, "missing")


def test_what_was_never_compared_has_empty_frames():
    assert gated().tensors_frame().empty
    assert gated().findings_frame().empty

"""A class without a closed form is expected by its generated form, inside the form's guards."""

import json

import pytest

from auditor import explain
from auditor.analytic import Config, generated
from auditor.audit import expected
from auditor.audit.expected import Implied, NotImplied, expectation_of

MODEL = {"model_type": "deberta", "architectures": ["DebertaForMaskedLM"]}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(expected, "_oracle", lambda: None)


def test_the_generated_form_speaks_where_no_closed_form_does():
    implied = expectation_of(Config(values=MODEL), None)
    assert isinstance(implied, Implied)
    assert implied.expectation.by == "generated"
    assert implied.expectation.library.startswith(f"{generated.index().library}, held on ")


def test_a_closed_form_comes_first():
    config = Config(values={"model_type": "bert", "architectures": ["BertModel"]})
    implied = expectation_of(config, None)
    assert isinstance(implied, Implied)
    assert implied.expectation.by == "closed-form"


def test_outside_its_guards_the_key_is_named():
    implied = expectation_of(Config(values={**MODEL, "unheard_of": 3}), None)
    assert isinstance(implied, NotImplied)
    assert "generated form for 'unheard_of'" in str(implied.error)


def test_explain_reports_the_generated_form(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    outcome = explain(str(tmp_path))
    form = generated.expect(Config(values=MODEL), "DebertaForMaskedLM")
    assert (outcome.expected.by, outcome.expected.parameters) == ("generated", form.parameters)

"""A class without a closed form is expected by its generated form, inside the form's guards."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor import explain
from auditor.analytic import Config, generated
from auditor.audit import expected
from auditor.audit.expected import Implied, NotImplied, expectation_of

MODEL = {"model_type": "deberta", "architectures": ["DebertaForMaskedLM"]}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(expected, "_oracle", lambda *_: None)


def test_the_generated_form_speaks_where_no_closed_form_does():
    implied = expectation_of(Config(values=MODEL), None)
    assert isinstance(implied, Implied)
    assert implied.expectation.by == "generated"
    assert implied.expectation.library.startswith(
        f"{generated.index().libraries[-1]}, compared on "
    )


def test_a_closed_form_comes_first():
    config = Config(values={"model_type": "bert", "architectures": ["BertModel"]})
    implied = expectation_of(config, None)
    assert isinstance(implied, Implied)
    assert implied.expectation.by == "closed-form"


def test_outside_its_guards_the_key_is_named():
    implied = expectation_of(
        Config(values={**MODEL, "unheard_of": 3, "transformers_version": "99.0.0"}), None
    )
    assert isinstance(implied, NotImplied)
    assert "generated form for 'unheard_of'" in str(implied.error)


def test_explain_reports_the_generated_form(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    outcome = explain(str(tmp_path))
    form = generated.expect(Config(values=MODEL), "DebertaForMaskedLM")
    assert (outcome.expected.by, outcome.expected.parameters) == ("generated", form.parameters)


KEYS = ("hidden_size", "id2label", "num_labels", "hidden_act", "vision_config", "layers", "x")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**63) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=6,
)


@given(st.data())
def test_any_config_gets_an_answer_or_a_reason(data):
    model_type = data.draw(st.sampled_from(sorted(generated.index().types)))
    target = data.draw(st.sampled_from(generated.siblings(model_type)))
    form = generated.forms(model_type)[target]
    keys = st.sampled_from(sorted({*KEYS, *form.defaults, *form.free, *form.guards}))
    values = data.draw(st.dictionaries(keys, VALUES, max_size=3))
    declared = {"model_type": model_type, "architectures": [target]}
    component = {"_class_name": target}
    config = Config(values=values | (declared if form.model_type else component))
    assert isinstance(expectation_of(config, None), Implied | NotImplied)

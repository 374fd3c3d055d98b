"""The base model's prefix: the forms of a stored name, and the starts of names in a rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.loading import forms_with_prefix, starts_of_rule

PARTS = st.sampled_from(("bert", "bert_pooler", "encoder", "weight", "b"))
NAMES = st.lists(PARTS, min_size=2, max_size=4).map(".".join)
PREFIXES = st.sampled_from(("bert", "model", "b"))


@given(NAMES, PREFIXES)
def test_each_form_names_the_tensor_with_the_prefix_without_it_or_as_it_is(name, prefix):
    longer = f"{prefix}.{name}"
    forms = forms_with_prefix((name, longer), prefix)[name]
    assert forms[-2:] == (longer, name)
    assert all(name in {form, f"{prefix}{name[len(prefix)]}{form}"} for form in forms[:-2])
    assert forms_with_prefix((name, longer), prefix)[longer][0] == name
    assert forms_with_prefix((name,), "") == {name: (name,)}


@pytest.mark.oracle
@given(NAMES, PREFIXES, st.sets(NAMES))
def test_the_library_loads_a_name_into_the_first_form_that_the_model_has(name, prefix, names):
    from transformers.core_model_loading import rename_source_key  # noqa: PLC0415 - takes seconds

    forms = forms_with_prefix((name,), prefix)[name]
    in_model = names | {form for at, form in enumerate(forms) if (len(name) + at) % 2}
    expected, _ = rename_source_key(name, [], [], prefix, dict.fromkeys(in_model, 1))
    assert next((form for form in forms if form in in_model), name) == expected


@pytest.mark.parametrize(
    ("scope", "prefix", "starts"),
    [
        (None, "model", ("",)),
        ("", "model", ("model.", "")),
        ("vision_tower", "model", ("model.vision_tower.", "vision_tower.")),
        ("vision_tower", "", ("vision_tower.",)),
    ],
)
def test_a_rule_of_a_model_inside_the_class_begins_with_its_path(scope, prefix, starts):
    assert starts_of_rule(scope, prefix) == starts

"""Configs with odd values: an expectation or a reason, and never a crash."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of

from auditor.analytic import catalogue
from auditor.analytic.config_classes import of_model_type
from auditor.errors import CheckpointError, SourceError

MODEL_TYPES = catalogue.model_types()
UNDECLARED = (
    "depths",
    "dtype",
    "id2label",
    "layer_types",
    "num_labels",
    "out_features",
    "out_indices",
    "pad_token_id",
    "per_layer_config",
    "rope_scaling",
    "text_config_dict",
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from([2**40, 10**30, "", "1", "auto", "gated-", "full_attention", "stage1"])
)
ODD = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "a", "hidden_size", "model_type"]), inner)
    ),
    max_leaves=4,
)


@given(st.data())
def test_an_odd_config_has_an_expectation_or_a_reason(drawn):
    model_type = drawn.draw(st.sampled_from(MODEL_TYPES))
    target = drawn.draw(st.sampled_from(catalogue.siblings(model_type)))
    kind, read = of_model_type(model_type), {*catalogue.family(model_type).defaults}
    declared = {*kind.fields, *kind.parts, *kind.attribute_map} if kind else set()
    keys = st.sampled_from(sorted({*read, *declared, *UNDECLARED}))
    values = drawn.draw(st.dictionaries(keys, ODD, min_size=1, max_size=3))
    with suppress(CheckpointError, SourceError):  # the reason
        expected = catalogue.expect(config_of(**values, model_type=model_type), target)
        assert all(size >= 0 for tensor in expected.tensors for size in tensor.shape)


def test_differing_layers_of_a_nested_config_have_no_closed_form():
    uneven = {"per_layer_config": {"0": {"hidden_size": 4}}}
    for target, key in (("SamModel", "prompt_encoder_config"), ("BlipModel", "text_config")):
        with pytest.raises(
            SourceError, match=rf"^no closed form is known for {key}\.per_layer_con"
        ):
            catalogue.expect(config_of(**{key: uneven}), target)

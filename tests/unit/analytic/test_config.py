"""Sizes, flags and labels of a config, and its defaults."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bert_configs import config_of, refusal

from auditor.analytic import Config, catalogue
from auditor.analytic.families.bert import BERT
from auditor.analytic.family import Family
from auditor.errors import CheckpointError

SIZES = sorted(key for key, value in BERT.defaults.items() if type(value) is int)
FLAGS = sorted(key for key, value in BERT.defaults.items() if type(value) is bool)
SCALARS = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-3, 3)


def label_values() -> st.SearchStrategy[dict[str, Any]]:
    keys = st.integers(-2, 12).map(str) | st.sampled_from(["00", "x", "0.5", " 1 "])
    return st.fixed_dictionaries(
        {},
        optional={
            "num_labels": st.none() | st.integers(0, 9) | st.sampled_from(["3", 1.5]),
            "id2label": st.none()
            | st.dictionaries(keys, st.just("label"), max_size=4)
            | st.just([]),
        },
    )


def bert(**values: Any) -> Config:
    return config_of(**values).of(BERT)


@pytest.mark.oracle
@settings(deadline=None)  # the first example imports torch
@given(label_values())
def test_labels_are_counted_as_transformers_counts_them(values):
    from transformers import BertConfig  # noqa: PLC0415 - seconds, which only this test pays

    try:
        expected = BertConfig(**values).num_labels
    except (TypeError, ValueError, AttributeError):
        with pytest.raises(CheckpointError, match=r"num_labels|id2label"):
            _ = bert(**values).num_labels
    else:
        assert bert(**values).num_labels.value == expected


@pytest.mark.oracle
@settings(deadline=None)  # the first example imports torch
@given(st.sampled_from(SIZES + FLAGS), SCALARS)
def test_a_value_of_a_type_that_transformers_refuses_is_refused(key, value):
    from huggingface_hub.errors import (  # noqa: PLC0415 - for this test alone
        StrictDataclassFieldValidationError,
    )
    from transformers import BertConfig  # noqa: PLC0415 - seconds, which only this test pays

    read = Config.flag if key in FLAGS else Config.integer
    try:
        BertConfig(**{key: value})
    except StrictDataclassFieldValidationError:
        with pytest.raises(CheckpointError, match=key):
            read(bert(**{key: value}), key)
    else:
        if value >= 1 or key in FLAGS:
            assert read(bert(**{key: value}), key) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("768", "the string '768', expected an integer"),
        (768.0, "768.0, expected an integer"),
        (float("nan"), "nan, expected an integer"),
        (float("inf"), "inf, expected an integer"),
        (True, "true, expected an integer"),
        (None, "null, expected an integer"),
        ([768], "a list, expected an integer"),
        ({}, "an object, expected an integer"),
        pytest.param(
            "7" * 999, f"the string '{'7' * 50}...{'7' * 50}', expected an", id="999 characters"
        ),
    ],
)
def test_an_invalid_size_is_named_with_its_value(value, shown):
    with pytest.raises(CheckpointError, match="^hidden_size is " + re.escape(shown)):
        bert(hidden_size=value).dim("hidden_size")


def test_a_size_that_no_tensor_can_have_is_refused_where_one_would_have_it(subtests):
    for key in ["type_vocab_size", "intermediate_size", "hidden_size"]:
        for size in [-1, 2**62, 2**63, 10**300]:
            with subtests.test(size=size, key=key):
                assert bert(**{key: size}).integer(key) == size
                values = {key: size, "num_attention_heads": 1}
                what = "a negative size" if size < 0 else "more numbers than torch can address"
                assert f".weight would have {what}" in refusal("BertModel", **values)


def test_what_a_model_can_do_without_may_be_zero(subtests):
    for key in ["num_hidden_layers", "type_vocab_size", "intermediate_size"]:
        with subtests.test(key=key):
            assert not refusal("BertModel", **{key: 0})


def test_a_negative_number_of_layers_means_no_layers():
    none, fewer = (catalogue.expect(config_of(num_hidden_layers=n), "BertModel") for n in (0, -2))
    assert fewer.tensors == none.tensors
    assert fewer.faults == ()


def test_a_flag_is_true_or_false(subtests):
    for value in [0, 1, "false", None, []]:
        with subtests.test(value=value):
            assert bert(is_decoder=True).flag("is_decoder") is True
            with pytest.raises(
                CheckpointError, match=r"^is_decoder is .*, expected true or false$"
            ):
                bert(is_decoder=value).flag("is_decoder")


def test_num_labels_beats_id2label_which_beats_two(subtests):
    for values, labels in [
        ({}, 2),
        ({"id2label": None}, 2),
        ({"label2id": {"a": 0, "b": 1, "c": 2}}, 2),
        ({"num_labels": 5}, 5),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"id2label": {"0": "a", "00": "b"}}, 1),
        ({"id2label": {"0": "a"}, "num_labels": 5}, 5),
    ]:
        with subtests.test(values=values, labels=labels):
            assert config_of(**values).num_labels.value == labels


def test_without_labels_a_familys_own_number_of_them_beats_two():
    three = Family(model_type="three", prefix="model", base="ThreeModel", own={"num_labels": 3})
    config = config_of().of(three)
    assert (config.num_labels.value, config.defaulted) == (3, ("num_labels",))
    assert config_of(id2label={"0": "a"}).of(three).num_labels.value == 1
    assert config_of(num_labels=5).of(three).num_labels.value == 5


def test_a_number_of_labels_that_transformers_misreads_is_refused():
    with pytest.raises(CheckpointError, match=r"^num_labels is "):
        _ = config_of(num_labels=True).num_labels


def test_a_negative_number_of_labels_means_no_labels():
    assert config_of(num_labels=-1).num_labels.value == 0


def test_a_key_that_neither_the_config_nor_its_class_has_is_named():
    with pytest.raises(CheckpointError, match=r"^kv_heads is not in the config, and its class"):
        bert().dim("kv_heads")


def test_only_the_defaults_that_were_used_are_recorded():
    config = bert(hidden_size=8, num_hidden_layers=1)
    config.dim("hidden_size")
    config.dim("vocab_size")
    config.flag("is_decoder")
    assert config.defaulted == ("is_decoder", "vocab_size")
    assert config.of(BERT).defaulted == ()

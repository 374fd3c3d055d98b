"""BERT's closed forms against transformers itself."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bert_configs import CLASSES, bert_values, config_of, refusal

from auditor.analytic import Expectation, ExpectedTensor, Role, catalogue
from auditor.errors import CheckpointError
from auditor.oracle import build

pytestmark = pytest.mark.oracle

SHAPES = [
    {},
    {"tie_word_embeddings": False},
    {"is_decoder": True, "add_cross_attention": True},
    {"num_labels": 7, "id2label": {"0": "a"}},
    {"id2label": {"0": "a", "1": "b", "2": "c"}},
    {"num_hidden_layers": 0, "type_vocab_size": 0, "intermediate_size": 0},
]
TINY = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, "num_hidden_layers": 2}


def of_role(expectation: Expectation, *roles: Role) -> list[ExpectedTensor]:
    return [tensor for tensor in expectation.tensors if tensor.role in roles]


def assert_closed_form_equals_oracle(values, target):
    expected = catalogue.expect(config_of(**values), target)
    observed = build.build_expectation(values, target)
    assert of_role(expected, Role.PARAMETER) == of_role(observed, Role.PARAMETER)
    assert of_role(expected, Role.TIED) == of_role(observed, Role.TIED)
    assert of_role(observed, Role.BUFFER) == []  # transformers 5 stores none; ours is of old files
    assert expected.parameters == observed.parameters
    assert (expected.target, expected.model_type, expected.prefix) == (
        observed.target,
        observed.model_type,
        observed.prefix,
    )
    counts = {prefix: parameters for prefix, (parameters, _) in expected.modules.items()}
    assert counts | {k: parameters for k, (parameters, _) in observed.modules.items()} == counts


@pytest.mark.parametrize("values", SHAPES, ids=str)
@pytest.mark.parametrize("target", CLASSES)
def test_the_closed_form_equals_the_oracle_over_the_defaults(target, values):
    assert_closed_form_equals_oracle(values, target)


@settings(deadline=None, max_examples=200)  # 4 ms each
@given(st.sampled_from(CLASSES), bert_values())
def test_the_closed_form_equals_the_oracle_over_random_configs(target, values):
    assert_closed_form_equals_oracle(values, target)


@settings(deadline=None)  # the first example imports torch
@given(st.integers(1, 24), st.integers(1, 12))
def test_a_width_that_the_heads_do_not_divide_is_named(width, heads):
    values = {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": 1}
    try:
        build.build_expectation(values, "BertModel")
    except CheckpointError:
        assert refusal("BertModel", **values).startswith(f"hidden_size {width} is not a multiple")
    else:
        assert not refusal("BertModel", **values)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("target", CLASSES)
def test_a_saved_model_holds_the_parameters_of_the_closed_form(target, tied, tmp_path: Path):
    import transformers  # noqa: PLC0415 - seconds, which only who runs the oracle's tests pays
    from safetensors import safe_open  # noqa: PLC0415 - for this test alone

    values = TINY | {"tie_word_embeddings": tied}
    transformers.utils.logging.disable_progress_bar()
    getattr(transformers, target)(transformers.BertConfig(**values)).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        observed = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    expected = catalogue.expect(config_of(**values), target)
    assert {t.name: t.shape for t in of_role(expected, Role.PARAMETER)} == observed


def test_every_bert_class_of_transformers_has_a_closed_form():
    import transformers  # noqa: PLC0415 - seconds, which only who runs the oracle's tests pays

    theirs = {
        name for name in dir(transformers) if re.fullmatch(r"Bert(Model|For\w+|LMHead\w+)", name)
    }
    assert theirs == set(CLASSES)

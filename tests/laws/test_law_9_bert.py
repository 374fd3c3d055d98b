"""BERT's closed forms against saved models; test_law_9_families.py has the random configs."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bert_configs import CLASSES, config_of, refusal

from auditor.analytic import Role, catalogue
from auditor.errors import CheckpointError
from auditor.oracle import build

pytestmark = pytest.mark.oracle

TINY = {"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 11, "num_hidden_layers": 2}


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
    import transformers  # noqa: PLC0415 - seconds
    from safetensors import safe_open  # noqa: PLC0415 - for this test alone

    values = TINY | {"tie_word_embeddings": tied}
    transformers.utils.logging.disable_progress_bar()
    getattr(transformers, target)(transformers.BertConfig(**values)).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        observed = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    expected = catalogue.expect(config_of(**values), target)
    assert {t.name: t.shape for t in expected.tensors if t.role is Role.PARAMETER} == observed


def test_every_bert_class_of_transformers_has_a_closed_form():
    import transformers  # noqa: PLC0415 - seconds

    library_classes = {
        name for name in dir(transformers) if re.fullmatch(r"Bert(Model|For\w+|LMHead\w+)", name)
    }
    assert library_classes == set(CLASSES)

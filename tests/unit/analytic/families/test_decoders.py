"""Llama's relatives: what stands beside the class in a file, an older spelling, and refusals."""

import pytest
from support.bert_configs import config_of, refusal
from support.published_configs import published

from auditor.analytic import Role, catalogue


@pytest.mark.parametrize("last", [46, 92])
def test_glm_4_5_stores_one_layer_that_its_class_does_not_read(last):
    """transformers 5.23 ignores `model.layers.46` and `model.layers.92` for this type."""
    config = config_of(model_type="glm4_moe", num_hidden_layers=last, num_nextn_predict_layers=1)
    expected = catalogue.expect(config, "Glm4MoeForCausalLM")
    extra = {tensor.name for tensor in expected.tensors if tensor.role is Role.EXTRA}
    assert {".".join(name.split(".")[:3]) for name in extra} == {f"model.layers.{last}"}
    assert f"model.layers.{last}.eh_proj.weight" in extra
    assert f"model.layers.{last}.mlp.experts.127.up_proj.weight" in extra


def test_stablelm_epoch_is_stablelm():
    sizes = {"num_hidden_layers": 2, "use_qkv_bias": True}
    old = config_of(model_type="stablelm_epoch", **sizes)
    new = config_of(model_type="stablelm", **sizes)
    expected = catalogue.expect(old, "StableLMEpochForCausalLM")
    assert expected == catalogue.expect(new, "StableLmForCausalLM")
    assert expected.model_type == "stablelm"


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        ("Qwen3MoeModel", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0; it has to be 1"),
        ("Qwen2MoeModel", {"mlp_only_layers": 3}, "mlp_only_layers is 3, expected a list"),
        ("Gemma2Model", {"hidden_size": 100}, "hidden_size 100 is not a multiple of num_att"),
        ("GemmaModel", {"head_dim": None}, "head_dim is null, expected an integer"),
    ],
)
def test_what_transformers_cannot_build_is_refused(target, values, message):
    assert message in refusal(target, **values)


def test_without_experts_no_layer_is_sparse():
    config = config_of(num_experts=0, decoder_sparse_step=0, num_hidden_layers=2)
    expected = catalogue.expect(config, "Qwen2MoeModel")
    assert not [tensor.name for tensor in expected.tensors if ".mlp.experts." in tensor.name]
    assert expected.active is None


def test_mixtral_uses_as_many_experts_for_a_token_as_its_config_declares():
    expected = catalogue.expect(published("Mixtral-8x7B"), "MixtralForCausalLM")
    assert expected.active is not None
    assert "3*k*D*F" in expected.active.formula

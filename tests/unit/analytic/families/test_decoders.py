"""Llama's relatives: sizes of published files, an older spelling, and what is refused.

Qwen3-30B-A3B, phi-4 and gemma-2-9b: the elements in the Hub's files. gemma-2b, gemma-2-2b and
Phi-3-mini: half the total_size of an index of two bytes a parameter.
"""

import pytest
from support.bert_configs import config_of, refusal

from auditor.analytic import Role, catalogue

QWEN_3_30B_A3B = config_of(
    model_type="qwen3_moe",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    moe_intermediate_size=768,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    tie_word_embeddings=False,
)
PHI_4 = config_of(
    model_type="phi3",
    vocab_size=100352,
    hidden_size=5120,
    intermediate_size=17920,
    num_hidden_layers=40,
    num_attention_heads=40,
    num_key_value_heads=10,
    tie_word_embeddings=False,
)
PHI_3_MINI = config_of(
    model_type="phi3",
    vocab_size=32064,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    tie_word_embeddings=False,
)
GEMMA_2B = config_of(
    model_type="gemma",
    vocab_size=256000,
    hidden_size=2048,
    intermediate_size=16384,
    num_hidden_layers=18,
    num_attention_heads=8,
    num_key_value_heads=1,
    head_dim=256,
)
GEMMA_2_2B = config_of(
    model_type="gemma2",
    vocab_size=256000,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
)
GEMMA_2_9B = config_of(
    model_type="gemma2",
    vocab_size=256000,
    hidden_size=3584,
    intermediate_size=14336,
    num_hidden_layers=42,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=256,
)


@pytest.mark.parametrize(
    ("config", "target", "parameters"),
    [
        pytest.param(QWEN_3_30B_A3B, "Qwen3MoeForCausalLM", 30_532_122_624, id="Qwen3-30B-A3B"),
        pytest.param(PHI_4, "Phi3ForCausalLM", 14_659_507_200, id="phi-4"),
        pytest.param(PHI_3_MINI, "Phi3ForCausalLM", 7_642_159_104 // 2, id="Phi-3-mini"),
        pytest.param(GEMMA_2B, "GemmaForCausalLM", 5_012_344_832 // 2, id="gemma-2b"),
        pytest.param(GEMMA_2_2B, "Gemma2ForCausalLM", 5_228_683_776 // 2, id="gemma-2-2b"),
        pytest.param(GEMMA_2_9B, "Gemma2ForCausalLM", 9_241_705_984, id="gemma-2-9b"),
    ],
)
def test_a_published_config_implies_the_published_count(config, target, parameters):
    assert catalogue.expect(config, target).parameters == parameters


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
        ("Qwen2MoeModel", {"mlp_only_layers": 3}, "mlp_only_layers is 3; a list is needed"),
        ("Gemma2Model", {"hidden_size": 100}, "hidden_size 100 is not a multiple of num_att"),
        ("GemmaModel", {"head_dim": None}, "head_dim is null; an integer is needed"),
    ],
)
def test_what_transformers_cannot_build_is_refused(target, values, message):
    assert message in refusal(target, **values)


def test_without_experts_no_layer_is_sparse():
    config = config_of(num_experts=0, decoder_sparse_step=0, num_hidden_layers=2)
    expected = catalogue.expect(config, "Qwen2MoeModel")
    assert not [tensor.name for tensor in expected.tensors if ".mlp.experts." in tensor.name]
    assert expected.active is None

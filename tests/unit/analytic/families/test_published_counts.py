"""Counts that people published, by hand; where they erred, what the config implies."""

import pytest
from support.bert_configs import config_of

from auditor.analytic import Expectation, Role, catalogue

UNCASED = config_of()
CHINESE = config_of(vocab_size=21128)
LARGE_CHINESE = config_of(
    vocab_size=21128,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
)


def counts(expectation: Expectation, *prefixes: str) -> tuple[int, ...]:
    return tuple(expectation.modules[prefix].parameters for prefix in prefixes)


def test_bert_base_uncased_as_a_bert_model():
    expected = catalogue.expect(UNCASED, "BertModel")
    assert expected.parameters == 109_482_240
    # Both write-ups print 0 for the pooler; one adds it to the encoder: 85,645,056.
    assert counts(expected, "embeddings", "encoder", "pooler") == (23_837_184, 85_054_464, 590_592)
    assert 85_054_464 + 590_592 == 85_645_056


def test_a_large_chinese_bert_layer_by_layer():
    expected = catalogue.expect(LARGE_CHINESE, "BertForMaskedLM")
    embeddings = "bert.embeddings"
    assert counts(
        expected,
        f"{embeddings}.word_embeddings",
        f"{embeddings}.token_type_embeddings",
        f"{embeddings}.position_embeddings",
        f"{embeddings}.LayerNorm",
        embeddings,
    ) == (21_635_072, 2_048, 524_288, 2_048, 22_163_456)
    layer = "bert.encoder.layer.23"
    assert counts(
        expected,
        f"{layer}.attention.output.LayerNorm",
        f"{layer}.output.LayerNorm",
        layer,
        "bert",
    ) == (2_048, 2_048, 12_596_224, 324_472_832)
    attention, norm, between, output = counts(
        expected,
        f"{layer}.attention",
        f"{layer}.attention.output.LayerNorm",
        f"{layer}.intermediate",
        f"{layer}.output",
    )
    assert attention - norm == 4_198_400
    assert between + output - norm == 8_393_728


def test_bert_base_chinese_as_a_masked_language_model():
    expected = catalogue.expect(CHINESE, "BertForMaskedLM")
    assert expected.parameters == 102_290_312
    assert counts(expected, "bert.embeddings", "bert.encoder", "cls") == (
        16_622_592,
        85_054_464,
        613_256,
    )
    assert expected.modules["bert.encoder"].formula == "N*(12*D^2 + 13*D)"
    assert expected.modules["bert.encoder.layer.0"].formula == "12*D^2 + 13*D"
    assert expected.modules["bert.embeddings"].formula == "V*D + L*D + T*D + 2*D"  # T is 2
    assert expected.modules["cls"].formula == "V + D^2 + 3*D"


def test_bert_base_chinese_from_its_config():
    expected = catalogue.expect(CHINESE, "BertModel")
    assert expected.parameters == 102_267_648
    embeddings, norm, encoder = counts(expected, "embeddings", "embeddings.LayerNorm", "encoder")
    assert embeddings - norm == 16_621_056
    assert embeddings + encoder == 101_677_056  # published as 75,641,856
    norms = [tensor for tensor in expected.tensors if ".LayerNorm." in tensor.name]
    assert len(norms) == 2 * 25
    assert sum(tensor.elements for tensor in norms) == 38_400
    layer = "encoder.layer.0"
    attention, between, output, norm = counts(
        expected,
        f"{layer}.attention",
        f"{layer}.intermediate.dense",
        f"{layer}.output.dense",
        f"{layer}.output.LayerNorm",
    )
    assert 12 * (attention - norm) == 28_348_416  # published as 2,359,296: one layer, no biases
    assert 12 * (between + output) == 56_669_184  # published as 56,623,104: no biases


@pytest.mark.parametrize(
    ("config", "elements"),
    [(UNCASED, 110_106_428), (config_of(vocab_size=28996), 108_932_934), (CHINESE, 102_882_442)],
)
def test_the_hubs_own_bert_files_hold_what_pre_training_needs(config, elements):
    expected = catalogue.expect(config, "BertForPreTraining")
    learned = [tensor for tensor in expected.tensors if tensor.role is Role.PARAMETER]
    assert expected.parameters == elements
    assert len(learned) == 206


def test_keys_that_shape_no_tensor_change_nothing():
    noise = {"pooler_fc_size": 768, "directionality": "bidi", "return_dict": 3, "num_labels": 18}
    assert catalogue.expect(config_of(**noise), "BertModel") == catalogue.expect(
        config_of(), "BertModel"
    )
    labels = catalogue.expect(config_of(**noise), "BertForTokenClassification")
    assert labels.modules["classifier"] == (18 * 768 + 18, "C*D + C")


LLAMA_2_7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    tie_word_embeddings=False,
)
LLAMA_31_8B = config_of(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
)
LLAMA_32_1B = config_of(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    tie_word_embeddings=True,
)
MISTRAL_7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
MIXTRAL_8X7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    num_local_experts=8,
    num_experts_per_tok=2,
    tie_word_embeddings=False,
)
QWEN_25_7B = config_of(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    tie_word_embeddings=False,
)
QWEN_3_8B = config_of(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    attention_bias=False,
    tie_word_embeddings=False,
)
GPT2 = config_of(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12, n_ctx=1024)
T5_SMALL = config_of(
    vocab_size=32128,
    d_model=512,
    d_kv=64,
    d_ff=2048,
    num_layers=6,
    num_heads=8,
    relative_attention_num_buckets=32,
    is_encoder_decoder=True,
)


@pytest.mark.parametrize(
    ("config", "target", "parameters"),
    [
        pytest.param(LLAMA_2_7B, "LlamaForCausalLM", 6_738_415_616, id="Llama-2-7b"),
        pytest.param(LLAMA_31_8B, "LlamaForCausalLM", 8_030_261_248, id="Llama-3.1-8B"),
        pytest.param(LLAMA_32_1B, "LlamaForCausalLM", 1_235_814_400, id="Llama-3.2-1B"),
        pytest.param(MISTRAL_7B, "MistralForCausalLM", 7_241_732_096, id="Mistral-7B-v0.1"),
        pytest.param(MIXTRAL_8X7B, "MixtralForCausalLM", 46_702_792_704, id="Mixtral-8x7B"),
        pytest.param(QWEN_25_7B, "Qwen2ForCausalLM", 7_615_616_512, id="Qwen2.5-7B"),
        pytest.param(QWEN_3_8B, "Qwen3ForCausalLM", 8_190_735_360, id="Qwen3-8B"),
        pytest.param(GPT2, "GPT2LMHeadModel", 124_439_808, id="gpt2"),
        pytest.param(T5_SMALL, "T5ForConditionalGeneration", 60_506_624, id="t5-small"),
    ],
)
def test_a_published_config_implies_the_published_count(config, target, parameters):
    assert catalogue.expect(config, target).parameters == parameters


def test_mixtral_uses_two_experts_of_eight_for_a_token():
    expected = catalogue.expect(MIXTRAL_8X7B, "MixtralForCausalLM")
    assert expected.active is not None
    assert expected.active.parameters == 12_879_925_248
    assert "3*k*D*F" in expected.active.formula


@pytest.mark.parametrize(
    ("config", "target", "suffix", "role", "file"),
    [
        pytest.param(GPT2, "GPT2LMHeadModel", ".attn.bias", Role.LEGACY, 137_022_720, id="gpt2"),
        pytest.param(
            LLAMA_2_7B,
            "LlamaForCausalLM",
            ".inv_freq",
            Role.LEGACY,
            6_738_417_664,
            id="Llama-2-7b",
        ),
        pytest.param(
            T5_SMALL,
            "T5ForConditionalGeneration",
            ".1.EncDecAttention.relative_attention_bias.weight",
            Role.EXTRA,
            60_506_880,
            id="t5-small",
        ),
    ],
)
def test_what_a_published_file_holds_beyond_its_class_is_expected(
    config, target, suffix, role, file
):
    expected = catalogue.expect(config, target)
    beyond = [tensor for tensor in expected.tensors if tensor.name.endswith(suffix)]
    assert {tensor.role for tensor in beyond} == {role}
    assert expected.parameters + sum(tensor.elements for tensor in beyond) == file

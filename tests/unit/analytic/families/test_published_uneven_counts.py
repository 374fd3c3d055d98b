"""Published counts of models whose layers are not all alike; each says where it comes from."""

from math import ceil

import pytest
from support.bert_configs import config_of

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic.expectation import ExpectedTensor

# openai/gpt-oss-20b: what its Hub page counts once the MXFP4 blocks are unpacked.
GPT_OSS_20B = config_of(
    model_type="gpt_oss",
    vocab_size=201088,
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=24,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
    attention_bias=True,
    tie_word_embeddings=False,
)
# google/medgemma-27b-it: total_size 54,864,813,280 of its index, in BF16, for 1,247 tensors. Its
# total_parameters, 28,842,036,848, counts the tied head once more: 262208 * 5376 = 1,409,630,208.
MEDGEMMA_27B = config_of(
    model_type="gemma3",
    text_config={
        "vocab_size": 262208,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "attention_bias": False,
    },
    vision_config={
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 896,
        "patch_size": 14,
        "vision_use_head": False,
    },
)
# LiquidAI/LFM2-8B-A1B: total_parameters of the index of its 4-bit copy for MLX.
LFM2_8B_A1B = config_of(
    model_type="lfm2_moe",
    vocab_size=128000,
    hidden_size=2048,
    intermediate_size=7168,
    moe_intermediate_size=1792,
    num_hidden_layers=24,
    num_attention_heads=32,
    num_key_value_heads=8,
    num_experts=32,
    num_experts_per_tok=4,
    num_dense_layers=2,
    conv_L_cache=3,
    conv_bias=False,
    use_expert_bias=True,
    tie_word_embeddings=True,
    layer_types=[
        "full_attention" if number in {2, 6, 10, 14, 18, 21} else "conv" for number in range(24)
    ],
)
# A Qwen3.5-35B-A3B pruned to 128 experts: total_size 37,087,995,136 of its index, in two bytes
# each, for 15,973 tensors.
QWEN_35_18B = config_of(
    model_type="qwen3_5_moe_text",
    vocab_size=248320,
    hidden_size=2048,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_hidden_layers=40,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    num_experts=128,
    num_experts_per_tok=8,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    full_attention_interval=4,
)


@pytest.mark.parametrize(
    ("config", "target", "parameters"),
    [
        pytest.param(GPT_OSS_20B, "GptOssForCausalLM", 20_914_757_184, id="gpt-oss-20b"),
        pytest.param(
            MEDGEMMA_27B,
            "Gemma3ForConditionalGeneration",
            54_864_813_280 // 2,
            id="medgemma-27b-it",
        ),
        pytest.param(LFM2_8B_A1B, "Lfm2MoeForCausalLM", 8_467_856_128, id="LFM2-8B-A1B"),
        pytest.param(
            QWEN_35_18B, "Qwen3_5MoeForCausalLM", 37_087_995_136 // 2, id="Qwen3.5-18B-A3B"
        ),
    ],
)
def test_a_published_config_implies_the_published_count(config, target, parameters):
    assert catalogue.expect(config, target).parameters == parameters


def stored(expectation: Expectation) -> list[ExpectedTensor]:
    return [tensor for tensor in expectation.tensors if tensor.role is Role.PARAMETER]


def test_published_indexes_name_as_many_tensors():
    assert len(stored(catalogue.expect(MEDGEMMA_27B, "Gemma3ForConditionalGeneration"))) == 1247
    assert len(stored(catalogue.expect(QWEN_35_18B, "Qwen3_5MoeForCausalLM"))) == 15_973


# deepseek-ai/DeepSeek-R1: 163 files of 688,586,727,753 bytes.
DEEPSEEK_R1 = config_of(
    model_type="deepseek_v3",
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_hidden_layers=61,
    num_attention_heads=128,
    num_key_value_heads=128,
    n_shared_experts=1,
    n_routed_experts=256,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    num_nextn_predict_layers=1,
)
UNPACKED = ("embed_tokens.weight", "head.weight", ".gate.weight", "eh_proj.weight")


def test_the_files_of_deepseek_r1_hold_its_class_and_one_layer_for_drafting():
    """In FP8, with a scale in F32 for 128 x 128 numbers, all that a layer multiplies by.

    The rest is in BF16, the routers' corrections in F32. Headers of healthy files have 110 to 140
    bytes for each tensor.
    """
    expected = catalogue.expect(DEEPSEEK_R1, "DeepseekV3ForCausalLM")
    assert round(expected.parameters, -9) == 671_000_000_000
    size, tensors = 0, 0
    for tensor in expected.tensors:
        packed = len(tensor.shape) == 2 and not tensor.name.endswith(UNPACKED)
        scales = ceil(tensor.shape[0] / 128) * ceil(tensor.shape[-1] / 128) if packed else 0
        width = 1 if packed else 2 if tensor.role.learned else 4
        size += tensor.elements * width + 4 * scales
        tensors += 1 + bool(scales)
    assert 110 < (688_586_727_753 - size) / tensors < 140


# google/gemma-4-E2B; the shapes are those in the header of its file.
GEMMA_4_E2B = config_of(
    model_type="gemma4",
    text_config={
        "vocab_size": 262144,
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_kv_shared_layers": 20,
        "use_double_wide_mlp": True,
        "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
    },
)


def test_gemma_4_is_twice_as_wide_where_it_shares_keys_and_stores_them_all_the_same():
    expected = catalogue.expect(GEMMA_4_E2B, "Gemma4ForConditionalGeneration")
    tensors = {tensor.name: tensor for tensor in expected.tensors}
    for number in range(35):
        layer = f"model.language_model.layers.{number}"
        keys = tensors[f"{layer}.self_attn.k_proj.weight"]
        assert keys.shape == (256 if (number + 1) % 5 else 512, 1536)
        assert keys.role is (Role.PARAMETER if number < 15 else Role.EXTRA)
        assert tensors[f"{layer}.mlp.up_proj.weight"].shape[0] == (6144 if number < 15 else 12288)

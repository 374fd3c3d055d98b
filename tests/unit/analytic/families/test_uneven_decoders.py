"""What the oracle cannot say of decoders whose layers differ: layers beyond, and refusals."""

import json
import re

import pytest
from support.bert_configs import config_of, refusal
from support.published_configs import published

from auditor.analytic import Role, catalogue

SMALL = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}


def beyond(target: str, **values: object) -> dict[str, tuple[int, ...]]:
    tensors = catalogue.expect(config_of(**SMALL, **values), target).tensors
    return {tensor.name: tensor.shape for tensor in tensors if tensor.role is Role.EXTRA}


def test_deepseek_numbers_its_drafting_layers_on_after_its_own():
    names = beyond(
        "DeepseekV3ForCausalLM",
        num_hidden_layers=2,
        first_k_dense_replace=1,
        n_routed_experts=1,
        num_nextn_predict_layers=2,
    )
    assert {name.split(".")[2] for name in names} == {"2", "3"}
    assert names["model.layers.2.eh_proj.weight"] == (8, 16)
    assert names["model.layers.3.shared_head.head.weight"] == (11, 8)
    assert {name.removeprefix("model.layers.2.").split(".")[0] for name in names} >= {
        "embed_tokens",
        "enorm",
        "hnorm",
        "eh_proj",
        "shared_head",
        "self_attn",
        "mlp",
        "input_layernorm",
        "post_attention_layernorm",
    }


def test_qwen_3_5_stores_its_drafting_layers_outside_the_model(subtests):
    """The names are those of a published index, but for its packing."""
    for target, config in [
        ("Qwen3_5ForCausalLM", {"mtp_num_hidden_layers": 1, "num_hidden_layers": 0, **SMALL}),
        (
            "Qwen3_5ForConditionalGeneration",
            {"text_config": {"mtp_num_hidden_layers": 1, "num_hidden_layers": 0, **SMALL}},
        ),
    ]:
        with subtests.test(target=target, config=config):
            tensors = catalogue.expect(config_of(**config), target).tensors
            layer = {
                "input_layernorm.weight",
                "mlp.down_proj.weight",
                "mlp.gate_proj.weight",
                "mlp.up_proj.weight",
                "post_attention_layernorm.weight",
                "self_attn.k_norm.weight",
                "self_attn.k_proj.weight",
                "self_attn.o_proj.weight",
                "self_attn.q_norm.weight",
                "self_attn.q_proj.weight",
                "self_attn.v_proj.weight",
            }
            assert {tensor.name for tensor in tensors if tensor.role is Role.EXTRA} == {
                "mtp.fc.weight",
                "mtp.norm.weight",
                "mtp.pre_fc_norm_embedding.weight",
                "mtp.pre_fc_norm_hidden.weight",
                *(f"mtp.layers.0.{name}" for name in layer),
            }


def test_a_config_with_inconsistent_layers_is_refused(subtests):
    for target, values, message in [
        (
            "DeepseekV3ForCausalLM",
            {"num_nextn_predict_layers": 2**40},
            r"^num_nextn_predict_layers 1099511627776 would imply 1,099,511,627,776 tensors, ",
        ),
        (
            "Lfm2MoeForCausalLM",
            {"num_hidden_layers": 2},
            r"^layer_types is null, expected a list$",
        ),
        (
            "Lfm2ForCausalLM",
            {"num_hidden_layers": 2, "layer_types": ["conv"]},
            r"^layer_types has 1 items, expected 2$",
        ),
        (
            "Qwen3_5ForCausalLM",
            {"full_attention_interval": 0},
            r"^full_attention_interval is 0; it has to be 1 or more$",
        ),
        (
            "Gemma4ForCausalLM",
            {"num_hidden_layers": 6, "num_kv_shared_layers": 1},
            r"^num_kv_shared_layers 1 leaves no layer of some type to share with$",
        ),
        (
            "Gemma4ForCausalLM",
            {"num_hidden_layers": 1, "per_layer_config": {"0": {"head_dim": "4"}}},
            r"^per_layer_config\.0\.head_dim is the string '4', expected an integer$",
        ),
        (
            "Gemma4AudioModel",
            {"subsampling_conv_channels": [8]},
            r"^subsampling_conv_channels has 1 items, expected 2$",
        ),
    ]:
        with subtests.test(target=target, values=values, message=message):
            assert catalogue.expect(config_of(**SMALL, num_hidden_layers=0, layer_types=[]), target)
            assert re.match(message, refusal(target, **SMALL, **values))


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


@pytest.mark.oracle
def test_gemma_4_of_more_than_nine_layers_is_that_of_the_library():
    """As save_pretrained writes it: layer 5 of twelve is "05" in `per_layer_config`."""
    import torch  # noqa: PLC0415 - the oracle's tests alone need it
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig  # noqa: PLC0415 - likewise

    sizes = {"head_dim": 4, "global_head_dim": 8, "intermediate_size": 16}
    beside = {"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 11}
    library = Gemma4TextConfig(**SMALL, **sizes, **beside, num_hidden_layers=12, dtype="float32")
    with torch.device("meta"):
        model = Gemma4ForCausalLM(library)
    written = json.loads(library.to_json_string())
    assert "05" in written["per_layer_config"]
    found = catalogue.expect(config_of(**written), "Gemma4ForCausalLM").tensors
    due = {name: tuple(one.shape) for name, one in model.named_parameters()}
    assert {one.name: one.shape for one in found if one.role is Role.PARAMETER} == due


# --- decoders of Llama's kind ---------------------------------------------------------------------


def test_glm_4_5_stores_one_layer_that_its_class_does_not_read(subtests):
    """transformers 5.23 ignores `model.layers.46` and `model.layers.92` for this type."""
    for last in [46, 92]:
        with subtests.test(last=last):
            config = config_of(
                model_type="glm4_moe", num_hidden_layers=last, num_nextn_predict_layers=1
            )
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


def test_what_transformers_cannot_build_is_refused(subtests):
    for target, values, message in [
        ("Qwen3MoeModel", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0; it has to be 1"),
        ("Qwen2MoeModel", {"mlp_only_layers": 3}, "mlp_only_layers is 3, expected a list"),
        ("Gemma2Model", {"hidden_size": 100}, "hidden_size 100 is not a multiple of num_att"),
        ("GemmaModel", {"head_dim": None}, "head_dim is null, expected an integer"),
    ]:
        with subtests.test(target=target, values=values, message=message):
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

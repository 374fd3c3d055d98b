"""Images and text together: published counts, and how the configs of two towers are read.

CLIP: the counts of OpenAI's own models. SigLIP: the model's meta data in MTEB. Llava, Qwen2-VL,
Qwen2.5-VL, Qwen3-VL: the Hub's counts, which are half the total_size of the index. PaliGemma: a
quarter of it, 11,693,865,920. BLIP: a count of its captioning model in transformers 4.
"""

import pytest
from support.bert_configs import config_of, refusal

from auditor.analytic import Role, catalogue
from auditor.errors import CheckpointError, SourceError

CLIP_BASE_32 = config_of(
    model_type="clip",
    projection_dim=512,
    text_config={"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
    vision_config={"hidden_size": 768, "patch_size": 32},
)
LARGE_TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
LARGE_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
CLIP_LARGE_14 = config_of(
    model_type="clip", projection_dim=768, text_config=LARGE_TEXT, vision_config=LARGE_VISION
)
CLIP_LARGE_14_336 = config_of(
    model_type="clip",
    projection_dim=768,
    text_config=LARGE_TEXT,
    vision_config={**LARGE_VISION, "image_size": 336},
)
SIGLIP_BASE = config_of(
    model_type="siglip",
    text_config={"model_type": "siglip_text_model"},
    vision_config={"model_type": "siglip_vision_model"},
)
LLAVA_15_7B = config_of(
    model_type="llava",
    vision_feature_layer=-2,
    text_config={"model_type": "llama", "vocab_size": 32064},
    vision_config={"model_type": "clip_vision_model", "image_size": 336, **LARGE_VISION},
)
SEVEN_BILLION = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
QWEN_2_VL_7B = config_of(
    model_type="qwen2_vl",
    **SEVEN_BILLION,
    vision_config={"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584},
)
QWEN_2_VL_2B = config_of(
    model_type="qwen2_vl",
    vocab_size=151936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    vision_config={"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 1536},
)
QWEN_25_TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
QWEN_25_VL_7B = config_of(
    model_type="qwen2_5_vl",
    **SEVEN_BILLION,
    vision_config={**QWEN_25_TOWER, "in_chans": 3, "out_hidden_size": 3584},
)
QWEN_25_VL_3B = config_of(
    model_type="qwen2_5_vl",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=11008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    vision_config={**QWEN_25_TOWER, "out_hidden_size": 2048},
)
QWEN_3_VL_8B = config_of(
    model_type="qwen3_vl",
    tie_word_embeddings=False,
    text_config={
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    vision_config={
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "deepstack_visual_indexes": [8, 16, 24],
        "num_position_embeddings": 2304,
    },
)
PALIGEMMA_3B = config_of(
    model_type="paligemma",
    projection_dim=2048,
    text_config={
        "model_type": "gemma",
        "vocab_size": 257216,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
    },
    vision_config={
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
        "vision_use_head": False,
    },
)


@pytest.mark.parametrize(
    ("config", "target", "parameters"),
    [
        pytest.param(CLIP_BASE_32, "CLIPModel", 151_277_313, id="clip-vit-base-patch32"),
        pytest.param(CLIP_LARGE_14, "CLIPModel", 427_616_513, id="clip-vit-large-patch14"),
        pytest.param(CLIP_LARGE_14_336, "CLIPModel", 427_944_193, id="clip-vit-large-patch14-336"),
        pytest.param(SIGLIP_BASE, "SiglipModel", 203_155_970, id="siglip-base-patch16-224"),
        pytest.param(LLAVA_15_7B, "LlavaForConditionalGeneration", 7_063_427_072, id="llava-1.5"),
        pytest.param(QWEN_2_VL_2B, "Qwen2VLForConditionalGeneration", 2_208_985_600, id="2-VL-2B"),
        pytest.param(QWEN_2_VL_7B, "Qwen2VLForConditionalGeneration", 8_291_375_616, id="2-VL-7B"),
        pytest.param(
            QWEN_25_VL_3B, "Qwen2_5_VLForConditionalGeneration", 3_754_622_976, id="2.5-VL-3B"
        ),
        pytest.param(
            QWEN_25_VL_7B, "Qwen2_5_VLForConditionalGeneration", 8_292_166_656, id="2.5-VL-7B"
        ),
        pytest.param(QWEN_3_VL_8B, "Qwen3VLForConditionalGeneration", 8_767_123_696, id="3-VL-8B"),
        pytest.param(
            PALIGEMMA_3B, "PaliGemmaForConditionalGeneration", 11_693_865_920 // 4, id="paligemma"
        ),
    ],
)
def test_a_published_config_implies_the_published_count(config, target, parameters):
    assert catalogue.expect(config, target).parameters == parameters


def test_transformers_4_counted_the_matrix_of_blips_head_which_today_is_tied():
    config = config_of(model_type="blip", text_config={"vocab_size": 30524, "hidden_size": 768})
    expected = catalogue.expect(config, "BlipForConditionalGeneration")
    assert expected.parameters + 30_524 * 768 == 247_414_076


def test_older_clips_store_where_their_positions_are():
    expected = catalogue.expect(CLIP_BASE_32, "CLIPModel")
    legacy = {
        tensor.name: tensor.shape for tensor in expected.tensors if tensor.role is Role.LEGACY
    }
    assert legacy == {
        "text_model.embeddings.position_ids": (1, 77),
        "vision_model.embeddings.position_ids": (1, 50),
    }


def test_clip_base_in_its_formula():
    expected = catalogue.expect(CLIP_BASE_32, "CLIPModel")
    assert expected.modules["text_model.encoder"].formula == "N_text*(12*D_text^2 + 13*D_text)"
    assert expected.modules["text_projection"].formula == "D_text*projection_dim"


def test_an_older_dict_beats_the_text_config_altogether():
    values = {"model_type": "clip", "text_config": {"hidden_size": 64, "vocab_size": 7}}
    older = config_of(**values, text_config_dict={"hidden_size": 16})
    expected = catalogue.expect(older, "CLIPModel")
    assert expected.modules["text_model.embeddings.token_embedding"] == (
        49_408 * 16,
        "V_text*D_text",
    )
    unsaid = config_of(**values, text_config_dict=None)
    assert catalogue.expect(unsaid, "CLIPModel").parameters == (
        catalogue.expect(config_of(**values), "CLIPModel").parameters
    )


def test_a_flat_config_and_a_nested_one_imply_the_same():
    vision = {"depth": 1, "embed_dim": 32, "hidden_size": 3584}
    target = "Qwen2VLForConditionalGeneration"
    flat = config_of(model_type="qwen2_vl", **SEVEN_BILLION, vision_config=vision)
    nested = config_of(model_type="qwen2_vl", text_config=SEVEN_BILLION, vision_config=vision)
    assert catalogue.expect(flat, target).tensors == catalogue.expect(nested, target).tensors
    assert "2*V*D + " in catalogue.expect(flat, target).formula
    assert "2*V_text*D_text + " in catalogue.expect(nested, target).formula


def test_a_head_is_tied_where_the_language_models_own_config_says_so():
    target = "Qwen2VLForConditionalGeneration"
    for text, role in ((True, Role.TIED), (False, Role.PARAMETER)):
        config = config_of(model_type="qwen2_vl", text_config={"tie_word_embeddings": text})
        (head,) = (t for t in catalogue.expect(config, target).tensors if t.name.startswith("lm_"))
        assert head.role is role


def test_a_head_cannot_share_what_a_language_model_calls_otherwise():
    config = config_of(model_type="llava", text_config={"model_type": "gpt2"})
    message = r"^tie_word_embeddings is true, but the model of text_config has no embed_tokens"
    with pytest.raises(CheckpointError, match=message):
        catalogue.expect(config, "LlavaForConditionalGeneration")
    assert catalogue.expect(config, "LlavaModel").parameters


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        (
            "LlavaModel",
            {"vision_config": {"model_type": "no-such"}},
            r"^no closed form is known for vision_config\.model_type 'no-such'$",
        ),
        (
            "VisionEncoderDecoderModel",
            {"decoder": {"model_type": "no-such"}},
            r"^no closed form is known for decoder\.model_type 'no-such'$",
        ),
        (
            "VisionEncoderDecoderModel",
            {"decoder": {"model_type": "vit"}},
            r"^no language model is known for decoder\.model_type 'vit'$",
        ),
    ],
)
def test_a_part_without_a_closed_form_is_named(target, values, message):
    with pytest.raises(SourceError, match=message):
        catalogue.expect(config_of(**values), target)


def test_a_decoder_attends_to_a_width_that_the_encoder_has():
    decoder = {"cross_attention_hidden_size": 24, "is_decoder": True, "add_cross_attention": True}
    values = {"encoder": {"hidden_size": 48}, "decoder": decoder}
    said = refusal("VisionEncoderDecoderModel", **values)
    seen = "encoder.hidden_size 48 is what it attends to"
    assert said == f"decoder.cross_attention_hidden_size is 24, and {seen}"

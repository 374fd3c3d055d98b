"""Images and text together: how the configs of two towers are read."""

import pytest
from support.bert_configs import config_of
from support.published_configs import published

from auditor.analytic import Role, catalogue
from auditor.errors import CheckpointError, SourceError


def test_older_clips_store_where_their_positions_are():
    expected = catalogue.expect(published("clip-vit-base-patch32"), "CLIPModel")
    legacy = {
        tensor.name: tensor.shape for tensor in expected.tensors if tensor.role is Role.LEGACY
    }
    assert legacy == {
        "text_model.embeddings.position_ids": (1, 77),
        "vision_model.embeddings.position_ids": (1, 50),
    }


def test_clip_base_in_its_formula():
    expected = catalogue.expect(published("clip-vit-base-patch32"), "CLIPModel")
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
    text = {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944}
    flat = config_of(model_type="qwen2_vl", **text, vision_config=vision)
    nested = config_of(model_type="qwen2_vl", text_config=text, vision_config=vision)
    assert catalogue.expect(flat, target).tensors == catalogue.expect(nested, target).tensors
    assert "2*V*D + " in catalogue.expect(flat, target).formula
    assert "2*V_text*D_text + " in catalogue.expect(nested, target).formula


def test_a_head_is_tied_if_the_config_of_the_language_model_ties_it():
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


def test_a_part_without_a_closed_form_is_named(subtests):
    for target, values, message in [
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
    ]:
        with (
            subtests.test(target=target, values=values, message=message),
            pytest.raises(SourceError, match=message),
        ):
            catalogue.expect(config_of(**values), target)

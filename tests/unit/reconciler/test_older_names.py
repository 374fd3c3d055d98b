"""Names that older versions of transformers stored, and the tensors that they load into."""

from support.bert_configs import config_of

from auditor.analytic import catalogue
from auditor.reconciler.matching import places

TARGETS = {
    "clip_text_model": "CLIPTextModel",
    "gemma3": "Gemma3ForConditionalGeneration",
    "mixtral": "MixtralForCausalLM",
    "paligemma": "PaliGemmaForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
}
PICTURES = "vision_tower.post_layernorm.bias"
EXPERT = "layers.0.block_sparse_moe.experts.0.w1.weight"
FUSED = "layers.0.mlp.experts.0.up_proj.weight"


def test_an_older_name_loads_into_its_tensor(subtests):
    for model_type, stored, found in [
        # as the indices of paligemma, medgemma-27b-it and Qwen2.5-VL-7B-Instruct have them
        ("paligemma", "vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "language_model.model.norm.weight", "language_model.model.norm.weight"),
        ("qwen2_5_vl", "visual.merger.ln_q.weight", "visual.merger.ln_q.weight"),
        ("qwen2_5_vl", "model.norm.weight", "model.norm.weight"),
        # as versions 4 and 5 have them in memory
        ("paligemma", "model.vision_tower.post_layernorm.bias", PICTURES),
        ("paligemma", "model.vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "model.language_model.norm.weight", "language_model.model.norm.weight"),
        ("qwen2_5_vl", "model.visual.merger.ln_q.weight", "visual.merger.ln_q.weight"),
        ("qwen2_5_vl", "model.language_model.norm.weight", "model.norm.weight"),
        ("clip_text_model", "text_model.final_layer_norm.bias", "final_layer_norm.bias"),
        ("mixtral", f"model.{EXPERT}", f"model.{EXPERT}"),
        ("mixtral", "model.layers.0.mlp.experts.0.w1.weight", f"model.{EXPERT}"),
        # the experts of a model inside another are found by their whole path alone
        ("qwen3_5_moe", f"model.language_model.{FUSED}", f"model.language_model.{FUSED}"),
        ("qwen3_5_moe", f"language_model.{FUSED}", f"model.language_model.{FUSED}"),
        ("qwen3_5_moe", f"model.model.language_model.{FUSED}", None),
        # and what is none of these
        ("paligemma", "vision_tower.vision_model.other.bias", None),
        ("paligemma", "vision_model.post_layernorm.bias", None),
        ("clip_text_model", "vision_model.final_layer_norm.bias", None),
        ("qwen2_5_vl", "model.model.language_model.norm.weight", None),
    ]:
        with subtests.test(model_type=model_type):
            expectation = catalogue.expect(config_of(model_type=model_type), TARGETS[model_type])
            (place,) = places(expectation).of((stored,))
            assert (place.expected.name if place.expected else None) == found

"""Changes of names: what they were saved from, and parts of a model in another place."""

import re

import pytest
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine

DECODER = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VISION = {
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
SIGLIP = {"vision_config": {"model_type": "siglip_vision_model", **VISION}}
CONFIGS = {
    "LlamaForCausalLM": {"model_type": "llama", **DECODER},
    "Qwen3MoeForCausalLM": {
        "model_type": "qwen3_moe",
        **DECODER,
        "head_dim": 8,
        "num_experts": 4,
        "moe_intermediate_size": 12,
    },
    "Qwen2MoeForCausalLM": {
        "model_type": "qwen2_moe",
        **DECODER,
        "num_experts": 4,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 8,
    },
    "LlavaForConditionalGeneration": {
        "model_type": "llava",
        "text_config": {"model_type": "llama", **DECODER},
        "vision_config": {"model_type": "clip_vision_model", **VISION},
    },
    "PaliGemmaForConditionalGeneration": {
        "model_type": "paligemma",
        "text_config": {"model_type": "gemma", **DECODER, "head_dim": 8},
        **SIGLIP,
        "projection_dim": 16,
    },
}
COMPILED = "the state dict of a compiled model was saved"
IN_PARALLEL = "the state dict of a DistributedDataParallel model was saved"
WRAPPED = "the model was saved from within a wrapper"


def diagnosis_of(name, rename):
    config = CONFIGS[name]
    stored = stored_by(expect(name, **config))
    moved = [one._replace(name=rename(one.name)) for one in stored]
    report = examine(snapshot_of(moved, **config, architectures=[name]), Options(requested="moved"))
    [found] = report.diagnosis
    return found


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("_orig_mod.", COMPILED),
        ("module._orig_mod.", f"{IN_PARALLEL} and {COMPILED}"),
        ("net.", WRAPPED),
        ("module.net.", WRAPPED),
    ],
)
def test_wrappers_that_are_known_are_named_each(prefix, reason):
    found = diagnosis_of("LlamaForCausalLM", lambda name: f"{prefix}{name}")
    assert found.cause == "wrapper-prefix"
    assert found.summary.startswith(f"every name begins with {prefix} ({reason}): ")


def test_a_subtree_without_a_level_lacks_it():
    found = diagnosis_of("Qwen3MoeForCausalLM", lambda name: name.replace("mlp.experts", "experts"))
    assert found.cause == "moved-names"
    assert "names lack 'mlp.' after 'model.layers.N.': this explains all" in found.summary


def test_a_subtree_below_another_module_is_named_with_an_example():
    found = diagnosis_of(
        "Qwen2MoeForCausalLM",
        lambda name: name.replace("model.", "model.language_model.", "experts." in name),
    )
    assert found.cause == "moved-names"
    assert "names contain language_model. where the class does not (model." in found.summary
    assert (
        "language_model.layers.0.mlp.experts.0.down_proj.weight for model.layers" in found.summary
    )


@pytest.mark.parametrize(
    "name", ["LlavaForConditionalGeneration", "PaliGemmaForConditionalGeneration"]
)
def test_a_repeated_level_and_a_moved_tower_are_one_explanation(name):
    def spoilt(name):
        name = re.sub(r"^(model\.)?vision_tower", r"\1language_model.vision_tower", name)
        return re.sub(r"^(model\.)?language_model\.", r"\1" + 3 * "language_model.", name)

    found = diagnosis_of(name, spoilt)
    assert found.cause == "moved-names"
    assert found.summary.count("where the class does not") == 2
    assert ": this explains all" in found.summary

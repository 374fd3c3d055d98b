import pytest

from auditor.engines import Adapter, judge_adapter, knowledge_of

# What vLLM 0.33.0's LRUCacheWorkerLoRAManager.add_adapter did with pairs of these modules of a
# model with two layers: the number that it used, or None if it raised.
JUDGED = {
    ("LlamaForCausalLM", "base_model.model.model.layers.1.self_attn.q_proj"): 1,
    ("LlamaForCausalLM", "model.layers.1.self_attn.q_proj"): 1,
    ("LlamaForCausalLM", "base_model.model.layers.1.self_attn.q_proj"): 0,
    ("LlamaForCausalLM", "base_model.model.model.layers.2.self_attn.q_proj"): 0,
    ("LlamaForCausalLM", "base_model.model.model.layers.1.self_attn.qkv_proj"): None,
    ("LlamaForCausalLM", "base_model.model.lm_head"): 1,
    ("Qwen2ForCausalLM", "base_model.model.lm_head"): None,
    ("Qwen2_5_VLForConditionalGeneration", "base_model.model.model.layers.1.mlp.up_proj"): 1,
    ("Qwen2_5_VLForConditionalGeneration", "base_model.model.model.visual.blocks.0.attn.qkv"): 0,
    ("Qwen3MoeForCausalLM", "base_model.model.model.layers.0.mlp.experts.1.up_proj"): 1,
    ("Qwen3MoeForCausalLM", "base_model.model.model.layers.0.mlp.experts"): None,
    ("MixtralForCausalLM", "base_model.model.model.layers.0.mlp.experts"): 0,
}


def adapter(architecture, *names, **settings):
    return Adapter(
        settings={"r": 2, "lora_alpha": 4, "target_modules": [], **settings},
        stored=dict.fromkeys(names),
        architecture=architecture,
        layers=2,
    )


@pytest.mark.parametrize(("architecture", "module"), JUDGED)
def test_vllm_applies_the_pairs_whose_modules_it_replaces(architecture, module):
    names = [f"{module}.lora_{side}.weight" for side in "AB"]
    verdict = judge_adapter(knowledge_of("vllm"), adapter(architecture, *names))
    expected = JUDGED[architecture, module]
    assert (verdict.loads, verdict.applied) == (expected is not None, expected)


def test_a_lost_lora_b_raises_and_a_lost_lora_a_has_no_effect():
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    for side, loads in (("A", False), ("B", True)):
        lone = adapter("LlamaForCausalLM", f"{module}.lora_{side}.weight")
        assert judge_adapter(knowledge_of("vllm"), lone).loads is loads


def test_an_architecture_that_was_not_recorded_is_unknown():
    names = [f"base_model.model.x.lora_{side}.weight" for side in "AB"]
    assert judge_adapter(knowledge_of("vllm"), adapter("Wyvern", *names)).loads is None

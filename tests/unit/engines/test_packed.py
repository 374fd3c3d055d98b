import pytest

from auditor.engines.packed import (
    LACKING,
    OTHER,
    SURPLUS,
    UNDECLARED,
    UNLISTED,
    half_packed,
    outcome_of_faults,
)

# What vLLM 0.33.0 did with saves of 17 dense architectures that have these faults.
JUDGED = [
    ({LACKING}, "fp8", "weight_scale", True),
    ({LACKING}, "gptq", "qweight", True),
    ({UNLISTED}, "compressed-tensors", "weight_scale", True),
    ({UNLISTED}, "compressed-tensors", "weight_packed", False),
    ({UNLISTED}, "gptq", "qweight", True),
    ({SURPLUS}, "fp8", "weight_scale", False),
    ({UNDECLARED}, "", "weight_packed", False),
]


@pytest.mark.parametrize(("faults", "method", "last", "loads"), JUDGED)
def test_faults_of_packed_weights_have_the_outcomes_that_vllm_had(faults, method, last, loads):
    names = [f"model.layers.0.mlp.up_proj.{last}"]
    found, _ = outcome_of_faults(frozenset(faults), method, names, is_dense=True)
    assert found is loads


@pytest.mark.parametrize("faults", [{OTHER}, {UNLISTED, LACKING}, {OTHER, SURPLUS}])
def test_faults_that_were_not_tried_are_unknown(faults):
    assert outcome_of_faults(frozenset(faults), "gptq", (), is_dense=True)[0] is None


def test_a_name_without_parameter_is_not_judged_beside_experts():
    assert outcome_of_faults(frozenset({SURPLUS}), "fp8", (), is_dense=False)[0] is None


def test_a_layer_is_half_packed_if_vllm_joins_plain_and_packed_parts():
    attention = "model.layers.0.self_attn"
    packed = {f"{attention}.{one}_proj.qweight" for one in "qk"}
    plain = {f"{attention}.v_proj.weight"}
    found = half_packed("LlamaForCausalLM", packed | plain, plain)
    assert found == (f"{attention}.qkv_proj", True)
    assert half_packed("LlamaForCausalLM", packed, ()) is None
    other = {f"{attention}.o_proj.weight"}
    assert half_packed("LlamaForCausalLM", packed | other, other) is None
    assert half_packed("Wyvern", packed | plain, plain) == (f"{attention}.qkv_proj", False)

"""The parameters that may be stored in 32 bits, held to the classes of transformers."""

import pytest
from support.examples import each_night

from auditor.analytic.kept_in_f32 import kept_in_f32, library_parts

DEEPSEEK = {"model_type": "deepseek_v3"}


def test_a_name_is_one_that_the_class_keeps_in_32_bits(subtests):
    for config, name, is_kept in [
        (DEEPSEEK, "model.layers.3.mlp.gate.e_score_correction_bias", True),
        (DEEPSEEK, "model.layers.3.mlp.gate.weight", True),
        (DEEPSEEK, "model.layers.3.mlp.gate_proj.weight", False),
        ({"model_type": "t5"}, "encoder.block.0.layer.1.DenseReluDense.wo.weight", True),
        ({"model_type": "t5"}, "shared.word.weight", False),
        ({"model_type": "llama"}, "model.layers.0.input_layernorm.weight", False),
        ({"text_config": {"model_type": "t5"}}, "text.wo.weight", True),
        ({}, "model.layers.0.linear_attn.A_log", True),
        ({"num_local_experts": 8}, "model.layers.0.block_sparse_moe.gate.weight", True),
        ({"text_config": {"num_experts": 8}}, "model.layers.0.mlp.gate.weight", True),
        ({"num_experts_per_tok": 2}, "model.layers.0.mlp.gate.weight", False),
        ({"num_experts": 0}, "model.layers.0.mlp.gate.weight", False),
        ({"model_type": ["t5"], "text_config": 7}, "wo.weight", False),
    ]:
        with subtests.test(config=config, name=name, is_kept=is_kept):
            assert bool(kept_in_f32(config).search(name)) is is_kept


@each_night
@pytest.mark.oracle
def test_the_data_is_what_the_installed_library_has():
    pytest.importorskip("transformers", reason="the judge of what it keeps")
    from rebuild_kept_in_f32 import kept_in_f32 as rebuilt  # noqa: PLC0415 - imports the library

    assert library_parts() == rebuilt()

"""Configs of another size whose class has a generated form: solved by its formulas."""

import pytest
from support.checkpoints import stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, generated
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

CVT = {"model_type": "cvt", "architectures": ["CvtModel"], "depth": [1, 1, 1]}
MOE = {"model_type": "cohere2_moe", "architectures": ["Cohere2MoeForCausalLM"], "num_experts": 2}


def layers(depth):
    types = [("sliding_attention", "full_attention")[at % 2] for at in range(depth)]
    mlp = ["sparse"] * depth
    return {"num_hidden_layers": depth, "layer_types": types, "mlp_layer_types": mlp}


BIOGPT = {"model_type": "biogpt", "architectures": ["BioGptModel"], "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("common", "declared", "true"),
    [
        (CVT, {"embed_dim": [8, 16, 24]}, {"embed_dim": [8, 32, 24]}),
        (MOE, layers(5), layers(3)),  # the form counts layers by a list, not by num_hidden_layers
        (
            BIOGPT,
            {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "vocab_size": 50},
            {"hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 3, "vocab_size": 60},
        ),
    ],
)
def test_each_key_that_a_formula_contains_is_named_with_the_value_of_the_files(
    common, declared, true
):
    expected = generated.expect(Config(values={**common, **true}), common["architectures"][0])
    snapshot = snapshot_of(stored_by(expected), **{**common, **declared})
    [found] = examine(snapshot, Options(requested="other")).diagnosis
    shown = {key: (was, held) for key, was, held in found.fields}
    unread = {key: (was, true[key]) for key, was in found.undetermined if key in declared}
    assert shown | unread == {key: (declared[key], true[key]) for key in declared}

"""State dicts saved as they were, with all experts of a layer in one tensor."""

import pytest
from support.changes import with_names, with_values
from support.checkpoints import LLAMA, expect, stored
from support.small_snapshots import snapshot_of

from auditor.analytic.conversions import class_memory
from auditor.analytic.name_forms import NameForms, StackedParts, forms_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.name_kinds import kinds_of

MIXTRAL = ("MixtralForCausalLM", {**LLAMA, "model_type": "mixtral", "num_local_experts": 6})
QWEN = (
    "Qwen3MoeForCausalLM",
    {
        **LLAMA,
        "model_type": "qwen3_moe",
        "head_dim": 10,
        "num_experts": 6,
        "moe_intermediate_size": 24,
    },
)


def saved(model):
    target, config = model
    shapes = class_memory(expect(target, **config)).shapes
    tensors = [stored(name, shape) for name, shape in shapes.items()]
    return snapshot_of(tensors, architectures=[target], **config)


def diagnosed(snapshot):
    report = examine(snapshot, Options(requested="saved"))
    return report.verdict, [(one.cause, one.fields) for one in report.diagnosis]


@pytest.mark.parametrize("model", [MIXTRAL, QWEN])
def test_a_state_dict_is_clean_as_it_is(model):
    assert diagnosed(saved(model)) == ("clean", [])


@pytest.mark.parametrize(
    ("model", "key", "declared"),
    [
        (MIXTRAL, "num_hidden_layers", 4),
        (MIXTRAL, "num_hidden_layers", 2),
        (MIXTRAL, "vocab_size", 139),
        (MIXTRAL, "num_local_experts", 8),
        (MIXTRAL, "num_local_experts", 5),
        (MIXTRAL, "intermediate_size", 144),
        (QWEN, "num_hidden_layers", 6),
        (QWEN, "num_experts", 7),
        (QWEN, "moe_intermediate_size", 48),
        (QWEN, "head_dim", 20),  # of the matrices only those of attention are halves
    ],
)
def test_a_key_is_solved_for(model, key, declared):
    of = model[1][key]
    verdict, found = diagnosed(with_values(saved(model), {key: declared}))
    assert (verdict, found) == ("findings", [("config-field", ((key, declared, of),))])


def test_a_prefix_is_found():
    snapshot = saved(MIXTRAL)
    names = [one.name for head in snapshot.headers for one in head.parsed.tensors]
    wrapped = with_names(snapshot, {name: f"module.{name}" for name in names})
    assert diagnosed(wrapped) == ("findings", [("wrapper-prefix", ())])


def test_a_stack_is_the_tensors_on_disk():
    target, config = MIXTRAL
    forms = forms_of(expect(target, **config))
    shapes = {"model.layers.2.mlp.experts.gate_up_proj": (5, 2 * 72, 40), "other": (3,)}
    layer = "model.layers.2.block_sparse_moe.experts"
    experts = {f"{layer}.{e}.{part}.weight": (72, 40) for e in range(5) for part in ("w1", "w3")}
    assert forms.separated(shapes, kinds_of(shapes)) == {"other": (3,), **experts}


@pytest.mark.parametrize(
    "shape", [None, (7,), (2, 5, 8), (2**40, 2, 8), (2**62, 2**62, 2**62), (300_000, 2, 8)]
)
def test_ambiguous_tensors_stay_unchanged(shape):
    parts = ("experts.0.gate.weight", "experts.0.up.weight")
    forms = NameForms((), {"experts.all": StackedParts(parts, 0)})
    shapes = {"experts.all": shape}
    assert forms.separated(shapes, kinds_of(shapes)) == shapes

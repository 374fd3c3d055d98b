"""The two forms of a name: on disk, and in memory, where experts may be stacked."""

from support.checkpoints import LLAMA, expect

from auditor.analytic.name_forms import NameForms, StackedParts, forms_of
from auditor.names.kinds import kinds_of

FORMS = NameForms(
    [
        ("a.layer.0.dense.weight", "a.layers.0.fc.weight"),
        ("a.norm.weight", "a.norm.weight"),
        ("swapped.one", "swapped.two"),
        ("swapped.two", "swapped.one"),
    ]
)


def test_a_name_has_two_forms():
    for on_disk, in_memory in (
        ("a.layer.17.dense.weight", "a.layers.17.fc.weight"),
        ("a.norm.weight", "a.norm.weight"),
        ("swapped.one", "swapped.one"),  # it is a name in both forms
        ("unknown.3", "unknown.3"),
    ):
        assert FORMS.in_memory(on_disk) == in_memory
        assert FORMS.on_disk(in_memory) == on_disk


def test_the_form_is_seen_behind_a_prefix():
    assert FORMS.are_in_memory(kinds_of(["module.a.layers.3.fc.weight", "module.a.norm.weight"]))
    assert not FORMS.are_in_memory(kinds_of(["module.a.layer.3.dense.weight", "other"]))
    assert not FORMS.are_in_memory(kinds_of([]))


def test_a_stack_is_the_tensors_on_disk():
    config = {**LLAMA, "model_type": "mixtral", "num_local_experts": 6}
    forms = forms_of(expect("MixtralForCausalLM", **config))
    shapes = {"model.layers.2.mlp.experts.gate_up_proj": (5, 2 * 72, 40), "other": (3,)}
    layer = "model.layers.2.block_sparse_moe.experts"
    experts = {f"{layer}.{e}.{part}.weight": (72, 40) for e in range(5) for part in ("w1", "w3")}
    assert forms.separated(shapes, kinds_of(shapes)) == {"other": (3,), **experts}


def test_ambiguous_tensors_stay_unchanged():
    parts = ("experts.0.gate.weight", "experts.0.up.weight")
    forms = NameForms((), {"experts.all": StackedParts(parts, 0)})
    for shape in (None, (7,), (2, 5, 8), (2**40, 2, 8), (2**62, 2**62, 2**62), (300_000, 2, 8)):
        shapes = {"experts.all": shape}
        assert forms.separated(shapes, kinds_of(shapes)) == shapes

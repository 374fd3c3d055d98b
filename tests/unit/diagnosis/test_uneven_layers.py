"""uneven-layers: one name in several shapes, where the class has one shape for all layers."""

import pytest
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
}


def diagnosed(tensors):
    return examine(snapshot_of(tensors, **LLAMA), Options(requested="saved")).diagnosis


def of_widths(widths):
    """Return the tensors of a model whose layers have these widths in their MLP."""
    by_width = {
        width: {
            one.name: one
            for one in stored_by(
                expect("LlamaForCausalLM", **{**LLAMA, "intermediate_size": width})
            )
        }
        for width in {48, *widths}
    }
    for name, own in by_width[48].items():
        layer = next((int(part) for part in name.split(".") if part.isdecimal()), None)
        yield own if layer is None else by_width[widths[layer]][name]


@pytest.mark.parametrize("widths", [(48, 48, 40, 40, 48, 48), (40, 32, 24, 40, 48, 16)])
def test_layers_of_several_widths_are_named_with_their_shapes(widths):
    [found] = diagnosed(list(of_widths(widths)))
    changed = sum(3 for width in widths if width != 48)
    assert (found.cause, found.explains) == ("uneven-layers", f"all {changed} names")
    assert (found.fields, found.undetermined) == ((), ())
    assert f"down_proj.weight is (32, {widths[0]}) in layers 0" in found.summary
    assert f" and (32, {widths[2]}) in layer" in found.summary


def test_layers_of_one_other_width_are_a_value_of_the_config():
    [found] = diagnosed(list(of_widths((40,) * 6)))
    assert found.fields == (("intermediate_size", 48, 40),)


def test_one_layer_of_another_width_is_left_to_its_finding():
    assert diagnosed(list(of_widths((48, 48, 48, 40, 48, 48)))) == ()

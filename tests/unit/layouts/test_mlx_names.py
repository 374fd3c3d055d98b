"""The names and the order of axes that mlx_lm and mlx-vlm give."""

import pytest
from msgspec.structs import replace
from support.checkpoints import TINY, expect, stored_by
from support.layouts.packed import SMALL, faults, opened, pieces, says
from support.layouts.tables import W, below, mlx
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.containers.safetensors import Header
from auditor.layouts.mlx import LAYOUT

SAID = says("mlx", group_size=64, bits=4)
SWITCH = "model.layers.0.mlp.switch_mlp.down_proj"
EXPERT = "model.layers.0.mlp.experts.{}.down_proj"


def stacked(experts, outputs, inputs):
    return {f"{EXPERT.format(n)}.weight": (outputs, inputs) for n in range(experts)}


def test_a_convolution_has_its_inputs_last():
    table = below(W.removesuffix(".weight"), mlx((64, 64)))
    table |= {"c.weight": ("BF16", (64, 3, 1)), "d.weight": ("F16", (8, 2, 2, 5))}
    implied = {W: (64, 64), "c.weight": (64, 1, 3), "d.weight": (8, 5, 2, 2)}
    assert pieces(opened(LAYOUT, table, SAID, implied)) == implied


def test_experts_that_are_not_packed_are_stacked_all_the_same():
    table = {f"{SWITCH}.weight": ("BF16", (3, 4, 8)), f"{SWITCH}.bias": ("BF16", (3, 4))}
    implied = stacked(3, 4, 8)
    implied |= {name.replace("weight", "bias"): (4,) for name in implied}
    assert pieces(opened(LAYOUT, table, SAID, implied)) == implied


QWEN_VL = {
    "model_type": "qwen2_5_vl",
    "text_config": {**SMALL, "model_type": "qwen2_5_vl_text"},
    "vision_config": {"depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 4},
}
LLAVA = {
    "model_type": "llava",
    "text_config": {**SMALL, "model_type": "llama"},
    "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 1},
}


@pytest.mark.parametrize(
    ("target", "config", "names"),
    [
        (
            "Qwen2_5_VLForConditionalGeneration",
            QWEN_VL,
            (("visual.", "vision_tower."), ("model.", "language_model.model.")),
        ),
        (
            "Qwen3VLForConditionalGeneration",
            {**QWEN_VL, "model_type": "qwen3_vl"},
            (
                ("model.visual.", "vision_tower."),
                ("model.language_model.", "language_model.model."),
            ),
        ),
        ("LlavaForConditionalGeneration", LLAVA, ()),
    ],
)
@pytest.mark.parametrize("is_of_mlx", [True, False])
def test_names_and_axes_of_mlx_vlm_are_expected_in_its_own_files(target, config, names, is_of_mlx):
    def converted(tensor):
        shape = tensor.shape
        if len(shape) > 3 or "patch_embedding" in tensor.name:
            shape = (shape[0], *shape[2:], shape[1])
        new = next(
            (
                new + tensor.name.removeprefix(old)
                for old, new in names
                if tensor.name[: len(old)] == old
            ),
            tensor.name.replace("lm_head.", "language_model.lm_head.") if names else tensor.name,
        )
        return tensor._replace(name=new, shape=shape)

    tensors = map(converted, stored_by(expect(target, **config)))
    snapshot = snapshot_of(tensors, architectures=[target], **{**TINY, **config})
    [head] = snapshot.headers
    header = Header(
        file=head.name,
        metadata=(("format", "mlx" if is_of_mlx else "pt"),),
        tensors=head.parsed.tensors,
        header_length=0,
        data_length=0,
    )
    snapshot = replace(snapshot, headers=(replace(head, known=header),))
    report = examine(snapshot, Options(requested="mlx"))
    kinds = {finding.kind for finding in report.findings}
    assert kinds.isdisjoint({"missing", "unexpected", "mismatched", "renamed"}) is is_of_mlx


def test_experts_of_an_unknown_architecture_keep_their_name():
    table = below(SWITCH, mlx((3, 4, 64)))
    unpacked = opened(LAYOUT, table, SAID, {})
    assert pieces(unpacked) == {f"{SWITCH}.weight": (3, 4, 64)}


def test_more_experts_than_the_architecture_has_are_a_fault():
    table = below(SWITCH, mlx((2**40, 4, 64)))
    implied = stacked(3, 4, 64)
    unpacked = opened(LAYOUT, table, SAID, implied)
    assert pieces(unpacked) == {f"{SWITCH}.weight": (2**40, 4, 64)}
    reason = "holds 1,099,511,627,776 experts, the architecture has 3"
    assert faults(unpacked) == {reason: {f"{SWITCH}.weight"}}


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 64), (8, 128)])
def test_experts_are_pieces_of_one_packed_tensor(bits, group):
    table, implied = below(SWITCH, mlx((5, 8, 256), bits, group)), stacked(5, 8, 256)
    unpacked = opened(LAYOUT, table, says("mlx", group_size=group, bits=bits), implied)
    assert (pieces(unpacked), unpacked.faults) == (implied, ())


def test_scales_beside_a_plain_weight_are_the_architecture_s_own_if_it_has_that_name():
    module = W.removesuffix(".weight")
    table = {W: ("BF16", (8, 64)), f"{module}.scales": ("F32", (8,))}
    implied = {name: shape for name, (_, shape) in table.items()}
    assert opened(LAYOUT, table, SAID, implied).faults == ()
    [reason] = faults(opened(LAYOUT, table, SAID, {W: (8, 64)}))
    assert reason.startswith("weight is BF16 (8, 64), expected U32")

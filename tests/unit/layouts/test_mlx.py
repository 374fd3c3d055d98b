"""MLX: words of 32 bits beside scales and biases, and the names that mlx_lm gives."""

import json
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.checkpoints import TINY, expect, stored_by
from support.examples import one_in
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
    faults,
    holds_the_plain_checkpoint,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    shapes,
    spoiled,
    stored,
    tells_what_is_written,
)
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.containers.safetensors import Header
from auditor.layouts.mlx import LAYOUT
from auditor.layouts.packing import Stored

X = "model.layers.0.mlp.up_proj"
W = f"{X}.weight"
FIXED = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}
affine = st.tuples(st.sampled_from((32, 64, 128)), st.sampled_from((1, 2, 3, 4, 5, 6, 8)))
sizes = st.integers(1, 300)


def packed(shape, group=64, bits=4, mode="affine", module=X):
    """(..., out, in) as mlx.core.quantize has it: 32 numbers are `bits` words."""
    *rows, inputs = shape
    scale = (*rows, inputs // group)
    table = {f"{module}.weight": ("U32", (*rows, inputs // 32 * bits))}
    if mode == "affine":
        return {
            **table,
            f"{module}.scales": ("BF16", scale),
            f"{module}.biases": ("BF16", scale),
        }
    return {**table, f"{module}.scales": ("U8", scale)}


def stacked(module, experts, outputs, inputs):
    return {f"{module.format(n)}.weight": (outputs, inputs) for n in range(experts)}


# --- laws -------------------------------------------------------------------------------------


@given(sizes, st.integers(1, 8), affine)
def test_the_settings_determine_the_shape(outputs, groups, ways):
    group, bits = ways
    table = packed((outputs, groups * group), group, bits)
    declared = says("mlx", group_size=group, bits=bits)
    unpacked = opened(LAYOUT, table, declared)
    assert pieces(unpacked) == {W: (outputs, groups * group)}
    assert quantization_data(unpacked) == set(table) - {W}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@given(sizes, st.integers(1, 8), affine)
def test_without_settings_the_architecture_determines_it(outputs, groups, ways):
    group, bits = ways
    shape = (outputs, groups * group)
    unpacked = opened(LAYOUT, packed(shape, group, bits), None, {W: shape})
    assert pieces(unpacked) == {W: shape}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}"]


@given(sizes, st.integers(2, 8), affine, st.integers(1, 5))
def test_experts_are_pieces_of_one_tensor(outputs, groups, ways, experts):
    group, bits = ways
    module = "model.layers.0.mlp.switch_mlp.up_proj"
    table = packed((experts, outputs, groups * group), group, bits, module=module)
    implied = stacked("model.layers.0.mlp.experts.{}.up_proj", experts, outputs, groups * group)
    unpacked = opened(LAYOUT, table, says("mlx", group_size=group, bits=bits), implied)
    assert pieces(unpacked) == implied
    assert unpacked.faults == ()


@pytest.mark.parametrize("mode", [*FIXED, "affine"])
@pytest.mark.parametrize("declares", [True, False])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(mode, declares):
    group, bits = FIXED.get(mode, (64, 4))
    table = packed((8, 256), group, bits, mode)
    declared = says("mlx", group_size=group, bits=bits, mode=mode) if declares else None
    unpacked = opened(LAYOUT, table, declared, {W: (8, 256)})
    assert (pieces(unpacked), unpacked.faults) == ({W: (8, 256)}, ())
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, declared, {W: (8, 256)})
        assert unpacked.faults or pieces(unpacked) != {W: (8, 256)}, (name, other[name])


# --- the library ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [*FIXED, "affine"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
def test_shapes_are_those_of_the_library(mode, bits):
    mx = pytest.importorskip("mlx.core")
    group, width = FIXED.get(mode, (32, bits))
    weight = mx.zeros((6, 128))
    parts = mx.quantize(weight, group_size=group, bits=width, mode=mode, stream=mx.cpu)
    dtypes = {mx.uint32: "U32", mx.uint8: "U8", mx.float32: "BF16"}
    names = (W, f"{X}.scales", f"{X}.biases")
    table = {
        name: (dtypes[part.dtype], part.shape) for name, part in zip(names, parts, strict=False)
    }
    assert table == packed((6, 128), group, width, mode)


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 128,
    "max_position_embeddings": 32,
    "num_hidden_layers": 2,
}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
MODELS = {
    "Llama": {},
    "Qwen2": {},
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {**EXPERTS, "head_dim": 32},
    "Lfm2Moe": {**EXPERTS, "num_dense_layers": 1, "layer_types": ["conv", "full_attention"]},
}
WAYS = [("affine", 32, 3), ("affine", 64, 4), ("mxfp4", 32, 4)]


@pytest.mark.oracle
@pytest.mark.parametrize(("family", "way"), one_in(4, product(MODELS, WAYS)))
def test_what_mlx_lm_converts_is_the_unpacked_checkpoint(tmp_path, family, way):
    mode, group, bits = way
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("mlx.core")
    utils = pytest.importorskip("mlx_lm.utils")
    config = getattr(transformers, f"{family}Config")(**SMALL, **MODELS[family])
    getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16).save_pretrained(
        tmp_path
    )
    written = json.loads((tmp_path / "config.json").read_bytes())
    theta = written["rope_parameters"]["rope_theta"]
    older = {"rope_theta": theta, **MODELS[family]}  # keys that mlx_lm reads
    (tmp_path / "config.json").write_text(json.dumps(written | older))
    model, settings = utils.quantize_model(
        *utils.load_model(tmp_path), group_size=group, bits=bits, mode=mode
    )
    utils.save_model(tmp_path / "packed", model)
    utils.save_config(settings, tmp_path / "packed" / "config.json")

    plain, table = on_disk(tmp_path), on_disk(tmp_path / "packed")
    declared = says("mlx", **settings["quantization"])
    holds_the_plain_checkpoint(LAYOUT, tmp_path / "packed", tmp_path, declared)
    its_total_is_told(tmp_path / "packed")
    tells_what_is_written(LAYOUT, table, declared, shapes(plain))


def test_qwen2_5_coder_3b_takes_the_bytes_and_parameters_that_its_index_says():
    """A conversion by mlx_lm, 4 bits in groups of 64: total_size and total_parameters."""
    layer = {
        "self_attn.q_proj": (2048, 2048),
        "self_attn.k_proj": (256, 2048),
        "self_attn.v_proj": (256, 2048),
        "self_attn.o_proj": (2048, 2048),
        "mlp.gate_proj": (11008, 2048),
        "mlp.up_proj": (11008, 2048),
        "mlp.down_proj": (2048, 11008),
    }
    table = packed((151936, 2048), module="model.embed_tokens")
    table["model.norm.weight"] = ("BF16", (2048,))
    for n in range(36):
        for name, shape in layer.items():
            table |= packed(shape, module=f"model.layers.{n}.{name}")
        for name, size in (("q_proj", 2048), ("k_proj", 256), ("v_proj", 256)):
            table[f"model.layers.{n}.self_attn.{name}.bias"] = ("BF16", (size,))
        for name in ("input_layernorm", "post_attention_layernorm"):
            table[f"model.layers.{n}.{name}.weight"] = ("BF16", (2048,))
    unpacked = opened(LAYOUT, table, says("mlx", group_size=64, bits=4, mode="affine"))
    assert unpacked.faults == ()
    aside = quantization_data(unpacked) | {piece.stored.name for piece in unpacked.tensors}
    inside = sum(prod(piece.shape) for piece in unpacked.tensors)
    kept = sum(prod(shape) for name, (_, shape) in table.items() if name not in aside)
    assert inside + kept == 3_085_938_688
    assert sum(tensor.span.length for tensor in stored(table)) == 1_736_187_904


# --- names and orders of axes -----------------------------------------------------------------


def test_a_convolution_has_its_inputs_last():
    table = packed((64, 64)) | {"c.weight": ("BF16", (64, 3, 1)), "d.weight": ("F16", (8, 2, 2, 5))}
    implied = {W: (64, 64), "c.weight": (64, 1, 3), "d.weight": (8, 5, 2, 2)}
    assert pieces(opened(LAYOUT, table, says("mlx", group_size=64, bits=4), implied)) == implied


def test_experts_that_are_not_packed_are_stacked_all_the_same():
    module = "model.layers.0.mlp.switch_mlp.down_proj"
    table = {f"{module}.weight": ("BF16", (3, 4, 8)), f"{module}.bias": ("BF16", (3, 4))}
    implied = stacked("model.layers.0.mlp.experts.{}.down_proj", 3, 4, 8)
    implied |= {name.replace("weight", "bias"): (4,) for name in implied}
    assert pieces(opened(LAYOUT, table, says("mlx", group_size=64, bits=4), implied)) == implied


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
    module = "model.layers.0.mlp.switch_mlp.down_proj"
    table = packed((3, 4, 64), module=module)
    unpacked = opened(LAYOUT, table, says("mlx", group_size=64, bits=4), {})
    assert pieces(unpacked) == {f"{module}.weight": (3, 4, 64)}


def test_more_experts_than_the_architecture_has_are_a_fault():
    module = "model.layers.0.mlp.switch_mlp.down_proj"
    table = packed((2**40, 4, 64), module=module)
    implied = stacked("model.layers.0.mlp.experts.{}.down_proj", 3, 4, 64)
    unpacked = opened(LAYOUT, table, says("mlx", group_size=64, bits=4), implied)
    assert pieces(unpacked) == {f"{module}.weight": (2**40, 4, 64)}
    reason = "holds 1,099,511,627,776 experts, the architecture has 3"
    assert faults(unpacked) == {reason: {f"{module}.weight"}}


@pytest.mark.parametrize("hidden", [f"{X}.scales", f"{X}.biases", W])
def test_a_shape_that_only_an_unread_shard_has_is_not_a_fault(hidden):
    table = packed((8, 256)) | {hidden: None}
    unpacked = opened(LAYOUT, table, says("mlx", group_size=64, bits=4), {W: (8, 256)})
    assert pieces(unpacked) == {W: None if hidden == W else (8, 256)}
    assert unpacked.faults == ()


# --- what checkpoints get wrong ---------------------------------------------------------------

TABLE = packed((8, 256))
DECLARED = {"group_size": 64, "bits": 4}
FEWER = {name: described for name, described in TABLE.items() if name != f"{X}.biases"}


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (TABLE, {}, None),
        (TABLE, {X: {"group_size": 64, "bits": 4}}, None),
        (packed((8, 256), 32, 8), {X: {"group_size": 32, "bits": 8}}, None),
        (packed((8, 256), 16, 4, "nvfp4"), {X: {"mode": "nvfp4", "group_size": 16}}, None),
        (TABLE | {f"{X}.bias": ("BF16", (8,))}, {}, None),
        (
            packed((8, 256), 64, 8),
            {},
            "affine, 4 bits in groups of 64 is declared, stored is affine, 8 bits",
        ),
        (
            TABLE,
            {"bits": 3},
            "affine, 3 bits in groups of 64 is declared, stored is affine, 4 bits",
        ),
        (FEWER, {}, "is stored without its biases"),
        (
            packed((8, 256), 32),
            {"mode": "mxfp4", "group_size": 32},
            "mxfp4, 4 bits in groups of 32 is declared, stored is affine",
        ),
        ({W: TABLE[W]}, {}, "is stored without its scales"),
        (
            {name: TABLE[name] for name in TABLE if name != W},
            {},
            "is stored without its weight",
        ),
        (TABLE | {W: ("BF16", (8, 256))}, {}, "weight is BF16 (8, 256), expected U32"),
        (
            {W: ("BF16", (8, 256))},
            {X: {"bits": 4}},
            "is plain, but not by quantization_config: loading looks for its scales",
        ),
        (TABLE, {X: False}, "is packed, but plain by quantization_config"),
        (TABLE | {f"{X}.scales": ("BF16", (4, 4))}, {}, "scales is (4, 4), expected (8, 4)"),
        (TABLE | {f"{X}.scales": ("U8", (8, 4))}, {}, "scales is U8, expected F16 or BF16 or F32"),
        (
            TABLE | {f"{X}.global_scale": ("F32", ())},
            {},
            "has global_scale, expected none in the mode affine",
        ),
        (TABLE | {W: ("U32", (256,))}, {}, "expected (out, words of 32 bits)"),
        (TABLE, {"bits": 0}, "bits of quantization_config is 0; 1, 2, 3, 4, 5, 6 or 8 is needed"),
        (TABLE, {"bits": True}, "bits of quantization_config is true"),
        (TABLE, {"group_size": -1}, "group_size of quantization_config is -1; 32, 64 or 128"),
        (TABLE, {"bits": [4]}, "bits of quantization_config is a list"),
        (TABLE, {"mode": {"a": 1}}, "mode of quantization_config is an object; one of affine"),
        (TABLE, {X: {"bits": "4"}}, "is the string '4'; 1, 2, 3"),
    ],
)
def test_what_cannot_be_is_a_fault(table, settings, reason):
    unpacked = opened(LAYOUT, table, says("mlx", **{**DECLARED, **settings}), {W: (8, 256)})
    if reason is None:
        assert (pieces(unpacked), unpacked.faults) == ({W: (8, 256)}, ())
    else:
        assert any(reason in found for found in faults(unpacked)), faults(unpacked)


def test_settings_that_words_and_scales_bear_out_say_the_shape_whatever_is_expected():
    """8 bits in groups of 32 are twice as many numbers of 4 bits in groups of 64."""
    unpacked = opened(LAYOUT, packed((8, 256), 32, 8), says("mlx", **DECLARED), {W: (8, 256)})
    assert (pieces(unpacked), unpacked.faults) == ({W: (8, 512)}, ())


def test_metal_of_transformers_is_affine_with_biases_of_another_name():
    table = {name.replace("biases", "qbiases"): described for name, described in TABLE.items()}
    unpacked = opened(LAYOUT, table, says("metal", **DECLARED), {W: (8, 256)})
    assert (pieces(unpacked), unpacked.faults) == ({W: (8, 256)}, ())
    assert quantization_data(unpacked) == {f"{X}.scales", f"{X}.qbiases"}


def test_scales_that_the_architecture_has_itself_are_plain():
    table = packed((8, 256)) | {"a.scales": ("F32", (4,))}
    implied = {W: (8, 256), "a.scales": (4,)}
    unpacked = opened(LAYOUT, table, says("mlx", **DECLARED), implied)
    assert unpacked.faults == ()
    assert "a.scales" not in quantization_data(unpacked)


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (TABLE, True),
        ({"a.weight": None, "a.scales": None, "a.biases": None}, True),
        ({"a.qweight": ("I32", (8, 8)), "a.scales": ("F16", (8, 8))}, False),
        ({"a.weight": ("I8", (8, 8)), "a.scales": ("F16", (8,))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known

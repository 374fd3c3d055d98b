"""modelopt: the arithmetic of its formats, and checkpoints that NVIDIA's own exporter writes."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import (
    faults,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    spoiled,
    stored,
    tells_what_is_written,
)

import auditor
from auditor.layouts.modelopt import LAYOUT
from auditor.layouts.packing import Stored

Q = "model.layers.0.self_attn.q_proj"
NAME = f"{Q}.weight"
SIDES = st.integers(1, 99)


def below(table, module=Q):
    return {f"{module}.{name}": described for name, described in table.items()}


def nvfp4(out, groups, size=16):
    return {
        "weight": ("U8", (out, groups * size // 2)),
        "weight_scale": ("F8_E4M3", (out, groups)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


def mxfp4(out, groups):
    return {"weight": ("U8", (out, 16 * groups)), "weight_scale": ("U8", (out, groups))}


def int4(out, groups, size=128):
    return {
        "weight": ("U8", (out, groups * size)),
        "weight_scale": ("F32", (2 * out, groups)),
        "pre_quant_scale": ("BF16", (groups * size,)),
    }


def eight(out, width, scale, dtype="F8_E4M3", of="F32"):
    return {"weight": (dtype, (out, width)), "weight_scale": (of, scale)}


def check(table, declared, shape):
    """Clean as it is, and seen if any of its shapes is another."""
    unpacked = opened(LAYOUT, below(table), declared)
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: shape}, {})
    assert quantization_data(unpacked) == set(below(table)) - {NAME}
    tells_what_is_written(LAYOUT, below(table), declared, {NAME: shape})
    for name, changed in spoiled(below(table)):
        unpacked = opened(LAYOUT, changed, declared)
        assert faults(unpacked) or pieces(unpacked) != {NAME: shape}, name


# --- laws -------------------------------------------------------------------------------------


@given(SIDES, SIDES)
def test_nvfp4_is_two_numbers_a_byte_and_a_scale_for_sixteen(out, groups):
    check(
        nvfp4(out, groups), says("modelopt", quant_algo="NVFP4", group_size=16), (out, 16 * groups)
    )


@given(SIDES, SIDES)
def test_nvfp4_with_eight_bit_activations_is_in_groups_of_32(out, groups):
    table, shape = nvfp4(out, groups, 32), (out, 32 * groups)
    check(table, says("modelopt", quant_algo="W4A8_NVFP4_FP8", group_size=32), shape)
    unsaid = opened(LAYOUT, below(table), says("modelopt", quant_algo="W4A8_NVFP4_FP8"))
    assert (pieces(unsaid), faults(unsaid)) == ({NAME: shape}, {})


@given(SIDES, SIDES)
def test_mxfp4_has_an_exponent_for_32(out, groups):
    check(mxfp4(out, groups), says("modelopt", quant_algo="mxfp4"), (out, 32 * groups))


@given(st.integers(2, 99), st.integers(1, 9), st.sampled_from([16, 64, 128]))
def test_int4_packs_two_outputs_in_a_byte(out, groups, size):
    declared = says("modelopt", quant_algo="W4A16_AWQ", group_size=size)
    check(int4(out, groups, size), declared, (2 * out, groups * size))


@given(st.integers(2, 99), st.integers(2, 99), st.sampled_from(["FP8", "INT8", "MXFP8"]))
def test_eight_bits_keep_the_shape_of_the_weight(out, width, kind):
    table, algorithm = {
        "FP8": (eight(out, width, (out,)), "FP8_PER_CHANNEL_PER_TOKEN"),
        "INT8": (eight(out, width, (out,), "I8"), "W8A8_SQ_PER_CHANNEL"),
        "MXFP8": (eight(out, 32 * width, (out, width), of="U8"), "MXFP8"),
    }[kind]
    check(table, says("modelopt", quant_algo=algorithm), table["weight"][1])


@given(st.integers(1, 4), SIDES, SIDES, st.booleans())
def test_experts_that_are_one_tensor_are_packed_along_their_inputs(experts, out, groups, turned):
    module, width = "model.layers.0.mlp.experts", 16 * groups
    packed, scales = (experts, out, width // 2), (experts, out, groups)
    shape = (experts, out, width)
    if turned:
        packed, scales, shape = ((one[0], one[2], one[1]) for one in (packed, scales, shape))
    table = {
        f"{module}.down_proj": ("U8", packed),
        f"{module}.down_proj_weight_scale": ("F8_E4M3", scales),
        f"{module}.down_proj_weight_scale_2": ("F32", (experts,)),
        f"{module}.down_proj_input_scale": ("F32", (experts,)),
    }
    declared = says("modelopt", quant_algo="NVFP4")
    unpacked = opened(LAYOUT, table, declared, {f"{module}.down_proj": shape})
    assert (pieces(unpacked), faults(unpacked)) == ({f"{module}.down_proj": shape}, {})
    assert quantization_data(unpacked) == set(table) - {f"{module}.down_proj"}
    if not turned:
        tells_what_is_written(LAYOUT, table, declared, {f"{module}.down_proj": shape})


# --- NVIDIA's exporter ------------------------------------------------------------------------

ALGORITHMS = ["FP8_DEFAULT_CFG", "NVFP4_MLP_ONLY_CFG", "MXFP8_DEFAULT_CFG", "INT4_AWQ_CFG"]
ALGORITHMS += ["FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", "W4A8_NVFP4_FP8_CFG"]
# In a process of its own: importing modelopt changes classes of transformers.
WRITER = """
import sys
import torch
import modelopt.torch.quantization as mtq
from modelopt.torch.export import export_hf_checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

folder, *names = sys.argv[1:]
for name in names:
    config = LlamaConfig(
        vocab_size=96, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, architectures=["LlamaForCausalLM"],
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    ids = torch.arange(8)[None]
    model = mtq.quantize(model, getattr(mtq, name), lambda model: model(ids))
    export_hf_checkpoint(model, export_dir=f"{folder}/{name}")
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with a checkpoint for each algorithm."""
    if find_spec("modelopt") is None:
        pytest.skip("modelopt is not installed")
    folder = tmp_path_factory.mktemp("modelopt")
    command = [sys.executable, "-W", "ignore", "-c", WRITER, str(folder), *ALGORITHMS]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    return folder


@pytest.mark.oracle
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_exporter_writes_is_all_of_the_model(name, exported):
    report = auditor.audit(str(exported / name))
    assert (report.verdict, report.residual) == ("clean", 0)
    hides_what_it_cannot_show(exported / name)
    its_total_is_told(exported / name)
    # 2 x 96 x 128 embeddings and head; a layer: q and o, k and v, three of the MLP, two norms.
    layer = 2 * 128 * 128 + 2 * 64 * 128 + 3 * 256 * 128 + 2 * 128
    assert report.observed.parameters == 2 * 96 * 128 + 2 * layer + 128
    table = on_disk(exported / name)
    inner = json.loads((exported / name / "hf_quant_config.json").read_text())["quantization"]
    unpacked = opened(LAYOUT, table, says("modelopt", **inner))
    assert len(unpacked.tensors) == (6 if "MLP_ONLY" in name else 14)
    assert faults(unpacked) == {}


# --- tables -----------------------------------------------------------------------------------

GOOD = nvfp4(64, 8)
NVFP4 = says("modelopt", quant_algo="NVFP4", group_size=16, exclude_modules=["lm_head"])


def without(*names):
    return {name: described for name, described in GOOD.items() if name not in names}


@pytest.mark.parametrize(
    ("table", "declared", "reason"),
    [
        (
            {**GOOD, "weight_scale": ("F8_E4M3", (64, 4))},
            NVFP4,
            "weight_scale is (64, 4), expected (64, 8) for a weight of (64, 128), NVFP4 in groups",
        ),
        (
            without("weight_scale_2", "input_scale"),
            NVFP4,
            "is stored without its weight_scale_2 and input_scale",
        ),
        (without("weight_scale"), NVFP4, "is stored without its weight_scale"),
        (without("weight"), NVFP4, "is stored without its weight"),
        (
            {**GOOD, "weight": ("BF16", (64, 128))},
            NVFP4,
            "weight is BF16 (64, 128), expected F8_E4M3 or I8 or U8",
        ),
        (eight(64, 128, ()), NVFP4, "quant_algo of quantization_config is NVFP4, stored is FP8"),
        (
            GOOD,
            says("modelopt", quant_algo="NVFP4", exclude_modules=["model.layers.0.self_attn*"]),
            "is packed, but plain by quantization_config",
        ),
        ({**GOOD, "input_scale": ("F32", (2,))}, NVFP4, "input_scale is (2,), expected ()"),
        (
            {**GOOD, "pre_quant_scale": ("F32", (64,))},
            NVFP4,
            "pre_quant_scale is (64,), expected (128,)",
        ),
        (
            {**GOOD, "svdquant_lora_a": ("BF16", (32, 128)), "svdquant_lora_b": ("BF16", (64, 16))},
            NVFP4,
            "svdquant_lora_b is (64, 16), expected (64, 32)",
        ),
        (
            GOOD,
            says("modelopt", quant_algo="NVFP5"),
            "quant_algo of quantization_config is the string 'NVFP5', which is not known here",
        ),
        (
            GOOD,
            says("modelopt", quant_algo=["NVFP4"]),
            "quant_algo of quantization_config is a list, which is not known here",
        ),
        (
            GOOD,
            says("modelopt", quant_algo="NVFP4", group_size=-1),
            "group_size of quantization_config is -1; 1 to 16,777,215 is needed",
        ),
        (
            GOOD,
            says("modelopt", quant_algo="MIXED_PRECISION"),
            (
                "quantized_layers of quantization_config is null; an object is needed for "
                "MIXED_PRECISION"
            ),
        ),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_arithmetic(table, declared, reason):
    found = faults(opened(LAYOUT, below(table), declared))
    assert any(one.startswith(reason) for one in found), found


def test_mixed_precision_names_the_algorithm_of_each_module():
    layers = {
        "a.q_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "a.o_proj": {"quant_algo": "FP8"},
    }
    declared = says("modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    table = {
        **below(GOOD, "a.q_proj"),
        **below({**eight(8, 8, ()), "input_scale": ("F32", ())}, "a.o_proj"),
        "a.k_proj.weight": ("BF16", (8, 8)),
    }
    unpacked = opened(LAYOUT, table, declared)
    assert pieces(unpacked) == {"a.q_proj.weight": (64, 128), "a.o_proj.weight": (8, 8)}
    assert faults(unpacked) == {}
    swapped = {"a.q_proj": layers["a.o_proj"], "a.o_proj": layers["a.q_proj"]}
    declared = says("modelopt", quant_algo="MIXED_PRECISION", quantized_layers=swapped)
    about = faults(opened(LAYOUT, table, declared)).values()
    assert {"a.q_proj.weight"} in about
    assert {"a.o_proj.weight"} in about


@pytest.mark.parametrize(
    ("excluded", "faulty"),
    [
        (["lm_head"], True),
        (["model.layers.1.mlp.up_proj"], False),
        (["model.layers.1.mlp"], False),
        (["model.layers.1*"], False),
        (["*up_proj"], False),
        (None, False),
    ],
)
def test_a_plain_weight_among_packed_ones_is_a_fault_unless_it_is_excluded(excluded, faulty):
    table = {
        **below(GOOD, "model.layers.0.mlp.up_proj"),
        **below(GOOD, "model.layers.1.self_attn.q_proj"),
        "model.layers.1.mlp.up_proj.weight": ("BF16", (64, 128)),
        "model.layers.2.mlp.up_proj.weight": ("BF16", (64, 128)),  # a layer that nobody packed
    }
    lists = {} if excluded is None else {"exclude_modules": excluded}
    found = faults(opened(LAYOUT, table, says("modelopt", quant_algo="NVFP4", **lists)))
    plain = [names for reason, names in found.items() if reason.startswith("is plain, but not")]
    assert plain == [{"model.layers.1.mlp.up_proj.weight"}] * faulty


@pytest.mark.parametrize(
    ("table", "recognised"),
    [
        (GOOD, True),
        (mxfp4(4, 4), True),
        (eight(4, 4, ()), True),
        ({"weight": ("U8", (1, 4)), "weight_scale": ("F32", (1,))}, False),  # BitNet
        ({"weight": ("BF16", (4, 4)), "weight_scale": ("F32", (4, 1))}, False),
        ({"weight": ("F8_E4M3", (4, 4)), "weight_scale_inv": ("F32", (1, 1))}, False),
        ({"weight_packed": ("U8", (4, 8)), "weight_scale": ("F8_E4M3", (4, 1))}, False),
    ],
)
def test_it_is_known_by_its_marks(table, recognised):
    assert LAYOUT.recognises(Stored(stored(below(table)))) is recognised

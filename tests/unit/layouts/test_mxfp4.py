"""MXFP4 as gpt-oss has it: transformers' own unpacking, and gpt-oss-20b to the last number."""

import json
from math import prod

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
)

import auditor
from auditor.analytic import Role, catalogue, read_config
from auditor.layouts.mxfp4 import LAYOUT
from auditor.layouts.packing import Stored
from auditor.tensors import DTYPE_BITS

EXPERTS = "model.layers.0.mlp.experts"
NAME = f"{EXPERTS}.down_proj"
MXFP4 = says("mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])


def blocks(experts, out, count, name=NAME):
    return {
        f"{name}_blocks": ("U8", (experts, out, count, 16)),
        f"{name}_scales": ("U8", (experts, out, count)),
    }


@given(st.integers(1, 9), st.integers(1, 99), st.integers(1, 99))
def test_experts_are_unpacked_and_transposed(experts, out, count):
    unpacked = opened(LAYOUT, blocks(experts, out, count), MXFP4)
    assert pieces(unpacked) == {NAME: (experts, 32 * count, out)}
    assert quantization_data(unpacked) == {f"{NAME}_scales"}
    assert faults(unpacked) == {}
    for name, changed in spoiled(blocks(experts, out, count)):
        unpacked = opened(LAYOUT, changed, MXFP4)
        assert faults(unpacked) or pieces(unpacked) != {NAME: (experts, 32 * count, out)}, name


@pytest.mark.oracle
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3))
def test_the_shape_is_that_of_what_transformers_unpacks(experts, out, count):
    torch = pytest.importorskip("torch")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: PLC0415

    table = blocks(experts, out, count)
    packed = (torch.zeros(shape, dtype=torch.uint8) for _, shape in table.values())
    theirs = convert_moe_packed_tensors(*packed)
    assert pieces(opened(LAYOUT, table, MXFP4)) == {NAME: tuple(theirs.shape)}


@pytest.mark.oracle
def test_a_small_gpt_oss_in_blocks_is_all_of_the_model(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file  # noqa: PLC0415
    from transformers import GptOssConfig, GptOssForCausalLM  # noqa: PLC0415

    sides = {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2}
    config = GptOssConfig(**sides, num_local_experts=4, num_attention_heads=4, head_dim=8)
    model = GptOssForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    held = {}
    for name, (_, shape) in on_disk(tmp_path).items():
        if name.endswith(("gate_up_proj", "down_proj")) and len(shape) == 3:
            experts, width, out = shape
            table = blocks(experts, out, width // 32, name)
            held |= {key: torch.zeros(side, dtype=torch.uint8) for key, (_, side) in table.items()}
        else:
            held[name] = torch.zeros(shape, dtype=torch.bfloat16)
    save_file(held, tmp_path / "model.safetensors", metadata={"format": "pt"})
    path = tmp_path / "config.json"
    settings = {"quantization_config": {"quant_method": "mxfp4", **MXFP4.settings}}
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)
    assert report.observed.parameters == model.num_parameters()
    hides_what_it_cannot_show(tmp_path)
    its_total_is_told(tmp_path)


GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}


def test_gpt_oss_20b_has_20_914_757_184_parameters_and_597_196_800_scales():
    config = read_config("config.json", json.dumps(GPT_OSS_20B).encode())
    table = {}
    for tensor in catalogue.expect(config, "GptOssForCausalLM").tensors:
        if tensor.role is not Role.PARAMETER:
            continue
        if len(tensor.shape) == 3:
            experts, width, out = tensor.shape
            table |= blocks(experts, out, width // 32, tensor.name)
        else:
            table[tensor.name] = ("BF16", tensor.shape)
    assert len(table) == 459
    size = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in table.values())
    assert size == 13_761_264_768  # total_size of the published index
    unpacked = opened(LAYOUT, table, MXFP4)
    notes = quantization_data(unpacked)
    assert sum(prod(table[name][1]) for name in notes) == 597_196_800
    left = set(table) - notes - {piece.stored.name for piece in unpacked.tensors}
    plain = sum(prod(table[name][1]) for name in left)
    assert plain + sum(map(prod, pieces(unpacked).values())) == 20_914_757_184
    assert faults(unpacked) == {}


GOOD = blocks(4, 64, 2)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            {**GOOD, f"{NAME}_scales": ("U8", (4, 2, 64))},
            "scales is (4, 2, 64), expected (4, 64, 2) for a weight of (4, 64, 64)",
        ),
        (
            {**GOOD, f"{NAME}_blocks": ("U8", (4, 64, 2, 32))},
            "down_proj_blocks is U8 (4, 64, 2, 32), expected (experts, outputs, inputs / 32, 16)",
        ),
        (
            {**GOOD, f"{NAME}_blocks": ("U8", (4, 64, 32))},
            "down_proj_blocks is U8 (4, 64, 32), expected (experts, outputs, inputs / 32, 16)",
        ),
        ({f"{NAME}_blocks": GOOD[f"{NAME}_blocks"]}, "is stored without its scales"),
        ({f"{NAME}_scales": GOOD[f"{NAME}_scales"]}, "is stored without its blocks"),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_arithmetic(table, reason):
    assert reason in faults(opened(LAYOUT, table, MXFP4))


def test_experts_that_the_config_leaves_alone_are_not_to_be_packed():
    declared = says("mxfp4", modules_to_not_convert=["model.layers.*.mlp"])
    [(reason, names)] = faults(opened(LAYOUT, GOOD, declared)).items()
    assert ("plain by modules_to_not_convert" in reason, names) == (True, {f"{NAME}_blocks"})


@pytest.mark.parametrize(
    ("table", "recognised"),
    [
        (GOOD, True),
        ({f"{NAME}_blocks": ("U8", (4, 64, 2, 16))}, False),
        ({"a.weight_blocks": ("F32", (4,)), "a.weight_scales": ("F32", (4,))}, False),
        ({"a.weight": ("I8", (4, 4)), "a.weight_scales": ("F32", (4,))}, False),  # EETQ
    ],
)
def test_it_is_known_by_its_marks(table, recognised):
    assert LAYOUT.recognises(Stored(stored(table))) is recognised

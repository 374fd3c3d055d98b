"""fp8: block arithmetic, transformers' own modules, and DeepSeek-R1 to the byte."""

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import deepseek_v3
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import (
    faults,
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

import auditor
from auditor.analytic import catalogue, read_config
from auditor.layouts.fp8 import LAYOUT
from auditor.layouts.packing import Stored
from auditor.tensors import DTYPE_BITS

Q = "model.layers.0.self_attn.q_proj"
NAME = f"{Q}.weight"
EXPERTS = "model.layers.0.mlp.experts"
SIDES = st.integers(1, 300)
BLOCKS = st.sampled_from([(128, 128), (1, 32), (64, 128), (7, 3)])


def up(count, step):
    return -(-count // step)


def blocked(out, width, rows, columns, dtype="F32"):
    grid = (up(out, rows), up(width, columns))
    return {NAME: ("F8_E4M3", (out, width)), f"{Q}.weight_scale_inv": (dtype, grid)}


def of_blocks(rows, columns, **settings):
    return says("fp8", weight_block_size=[rows, columns], **settings)


# --- laws -------------------------------------------------------------------------------------

MEMBERS = st.dictionaries(
    st.sampled_from(
        ["weight", "weight_scale_inv", "weight_scale", "scale", "bias", "input_scale", "k_scale"]
    ),
    st.tuples(st.sampled_from(["F8_E4M3", "F32", "I8"]), st.sampled_from([(4, 64), (1, 2), ()])),
    min_size=1,
)
MODULES = (
    "",
    "lm_head",
    *(f"layers.{layer}.experts.{expert}" for layer in "012" for expert in "01"),
)


@given(
    st.lists(MEMBERS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=len(MODULES), max_size=len(MODULES)),
    st.sampled_from([None, "fp4", "fp8"]),
)
def test_identical_modules_are_unpacked_as_each_is_alone(kinds, which, experts):
    of_module = [
        {
            ".".join(filter(None, (module, last))): what
            for last, what in kinds[at % len(kinds)].items()
        }
        for module, at in zip(MODULES, which, strict=True)
    ]
    settings = of_blocks(4, 32) if experts is None else of_blocks(4, 32, expert_dtype=experts)
    whole, *alone = (
        LAYOUT.unpack(Stored(stored(table)), settings, lambda _name: None)
        for table in ({name: what for one in of_module for name, what in one.items()}, *of_module)
    )
    assert sorted(whole.tensors) == sorted(piece for one in alone for piece in one.tensors)
    for told in (lambda one: one.quantization_data, lambda one: one.faults):
        assert booked(told(whole)) == booked(entry for one in alone for entry in told(one))


def booked(entries):
    """The names under each reason, but for the one that compares modules."""
    found = {}
    for entry in entries:
        if entry.reason.startswith("is plain, but"):
            continue
        found.setdefault(entry.reason, set()).update(tensor.name for tensor in entry.tensors)
    return found


@given(SIDES, SIDES, BLOCKS, st.sampled_from(["F32", "F8_E8M0", "U8", "BF16"]))
def test_a_weight_in_blocks_keeps_its_shape_and_its_scales_are_rounded_up(out, width, block, dtype):
    unpacked = opened(LAYOUT, blocked(out, width, *block, dtype), of_blocks(*block))
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: (out, width)}, {})
    assert quantization_data(unpacked) == {f"{Q}.weight_scale_inv"}


@given(st.integers(2, 40), st.integers(2, 40), BLOCKS)
def test_any_changed_shape_is_seen(out, width, block):
    shape = (out * block[0], width * block[1])
    for name, changed in spoiled(blocked(*shape, *block)):
        unpacked = opened(LAYOUT, changed, of_blocks(*block))
        assert faults(unpacked) or pieces(unpacked) != {NAME: shape}, name


@given(st.integers(1, 5), SIDES, SIDES, BLOCKS)
def test_experts_that_are_one_tensor_have_a_grid_each(experts, out, width, block):
    table = {
        f"{EXPERTS}.down_proj": ("F8_E4M3", (experts, out, width)),
        f"{EXPERTS}.down_proj_scale_inv": (
            "F32",
            (experts, up(out, block[0]), up(width, block[1])),
        ),
    }
    unpacked = opened(LAYOUT, table, of_blocks(*block))
    assert pieces(unpacked) == {f"{EXPERTS}.down_proj": (experts, out, width)}
    assert faults(unpacked) == {}


@given(SIDES, st.integers(1, 20), st.sampled_from(["weight_scale_inv", "scale", "qscale_weight"]))
def test_experts_of_four_bits_are_twice_as_wide_as_they_are_stored(out, groups, scale):
    # transformers 5.23, integrations/finegrained_fp8.py: FP8Experts with expert_dtype "fp4"
    name = f"{EXPERTS}.3.down_proj"
    table = {
        f"{name}.weight": ("I8", (out, 16 * groups)),
        f"{name}.{scale}": ("F8_E8M0", (out, groups)),
    }
    for declared in (of_blocks(128, 128), of_blocks(128, 128, expert_dtype="fp4"), None):
        unpacked = opened(LAYOUT, table, declared)
        assert (pieces(unpacked), faults(unpacked)) == ({f"{name}.weight": (out, 32 * groups)}, {})
    for changed, spoilt in spoiled(table):
        unpacked = opened(LAYOUT, spoilt, of_blocks(128, 128))
        same = pieces(unpacked) == {f"{name}.weight": (out, 32 * groups)}
        assert faults(unpacked) or not same, changed


# --- transformers' own modules -----------------------------------------------------------------

SMALL = {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2}
MIXED = {"moe_intermediate_size": 32, "num_experts": 2, "num_experts_per_tok": 1, "head_dim": 16}


def written(model, folder, **settings):
    """The model with transformers' own FP8 modules, saved as a quantised one is."""
    from transformers import FineGrainedFP8Config  # noqa: PLC0415
    from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: PLC0415
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear  # noqa: PLC0415
    from transformers.quantizers.auto import FineGrainedFP8HfQuantizer  # noqa: PLC0415

    config = FineGrainedFP8Config(**settings)
    replace_with_fp8_linear(model, ["lm_head"], config, pre_quantized=True)
    model = model.to_empty(device="cpu")
    model.config.quantization_config = config
    quantizer = FineGrainedFP8HfQuantizer(config, pre_quantized=True)
    model._weight_conversions = get_model_conversion_mapping(  # noqa: SLF001 - as loading does
        model, hf_quantizer=quantizer
    )
    model.save_pretrained(folder)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "settings",
    [
        {"weight_block_size": (32, 32)},
        {"weight_block_size": (48, 32), "scale_fmt": "ue8m0"},
        {"weight_block_size": None, "activation_scheme": "static"},
        {"weight_block_size": (32, 32), "expert_dtype": "fp4", "scale_fmt": "ue8m0"},
    ],
    ids=["blocks", "uneven", "tensor", "four"],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_what_transformers_writes_is_the_model_it_quantised(mixed, settings, tmp_path):
    import transformers  # noqa: PLC0415

    if mixed:
        config = transformers.Qwen3MoeConfig(**SMALL, **MIXED)
        model = transformers.Qwen3MoeForCausalLM(config)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    model.save_pretrained(tmp_path / "plain")
    written(model, tmp_path / "packed", **settings)
    table, plain = on_disk(tmp_path / "packed"), shapes(on_disk(tmp_path / "plain"))
    found = json.loads((tmp_path / "packed/config.json").read_text())["quantization_config"]
    unpacked = opened(LAYOUT, table, says(**{"method": "fp8", **found}))
    left = set(table) - quantization_data(unpacked) - set(pieces(unpacked))
    assert pieces(unpacked) | {name: table[name][1] for name in left} == plain
    assert len(unpacked.tensors) == (20 if mixed else 14)
    report = auditor.audit(str(tmp_path / "packed"))
    assert (report.verdict, report.residual) == ("clean", 0)
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed")
    tells_what_is_written(LAYOUT, table, says(**{"method": "fp8", **found}), plain)
    assert report.observed.parameters == sum(map(prod, plain.values()))


# --- DeepSeek-R1 ------------------------------------------------------------------------------

R1_BYTES = 688_586_727_753  # of its 163 files, as the Hub lists them


@pytest.mark.slow
def test_deepseek_r1_has_91_991_tensors_and_all_of_the_model():
    """It has the config and the tensors of DeepSeek-V3, which are listed there name by name."""
    table = dict(deepseek_v3.tensors())
    config = json.dumps(deepseek_v3.CONFIG).encode()
    expectation = catalogue.expect(read_config("config.json", config), "DeepseekV3ForCausalLM")
    expected = {tensor.name: tensor.shape for tensor in expectation.tensors}
    size = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in table.values())
    # A header takes 110 to 140 bytes a tensor in healthy files.
    assert len(table) == deepseek_v3.TENSORS
    assert 110 < (R1_BYTES - size) / len(table) < 140
    declared = of_blocks(128, 128, activation_scheme="dynamic")
    assert opened(LAYOUT, dict(deepseek_v3.tensors(4)), declared).tensors
    unpacked = opened(LAYOUT, table, declared, large=True)
    left = set(table) - quantization_data(unpacked) - set(pieces(unpacked))
    assert pieces(unpacked) | {name: table[name][1] for name in left} == expected
    assert faults(unpacked) == {}


# --- tables -----------------------------------------------------------------------------------

GOOD = blocked(256, 384, 128, 128)
SCALE = f"{Q}.weight_scale_inv"
HALF = ("BF16", (256, 384))
O_PROJ = f"{Q.removesuffix('q_proj')}o_proj"
WHOLE = {NAME: ("F8_E4M3", (256, 384)), f"{Q}.weight_scale": ("F32", (1,))}
FOUR = {
    f"{EXPERTS}.0.up_proj.weight": ("I8", (64, 32)),
    f"{EXPERTS}.0.up_proj.weight_scale_inv": ("F8_E8M0", (64, 2)),
}


@pytest.mark.parametrize(
    ("table", "declared"),
    [
        (GOOD, None),
        (WHOLE, says("fp8")),
        (WHOLE, of_blocks(128, 128)),  # an embedding beside linears in blocks
        ({**WHOLE, f"{Q}.weight_scale": ("F32", ())}, says("fp8")),
        ({**WHOLE, f"{Q}.weight_scale": ("F32", (256, 1))}, says("fp8")),
        ({**WHOLE, f"{Q}.weight_scale": ("F32", (256, 1))}, says("fbgemm_fp8")),
        ({**WHOLE, f"{Q}.input_scale": ("F32", ())}, says("fp8", activation_scheme="static")),
        ({**WHOLE, f"{Q}.k_scale": ("F32", (1,))}, says("fp8")),
        ({**GOOD, SCALE: ("F32", ())}, says("fp8", weight_block_size=None)),
        (GOOD, of_blocks(128, 128, modules_to_not_convert=["lm_head", f"{Q}x", "mlp.gate"])),
        ({**GOOD, "lm_head.weight": ("BF16", (9, 9))}, of_blocks(128, 128)),
        (
            {**GOOD, f"{O_PROJ}.weight": HALF},
            of_blocks(128, 128, modules_to_not_convert=["o_proj"]),
        ),
        ({**GOOD, f"{O_PROJ}.weight": HALF}, None),  # whose loader is not known
        (
            {
                f"{EXPERTS}.gate_up_proj": ("F8_E4M3", (4, 64, 96)),
                f"{EXPERTS}.gate_up_proj_scale": ("F32", (4, 1, 96)),
                f"{EXPERTS}.down_proj": ("F8_E4M3", (4, 48, 64)),
                f"{EXPERTS}.down_proj_scale": ("F32", (4, 64, 1)),
            },
            says("fbgemm_fp8"),
        ),
    ],
)
def test_healthy_ways_of_storing_8_bits(table, declared):
    unpacked = opened(LAYOUT, table, declared)
    assert faults(unpacked) == {}
    assert pieces(unpacked) == {
        name: shape for name, (dtype, shape) in table.items() if dtype == "F8_E4M3"
    }


@pytest.mark.parametrize(
    ("table", "declared", "reason"),
    [
        (
            {**GOOD, SCALE: ("F32", (3, 2))},
            of_blocks(128, 128),
            (
                "scale is (3, 2), expected (2, 3) for a weight of (256, 384), one for each "
                "block of 128 x 128"
            ),
        ),
        (GOOD, says("fbgemm_fp8"), "scale is (2, 3), expected (256, 1)"),
        ({NAME: GOOD[NAME]}, says("fp8"), "is stored without its scale"),
        ({SCALE: GOOD[SCALE]}, says("fp8"), "is stored without its weight"),
        (
            {**GOOD, NAME: ("BF16", (256, 384))},
            says("fp8"),
            "weight is BF16 (256, 384), expected F4 or F8_E4M3",
        ),
        (
            GOOD,
            of_blocks(128, 128, activation_scheme="static"),
            "is stored without its input_scale",
        ),
        (
            GOOD,
            of_blocks(128, 128, modules_to_not_convert=["model.layers.*.self_attn"]),
            "is packed, but plain by modules_to_not",
        ),
        (
            GOOD,
            of_blocks(128, 128, ignored_layers=["q_proj"]),
            "is packed, but plain by ignored_layers",
        ),
        (
            {**GOOD, f"{O_PROJ}.weight": HALF},
            of_blocks(128, 128),
            "is plain, but not by modules_to_not",
        ),
        (
            {**GOOD, "lm_head.weight": ("BF16", (9, 9))},
            of_blocks(128, 128, modules_to_not_convert=["mlp.gate"]),
            "is plain, but not by modules_to_not",
        ),
        (
            {**GOOD, f"{Q}.input_scale": ("F32", (2,))},
            of_blocks(128, 128),
            "input_scale is (2,), expected ()",
        ),
        (FOUR, says("fp8", expert_dtype="fp8"), "expert_dtype is the string 'fp8', stored is I8"),
        (
            {
                f"{EXPERTS}.0.up_proj.weight": ("F8_E4M3", (64, 32)),
                f"{EXPERTS}.0.up_proj.weight_scale_inv": ("F32", (1, 1)),
            },
            says("fp8", expert_dtype="fp4"),
            "expert_dtype is the string 'fp4', stored is F8_E4M3 (64, 32)",
        ),
        (GOOD, says("fp8", weight_block_size=128), "weight_block_size of quantization_config is 1"),
        (GOOD, says("fp8", weight_block_size=[0, 1]), "is a list; two sides above 0 are needed"),
        (GOOD, says("fp8", weight_block_size=["a", 1]), "is a list; two sides above 0 are needed"),
        (GOOD, says("fp8", weight_block_size=[10**30, 1]), "is a list; two sides above 0 are"),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_arithmetic(table, declared, reason):
    assert any(reason in found for found in faults(opened(LAYOUT, table, declared)))


@pytest.mark.parametrize(
    ("table", "recognised"),
    [
        (GOOD, True),
        (WHOLE, True),
        (FOUR, True),
        ({NAME: ("F8_E4M3", (4, 4))}, False),  # cast, and never scaled
        ({NAME: ("BF16", (4, 4)), f"{Q}.scale": ("F32", (4,))}, False),
        ({NAME: ("I8", (4, 4)), f"{Q}.weight_scale": ("F32", (4, 1))}, False),
        ({f"{Q}.weight_packed": ("U8", (4, 4)), f"{Q}.weight_scale": ("U8", (4, 1))}, False),
    ],
)
def test_it_is_known_by_its_marks(table, recognised):
    assert LAYOUT.recognises(Stored(stored(table))) is recognised

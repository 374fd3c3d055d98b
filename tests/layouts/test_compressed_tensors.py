"""compressed-tensors: shapes by the arithmetic of its formats, and by the library itself."""

import json
import re
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from layouts.packed import (
    bookkeeping,
    faults,
    on_disk,
    opened,
    pieces,
    says,
    shapes,
    spoiled,
    stored,
    tells_what_is_written,
)

import auditor
from auditor.analytic import Config, Role, catalogue
from auditor.layouts.compressed_tensors import LAYOUT
from auditor.layouts.packing import Stored

Q = "model.layers.0.self_attn.q_proj"
NAME = f"{Q}.weight"
SIDES = st.integers(1, 40)


def up(count, step):
    return -(-count // step)


def scheme(*, targets=("Linear",), form=None, inputs=None, **weights):
    return {"targets": list(targets), "weights": weights, "input_activations": inputs} | (
        {"format": form} if form else {}
    )


def config(*groups, ignore=(), **settings):
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return says("compressed-tensors", config_groups=named, ignore=list(ignore), **settings)


def packed_words(out, width, bits, size, *beside):
    """pack-quantized in groups; size None: one scale an output."""
    count = 1 if size is None else up(width, size)
    table = {
        "weight_packed": ("I32", (out, up(width * bits, 32))),
        "weight_scale": ("BF16", (out, count)),
        "weight_shape": ("I64", (2,)),
    }
    if "zeros" in beside:
        table["weight_zero_point"] = ("I32", (up(out * bits, 32), count))
    if "index" in beside:
        table["weight_g_idx"] = ("I32", (width,))
    return table


def whole(out, width, grid, dtype="F8_E4M3"):
    return {"weight": (dtype, (out, width)), "weight_scale": ("F32", grid)}


def fp4(out, width, size, dtype, **beside):
    scale = ("weight_scale", (dtype, (out, width // size)))
    return {"weight_packed": ("U8", (out, width // 2)), **dict([scale]), **beside}


def below(module, table):
    return {f"{module}.{name}": described for name, described in table.items()}


def clean(table, declared, shape):
    unpacked = opened(LAYOUT, below(Q, table), declared, {NAME: shape})
    assert pieces(unpacked) == {NAME: shape}
    assert bookkeeping(unpacked) == set(below(Q, table)) - {unpacked.pieces[0].stored.name}
    return faults(unpacked) == {}


# --- laws -------------------------------------------------------------------------------------


@given(SIDES, SIDES, st.integers(1, 8), st.none() | st.sampled_from([1, 8, 32, 128]), st.booleans())
def test_packed_words_unpack_to_the_shape_that_was_packed(out, width, bits, size, symmetric):
    weights = {"num_bits": bits, "group_size": size or -1, "symmetric": symmetric}
    table = packed_words(out, width, bits, size, *([] if symmetric else ["zeros"]))
    assert clean(table, config(scheme(**weights), format="pack-quantized"), (out, width))


@given(SIDES, SIDES, st.sampled_from([2, 3, 4, 5, 8]))
def test_words_that_older_versions_padded_unpack_as_well(out, width, bits):
    table = packed_words(out, width, bits, None)
    table["weight_packed"] = ("I32", (out, up(width, 32 // bits)))
    assert clean(table, config(scheme(num_bits=bits, group_size=-1)), (out, width))


@given(SIDES, st.integers(1, 8), st.sampled_from([2, 4, 8]), st.booleans(), st.booleans())
def test_any_changed_shape_is_seen(out, count, bits, symmetric, ordered):
    size = 16
    weights = {"num_bits": bits, "group_size": size, "symmetric": symmetric}
    weights["actorder"] = "group" if ordered else None
    beside = ["zeros"] * (not symmetric) + ["index"] * ordered
    table = packed_words(out, count * size, bits, size, *beside)
    shape = (out, count * size)
    assert clean(table, config(scheme(**weights)), shape)
    for name, changed in spoiled(below(Q, table)):
        unpacked = opened(LAYOUT, changed, config(scheme(**weights)), {NAME: shape})
        assert faults(unpacked) or pieces(unpacked) != {NAME: shape}, name


@given(SIDES, SIDES, st.sampled_from(["I8", "F8_E4M3"]), st.sampled_from(["tensor", "channel", 8]))
def test_scales_of_a_weight_that_keeps_its_shape_are_a_number_a_column_or_groups(
    out, width, dtype, grain
):
    grid = {"tensor": (1,), "channel": (out, 1), 8: (out, up(width, 8))}[grain]
    weights = {"num_bits": 8, "type": "int" if dtype == "I8" else "float"}
    weights |= {"group_size": 8} if grain == 8 else {"strategy": grain}
    table = whole(out, width, grid, dtype)
    assert clean(table, config(scheme(**weights)), (out, width))
    for name, changed in spoiled(below(Q, table)):
        unpacked = opened(LAYOUT, changed, config(scheme(**weights)), {NAME: (out, width)})
        assert faults(unpacked) or pieces(unpacked) != {NAME: (out, width)}, name


@given(SIDES, SIDES, st.integers(1, 9), st.integers(1, 9))
def test_blocks_that_do_not_divide_a_weight_are_rounded_up(out, width, rows, columns):
    table = whole(out, width, (up(out, rows), up(width, columns)))
    weights = {"num_bits": 8, "type": "float", "strategy": "block"}
    declared = config(scheme(**weights, block_structure=[rows, columns]))
    assert clean(table, declared, (out, width))
    older = config(scheme(**weights, block_structure=f"{rows}x{columns}"))
    assert clean(table, older, (out, width))


FLOATS = [
    (4, 16, "F8_E4M3", {"weight_global_scale": ("F32", (1,))}, "NVFP4"),
    (4, 32, "U8", {}, "MXFP4"),
    (6, 32, "U8", {}, "MXFP6"),
]


@pytest.mark.parametrize("case", FLOATS)
@given(out=SIDES, count=st.integers(1, 9), said=st.booleans())
def test_small_floats_are_packed_in_bytes_with_a_scale_a_group(case, out, count, said):
    bits, size, dtype, beside, inside = case
    shape = (out, count * size)
    table = fp4(*shape, size, dtype, **beside)
    table["weight_packed"] = ("U8", (out, count * size * bits // 8))
    weights = {"num_bits": bits, "type": "float", "group_size": size}
    declared = config(scheme(**weights)) if said else None
    assert clean(table, declared, shape)
    unpacked = opened(LAYOUT, below(Q, table), declared)
    assert unpacked.pieces[0].dtype == inside
    for name, changed in spoiled(below(Q, table)):
        unpacked = opened(LAYOUT, changed, declared, {NAME: shape})
        assert faults(unpacked) or pieces(unpacked) != {NAME: shape}, name


@given(SIDES, st.integers(1, 12))
def test_two_of_four_is_unpacked_to_twice_the_inputs_that_are_kept(out, quarters):
    # compressed_tensors 0.9.4, compressors/sparse_compressors/sparse_24_bitmask.py
    shape = (out, 4 * quarters)
    table = {
        "compressed": ("BF16", (out, 2 * quarters)),
        "bitmask": ("U8", (out, up(4 * quarters, 8))),
        "shape": ("I64", (2, 1)),
    }
    assert clean(table, config(sparsity_config={"format": "sparse-24-bitmask"}), shape)


@given(SIDES, SIDES, st.floats(0, 1))
def test_a_sparse_weight_has_as_many_bits_as_the_architecture_has_numbers(out, width, kept):
    # compressed_tensors 0.9.4, compressors/sparse_compressors/sparse_bitmask.py
    table = {
        f"{NAME}.compressed": ("F16", (int(kept * out * width),)),
        f"{NAME}.bitmask": ("U8", (out, up(width, 8))),
        f"{NAME}.shape": ("I64", (2,)),
        f"{NAME}.row_offsets": ("I64", (out,)),
    }
    unpacked = opened(LAYOUT, table, config(), {NAME: (out, width)})
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: (out, width)}, {})
    assert bookkeeping(unpacked) == set(table) - {f"{NAME}.compressed"}


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([4, 8]), st.booleans())
def test_marlin_24_packs_half_the_inputs_in_tiles(rows, columns, bits, grouped):
    # compressed_tensors 0.9.4, compressors/sparse_quantized_compressors/marlin_24.py
    out, width = 64 * rows, 256 * columns
    table = {
        "weight_packed": ("I32", (width // 32, out * bits // 2)),
        "scale_packed": ("F16", (width // 128 if grouped else 1, out)),
        "meta": ("I16", (width // 32, 2 * out)),
    }
    weights = {"num_bits": bits, "group_size": 128 if grouped else -1}
    assert clean(table, config(scheme(**weights), format="marlin-24"), (out, width))
    assert clean(table, None, (out, width))
    for name, changed in spoiled(below(Q, table)):
        unpacked = opened(LAYOUT, changed, config(scheme(**weights)), {NAME: (out, width)})
        assert faults(unpacked) or pieces(unpacked) != {NAME: (out, width)}, name


# --- the library itself -----------------------------------------------------------------------

PRESETS = ["W4A16", "W4A16_ASYM", "W3A16", "W8A16", "W8A8", "W4AFP8", "FP8", "FP8_DYNAMIC"]
PRESETS += ["FP8_BLOCK", "NVFP4", "NVFP4A16", "MXFP4A16", "MXFP6A16", "MXFP8"]


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    sides = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 40, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sides, num_attention_heads=4, num_key_value_heads=2))


def written(model, folder, groups, ignore=("lm_head",)):
    """The model, quantised and saved by the library."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor  # noqa: PLC0415
    from compressed_tensors.quantization import (  # noqa: PLC0415
        QuantizationConfig,
        apply_quantization_config,
    )

    settings = QuantizationConfig(config_groups=groups, ignore=list(ignore))
    apply_quantization_config(model, settings)
    for name, parameter in model.named_parameters():
        if name.endswith("scale"):
            parameter.data.fill_(0.01)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def preset(name, targets=("Linear",)):
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.quantization.quant_scheme import (  # noqa: PLC0415
        preset_name_to_scheme,
    )

    found = preset_name_to_scheme(name, list(targets)).model_dump()
    if found["weights"].get("group_size") == 128:
        found["weights"]["group_size"] = 32
    if found["weights"].get("block_structure"):
        found["weights"]["block_structure"] = [32, 32]
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("name", PRESETS)
def test_what_the_library_writes_is_the_model_it_packed(name, tmp_path):
    model = llama()
    model.save_pretrained(tmp_path / "plain")
    written(model, tmp_path / "packed", {"group_0": preset(name)})
    table = on_disk(tmp_path / "packed")
    settings = json.loads((tmp_path / "packed/config.json").read_text())["quantization_config"]
    plain = shapes(on_disk(tmp_path / "plain"))
    unpacked = opened(LAYOUT, table, says(**{"method": "", **settings}), plain)
    left = set(table) - bookkeeping(unpacked) - {piece.stored.name for piece in unpacked.pieces}
    assert pieces(unpacked) | {name: table[name][1] for name in left} == plain
    assert len(unpacked.pieces) == 14
    assert faults(unpacked) == {}
    report = auditor.audit(str(tmp_path / "packed"))
    assert (report.verdict, report.residual) == ("clean", 0)
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed", exact=name != "W3A16")  # older versions padded words
    tells_what_is_written(LAYOUT, table, says(**{"method": "", **settings}), plain)
    assert report.observed.parameters == sum(map(prod, plain.values()))


@pytest.mark.oracle
def test_two_schemes_in_one_checkpoint_are_told_apart_by_their_targets(tmp_path):
    groups = {
        "group_0": preset("W4A16", ["re:.*self_attn.*"]),
        "group_1": preset("FP8_DYNAMIC", [r"re:.*mlp\.(gate|up)_proj$"]),
        "group_2": preset("W8A16", ["model.layers.1.mlp.down_proj"]),
    }
    written(llama(), tmp_path, groups, ignore=["model.layers.0.self_attn.o_proj"])
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)


# --- tables -----------------------------------------------------------------------------------

W4 = config(scheme(num_bits=4, group_size=32), format="pack-quantized")
GOOD = packed_words(64, 128, 4, 32)


def without(*names):
    return {name: described for name, described in GOOD.items() if name not in names}


@pytest.mark.parametrize(
    ("table", "declared", "reason"),
    [
        (
            {**GOOD, "weight_packed": ("I32", (64, 12))},
            W4,
            (
                "weight_packed (64, 12) holds 12 x 32 / 4 = 96 inputs, but weight_scale (64, 4) is "
                "of 4 groups of 32"
            ),
        ),
        (
            {**GOOD, "weight_scale": ("F16", (32, 4))},
            W4,
            (
                "weight_scale is (32, 4); one for each 32 inputs of an output makes (64, 4) for a "
                "weight of (64, 128)"
            ),
        ),
        (
            without("weight_scale", "weight_shape"),
            W4,
            "weight_scale and weight_shape should stand beside it, and no file has it",
        ),
        (without("weight_packed"), W4, "the weight that they belong to is not stored"),
        (
            {"weight": ("BF16", (64, 128)), "weight_scale": ("BF16", (64, 4))},
            W4,
            "beside a weight of BF16, which needs none: loading would scale it",
        ),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32, symmetric=False)),
            "weight_zero_point should stand beside it, and no file has it",
        ),
        (
            {**GOOD, "weight_zero_point": ("I32", (7, 4))},
            config(scheme(num_bits=4, group_size=32, symmetric=False)),
            "weight_zero_point is I32 (7, 4), which is not 4 bits for each of the scales (64, 4)",
        ),
        (
            {**GOOD, "weight_g_idx": ("I32", (4,))},
            W4,
            "weight_g_idx is (4,); one for each input makes (128,)",
        ),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32), ignore=[Q]),
            "stored as pack-quantized, but `ignore` lists the module: it is loaded plain",
        ),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32), ignore=[r"re:.*self_attn\..*"]),
            "stored as pack-quantized, but `ignore` lists the module: it is loaded plain",
        ),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32, targets=["re:.*mlp.*"])),
            "stored as pack-quantized, but no target names the module: loaded plain",
        ),
        (
            whole(64, 128, (64, 1), "I8"),
            config(scheme(num_bits=8, strategy="channel"), format="pack-quantized"),
            "the config's format pack-quantized stores weight_packed, the file weight of I8",
        ),
        (
            whole(64, 128, (64, 1)),
            config(
                scheme(num_bits=8, type="float", strategy="channel", inputs={"dynamic": False}),
            ),
            "input_scale should stand beside it, and no file has it",
        ),
        (
            {**whole(64, 128, (1,)), "input_scale": ("F32", (7,))},
            config(scheme(num_bits=8, type="float")),
            (
                "input_scale is (7,); one number, or one for each group of inputs, serves a weight "
                "of (64, 128)"
            ),
        ),
        (
            GOOD,
            config(
                scheme(num_bits=4, group_size=32), kv_cache_scheme={"num_bits": 8, "dynamic": False}
            ),
            (
                "kv_cache_scheme of quantization_config is not dynamic, and no k_scale or v_scale "
                "is stored: caches would be scaled by 1"
            ),
        ),
        (
            {**GOOD, "k_scale": ("F32", (3,))},
            W4,
            "a scale of the KV cache is (3,), expected one number, or one a head",
        ),
        (
            {**GOOD, "weight_packed": ("I32", (512,))},
            W4,
            "(512,) has no rows and columns to unpack as pack-quantized",
        ),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_arithmetic(table, declared, reason):
    assert reason in faults(opened(LAYOUT, below(Q, table), declared, {NAME: (64, 128)}))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"config_groups": []}, "config_groups of quantization_config is a list"),
        ({"config_groups": {"g": None}}, "'g' in config_groups of quantization_config is null"),
        ({"config_groups": {"g": {"weights": 4}}}, "weights of .* is 4; an object is needed"),
        ({"weights": {"num_bits": 0}}, "num_bits of .* is 0; 1 to 16 is needed"),
        ({"weights": {"num_bits": "4"}}, "num_bits of .* is the string '4'"),
        ({"weights": {"num_bits": True}}, "num_bits of .* is true"),
        ({"weights": {"num_bits": 10**400}}, r"num_bits of .* \(401 digits\)"),
        ({"weights": {"group_size": -7}}, "group_size of .* is -7"),
        ({"weights": {"strategy": "group"}}, "strategy of .* is the string 'group', with"),
        ({"weights": {"strategy": "group", "group_size": 0}}, "with group_size 0"),
        ({"weights": {"strategy": ["group"]}}, "strategy of .* is a list"),
        ({"weights": {"strategy": "block", "block_structure": [0, 1]}}, "strategy of .* block"),
        ({"weights": {"strategy": "block", "block_structure": "2x"}}, "'2x'; tensor, channel"),
    ],
)
def test_settings_that_mean_nothing_are_faults_and_the_tensors_speak(settings, reason):
    if "weights" in settings:
        settings = {"config_groups": {"g": {"targets": ["Linear"], **settings}}}
    unpacked = opened(
        LAYOUT, below(Q, GOOD), says("compressed-tensors", **settings), {NAME: (64, 128)}
    )
    assert set(pieces(unpacked)) == {NAME}
    assert any(re.search(reason, fault) for fault in faults(unpacked))


@pytest.mark.parametrize("shape", [(), (0,), (0, 0), (0, 4), (4, 0), (1 << 40, 1 << 20), (2,) * 5])
@pytest.mark.parametrize("declared", [None, W4, config()])
def test_no_shape_is_too_odd_for_an_answer(shape, declared):
    for name in (*GOOD, "weight", "weight_zero_point", "weight_g_idx", "input_scale", "k_scale"):
        for dtype in ("I32", "U8", "I8", "F8_E4M3", "F32"):
            opened(LAYOUT, below(Q, {**GOOD, name: (dtype, shape)}), declared, {NAME: (64, 128)})
    for name in ("compressed", "bitmask", "scale_packed", "meta", "row_offsets", "shape"):
        table = {"compressed": ("F16", (4, 4)), "bitmask": ("U8", (4, 1)), **GOOD}
        opened(LAYOUT, below(Q, {**table, name: ("U8", shape)}), declared, {NAME: (64, 128)})


@pytest.mark.parametrize(
    ("ignore", "packed"),
    [("re:.*layers.1.*", False), ("model.layers.1.mlp.up_proj", False), ("lm_head", True)],
)
def test_a_plain_weight_among_packed_ones_is_a_fault_unless_it_is_ignored(ignore, packed):
    table = {
        **below("model.layers.0.mlp.up_proj", GOOD),
        **below("model.layers.1.mlp.down_proj", GOOD),
        **below("model.layers.0.mlp.down_proj", GOOD),
        "model.layers.1.mlp.up_proj.weight": ("BF16", (64, 128)),
        "model.layers.2.mlp.up_proj.weight": ("BF16", (64, 128)),  # a layer that nobody packed
        "lm_head.weight": ("BF16", (64, 128)),
        "model.layers.0.norm.weight": ("BF16", (64,)),
    }
    ignored = [ignore, "model.layers.1.mlp.down_proj_"]
    declared = config(scheme(num_bits=4, group_size=32), ignore=ignored)
    about = [names for reason, names in faults(opened(LAYOUT, table, declared)).items()]
    if packed:
        assert about == [{"model.layers.1.mlp.up_proj.weight"}]
    else:
        assert {"model.layers.1.mlp.up_proj.weight"} not in about


def test_of_several_targets_a_name_comes_before_an_expression_and_that_before_a_class():
    declared = config(
        scheme(num_bits=4, group_size=32),
        scheme(num_bits=8, group_size=64, targets=[r"re:.*q_proj$"]),
        scheme(num_bits=2, group_size=16, targets=["a.q_proj"]),
    )
    table = {
        **below("a.k_proj", packed_words(64, 128, 4, 32)),
        **below("b.q_proj", packed_words(64, 128, 8, 64)),
        **below("a.q_proj", packed_words(64, 128, 2, 16)),
    }
    unpacked = opened(LAYOUT, table, declared)
    assert set(pieces(unpacked).values()) == {(64, 128)}
    assert faults(unpacked) == {}


def test_a_pattern_that_cannot_be_read_leaves_the_tensors_to_speak():
    declared = config(
        scheme(num_bits=4, group_size=32), ignore=["re:(?!.*q_proj).*"], format="pack-quantized"
    )
    unpacked = opened(LAYOUT, below(Q, packed_words(64, 128, 8, 64)), declared, {NAME: (64, 128)})
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: (64, 128)}, {})


def test_names_alone_are_told_apart_and_no_shape_is_missed():
    table = dict.fromkeys([*below(Q, packed_words(1, 1, 4, 32, "zeros")), "norm.weight"])
    unpacked = opened(LAYOUT, table, config(scheme(num_bits=4, group_size=32, symmetric=False)))
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: None}, {})
    assert bookkeeping(unpacked) == set(table) - {f"{Q}.weight_packed", "norm.weight"}


def test_settings_one_level_deeper_are_found():
    inner = dict(config(scheme(num_bits=8, group_size=64)).settings)
    declared = says("compressed-tensors", quantization_config=inner, sparsity_config={})
    table = below(Q, packed_words(64, 128, 8, 64))
    assert pieces(opened(LAYOUT, table, declared)) == {NAME: (64, 128)}


@pytest.mark.parametrize(
    ("table", "recognised"),
    [
        (GOOD, True),
        (whole(4, 4, (1,)), True),
        (whole(4, 4, (1,), "BF16"), False),
        ({"weight": ("U8", (1, 4)), "weight_scale": ("F32", (1,))}, False),  # BitNet
        ({"weight": ("F8_E4M3", (4, 4)), "weight_scale_inv": ("F32", (1, 1))}, False),
        ({"qweight": ("I32", (4, 4)), "scales": ("F16", (1, 4))}, False),
        ({"weight": ("BF16", (4, 4))}, False),
    ],
)
def test_it_is_known_by_its_marks(table, recognised):
    assert LAYOUT.recognises(Stored(stored(below(Q, table)))) is recognised


def test_llama_3_3_70b_w4a16_by_activation_order_is_the_whole_model():
    """Its card: I32 68,451,041,280 unpacked + BF16 2,102,665,216, of 70,553,706,496."""
    values = {
        "model_type": "llama",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    expected = catalogue.expect(Config(values=values), "LlamaForCausalLM")
    learned = [one for one in expected.tensors if one.role is Role.PARAMETER]
    linear = [one for one in learned if "_proj" in one.name]
    table = {one.name: ("BF16", one.shape) for one in learned if one not in linear}
    for one in linear:
        words = packed_words(*one.shape, 4, 128, "index")
        table |= below(one.name.removesuffix(".weight"), words)
    weights = {"num_bits": 4, "group_size": 128, "actorder": "group"}
    declared = config(scheme(**weights), ignore=["lm_head"], format="pack-quantized")
    unpacked = opened(LAYOUT, table, declared, {one.name: one.shape for one in learned})
    packed = sum(map(prod, pieces(unpacked).values()))
    inside = {piece.stored.name for piece in unpacked.pieces} | bookkeeping(unpacked)
    plain = sum(prod(shape) for name, (_, shape) in table.items() if name not in inside)
    assert faults(unpacked) == {}
    assert (packed, plain) == (68_451_041_280, 2_102_665_216)
    assert packed + plain == expected.parameters == 70_553_706_496
    indices = {f"{one.name.removesuffix('weight')}weight_g_idx" for one in linear}
    assert indices <= bookkeeping(unpacked)

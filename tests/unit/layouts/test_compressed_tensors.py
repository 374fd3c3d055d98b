"""compressed-tensors: shapes by the arithmetic of its formats."""

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in
from support.layouts.compressed import (
    GOOD,
    NAME,
    SIDES,
    Q,
    below,
    config,
    fp4,
    packed_words,
    scheme,
    up,
    whole,
)
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
from auditor.analytic import Config, Role, catalogue
from auditor.layouts.compressed_tensors import LAYOUT
from auditor.layouts.packing import Stored


def clean(table, declared, shape):
    unpacked = opened(LAYOUT, below(Q, table), declared, {NAME: shape})
    assert pieces(unpacked) == {NAME: shape}
    assert quantization_data(unpacked) == set(below(Q, table)) - {unpacked.tensors[0].stored.name}
    return faults(unpacked) == {}


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
    assert unpacked.tensors[0].dtype == inside
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
    assert pieces(unpacked) == {NAME: (out, width)}
    assert quantization_data(unpacked) == set(table) - {f"{NAME}.compressed"}
    # compressed_tensors 0.20 has no compressors/sparse_compressors.
    [(reason, names)] = faults(unpacked).items()
    assert "no longer unpacks" in reason
    assert names == {f"{NAME}.compressed"}


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
    inside = {piece.stored.name for piece in unpacked.tensors} | quantization_data(unpacked)
    plain = sum(prod(shape) for name, (_, shape) in table.items() if name not in inside)
    assert faults(unpacked) == {}
    assert (packed, plain) == (68_451_041_280, 2_102_665_216)
    assert packed + plain == expected.parameters == 70_553_706_496
    indices = {f"{one.name.removesuffix('weight')}weight_g_idx" for one in linear}
    assert indices <= quantization_data(unpacked)


# --- checkpoints that the library writes ----------------------------------------------------------


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
@pytest.mark.parametrize("name", one_in(2, PRESETS))
def test_what_the_library_writes_is_the_model_it_packed(name, tmp_path):
    model = llama()
    model.save_pretrained(tmp_path / "plain")
    written(model, tmp_path / "packed", {"group_0": preset(name)})
    table = on_disk(tmp_path / "packed")
    settings = json.loads((tmp_path / "packed/config.json").read_text())["quantization_config"]
    plain = shapes(on_disk(tmp_path / "plain"))
    unpacked = opened(LAYOUT, table, says(**{"method": "", **settings}), plain)
    left = (
        set(table) - quantization_data(unpacked) - {piece.stored.name for piece in unpacked.tensors}
    )
    assert pieces(unpacked) | {name: table[name][1] for name in left} == plain
    assert len(unpacked.tensors) == 14
    assert faults(unpacked) == {}
    report = auditor.audit(str(tmp_path / "packed"))
    assert (report.verdict, report.residual) == ("clean", 0)
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed", exact=name != "W3A16")  # older versions padded words
    tells_what_is_written(LAYOUT, table, says(**{"method": "", **settings}), plain)
    assert report.observed.parameters == sum(map(prod, plain.values()))


@pytest.mark.oracle
def test_two_schemes_in_one_checkpoint_differ_by_their_targets(tmp_path):
    groups = {
        "group_0": preset("W4A16", ["re:.*self_attn.*"]),
        "group_1": preset("FP8_DYNAMIC", [r"re:.*mlp\.(gate|up)_proj$"]),
        "group_2": preset("W8A16", ["model.layers.1.mlp.down_proj"]),
    }
    written(llama(), tmp_path, groups, ignore=["model.layers.0.self_attn.o_proj"])
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)

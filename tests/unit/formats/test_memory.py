"""What a checkpoint takes in memory, as people read it."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import config_alone, gated

from auditor.analytic.kv_cache import KVCache, LayerCache
from auditor.formats.memory import as_json, render
from auditor.formats.memory_needs import Use, bits_of, in_bytes, largest_layer, loading_needs
from auditor.formats.text import size
from auditor.reconciler.rows import ModuleRow, Weights
from auditor.tensors import DTYPE_BITS

GIB = 2**30


def packed():
    """Eight parameters to a number of 32 bits, scales beside them, and a norm as it is."""
    found = bert_base_chinese()
    rows = (
        Weights(dtype="BF16", tensors=1, parameters=100, bytes=200),
        Weights(dtype="INT4", tensors=1, parameters=900, bytes=450),
        Weights(dtype="quantization-data", tensors=1, parameters=0, bytes=36),
    )
    observed = replace(found.observed, weights=rows, tensors=3, parameters=1000)
    return replace(found, observed=observed)


def shown(outcome=None, **options) -> str:
    return render(outcome or packed(), Use(**options))


def rows_of(outcome=None, **options) -> list[list[str]]:
    return [line.split() for line in shown(outcome, **options).splitlines()]


def test_bits_a_parameter_are_those_of_the_packing_and_quantization_data_has_none():
    rows = rows_of()
    assert ["BF16", "1", "100", "200", "200", "bytes", "16.00"] in rows
    assert ["INT4", "1", "900", "450", "450", "bytes", "4.00"] in rows
    assert ["quantization-data", "1", "0", "36", "36", "bytes"] in rows
    assert ["all", "3", "1,000", "686", "686", "bytes", "5.49"] in rows


def llama_3_8b(**changes):
    """8,030,261,248 parameters (Llama Team 2024); 8 key and value heads of 128 in 32 layers."""
    outcome = config_alone()
    expected = replace(outcome.expected, parameters=8_030_261_248)
    layers = tuple(LayerCache(n, 2 * 8 * 128) for n in range(32))
    return replace(outcome, expected=expected, kv_cache=KVCache(layers=layers), **changes)


def test_a_model_is_multiplied_out_in_each_dtype():
    rows = rows_of(llama_3_8b())
    first = 1 + next(at for at, row in enumerate(rows) if row[:1] == ["loaded"])
    assert [line[:3] for line in rows[first : first + 4]] == [
        ["F32", "4", "32,121,044,992"],
        ["BF16", "2", "16,060,522,496"],  # the 16.06 GB of its files
        ["I8", "1", "8,030,261,248"],
        ["4-bit", "0.5", "4,015,130,624"],
    ]


def test_the_cache_of_a_context_is_128_kib_a_token():
    """2 x 8 heads x 128 x 32 layers x 2 bytes; 1 GiB for 8,192 tokens."""
    found = {row.dtype: row for row in loading_needs(llama_3_8b(), Use(context=8192))}
    assert {row.cache for row in found.values() if row.dtype != "F32"} == {GIB}
    assert found["F32"].cache == 2 * GIB
    assert found["4-bit"].cache_dtype == "BF16"
    assert found["BF16"].total == 16_060_522_496 + GIB
    narrow = loading_needs(llama_3_8b(), Use(dtypes=("BF16",), context=8192, cache_dtype="F8_E4M3"))
    assert narrow[0].cache == GIB // 2
    assert loading_needs(llama_3_8b(), Use(dtypes=("BF16",)))[0].cache_per_token == 128 * 1024


def test_training_takes_the_bytes_of_its_sources():
    """18 bytes a parameter in mixed precision (transformers), 16 in float32: 4 + 4 + 8."""
    said = json.loads(as_json(llama_3_8b()))["training_estimate"]
    each = {one["precision"]: one["bytes_per_parameter"] for one in said}
    assert each == {"F32": 16, "mixed": 18, "BF16": 8}
    for one in said:
        assert one["total"] == one["weights"] + one["gradients"] + one["adam"]
        assert one["total"] == one["bytes_per_parameter"] * 8_030_261_248
    assert "not counted: activations" in shown(llama_3_8b())


@given(st.integers(0, 2**50), st.sampled_from([*DTYPE_BITS, "4-bit"]))
def test_bytes_hold_all_bits_and_no_byte_more(numbers, dtype):
    bits = bits_of(dtype)
    assert numbers * bits <= 8 * in_bytes(numbers, bits) < numbers * bits + 8


def test_a_cache_is_shown_layer_by_layer_where_they_differ_and_for_a_context():
    layers = (LayerCache(0, 8, 4), LayerCache(1, 8), LayerCache(2, 8))
    outcome = replace(packed(), kv_cache=KVCache(layers=layers, cross=5))
    lines = shown(outcome, context=10, batch=2, dtypes=("BF16",))
    assert "1 layers x 8 (window 4) + 2 layers x 8 = 24 elements a token" in lines
    assert "and 5 for each token of the encoder" in lines
    # (3 tokens before the next in a window of 4 + 2 x 10) x 8 elements x 2 bytes x 2 sequences
    [found] = loading_needs(outcome, Use(dtypes=("BF16",), context=10, batch=2))
    assert found.cache == 736
    assert (found.static_cache, found.paged_cache) == (768, None)
    assert "10 tokens x 2 sequences" in lines


def test_states_in_f32_take_four_bytes_whatever_the_dtype_of_the_cache():
    outcome = replace(packed(), kv_cache=KVCache(layers=(LayerCache(0, 0, None, 5, 7),)))
    [found] = loading_needs(outcome, Use(dtypes=("BF16",), context=9, batch=3))
    assert (found.cache_states, found.cache) == (2 * 5 + 4 * 7, 3 * (2 * 5 + 4 * 7))
    assert "5 elements, 7 in F32" in shown(outcome)


def test_a_decoder_whose_cache_is_not_known_says_so():
    outcome = replace(packed(), target="RwkvForCausalLM", model_type="rwkv")
    assert shown(outcome).count("not known for rwkv") == 4
    assert json.loads(as_json(outcome))["cache_unknown"] == "not known for rwkv"


def row(prefix, parameters):
    tally = dict.fromkeys(ModuleRow.__struct_fields__)
    return ModuleRow(**tally | {"prefix": prefix, "parameters": parameters})


def test_the_largest_layer_is_a_numbered_layer_or_a_module_outside(subtests):
    for sizes, name in [
        ({"": 9, "wte": 5, "h": 4, "h.0": 2, "h.1": 2}, "wte"),
        ({"": 9, "wte": 3, "h": 6, "h.0": 5, "h.0.mlp": 4, "h.1": 1}, "h.0"),
        ({"": 9, "embeddings": 5, "embeddings.word": 3, "layer": 4, "layer.0": 4}, "embeddings"),
    ]:
        with subtests.test(sizes=sizes, name=name):
            assert largest_layer(row(*size) for size in sizes.items()) == (name, sizes[name])


def test_text_and_json_agree():
    outcome = llama_3_8b()
    flat = " ".join(shown(outcome, context=8192).split())
    for row in json.loads(as_json(outcome, Use(context=8192)))["loaded"]:
        assert f"{row['weights']:,} {size(row['weights'])} " in flat
        assert f"{size(row['cache'])} {size(row['total'])}" in flat
        for kept in ("cache", "static_cache", "paged_cache"):
            assert f"{row['cache_dtype']} {row[kept]:,} {size(row[kept])}" in flat


def test_nothing_is_made_up_where_nothing_is_known():
    assert shown(gated()).count("\n") == 2
    said = json.loads(as_json(gated()))
    assert (said["loaded"], said["training_estimate"], said["parameters"]) == ([], [], None)
    assert said["reason"] == "gated"


@given(st.integers(0, 2**60))
def test_a_size_is_below_1024_of_its_unit(count):
    assert float(size(count).split()[0].replace(",", "")) <= 1024 or size(count).endswith("TiB")
    assert (size(1023), size(1024), size(15 * GIB)) == ("1023 bytes", "1.00 KiB", "15.00 GiB")

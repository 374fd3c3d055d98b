"""What a checkpoint takes in memory, as people read it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import gated

from auditor.analytic.kv_cache import KVCache, LayerCache
from auditor.formats.memory import render, size
from auditor.reconciler.weight_memory import Weights

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
    return render(outcome or packed(), bits=16, dtype="BF16", **options)


def test_bits_a_parameter_are_those_of_the_packing_and_quantization_data_has_none():
    rows = [line.split() for line in shown().splitlines()]
    assert ["BF16", "1", "100", "200", "200", "bytes", "16.00"] in rows
    assert ["INT4", "1", "900", "450", "450", "bytes", "4.00"] in rows
    assert ["quantization-data", "1", "0", "36", "36", "bytes"] in rows
    assert ["all", "3", "1,000", "686", "686", "bytes", "5.49"] in rows


def test_the_whole_is_multiplied_out_in_the_dtype_that_is_asked_for():
    assert "stored in BF16: 1,000 x 2 = 2,000 bytes (1.95 KiB)" in shown()


def test_a_cache_is_shown_layer_by_layer_where_they_differ_and_for_a_context():
    layers = (LayerCache(0, 8, 4, 8), LayerCache(1, 8, None, 8), LayerCache(2, 8, None, 8))
    lines = shown(replace(packed(), kv_cache=KVCache(layers=layers, cross=5)), context=10, batch=2)
    assert "1 layers x 8 (window 4) + 2 layers x 8 = 24 elements, 48 bytes a token" in lines
    assert "and 10 bytes for each token of the encoder" in lines
    # (4 tokens in the window + 2 x 10) x 8 elements x 2 bytes x 2 sequences
    assert "10 tokens in 2 sequence(s): 768 bytes (768 bytes)" in lines


def test_latent_attention_written_out_is_said_apart():
    cache = KVCache(layers=(LayerCache(0, 8, None, 64),))
    assert "keys and values written out: 128 bytes a token" in shown(
        replace(packed(), kv_cache=cache)
    )


def test_nothing_is_made_up_where_nothing_is_known():
    assert shown(gated()).count("\n") == 2


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.00 KiB"), (15 * GIB, "15.00 GiB")],
)
def test_sizes_are_in_powers_of_1024(count, text):
    assert size(count) == text


@given(st.integers(0, 2**60))
def test_a_size_is_below_1024_of_its_unit(count):
    assert float(size(count).split()[0].replace(",", "")) <= 1024 or size(count).endswith("TiB")

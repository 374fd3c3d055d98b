"""Whether a model fits a graphics card."""

import pytest
from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import EXAMPLES, config_alone

from auditor.analytic.kv_cache import KVCache, LayerCache
from auditor.errors import UsageError
from auditor.formats.fits import Card, as_object, card_of, cards, fit_of
from auditor.formats.memory import render
from auditor.formats.memory_needs import Use
from auditor.formats.text import cells_of
from auditor.reconciler.rows import Weights

GIB = 2**30


def llama_3_8b():
    """8,030,261,248 parameters (Llama Team 2024); 8 key and value heads of 128 in 32 layers."""
    outcome = config_alone()
    layers = tuple(LayerCache(n, 2 * 8 * 128) for n in range(32))
    expected = replace(outcome.expected, parameters=8_030_261_248, legend=())
    return replace(outcome, expected=expected, kv_cache=KVCache(layers=layers))


def test_a_card_holds_what_leaves_a_tenth_of_it_free():
    card = Card("", 10)
    assert [card.holds(int(share * GIB)) for share in (9, 9.1, 10, 10.1)] == [
        True,
        None,
        None,
        False,
    ]


def test_cards_are_sorted_and_each_is_found_by_its_name():
    assert [card.gigabytes for card in cards()] == sorted(card.gigabytes for card in cards())
    assert [card_of(card.name) for card in cards()] == list(cards())
    assert card_of("NVIDIA GeForce RTX 4090") == card_of("rtx4090") == Card("RTX 4090", 24.0)
    assert card_of("24 GiB") == card_of("24GB") == Card("", 24.0)


@pytest.mark.parametrize(
    ("given", "message"), [("A100", "several cards"), ("Voodoo", "not a card"), ("", "not a card")]
)
def test_another_card_is_refused_and_the_known_ones_are_named(given, message):
    with pytest.raises(UsageError, match=message):
        card_of(given)


def test_a_decoder_is_counted_with_its_cache():
    """16,060,522,496 bytes of weights; 128 KiB a token, 1 GiB for 8,192 of them."""
    fit = fit_of(llama_3_8b(), Use())
    assert (fit.weights, fit.cache, fit.context) == (16_060_522_496, GIB, 8192)
    many = fit_of(llama_3_8b(), Use(context=1000, concurrency=3))
    assert many.cache == 3 * 63 * 16 * 128 * 1024  # 63 blocks of 16 tokens
    text = render(llama_3_8b(), Use(), width=200).splitlines()
    assert text[1].startswith("needs 15.96 GiB: ")
    assert text[2].startswith("fits: 24 GB (RTX 3090, ")
    on_one = as_object(llama_3_8b(), Use(gpu="RTX 4080", context=16384))
    assert on_one["cards"] == [{"name": "RTX 4080 16 GB", "holds": False}]


def test_packed_weights_count_as_they_are_stored():
    found = bert_base_chinese()
    rows = (
        Weights(dtype="BF16", tensors=1, parameters=100, bytes=200),
        Weights(dtype="INT4", tensors=1, parameters=900, bytes=450),
    )
    count = found.expected.parameters
    observed = replace(found.observed, weights=rows, parameters=count)
    fit = fit_of(replace(found, observed=observed), Use())
    assert (fit.weights, fit.dtype, fit.is_as_stored) == (650, "INT4", True)
    assert fit_of(replace(found, observed=observed), Use(dtypes=("F32",))).weights == 4 * count


def test_an_adapter_counts_with_its_base():
    found = bert_base_chinese()
    expected = replace(found.expected, base=1000)
    assert fit_of(replace(found, expected=expected), Use()).base == 2000


def test_what_is_not_known_is_not_counted():
    outcome = replace(llama_3_8b(), expected=None)
    assert fit_of(outcome, Use()) is None
    assert "fits" not in render(outcome, Use())


@pytest.mark.parametrize("use", [Use(), Use(context=8192, batch=4), Use(gpu="16GB")])
def test_nothing_is_wider_than_sixty_columns(use):
    for outcome in (llama_3_8b(), *(make() for make in EXAMPLES.values())):
        assert all(cells_of(line) <= 60 for line in render(outcome, use, width=60).splitlines())

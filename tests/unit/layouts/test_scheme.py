"""Which modules are plain while their like is packed, and what a list may mean by its names."""

import pytest
from support.layouts.packed import stored

from auditor.layouts._scheme import plain_among_packed, unlisted
from auditor.layouts.packing import Stored

HALF = ("F16", (64, 32))
LAYER = "model.layers.1.self_attn.q_proj"


def odd(plain, packed, *, described=HALF, **options):
    table = {f"{module}.weight": described for module in plain}
    return set(plain_among_packed(Stored(stored(table)), packed, **options))


@pytest.mark.parametrize(
    ("plain", "packed", "found"),
    [
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.fc", LAYER}, True),
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.fc"}, False),  # a layer for drafting
        ("model.layers.1.mlp.fc", {"model.layers.0.mlp.gate", LAYER}, False),
        ("model.layers.1.mlp.fc2", {"model.layers.0.mlp.fc1", LAYER}, False),  # never packed
        ("model.layers.1.experts.5", {"model.layers.1.experts.4"}, True),
        ("vit2.layers.1.fc", {"vit2.layers.0.fc", "vit2.layers.0.q"}, False),
        ("lm_head", {"model.layers.0.mlp.fc"}, False),
        ("model.layers.1.self_attn.o_proj", {LAYER}, True),  # beside the other projections
        ("model.layers.1.self_attn.o_proj", {"model.layers.1.mlp.up_proj"}, False),
        ("model.layers.1.self_attn.weights_proj", {LAYER}, False),  # an indexer's, or a gate's
        ("model.layers.1.mlp.fc", {"model.layers.1.mlp.fc", "model.layers.0.mlp.fc"}, False),
    ],
)
def test_names_that_differ_only_in_integers_are_of_one_kind(plain, packed, found):
    assert odd([plain], packed) == ({plain} if found else set())


def test_a_layer_without_anything_packed_counts_where_the_writer_stores_what_it_loads():
    plain, packed = ["model.layers.1.mlp.fc"], {"model.layers.0.mlp.fc"}
    assert odd(plain, packed, whole_layers=True) == set(plain)


@pytest.mark.parametrize(
    ("described", "found"),
    [
        (HALF, True),
        (None, True),  # only an index names it
        (("F16", (64,)), False),
        (("U8", (64, 32)), False),
        (("F8_E4M3", (64, 32)), False),
    ],
)
def test_plain_is_a_matrix_of_floats(described, found):
    modules = ["model.layers.1.mlp.fc"]
    packed = {"model.layers.0.mlp.fc", LAYER}
    assert odd(modules, packed, described=described) == (set(modules) if found else set())


@pytest.mark.parametrize(
    ("listed", "meant"),
    [
        ((), False),
        (("lm_head",), False),
        (("layers.11",), False),
        (("layers.1",), True),
        (("language_model.model.layers.1.mlp",), True),
        (("fc",), True),
        (("mlp.*",), True),  # a pattern may mean anything
        (("a" * 1_000_000,), False),
        (tuple(f"a{number}" for number in range(100_000)), True),  # too many to tell
    ],
)
def test_whatever_may_be_meant_for_a_module_counts_as_listed(listed, meant):
    module = "model.layers.1.mlp.fc"
    assert unlisted(frozenset(listed))([module]) == ([] if meant else [module])

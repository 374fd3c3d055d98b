"""VPTQ: indices into centroids.

`packed` is written from layers/vqlinear.py of vptq 0.0.5, which cannot be imported without its
CUDA tools, and transformers' integrations/vptq.py, which makes the same class of the same settings.
"""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.packed import faults, opened, pieces, quantization_data, says, spoiled, stored

from auditor.layouts.packing import Stored
from auditor.layouts.vptq import LAYOUT

X = "model.layers.0.mlp.up_proj"
W = f"{X}.weight"


def settings(inputs, *, groups=1, vector=8, centroids=65536, residual=-1, outliers=0):  # noqa: PLR0913 - a row
    """One module's, as VPTQ-community's configs have them."""
    return {
        "vector_lens": [4 if outliers else -1, vector],
        "num_centroids": [16 if outliers else -1, centroids],
        "num_res_centroids": [-1, residual],
        "group_num": groups,
        "group_size": (inputs - outliers) // groups,
        "outlier_size": outliers,
        "indices_as_float": False,
        "enable_norm": True,
        "enable_perm": True,
    }


def packed(outputs, inputs, said):
    """vptq/layers/vqlinear.py, with is_indice_packed."""
    vector, centroids = said["vector_lens"][1], said["num_centroids"][1]
    residual, groups = said["num_res_centroids"][1], said["group_num"]
    bits = int(log2(centroids)) + (int(log2(residual)) if residual > 0 else 0)
    words = ceil(said["group_size"] * bits / 32)
    table = {
        f"{X}.indices": ("I32", (groups, ceil(outputs / vector), words)),
        f"{X}.centroids.weight": ("F16", (groups, centroids * vector)),
        f"{X}.perm": ("I16", (inputs,)),
        f"{X}.weight_scale": ("F16", (inputs,)),
        f"{X}.weight_bias": ("F16", (inputs,)),
    }
    if residual > 0:
        table[f"{X}.res_centroids.weight"] = ("F16", (groups, residual * vector))
    if said["outlier_size"]:
        rows, size = ceil(outputs / said["vector_lens"][0]), said["outlier_size"]
        table[f"{X}.outlier_indices"] = ("I16", (1, rows, size))
        table[f"{X}.outlier_centroids.weight"] = ("F16", (1, 16 * said["vector_lens"][0]))
    return table


ways = st.fixed_dictionaries(
    {
        "groups": st.integers(1, 3),
        "vector": st.integers(1, 16),
        "centroids": st.sampled_from((2, 256, 4096, 65536)),
        "residual": st.sampled_from((-1, 16, 256)),
        "outliers": st.sampled_from((0, 12)),
    }
)


@given(st.integers(1, 500), st.integers(1, 100), ways)
def test_the_settings_and_the_architecture_determine_the_shape(outputs, size, way):
    inputs = size * way["groups"] + way["outliers"]
    said = settings(inputs, **way)
    table = packed(outputs, inputs, said)
    declared = says("vptq", config_for_layers={X: said})
    unpacked = opened(LAYOUT, table, declared, {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {f"{X}.indices"}
    assert unpacked.faults == ()


SAID = settings(96, residual=256, outliers=0)
TABLE = packed(64, 96, SAID)
DECLARED = says("vptq", config_for_layers={X: SAID})


@pytest.mark.parametrize("outliers", [0, 12])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(outliers):
    said = settings(96, residual=256, outliers=outliers)
    declared = says("vptq", config_for_layers={X: said})
    table = packed(64, 96, said)
    assert opened(LAYOUT, table, declared, {W: (64, 96)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, declared, {W: (64, 96)})
        assert unpacked.faults or pieces(unpacked) != {W: (64, 96)}, (name, other[name])


@pytest.mark.parametrize(
    ("table", "config", "reason"),
    [
        (TABLE, {X: SAID}, None),
        (TABLE, {}, "indices is I32 (1, 8, 72), expected vector_lens"),
        (TABLE, {X: []}, "indices is I32 (1, 8, 72), expected vector_lens"),
        (
            TABLE,
            {X: {**SAID, "vector_lens": [8]}},
            "indices is I32 (1, 8, 72), expected vector_lens",
        ),
        (TABLE, {X: {**SAID, "group_size": -1}}, "indices is I32 (1, 8, 72), expected vector_lens"),
        (
            TABLE,
            {X: {**SAID, "num_centroids": [-1, True]}},
            "indices is I32 (1, 8, 72), expected vector_lens",
        ),
        (TABLE, {X: {**SAID, "group_num": 2}}, "indices is (1, 8, 72), expected (2, 8, 72)"),
        (
            TABLE,
            {X: {**SAID, "vector_lens": [-1, 4]}},
            "centroids is (1, 524288), expected (1, 262144)",
        ),
        (
            {name: TABLE[name] for name in TABLE if "res_" not in name},
            {X: SAID},
            "is stored without its res_centroids",
        ),
        (
            {f"{X}.indices": TABLE[f"{X}.indices"]},
            {X: SAID},
            "is stored without its centroids and res_centroids",
        ),
        ({f"{X}.centroids.weight": ("F16", (1, 8))}, {X: SAID}, "is stored without its indices"),
        (TABLE | {f"{X}.perm": ("I16", (95,))}, {X: SAID}, "perm is (95,), expected (96,)"),
        (
            TABLE | {f"{X}.indices": ("I32", (8, 72))},
            {X: SAID},
            "indices is I32 (8, 72), expected (groups, rows, words)",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(table, config, reason):
    unpacked = opened(LAYOUT, table, says("vptq", config_for_layers=config), {W: (64, 96)})
    if reason is None:
        assert (pieces(unpacked), unpacked.faults) == ({W: (64, 96)}, ())
    else:
        assert any(reason in found for found in faults(unpacked)), faults(unpacked)


def test_settings_may_be_shared_by_the_last_part_of_the_name():
    declared = says("vptq", config_for_layers={}, shared_layer_config={"up_proj": SAID})
    assert pieces(opened(LAYOUT, TABLE, declared, {W: (64, 96)})) == {W: (64, 96)}


def test_outputs_that_fill_no_vector_are_the_architecture_s():
    table = packed(61, 96, SAID)
    assert pieces(opened(LAYOUT, table, DECLARED, {W: (61, 96)})) == {W: (61, 96)}
    assert pieces(opened(LAYOUT, table, DECLARED, {W: (40, 96)})) == {W: (64, 96)}


def test_a_shape_that_only_an_unread_shard_has_is_not_a_fault():
    for hidden in TABLE:
        unpacked = opened(LAYOUT, TABLE | {hidden: None}, DECLARED, {W: (64, 96)})
        assert pieces(unpacked) in ({W: None}, {W: (64, 96)})
        assert unpacked.faults == ()


@pytest.mark.parametrize(
    ("table", "known"), [(TABLE, True), ({"a.indices": ("I32", (1, 8, 72))}, False)]
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known

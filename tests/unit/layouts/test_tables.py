"""The laws of every layout over the tensors that its own library stores: tables.py has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layouts.examples import EXAMPLES, Example, layout_of
from support.layouts.packed import (
    opened,
    pieces,
    quantization_data,
    says,
    spoiled,
    stored,
    tells_what_is_written,
)
from support.layouts.tables import below

from auditor.layouts import unpack_tensors
from auditor.layouts.packing import Declared, Stored

# Ways of packing whose stored sizes do not follow from the config.
NOT_PREDICTED = ("quanto", "hqq", "torchao", "vptq", "compressed_tensors 2:4")
NOT_PREDICTED += ("compressed_tensors marlin", "modelopt turned")


def is_the_weight_that_went_in(label: str, example: Example) -> None:
    table, declared, shape, dtype, name, is_shown = example
    layout, implied = layout_of(label), {name: shape}
    for declaration in (declared, None) if is_shown else (declared,):
        unpacked = opened(layout, table, declaration, implied)
        assert (pieces(unpacked), unpacked.faults) == (implied, ())
        assert [piece.dtype for piece in unpacked.tensors] == [dtype]
        packed = {piece.stored.name for piece in unpacked.tensors}
        assert quantization_data(unpacked) == set(table) - packed
    if not label.startswith(NOT_PREDICTED):
        tells_what_is_written(layout, table, declared, implied)


def shows_another_shape(label: str, example: Example) -> None:
    table, declared, shape, _, name, is_shown = example
    layout, implied = layout_of(label), {name: shape}
    for declaration in (declared, None) if is_shown else (declared,):
        for changed, other in spoiled(table):
            unpacked = opened(layout, other, declaration, implied)
            seen = unpacked.faults or pieces(unpacked) != implied
            assert seen or may_be(label, changed, declaration, other[changed]), (
                changed,
                other[changed],
            )


def may_be(label: str, name: str, declared: Declared | None, described: tuple) -> bool:
    """Whether a changed tensor is one that a writer may store, or that nothing determines."""
    last = name.rpartition(".")[2]
    if label == "bitsandbytes 4" and "quant_state" in name:  # JSON of another length
        return len(described[1]) == 1
    if label == "hqq":  # settings of a module
        return last not in {"W_q", "scale", "zero"}
    if label == "compressed_tensors odd words":  # which older versions padded
        return last in {"weight_packed", "weight_zero_point"}
    shows_grain = label.startswith(("compressed_tensors bytes", "modelopt", "torchao F8"))
    is_undeclared = declared is None or declared.method == "torchao"
    return shows_grain and is_undeclared and last.endswith("weight_scale")


# Companions that loading does without or makes up, by the last part of their names.
OPTIONAL = frozenset(
    """
    g_idx weight_format perm weight_bias outlier_indices outlier_centroids pre_quant_scale
    _weight_zero_point _weight_per_tensor_scale input_scale output_scale view_as_float quant_scale
    quant_zero offload_meta encoded_state_dict stores_quant_config channel_wise optimize round_zero
    unpack_view_dtype compute_dtype
    """.split()  # noqa: SIM905 - a long list of names
)
# Ways of packing whose names are also those of others: without one tensor the rest is unexpected.
COMMON_NAMES = {"gptq marlin", "compressed_tensors 2:4", "compressed_tensors marlin", "fp8 fours"}
COMMON_NAMES |= {"modelopt experts", "modelopt turned"}


def shows_a_lost_tensor(label: str, example: Example) -> None:
    table, declared, shape, _, name, _ = example
    layout, implied = layout_of(label), {name: shape}
    for lost in table:
        rest = {key: one for key, one in table.items() if key != lost}
        found = opened(layout, rest, declared, implied).faults
        last = lost.removesuffix(".weight").rpartition(".")[2]
        is_other = (label, last) == ("quanto bits", "_scale")  # the rest is read as bytes
        assert is_other or all(fault.lacks for fault in found), (lost, found)
        is_optional = last in OPTIONAL and (label, last) != ("modelopt NVFP4", "input_scale")
        is_optional |= (label, last) == ("vptq", "weight_scale")
        assert bool(found) is not is_optional or label in COMMON_NAMES, (lost, found)


def is_recognised_alone(label: str, example: Example) -> None:
    table, _, shape, _, name, is_shown = example
    layout, tensors = layout_of(label), stored(table)
    assert layout.recognises(Stored(tensors))
    unpacked = unpack_tensors(tensors, None, {name: shape}.get)
    taken = unpacked.layout.partition(",")[0].partition(" ")[0].partition(";")[0]
    assert taken in {layout.name, *ALSO.get(layout.name, ())}
    if is_shown and taken == layout.name:
        assert pieces(unpacked) == {name: shape}


# Layouts of which another has the same names and dtypes, and comes first.
ALSO = {
    "gptq": ("plain",),  # words of 64 bits
    "awq": ("gptq",),  # for Marlin
    "auto-round": ("gptq", "awq"),
    "modelopt": ("compressed-tensors", "fp8"),
    "fp8": ("compressed-tensors",),
    "bitnet": ("modelopt",),
}


@pytest.mark.parametrize("label", EXAMPLES)
@given(data=st.data())
def test_a_packed_weight_is_unpacked_and_its_faults_are_found(label, data):
    example = data.draw(EXAMPLES[label])
    is_the_weight_that_went_in(label, example)
    shows_another_shape(label, example)
    shows_a_lost_tensor(label, example)
    is_recognised_alone(label, example)


# --- a model of identical modules -----------------------------------------------------------------

MEMBERS = st.dictionaries(
    st.sampled_from(
        ["weight", "weight_scale_inv", "weight_scale", "scale", "bias", "input_scale", "k_scale"]
    ),
    st.tuples(st.sampled_from(["F8_E4M3", "F32", "I8"]), st.sampled_from([(4, 64), (1, 2), ()])),
    min_size=1,
)
MODULES = ("m", "lm_head", *(f"layers.{at}.experts.{expert}" for at in "012" for expert in "01"))


@given(
    st.lists(MEMBERS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=len(MODULES), max_size=len(MODULES)),
    st.sampled_from([{}, {"expert_dtype": "fp4"}, {"expert_dtype": "fp8"}]),
)
def test_identical_modules_are_unpacked_as_each_is_alone(kinds, which, settings):
    layout, declared = layout_of("fp8"), says("fp8", weight_block_size=[4, 32], **settings)
    tables = [
        below(module, kinds[at % len(kinds)]) for module, at in zip(MODULES, which, strict=True)
    ]
    whole, *alone = (
        layout.unpack(Stored(stored(table)), declared, lambda _name: None)
        for table in ({name: one for table in tables for name, one in table.items()}, *tables)
    )
    assert sorted(whole.tensors) == sorted(piece for one in alone for piece in one.tensors)
    for entries in ("quantization_data", "faults"):
        apart = (entry for one in alone for entry in getattr(one, entries))
        assert by_reason(getattr(whole, entries)) == by_reason(apart)


def by_reason(entries):
    """The names under each reason, except the one that compares modules."""
    found = {}
    for entry in entries:
        if not entry.reason.startswith("is plain, but"):
            found.setdefault(entry.reason, set()).update(tensor.name for tensor in entry.tensors)
    return found

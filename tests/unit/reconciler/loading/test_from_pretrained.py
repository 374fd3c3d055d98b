"""The loader on names and shapes: each rule of it once; `make parity` holds the whole."""

import pytest

from auditor.analytic.conversions import UnknownOperationError
from auditor.analytic.loading import PLAIN, Loading, Memory, Operation, Rule
from auditor.reconciler.loading.from_pretrained import (
    Target,
    simulate_load,
)
from auditor.reconciler.loading.report import LoadReport, Mismatch

NOTHING = LoadReport()
STACK, ABOVE = Operation("MergeModulelist"), Operation("Concatenate", axes=(1,))
EXPERTS = Rule(("e.*.gate", "e.*.up"), ("e.gate_up",), operations=(STACK, ABOVE))
QKV = Rule(("qkv",), ("q", "k", "v"), operations=(Operation("Chunk"),))
BEGUN = Rule((r"^old\.",), ("m.",))

PAIR = Memory({"m.a.weight": (2, 3), "m.LayerNorm.bias": (3,), "head.weight": (2, 3)})
TIED = PAIR._replace(ties=(("head.weight", "m.a.weight"),))
STORED = {"m.a.weight": (2, 3), "m.LayerNorm.bias": (3,), "head.weight": (2, 3)}
# 2 experts of (4, 5), gate above up
FUSED = Memory({"m.e.gate_up": (2, 8, 5)})
EACH = {f"m.e.{number}.{name}": (4, 5) for number in range(2) for name in ("gate", "up")}
CUT = Memory({"m.q": (2, 4), "m.k": (2, 4), "m.v": (2, 4)})


def load(stored, prefix, loading, memory):
    return simulate_load(dict(stored), Target(prefix, loading, *memory))


def without(stored, *names):
    return {name: shape for name, shape in stored.items() if name not in names}


def mismatched(name, stored, model):
    return LoadReport(mismatched=(Mismatch(name, stored, model),))


def test_every_name_is_missing_unexpected_mismatched_or_fine(subtests):
    for stored, memory, expected in [
        (STORED, PAIR, NOTHING),
        (without(STORED, "head.weight"), PAIR, LoadReport(missing=("head.weight",))),
        (STORED | {"x.LayerNorm.beta": (3,)}, PAIR, LoadReport(unexpected=("x.LayerNorm.bias",))),
        (STORED | {"head.weight": (9, 3)}, PAIR, mismatched("head.weight", (9, 3), (2, 3))),
        # the base model's prefix, which is m: removed, added, and without its dot
        ({"head.m.a.weight": (1,)}, Memory({}), LoadReport(unexpected=("head.m.a.weight",))),
        ({"m.a": (1,), "m_b": (1,)}, Memory({"a": (1,), "b": (1,)}), NOTHING),
        ({"a": (1,)}, Memory({"m.a": (1,)}), NOTHING),
        # two names for one parameter: the first in natural order counts, the other vanishes
        (
            STORED | {"m.LayerNorm.beta": (7,)},
            PAIR,
            mismatched("m.LayerNorm.bias", (7,), (3,)),
        ),
        (
            {"a.LayerNorm.bias": (3,), "LayerNorm.bias": (9,)},
            Memory({"a.LayerNorm.bias": (3,)}),
            LoadReport(unexpected=("LayerNorm.bias",)),
        ),
        # tied, and stored once, twice, or not at all
        (without(STORED, "head.weight"), TIED, NOTHING),
        (without(STORED, "m.a.weight"), TIED, NOTHING),
        (STORED, TIED, NOTHING),
        (
            without(STORED, "head.weight", "m.a.weight"),
            TIED,
            LoadReport(missing=("head.weight", "m.a.weight")),
        ),
        # of three that share their values the last alone is there
        (
            {"c": (1,)},
            Memory({"a": (1,), "b": (1,), "c": (1,)}, ties=(("b", "a"), ("c", "a"))),
            NOTHING,
        ),
    ]:
        with subtests.test(stored=stored, memory=memory, expected=expected):
            assert load(stored.items(), "m", PLAIN, memory) == expected


def test_experts_that_are_stored_one_by_one_are_one_tensor(subtests):
    for stored, expected in [
        (EACH, NOTHING),
        ({"m.e.gate_up": (2, 8, 5)}, NOTHING),  # as it is in memory
        ({"e.0.gate": (4, 5), "e.0.up": (4, 5)}, mismatched("m.e.gate_up", (1, 8, 5), (2, 8, 5))),
        ({}, LoadReport(missing=("m.e.gate_up",))),
        ({"x.e.0.up": (4, 5)}, LoadReport(missing=("m.e.gate_up",), unexpected=("x.e.gate_up",))),
        (
            without(EACH, "m.e.1.up"),
            LoadReport(
                missing=("m.e.gate_up",),
                raises="m.e.gate_up cannot be made of what is stored: "
                "Concatenate: one has the shape (2, 4, 5), another (1, 4, 5)",
            ),
        ),
    ]:
        with subtests.test(stored=stored, expected=expected):
            assert load(stored.items(), "m", Loading(converters=(EXPERTS,)), FUSED) == expected


def test_one_stored_tensor_may_become_several(subtests):
    for stored, memory, expected in [
        ({"m.qkv": (6, 4)}, CUT, NOTHING),
        ({"m.qkv": (6, 4), "m.k": (2, 4)}, CUT, NOTHING),
        ({"x.qkv": (6, 4)}, Memory({}), LoadReport(unexpected=("x.k", "x.q", "x.v"))),
        (
            {"m.qkv": (6, 4)},
            Memory({"m.q": (2, 4), "m.v": (2, 4)}, unset=frozenset({"m.k"})),
            LoadReport(unexpected=("m.k",)),  # a bias that this module has not
        ),
        (
            {"m.qkv": (6, 4)},
            Memory({"m.q": (2, 4), "m.v": (2, 4)}),
            LoadReport(raises="m.k would be loaded, and the model has no such parameter"),
        ),
    ]:
        with subtests.test(stored=stored, memory=memory, expected=expected):
            assert load(stored.items(), "m", Loading(converters=(QKV,)), memory) == expected


def test_a_part_of_which_a_generated_form_knows_nothing_is_not_predicted():
    memory = Memory({"m.q": (2, 4), "m.v": (2, 4)}, unset=None)
    with pytest.raises(UnknownOperationError):
        load([("m.qkv", (6, 4))], "m", Loading(converters=(QKV,)), memory)


def test_a_name_that_leads_nowhere_once_renamed_is_looked_for_as_it_is():
    memory, loading = Memory({"old.a": (1,), "m.b": (1,)}), Loading(renames=(BEGUN,))
    assert load([("old.a", (1,)), ("old.b", (1,))], "m", loading, memory) == NOTHING


def test_names_without_a_rule_of_the_class_are_not_reported():
    loading = Loading(silent=("^mtp",), buffers=(r"inv_freq",), unmissed=("bias$",))
    stored = [("mtp.x", (1,)), ("a.inv_freq", (1,)), ("b", (1,))]
    found = load(stored, "", loading, Memory({"c.bias": (1,), "c.weight": (1,)}))
    assert found == LoadReport(missing=("c.weight",), unexpected=("b",))


def test_renames_in_pairs_begin_with_the_first_of_a_pair():
    rule = Rule((r"(\d+)\.norm0", r"(\d+)\.norm1"), (r"\1.norm1", r"\1.norm2"), paired=True)
    memory = Memory({"0.norm1": (1,), "0.norm2": (2,)})
    older, newer = [("0.norm1", (2,)), ("0.norm0", (1,))], [("0.norm2", (2,)), ("0.norm1", (1,))]
    for stored in (older, newer):
        assert load(stored, "", Loading(renames=(rule,)), memory) == NOTHING


def test_an_unknown_conversion_is_not_guessed():
    rule = Rule(("a",), ("b",), operations=(Operation("Fold"),))
    with pytest.raises(UnknownOperationError, match="Fold"):
        load([("a", (1,))], "", Loading(converters=(rule,)), Memory({"b": (1,)}))

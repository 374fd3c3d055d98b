"""What totals and indexes tell where shapes are not at hand."""

import re

import pytest
from msgspec.structs import replace
from support.checkpoints import stored
from support.four_tensors import EMBEDDING, FILE, HEAD, WHOLE, named

from auditor.analytic import ExpectedTensor, Role, Written
from auditor.containers.index import Index
from auditor.findings import (
    BadIndex,
    BadSize,
    Duplicate,
    TiedWeight,
    WrongDtype,
    WrongTotal,
    kind_of,
)
from auditor.reconciler.contents import Contents, Unread
from auditor.reconciler.index.rules import implied_note, implied_rules
from auditor.reconciler.index.sums import index_sizes
from auditor.reconciler.reconcile import FamilyExpectations, reconcile

NO_WIDE_NAMES = re.compile(r"(?!)")


def reconciled(names):
    return reconcile(
        Contents(tensors=[named(name) for name in names]),
        WHOLE,
        FamilyExpectations(declared=WHOLE, siblings=tuple),
    )


def index(names, **totals) -> Index:
    metadata = {"total_size": None, "total_parameters": None, **totals}
    return Index(file=FILE, weight_map=dict.fromkeys(names, "a.safetensors"), **metadata)


def judged(found, result, declared, wide_names=NO_WIDE_NAMES):
    held = index_sizes(result, len(found.weight_map), wide_names)
    assert held is not None
    return list(implied_rules(found, held, result, declared))


def noted(found, result, declared, wide_names=NO_WIDE_NAMES):
    held = index_sizes(result, len(found.weight_map), wide_names)
    assert held is not None
    return implied_note(found, held, declared)


PLAIN = (EMBEDDING, "norm.weight")


@pytest.mark.parametrize(
    ("names", "totals", "declared", "found"),
    [
        (PLAIN, {"total_size": 88}, "BF16", []),
        (PLAIN, {"total_size": 88.0}, "F16", []),
        (PLAIN, {"total_size": 88}, None, []),
        (PLAIN, {"total_size": 88}, "F32", [(WrongDtype, "exactly 2 bytes a parameter")]),
        (PLAIN, {"total_size": 90}, "BF16", [(BadIndex, "take 88 bytes in BF16: +2")]),
        (
            PLAIN,
            {"total_size": 168},
            "BF16",
            [(BadIndex, ": +80, which is head.weight (10 x 4), counted a second time")],
        ),
        ((*PLAIN, HEAD), {"total_size": 168}, "BF16", []),
        ((*PLAIN, HEAD), {"total_size": 88}, "BF16", []),
        ((*PLAIN, "attn.mask"), {"total_size": 104}, "BF16", []),
        ((*PLAIN, "attn.mask"), {"total_size": 152}, "BF16", []),
        ((*PLAIN, "attn.mask"), {"total_size": 90}, "BF16", [(BadIndex, "1/8 byte")]),
        (PLAIN, {"total_parameters": 44}, "BF16", []),
        (
            PLAIN,
            {"total_parameters": 84},
            "BF16",
            [(WrongTotal, "+40, which is head.weight (10 x 4), counted a second time")],
        ),
        (PLAIN, {"total_parameters": 45}, "BF16", [(WrongTotal, "44 parameters: +1")]),
        ((*PLAIN, "stranger"), {"total_size": 90}, "BF16", []),  # nothing is expected of it
        ((*PLAIN, "stranger"), {"total_size": 5}, None, []),
        ((*PLAIN, "stranger"), {"total_size": 5}, "BF16", [(BadIndex, "88 bytes in BF16: -83")]),
    ],
)
def test_totals_are_judged_by_the_expected_shapes(names, totals, declared, found):
    findings = judged(index(names, **totals), reconciled(names), declared)
    assert [kind_of(one) for one in findings] == [kind for kind, _ in found]
    for one, (_, words) in zip(findings, found, strict=True):
        assert words in one.reason


def test_a_total_is_judged_though_no_shard_can_be_read():
    unread = Unread(BadSize, "a.safetensors", "it is empty", frozenset(PLAIN))
    family = FamilyExpectations(declared=WHOLE, siblings=tuple)
    result = reconcile(Contents(tensors=(), unread=(unread,)), WHOLE, family)
    (finding,) = judged(index(PLAIN, total_size=44 * 4), result, "BF16")
    assert finding.names == PLAIN
    assert "exactly 4 bytes a parameter, the config declares BF16" in finding.reason


def test_a_total_that_comes_out_is_shown_with_its_parts():
    names = (*PLAIN, "attn.mask")
    note = noted(index(names, total_size=104), reconciled(names), "BF16")
    assert note == "total_size 104 = 88 of parameters (44 x 2) + 16 of attn.mask (16 x 1)"
    assert noted(index(names, total_size=105), reconciled(names), "BF16") is None


def test_the_share_of_unexpected_tensors_in_a_total_is_shown():
    names = (*PLAIN, "stranger")
    note = noted(index(names, total_size=90), reconciled(names), "BF16")
    assert note == "total_size 90 leaves 2 bytes for the tensor of which nothing is expected"


def test_what_is_left_for_strangers_is_what_a_head_that_is_stored_twice_leaves():
    names = (*PLAIN, HEAD, "stranger", "other")
    note = noted(index(names, total_size=180), reconciled(names), "BF16")
    assert note == "total_size 180 leaves 12 bytes for the 2 tensors of which nothing is expected"
    assert noted(index(names, total_size=160), reconciled(names), "BF16") is None


def test_a_total_may_count_wide_names_at_four_bytes():
    four_more = index(PLAIN, total_size=40 * 2 + 4 * 4)
    norms = re.compile("norm")
    assert judged(four_more, reconciled(PLAIN), "BF16")
    assert not judged(four_more, reconciled(PLAIN), "BF16", norms)
    assert "16 of norm.weight (4 x 4)" in noted(four_more, reconciled(PLAIN), "BF16", norms)


def test_buffers_of_one_kind_are_one_part_of_a_total():
    def listed(*names: str) -> list[str]:
        buffers = tuple(ExpectedTensor(name, (2,), 2, Role.BUFFER) for name in names)
        whole = replace(WHOLE, listed=Written(tensors=buffers, modules=WHOLE.modules))
        family = FamilyExpectations(declared=whole, siblings=tuple)
        result = reconcile(Contents(tensors=[named(name) for name in names]), whole, family)
        return [group.what for group in index_sizes(result, len(names), NO_WIDE_NAMES).buffers]

    assert listed("a.bn1.running_mean", "b.bn2.running_mean") == ["running_mean"]
    assert listed("a.bn1.running_mean", "b.bn1.running_mean") == ["bn1.running_mean"]
    assert listed("a.bn1.running_var", "a.bn1.running_mean") == [
        "bn1.running_mean",
        "bn1.running_var",
    ]


def test_a_tied_tensor_that_is_stored_is_not_reported_absent():
    kinds = {kind_of(one) for one in reconciled((*PLAIN, HEAD)).findings}
    assert Duplicate in kinds
    assert TiedWeight not in kinds


def test_headers_at_hand_are_counted_as_they_are():
    tensors = [stored(EMBEDDING, (10, 4)), named("norm.weight")]
    family = FamilyExpectations(declared=WHOLE, siblings=tuple)
    result = reconcile(Contents(tensors=tensors), WHOLE, family)
    note = noted(index(PLAIN, total_size=40 * 4 + 4 * 2), result, "BF16")
    assert note is not None
    assert note.endswith("8 of parameters (4 x 2) + 160 of tensors that were read (160 x 1)")

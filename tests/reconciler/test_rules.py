"""What totals, indexes and sizes tell where shapes are not at hand."""

import json
from dataclasses import replace

import pytest
from builders import safetensors_bytes
from checkpoints import expect, stored, stored_by
from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic import Config, Expectation, ExpectedTensor, ModuleFormula, Role
from auditor.containers.index import Index
from auditor.downloader import FileHead, RepoFile, Snapshot, Source, TextFile
from auditor.reconciler.claims import (
    drafting_notes,
    listed_size_rule,
    other_model_rule,
    other_names_note,
)
from auditor.reconciler.contents import contents
from auditor.reconciler.findings import (
    BadConfig,
    BadIndex,
    BadSize,
    Duplicate,
    Tied,
    WrongDtype,
    WrongTotal,
)
from auditor.reconciler.reconcile import Family, reconcile
from auditor.reconciler.rules import implied_note, implied_rules
from auditor.reconciler.totals import WIDTHS, Group, Holdings, holdings, pieces, summed
from auditor.reconciler.unread import Unread
from auditor.tensors import StoredTensor

FILE = "model.safetensors.index.json"


def holding(learned: int, buffers=(), copies=()) -> Holdings:
    return Holdings(
        learned=learned,
        buffers=tuple(Group(*one) for one in buffers),
        copies=tuple(Group(*one) for one in copies),
        read=0,
        parameters=learned,
        spare=(),
        strange=0,
    )


GROUPS = st.lists(st.integers(1, 10**6), max_size=3)


# --- laws -------------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 10**9), GROUPS, GROUPS, st.sampled_from(sorted(WIDTHS)))
def test_a_total_that_some_widths_make_is_made(data, learned, buffers, copies, dtype):
    width = WIDTHS[dtype]
    bits = data.draw(st.tuples(*(st.sampled_from((64, 32, 16, 8)) for _ in buffers)))
    counted = data.draw(st.tuples(*(st.booleans() for _ in copies)))
    total = learned * width
    total += sum(map(int.__mul__, buffers, bits))
    total += sum(count * width for count, twice in zip(copies, counted, strict=True) if twice)
    held = holding(learned, [("b", n) for n in buffers], [("c", n) for n in copies])
    found = summed(held, total // 8, dtype)
    if len(buffers) + len(copies) <= 5:
        assert found is not None
        assert WIDTHS[found.dtype] == width


@given(
    st.integers(0, 10**6), GROUPS, GROUPS, st.integers(0, 10**8), st.sampled_from(["BF16", None])
)
def test_a_sum_that_is_found_is_the_total_to_the_bit(learned, buffers, copies, total, dtype):
    held = holding(learned, [("b", n) for n in buffers], [("c", n) for n in copies])
    found = summed(held, total, dtype)
    if found is not None:
        assert sum(part.elements * part.bits for part in found.parts) == 8 * total
        listed = [*copies, *buffers]
        assert sorted(part.elements for part in found.parts) == sorted([learned, *listed])


@given(st.lists(st.integers(1, 10**6), max_size=20), st.integers(0, 10**6))
def test_the_pieces_of_a_difference_make_it_up(sizes, difference):
    found = pieces(difference, tuple(Group("x", size) for size in sizes))
    assert not found or sum(group.elements for group in found) == difference
    assert bool(found) or difference not in sizes[:12]


# --- totals of real checkpoints ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "total", "declared", "said"),
    [
        # GPT-J: 28 masks of 2048 x 2048 in a byte each, 28 scalars in F32
        (
            holding(6_050_882_784, [("bias", 28 * 2048**2), ("masked_bias", 28)]),
            24_320_971_760,
            "F32",
            (
                "24,203,531,136 of parameters (6,050,882,784 x 4) + 117,440,512 of bias "
                "(117,440,512 x 1) + 112 of masked_bias (28 x 4)"
            ),
        ),
        # LayoutLM: the head's weight shares its storage, its bias is there twice
        (
            holding(
                114_977_792,
                [("position_ids", 512)],
                [("decoder.bias", 32_768), ("decoder.weight", 32_768 * 768)],
            ),
            230_025_216,
            "F32",
            (
                "229,955,584 of parameters (114,977,792 x 2) + 65,536 of decoder.bias (32,768 x 2) "
                "+ 4,096 of position_ids (512 x 8)"
            ),
        ),
        # Falcon-180B-chat: lm_head is stored though the config ties it
        (
            holding(178_557_088_768, copies=[("lm_head.weight", 65_024 * 14_848)]),
            359_045_130_240,
            "BF16",
            (
                "357,114,177,536 of parameters (178,557,088,768 x 2) + "
                "1,930,952,704 of lm_head.weight (965,476,352 x 2)"
            ),
        ),
        # RedPajama-INCITE: masks at an eighth of a byte, and the total is a float
        (
            holding(
                6_857_302_016,
                [("bias", 32 * 2048**2), ("inv_freq", 2048), ("masked_bias", 32)],
            ),
            13_731_385_408.0,
            "F16",
            (
                "13,714,604,032 of parameters (6,857,302,016 x 2) + 16,777,216 of bias "
                "(134,217,728 x 1/8) + 4,096 of inv_freq (2,048 x 2) + 64 of masked_bias (32 x 2)"
            ),
        ),
        (holding(46_702_792_704), 93_405_585_408, "BF16", "(46,702,792,704 x 2)"),
        (holding(46_702_792_704), 93_405_585_410, "BF16", "None"),
    ],
    ids=["gpt-j", "layoutlm", "falcon", "redpajama", "mixtral", "mixtral and two bytes"],
)
def test_the_total_size_of_a_published_index_is_the_sum_of_its_parts(held, total, declared, said):
    assert str(summed(held, total, declared)).endswith(said)


# --- findings ---------------------------------------------------------------------------------

EMBEDDING, HEAD = "embed.weight", "head.weight"
TENSORS = (
    ExpectedTensor(EMBEDDING, (10, 4), 40),
    ExpectedTensor("norm.weight", (4,), 4),
    ExpectedTensor("attn.mask", (4, 4), 16, Role.LEGACY),
    ExpectedTensor(HEAD, (10, 4), 40, Role.TIED, EMBEDDING),
)
WHOLE = Expectation(
    target="Target",
    model_type="type",
    prefix="",
    origin="closed-form",
    tensors=TENSORS,
    parameters=44,
    formula="44",
    legend=(),
    modules={"": ModuleFormula(44, "44")},
)


def named(name: str) -> StoredTensor:
    return StoredTensor(name, None, None, None, "a.safetensors", None)


def reconciled(names):
    return reconcile(
        [named(name) for name in names],
        WHOLE,
        Family(declared=WHOLE, siblings=tuple),
        indexed={},
    )


def index(names, **totals) -> Index:
    metadata = {"total_size": None, "total_parameters": None, **totals}
    return Index(file=FILE, weight_map=dict.fromkeys(names, "a.safetensors"), **metadata)


def judged(found, result, declared):
    held = holdings(result, len(found.weight_map))
    assert held is not None
    return list(implied_rules(found, held, result, declared))


def noted(found, result, declared):
    held = holdings(result, len(found.weight_map))
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
    assert [type(one) for one in findings] == [kind for kind, _ in found]
    for one, (_, words) in zip(findings, found, strict=True):
        assert words in one.reason


def test_a_total_is_judged_though_no_shard_can_be_read():
    unread = Unread(BadSize, "a.safetensors", "it is empty", frozenset(PLAIN))
    result = reconcile(
        [], WHOLE, Family(declared=WHOLE, siblings=tuple), indexed={}, unread=(unread,)
    )
    (finding,) = judged(index(PLAIN, total_size=44 * 4), result, "BF16")
    assert finding.names == PLAIN
    assert "exactly 4 bytes a parameter, the config declares BF16" in finding.reason


def test_a_total_that_comes_out_is_shown_with_its_parts():
    names = (*PLAIN, "attn.mask")
    note = noted(index(names, total_size=104), reconciled(names), "BF16")
    assert note == "total_size 104 = 88 of parameters (44 x 2) + 16 of attn.mask (16 x 1)"
    assert noted(index(names, total_size=105), reconciled(names), "BF16") is None


def test_what_a_total_leaves_for_strangers_is_shown():
    names = (*PLAIN, "stranger")
    note = noted(index(names, total_size=90), reconciled(names), "BF16")
    assert note == "total_size 90 leaves 2 bytes for the tensor of which nothing is expected"


def test_what_is_left_for_strangers_is_what_a_head_that_is_stored_twice_leaves():
    names = (*PLAIN, HEAD, "stranger", "other")
    note = noted(index(names, total_size=180), reconciled(names), "BF16")
    assert note == "total_size 180 leaves 12 bytes for the 2 tensors of which nothing is expected"
    assert noted(index(names, total_size=160), reconciled(names), "BF16") is None


def test_buffers_of_one_kind_are_one_part_of_a_total():
    def listed(*names: str) -> list[str]:
        buffers = tuple(ExpectedTensor(name, (2,), 2, Role.BUFFER) for name in names)
        whole = replace(WHOLE, tensors=buffers)
        family = Family(declared=whole, siblings=tuple)
        result = reconcile([named(name) for name in names], whole, family, indexed={})
        return [group.what for group in holdings(result, len(names)).buffers]

    assert listed("a.bn1.running_mean", "b.bn2.running_mean") == ["running_mean"]
    assert listed("a.bn1.running_mean", "b.bn1.running_mean") == ["bn1.running_mean"]
    assert listed("a.bn1.running_var", "a.bn1.running_mean") == [
        "bn1.running_mean",
        "bn1.running_var",
    ]


def test_a_tied_tensor_that_is_stored_is_not_said_to_be_absent():
    kinds = {type(one) for one in reconciled((*PLAIN, HEAD)).findings}
    assert Duplicate in kinds
    assert Tied not in kinds


# --- another model's config -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rename", "found"),
    [
        (lambda name: name, []),
        (lambda name: f"module.{name}", []),  # strange to loading, and yet this model's
        (lambda name: f"blocks.{len(name)}.{name[::-1]}", [BadConfig]),
    ],
    ids=["as it is", "all below a prefix", "another model"],
)
def test_a_config_is_of_another_model_where_hardly_a_name_is_common(rename, found):
    expectation = expect("BertModel")
    tensors = [named(rename(tensor.name)) for tensor in expectation.tensors]
    family = Family(declared=expectation, siblings=tuple)
    result = reconcile(tensors, expectation, family, indexed={})
    findings = list(other_model_rule(result, expectation, "config.json"))
    assert [type(one) for one in findings] == found
    assert all("39 of its 39 tensors are not stored" in one.reason for one in findings)


def test_a_model_of_the_same_sizes_is_the_same_under_other_names():
    expectation = expect("BertModel")
    needed = stored_by(expectation)
    foreign = [f"x{number}.{one.name[::-1]}" for number, one in enumerate(needed)]
    family = Family(declared=expectation, siblings=tuple)
    whole = [one._replace(name=name) for name, one in zip(foreign, needed, strict=True)]
    result = reconcile(whole, expectation, family, indexed={})
    assert list(other_model_rule(result, expectation, "config.json")) == []
    assert "have the shapes of the 39 that are missing" in other_names_note(
        result, expectation, None
    )
    less = reconcile(whole[1:], expectation, family, indexed={})
    assert other_names_note(less, expectation, None) is None
    assert list(other_model_rule(less, expectation, "config.json"))
    unseen = reconcile([named(name) for name in foreign], expectation, family, indexed={})
    total = 2 * expectation.parameters
    assert list(other_model_rule(unseen, expectation, "config.json", total)) == []
    assert "as many bytes as the 39" in other_names_note(unseen, expectation, total)
    for other in (None, total + 2):
        assert other_names_note(unseen, expectation, other) is None
        assert list(other_model_rule(unseen, expectation, "config.json", other))


@pytest.mark.parametrize(
    ("values", "names", "said"),
    [
        ({"mtp_num_hidden_layers": 1}, ["model.layers.0.w"], ["mtp_num_hidden_layers is 1"]),
        ({"mtp_num_hidden_layers": 1}, ["mtp.layers.0.w"], []),
        ({"mtp_num_hidden_layers": 0}, ["model.layers.0.w"], []),
        ({"mtp_num_hidden_layers": 1}, [], []),
        (
            {"text_config": {"mtp_num_hidden_layers": 2}},
            ["model.layers.0.w"],
            ["text_config.mtp_num_hidden_layers is 2"],
        ),
        (
            {"num_nextn_predict_layers": 1, "num_hidden_layers": 3},
            ["model.layers.2.w"],
            ["num_nextn_predict_layers is 1"],
        ),
        ({"num_nextn_predict_layers": 1, "num_hidden_layers": 3}, ["model.layers.3.w"], []),
        ({"num_nextn_predict_layers": "1"}, ["model.layers.3.w"], []),
    ],
)
def test_layers_for_drafting_that_are_declared_and_absent_are_noted(values, names, said):
    notes = list(drafting_notes(Config(values=values), [named(name) for name in names]))
    end = ", and no layer for drafting tokens is stored"
    assert notes == [f"{words}{end}" for words in said]


# --- sizes from a listing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "declared", "found"),
    [
        (44 * 4 + 300, "F32", []),
        (44 * 2 + 300, "BF16", []),
        (44 * 4 + 300, "BF16", []),  # room for buffers
        (44 * 2 + 50, "F32", [(WrongDtype, "2 for each of 44 parameters and 50 around them")]),
        (40, "F32", [(BadSize, "fewer than the 176 that 44 parameters take in F32: -136")]),
        (None, "F32", []),
        (40, None, []),
    ],
)
def test_a_file_that_nobody_opened_has_room_for_the_expected_shapes(size, declared, found):
    files = [RepoFile(name="other.h5", size=1), RepoFile(name="model.safetensors", size=size)]
    findings = list(listed_size_rule(files, WHOLE, declared))
    assert [type(one) for one in findings] == [kind for kind, _ in found]
    for one, (_, words) in zip(findings, found, strict=True):
        assert words in one.reason


# --- what a partial copy holds ----------------------------------------------------------------

SHARDS = ("model-1.safetensors", "model-2.safetensors", "model-3.safetensors")


def copy_of(weight_map, *, opened=(), unopened=(), partial=True) -> Snapshot:
    content = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    heads = []
    for shard in opened:
        names = [name for name, where in weight_map.items() if where == shard]
        head = safetensors_bytes(dict.fromkeys(names, ("F32", (2,))), data=False)
        heads.append(FileHead(name=shard, size=len(head) + 8 * len(names), head=head))
    return Snapshot(
        model="model",
        commit=None,
        source=Source.FOLDER,
        origin="here",
        files=(),
        index=TextFile(name=FILE, content=content),
        heads=tuple(heads),
        unopened=tuple(unopened),
        partial=partial,
    )


MAP = {"a": SHARDS[0], "b": SHARDS[1], "c": SHARDS[2]}


@pytest.mark.parametrize(
    ("opened", "unopened", "names", "reasons"),
    [
        ((), SHARDS, ["a", "b", "c"], []),  # an index alone
        ((), (), ["a", "b", "c"], []),
        (SHARDS, (), ["a", "b", "c"], []),
        (SHARDS[:1], (), ["a", "b", "c"], []),
        (SHARDS[:1], SHARDS[2:], ["a", "b"], ["1 tensors in model-3.safetensors"]),
        (SHARDS[:1], SHARDS[1:], ["a"], ["2 of the 3 shards"]),
    ],
)
def test_a_copy_holds_the_names_of_every_shard_that_exists(opened, unopened, names, reasons):
    found = contents(copy_of(MAP, opened=opened, unopened=unopened))
    assert sorted(tensor.name for tensor in found.tensors) == names
    assert [tensor.name for tensor in found.tensors if tensor.shape] == list("abc"[: len(opened)])
    assert len(found.unread) == len(reasons)
    for item, words in zip(found.unread, reasons, strict=True):
        assert words in item.reason
    assert found.names_only == (len(names) > len(opened))
    assert found.unread_files == 3 - len(names)


def test_in_a_repository_every_shard_of_the_index_has_to_be_there():
    found = contents(copy_of(MAP, unopened=SHARDS, partial=False))
    assert (found.tensors, found.names_only) == ((), False)
    assert [item.names for item in found.unread] == [frozenset("abc")]


def test_a_shard_that_is_no_safetensors_file_is_named():
    found = contents(copy_of({**MAP, "d": "gene.pt"}))
    (finding,) = found.findings
    assert finding.names == ("d",)
    assert "1 tensors in 'gene.pt', which is no safetensors file" in finding.reason


def test_headers_at_hand_are_counted_as_they_are():
    tensors = [stored(EMBEDDING, (10, 4)), named("norm.weight")]
    family = Family(declared=WHOLE, siblings=tuple)
    result = reconcile(tensors, WHOLE, family, indexed={})
    note = noted(index(PLAIN, total_size=40 * 4 + 4 * 2), result, "BF16")
    assert note is not None
    assert note.endswith("8 of parameters (4 x 2) + 160 of tensors with a header (160 x 1)")

"""An engine's verdict is what was recorded of each change."""

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from auditor.analytic.expectation import ExpectedTensor, Written
from auditor.engines import ExpectedShapes, ServedModel, judge
from auditor.engines.knowledge import Knowledge, without_sizes

_KINDS = ["model.layers.*.q.weight", "model.norm.weight", "lm_head.weight"]
_SHAPES = {
    "model.layers.0.q.weight": (4, 8),
    "model.layers.1.q.weight": (4, 8),
    "model.norm.weight": (8,),
    "lm_head.weight": (16, 8),
}
_ENTRY = {
    "class": "TinyForCausalLM",
    "model_type": "tiny",
    "requires": ["rotary_base"],
    "fills": {"rotary_base": "rope_parameters.rope_theta"},
    "kinds": _KINDS,
    "variants": [{"kinds": [0, 1, 2], "loads": True}],
    "raises": ["missing #1", "rows+ #2", "strip model.", "packed awq", "extra unknown.weight"],
    "loads": ["missing #0", "layer", "packed gptq", "extra model.layers.*.q.bias"],
    "reads": {"rope_base": {"rope_parameters": "ignored", "top": "read", "default": 10000.0}},
}


def _known(**changes: Any) -> Knowledge:
    document = {
        "engine": "toy",
        "version": "1.0",
        "date": "2026-11-26",
        "keyed_by": "architectures",
        "classes": ["HeliumForCausalLM"],
        "bits": {"gptq": [4]},
        "registered": ["TinyForCausalLM", "OtherForCausalLM"],
        "general": {"files torch": "raises", "class unknown": "raises"},
        "entries": {"TinyForCausalLM": _ENTRY},
    }
    return msgspec.json.decode(msgspec.json.encode(document | changes), type=Knowledge)


def _subject(stored: Mapping[str, tuple[int, ...]] = _SHAPES, **changes: Any) -> ServedModel:
    subject = ServedModel(
        config={"rotary_base": 10000.0, "rope_theta": 10000.0},
        architectures=("TinyForCausalLM",),
        model_type="tiny",
        has_code=False,
        stored=stored,
        expect=lambda _: _expected(_SHAPES),
    )
    return replace(subject, **changes)


def _expected(shapes: Mapping[str, tuple[int, ...]]) -> ExpectedShapes:
    tensors = tuple(ExpectedTensor(name, shape, prod(shape)) for name, shape in shapes.items())
    return ExpectedShapes(Written(tensors=tensors, modules={}))


def _without(kind: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in _SHAPES.items() if kind not in name}


@pytest.mark.parametrize(
    ("subject", "loads", "word"),
    [
        (_subject(), True, None),
        (_subject(_without("norm")), False, "model.norm.weight: not stored"),
        (_subject(_without(".q.")), True, "does not mind"),
        (_subject(_without("lm_head")), None, "not tried"),
        (_subject({**_SHAPES, "lm_head.weight": (32, 8)}), False, "more rows"),
        (_subject({**_SHAPES, "model.layers.2.q.weight": (4, 8)}), True, "beyond the layers"),
        (_subject({**_SHAPES, "model.layers.1.q.bias": (4,)}), True, "no parameter"),
        (_subject({**_SHAPES, "value.weight": (4,)}), False, "no parameter"),
        (
            _subject(packing_probe="packed gptq", method="gptq", settings={"bits": 4}, fits=True),
            True,
            "packed by gptq",
        ),
        (_subject(packing_probe="packed gptq"), None, "not the expected ones"),
        (
            _subject(
                {name.removeprefix("model."): shape for name, shape in _SHAPES.items()},
                packing_probe="packed gptq",
                fits=True,
            ),
            None,
            "not the expected ones",
        ),
        (
            _subject(packing_probe="packed gptq", method="gptq", settings={"bits": 8}, fits=True),
            None,
            "no save with 8 bits",
        ),
        (_subject(packing_probe="packed awq", fits=True), False, "packed by awq"),
        (_subject(packing_probe="declared fp8"), None, "not tried"),
        (_subject(file_probes=("files torch",)), False, "torch files"),
        (_subject(unread="a shard is absent"), None, "a shard is absent"),
        (_subject(architectures=()), None, "no architectures"),
        (_subject(architectures=("OtherForCausalLM",)), None, "registered, not tried"),
        (_subject(architectures=("HeliumForCausalLM",)), None, "was not tried"),
        (_subject(architectures=("Wyvern",)), False, "does not know"),
        (_subject(architectures=("Wyvern",), has_code=True), None, "Wyvern"),
        (_subject(model_type="other"), None, "model type tiny only"),
        (_subject(expect=lambda _: None), None, "not known here"),
        (
            _subject(expect=lambda _: _expected({"model.q_norm.weight": (4,)})),
            None,
            "no save with these kinds",
        ),
    ],
)
def test_the_verdict_is_what_was_recorded(
    subject: ServedModel,
    loads: bool | None,  # noqa: FBT001 - a row of the table
    word: str | None,
) -> None:
    verdict = judge(_known(), subject)
    assert verdict.loads is loads
    assert (word is None) == (not verdict.reasons)
    assert word is None or any(word in reason for reason in verdict.reasons)


def test_a_refusal_is_certain_although_something_else_was_not_tried() -> None:
    verdict = judge(_known(), _subject({"model.layers.0.q.weight": (4, 8)}))
    assert verdict.loads is False


def test_a_registry_that_is_closed_refuses_every_other_name() -> None:
    verdict = judge(_known(closed=True), _subject(architectures=("HeliumForCausalLM",)))
    assert verdict.loads is False


def test_a_required_key_is_refused_and_its_value_is_named() -> None:
    config = {"rope_parameters": {"rope_theta": 5000.0}, "rope_theta": 5000.0}
    verdict = judge(_known(), _subject(config=config))
    assert verdict.loads is False
    assert verdict.additions == {"rotary_base": 5000.0}


@pytest.mark.parametrize(("flag", "loads"), [(True, False), (False, None), (None, None)])
def test_a_variant_counts_only_for_configs_with_its_flags(
    *, flag: bool | None, loads: bool | None
) -> None:
    tied = {"kinds": [0, 1], "loads": "no lm_head", "when": {"text_config.tied": True}}
    entry = {**_ENTRY, "variants": [*_ENTRY["variants"], tied], "requires": [], "reads": {}}
    shapes = _without("lm_head")
    subject = _subject(
        shapes,
        config={} if flag is None else {"text_config": {"tied": flag}},
        expect=lambda _: _expected(shapes),
    )
    assert judge(_known(entries={"TinyForCausalLM": entry}), subject).loads is loads


def test_a_tensor_without_elements_leaves_the_answer_open() -> None:
    shapes = {**_SHAPES, "model.norm.weight": (0,)}
    subject = _subject(shapes, expect=lambda _: _expected(shapes))
    assert judge(_known(), _subject()).loads is True
    assert judge(_known(), subject).loads is None


@pytest.mark.parametrize(("heads", "loads"), [((8, 2), True), ((2, 8), None), ((8, 0), None)])
def test_heads_that_cannot_share_keys_evenly_leave_the_answer_open(
    heads: tuple[int, int], *, loads: bool | None
) -> None:
    config = dict(zip(("num_attention_heads", "num_key_value_heads"), heads, strict=True))
    for one in (config, {"text_config": config}):
        subject = _subject(config={"rotary_base": 10000.0, **one})
        assert judge(_known(), subject).loads is loads


@pytest.mark.parametrize(
    ("head", "config", "loads"),
    [
        (True, {}, False),
        (False, {}, True),
        (True, {"rotary_base": None}, False),
        (False, {"rotary_base": None}, None),
        (None, {}, None),
    ],
)
def test_a_required_key_is_needed_only_by_the_saves_that_were_refused_without_it(
    config: Mapping[str, Any], *, head: bool | None, loads: bool | None
) -> None:
    variants = [
        {"kinds": [0, 1, 2], "loads": True, "when": {"rotary_base": 1}},
        {"kinds": [0, 1], "loads": True, "spares": ["rotary_base"]},
    ]
    raises = [*_ENTRY["raises"], "null rotary_base"]
    entry = {**_ENTRY, "variants": variants, "raises": raises, "reads": {}}
    shapes = _SHAPES if head else _without("lm_head")
    expected = None if head is None else _expected(shapes)
    subject = _subject(shapes, config=config, expect=lambda _: expected)
    assert judge(_known(entries={"TinyForCausalLM": entry}), subject).loads is loads


def test_another_rope_base_is_said_with_the_key_that_would_help() -> None:
    config = {"rotary_base": 1.0, "rope_parameters": {"rope_theta": 512345.0}}
    verdict = judge(_known(), _subject(config=config))
    assert verdict.loads is True
    assert verdict.additions == {"rope_theta": 512345.0}
    assert "rope base" in verdict.reasons[0]


def test_a_key_whose_lack_shows_in_a_tensor_is_refused_with_all_tensors() -> None:
    entry = {**_ENTRY, "by_tensors": ["rotary_base"], "reads": {}}
    known = _known(entries={"TinyForCausalLM": entry})
    assert judge(known, _subject(config={})).loads is False
    assert judge(known, _subject(_without(".q."), config={})).loads is None


def test_a_refused_class_refuses_all_its_saves() -> None:
    entry = {**_ENTRY, "variants": [{"kinds": [0, 1, 2], "loads": "no experts"}]}
    verdict = judge(_known(entries={"TinyForCausalLM": entry}), _subject())
    assert verdict.loads is False
    assert "no experts" in verdict.reasons[0]


@pytest.mark.parametrize(("stays", "loads"), [(True, False), (False, None)])
def test_a_refused_save_that_lacks_tensors_is_refused_if_such_changes_were_tried(
    *, stays: bool, loads: bool | None
) -> None:
    variant = {"kinds": [0, 1, 2], "loads": "no experts", "stays": stays}
    known = _known(entries={"TinyForCausalLM": {**_ENTRY, "variants": [variant]}})
    assert judge(known, _subject(_without("norm"))).loads is loads
    assert judge(known, _subject({**_SHAPES, "more.weight": (8,)})).loads is loads
    renamed = {**_without("norm"), "more.weight": (8,)}  # perhaps the same tensor
    assert judge(known, _subject(renamed)).loads is None
    two = {name: shape for name, shape in _without("norm").items() if "lm_head" not in name}
    assert judge(known, _subject(two)).loads is None  # perhaps it is refused for one of the two


def test_a_change_that_mends_a_refused_save_leaves_the_answer_open() -> None:
    variant = {"kinds": [0, 1, 2], "loads": "a head", "stays": True, "mends": ["missing #2"]}
    known = _known(entries={"TinyForCausalLM": {**_ENTRY, "variants": [variant]}})
    assert judge(known, _subject(_without("norm"))).loads is False
    assert judge(known, _subject(_without("lm_head"))).loads is None


@pytest.mark.parametrize(("config", "loads"), [({"width": 8}, True), ({}, None)])
def test_a_config_without_a_key_of_all_tried_saves_leaves_the_answer_open(config, loads):
    entry = {**_ENTRY, "requires": [], "reads": {}, "unclear": ["width"]}
    known = _known(entries={"TinyForCausalLM": entry})
    assert judge(known, _subject(config=config)).loads is loads


@pytest.mark.parametrize(
    ("config", "loads"),
    [
        ({"width": 8, "rope_parameters": {}}, True),
        ({"width": None, "rope_parameters": {}}, True),  # null is a value that was not left out
        ({"rope_parameters": {}}, None),
        ({"width": 8}, None),
        ({"width": 8, "rope_theta": 10000.0}, True),  # as transformers 4 wrote it
    ],
)
def test_a_config_without_a_key_leaves_the_answer_open_if_a_save_without_it_was_refused(
    config: dict[str, Any],
    loads: bool | None,  # noqa: FBT001 - a row of the table
) -> None:
    raises = ["without width", "without rope_parameters"]
    entry = {**_ENTRY, "requires": [], "reads": {}, "raises": raises, "loads": ["config4"]}
    known = _known(entries={"TinyForCausalLM": entry})
    assert judge(known, _subject(config=config)).loads is loads


@pytest.mark.parametrize("config", [{}, {"tie_word_embeddings": False}])
def test_a_head_that_the_engine_ties_without_the_key_is_said(config: dict[str, bool]) -> None:
    reads = {"tie_word_embeddings": {"top": "read", "tensor": "lm_head.weight"}}
    entry = {**_ENTRY, "requires": [], "reads": reads}
    verdict = judge(_known(entries={"TinyForCausalLM": entry}), _subject(config=config))
    assert verdict.loads is True
    assert verdict.additions == ({} if config else {"tie_word_embeddings": False})
    assert len(verdict.reasons) == len(verdict.additions)


@pytest.mark.parametrize(
    ("values", "loads"),
    [
        ({}, True),
        ({"ffn_size": 32, "hidden_size": 8}, True),
        ({"ffn_size": 16, "hidden_size": 8}, False),
        ({"ffn_size": 64, "hidden_size": 8}, True),
        ({"ffn_size": 32}, None),
        ({"ffn_size": "32", "hidden_size": 8}, None),
        ({"head_dim": 2, "hidden_size": 8, "heads": 4}, True),
        ({"head_dim": 4, "hidden_size": 8, "heads": 4}, None),
        ({"head_dim": 4, "hidden_size": 8, "heads": 0}, None),
        ({"multi_query": True}, True),
        ({"multi_query": False}, False),
        ({"width": 4}, None),
    ],
)
def test_a_value_that_the_engine_derives_otherwise_is_judged_as_it_was_tried(
    values: Mapping[str, Any], *, loads: bool | None
) -> None:
    guards = {"ffn_size": "4*hidden_size", "head_dim": "hidden_size/heads", "multi_query": True}
    if "width" in values:  # a key whose rule was not found
        guards["width"] = ""
    entry = {
        **_ENTRY,
        "guards": guards,
        "raises": ["less ffn_size", "other multi_query", "less head_dim", "missing #1"],
        "loads": ["more ffn_size"],
    }
    known = _known(entries={"TinyForCausalLM": entry})
    subject = _subject()
    subject = replace(subject, config={**subject.config, **values})
    assert judge(known, subject).loads is loads
    if loads is not True:
        stored = _without("norm")
        assert judge(known, replace(subject, stored=stored)).loads is None


@pytest.mark.parametrize(
    ("values", "loads"),
    [
        ({}, False),
        ({"rotary_base": 5.0, "dtype": "float16"}, False),
        ({"tied": True}, None),
        ({"older": 1}, None),
        ({"tied": None}, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, False),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 7.0}}, None),
        ({"mtp_layers": 0}, False),
        ({"mtp_layers": 1}, None),
        ({"layer_types": ["a", "b", "a"]}, False),
        ({"layer_types": ["a"]}, None),
        ({"rope_parameters": {"factor": 2.0}}, None),
    ],
)
def test_a_refusal_holds_for_the_keys_and_flags_that_were_tried(
    values: Mapping[str, Any], *, loads: bool | None
) -> None:
    subject = _subject()
    config = {**subject.config, "tied": False}
    written = {
        **config,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
        "mtp_layers": 0,
        "layer_types": ["b", "a"],
    }
    refused = {"kinds": [0, 1, 2], "loads": "KeyError: 'x'", "tried": without_sizes(written)}
    known = _known(entries={"TinyForCausalLM": {**_ENTRY, "variants": [refused]}})
    subject = replace(subject, config={**config, **values})
    assert judge(known, subject).loads is loads
    for stored in (_without("lm_head"), {**_SHAPES, "mtp.weight": (4,)}):
        assert judge(known, replace(subject, stored=stored)).loads is None


@pytest.mark.parametrize(
    ("config", "loads"),
    [
        ({"hidden": 64, "heads": 8}, False),
        ({"hidden": 128, "heads": 8}, True),
        ({"hidden": 64, "heads": 8, "rotary_base": 8}, True),
        ({"hidden": 64, "heads": 8, "rotary_base": None}, True),
        ({"hidden": 65, "heads": 8}, None),
    ],
)
def test_a_key_with_a_default_is_needed_where_the_class_takes_another_value(
    config: Mapping[str, Any], *, loads: bool | None
) -> None:
    entry = {
        **_ENTRY,
        "fills": {"rotary_base": "hidden/heads"},
        "defaults": {"rotary_base": 16},
        "raises": ["less rotary_base"],
        "loads": ["same rotary_base", "null rotary_base"],
    }
    known = _known(entries={"TinyForCausalLM": entry})
    verdict = judge(known, _subject(config=config))
    assert verdict.loads is loads
    assert verdict.additions == ({"rotary_base": 8} if loads is False else {})


def test_a_default_that_was_not_compared_leaves_the_answer_open() -> None:
    entry = {**_ENTRY, "fills": {"rotary_base": "hidden"}, "defaults": {"rotary_base": 16}}
    known = _known(entries={"TinyForCausalLM": entry})
    assert judge(known, _subject(config={"hidden": 32})).loads is None

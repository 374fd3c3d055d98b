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


def test_the_verdict_is_what_was_recorded(subtests: pytest.Subtests) -> None:
    for subject, loads, word in [
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
    ]:
        with subtests.test(subject=subject):
            verdict = judge(_known(), subject)
            assert verdict.loads is loads
            assert (word is None) == (not verdict.reasons)
            assert word is None or any(word in reason for reason in verdict.reasons)


def _heads(heads: int, shared: int) -> dict[str, int]:
    return {"num_attention_heads": heads, "num_key_value_heads": shared}


def _refused(**changes: Any) -> dict[str, Any]:
    return {"kinds": [0, 1, 2], "loads": "no experts", **changes}


_TIED = {"kinds": [0, 1], "loads": "no lm_head", "when": {"a.tied": True}}
_SPARED = {
    "variants": [
        {"kinds": [0, 1, 2], "loads": True, "when": {"rotary_base": 1}},
        {"kinds": [0, 1], "loads": True, "spares": ["rotary_base"]},
    ],
    "raises": [*_ENTRY["raises"], "null rotary_base"],
}
_MENDED = {"variants": [_refused(stays=True, mends=["missing #2"])]}
_WRITTEN = {
    "rotary_base": 10000.0,
    "tied": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
    "mtp_layers": 0,
    "layer_types": ["b", "a"],
}
_TRIED = {"variants": [_refused(tried=without_sizes(_WRITTEN))]}
_FOURTH = {"raises": ["without rope_parameters"], "loads": ["config4"]}
_GUARDED = {
    "guards": {"ffn_size": "4*hidden_size", "head_dim": "hidden_size/heads", "multi_query": True},
    "raises": ["less ffn_size", "other multi_query", "less head_dim", "missing #1"],
    "loads": ["more ffn_size"],
}
_DEFAULT = {
    "fills": {"rotary_base": "hidden/heads"},
    "defaults": {"rotary_base": 16},
    "raises": ["less rotary_base"],
    "loads": ["same rotary_base", "null rotary_base"],
}
_HEAD = {"tie_word_embeddings": {"top": "read", "tensor": "lm_head.weight"}}


# Changes of the entry, of the subject (`without`: the kinds that are not stored), and the answer.
_ROWS: dict[str, list[tuple[dict[str, Any], dict[str, Any], bool | None]]] = {
    "a variant counts only for configs with its flags": [
        (
            {"variants": [*_ENTRY["variants"], _TIED]},
            {"config": {"rotary_base": 1.0, "a": {"tied": flag}}, "lacks": "lm_head"},
            loads,
        )
        for flag, loads in ((True, False), (False, None), (None, None))
    ],
    "a required key is needed only by the saves that were refused without it": [
        (_SPARED, {"config": {}}, False),
        (_SPARED, {"config": {"rotary_base": None}}, False),
        (_SPARED, {"config": {}, "lacks": "lm_head"}, True),
        (_SPARED, {"config": {"rotary_base": None}, "lacks": "lm_head"}, None),
        (_SPARED, {"config": {}, "expect": lambda _: None}, None),
    ],
    "a key whose lack shows in a tensor is refused with all tensors": [
        ({"by_tensors": ["rotary_base"]}, {"config": {}}, False),
        ({"by_tensors": ["rotary_base"]}, {"config": {}, "stored": _without(".q.")}, None),
    ],
    "heads have to share keys and values evenly": [
        ({}, {"config": {"rotary_base": 1.0, **_heads(8, 2)}}, True),
        ({}, {"config": {"rotary_base": 1.0, **_heads(2, 8)}}, None),
        ({}, {"config": {"rotary_base": 1.0, "text_config": _heads(8, 0)}}, None),
    ],
    "a refused class refuses all its saves": [
        ({"variants": [_refused()]}, {}, False),
        ({"variants": [_refused()]}, {"stored": _without("norm")}, None),
        ({"variants": [_refused(stays=True)]}, {"stored": _without("norm")}, False),
        ({"variants": [_refused(stays=True)]}, {"stored": {**_SHAPES, "more": (8,)}}, False),
        # perhaps one tensor by two names; perhaps it is refused for one of two
        ({"variants": [_refused(stays=True)]}, {"stored": {**_without("norm"), "m": (8,)}}, None),
        ({"variants": [_refused(stays=True)]}, {"stored": {"lm_head.weight": (16, 8)}}, None),
    ],
    "a change that mends a refused save leaves the answer open": [
        (_MENDED, {"stored": _without("norm")}, False),
        (_MENDED, {"stored": _without("lm_head")}, None),
    ],
    "a refusal holds for the keys and flags that were tried": [
        (_TRIED, {"config": _WRITTEN | changes}, loads)
        for changes, loads in (
            ({}, False),
            ({"rotary_base": 5.0, "dtype": "float16"}, False),
            ({"tied": True}, None),
            ({"older": 1}, None),
            ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 7.0}}, None),
            ({"mtp_layers": 1}, None),
            ({"layer_types": ["a", "b", "a"]}, False),
            ({"layer_types": ["a"]}, None),
        )
    ],
    "a key that all tried saves have leaves the answer open": [
        ({"unclear": ["width"]}, {"config": {"rotary_base": 1.0, "width": 8}}, True),
        ({"unclear": ["width"]}, {"config": {"rotary_base": 1.0}}, None),
    ],
    "a key without which a save was refused leaves the answer open": [
        ({"raises": ["without width"]}, {"config": {"rotary_base": 1.0, "width": 8}}, True),
        ({"raises": ["without width"]}, {"config": {"rotary_base": 1.0, "width": None}}, True),
        ({"raises": ["without width"]}, {"config": {"rotary_base": 1.0}}, None),
        (_FOURTH, {"config": {"rotary_base": 1.0, "rope_theta": 1.0}}, True),  # as version 4 wrote
        (_FOURTH, {"config": {"rotary_base": 1.0}}, None),
    ],
    "a value that the engine derives otherwise is judged as it was tried": [
        (_GUARDED, {"config": {"rotary_base": 1.0, **values}}, loads)
        for values, loads in (
            ({"ffn_size": 32, "hidden_size": 8}, True),
            ({"ffn_size": 16, "hidden_size": 8}, False),
            ({"ffn_size": 64, "hidden_size": 8}, True),
            ({"ffn_size": "32", "hidden_size": 8}, None),
            ({"head_dim": 4, "hidden_size": 8, "heads": 4}, None),
            ({"head_dim": 4, "hidden_size": 8, "heads": 0}, None),
            ({"multi_query": False}, False),
        )
    ],
    "a rule that was not found leaves the answer open": [({"guards": {"width": ""}}, {}, None)],
    "a key with a default is needed where the class takes another value": [
        (_DEFAULT, {"config": {"hidden": 64, "heads": 8}}, False),
        (_DEFAULT, {"config": {"hidden": 128, "heads": 8}}, True),
        (_DEFAULT, {"config": {"hidden": 64, "heads": 8, "rotary_base": None}}, True),
        (_DEFAULT, {"config": {"hidden": 65, "heads": 8}}, None),
        (_DEFAULT | {"raises": []}, {"config": {"hidden": 64, "heads": 8}}, None),
    ],
    "a tensor without elements leaves the answer open": [
        ({}, {"lacks": "norm", "more": {"model.norm.weight": (0,)}}, None)
    ],
}


def test_the_answer_follows_from_the_record(subtests: pytest.Subtests) -> None:
    for name, rows in _ROWS.items():
        with subtests.test(name=name):
            for entry, changes, loads in rows:
                own = {key: value for key, value in changes.items() if key not in {"lacks", "more"}}
                shapes = _without(changes["lacks"]) if "lacks" in changes else _SHAPES
                shapes = shapes | changes.get("more", {})
                subject = _subject(
                    **{"stored": shapes, "expect": lambda _, s=shapes: _expected(s), **own}
                )
                known = _known(entries={"TinyForCausalLM": {**_ENTRY, "reads": {}, **entry}})
                assert judge(known, subject).loads is loads, (entry, changes)


def test_a_difference_beside_a_derived_value_leaves_the_answer_open() -> None:
    known = _known(entries={"TinyForCausalLM": {**_ENTRY, "reads": {}, **_GUARDED}})
    subject = _subject(_without("norm"), config={"rotary_base": 1.0, "multi_query": False})
    assert judge(known, subject).loads is None


def test_a_refusal_is_certain_although_something_else_was_not_tried() -> None:
    assert judge(_known(), _subject({"model.layers.0.q.weight": (4, 8)})).loads is False


def test_a_registry_that_is_closed_refuses_every_other_name() -> None:
    verdict = judge(_known(closed=True), _subject(architectures=("HeliumForCausalLM",)))
    assert verdict.loads is False


def test_the_keys_that_would_help_are_named(subtests: pytest.Subtests) -> None:
    for reads, config, loads, additions in [
        (
            None,
            {"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 5.0},
            False,
            {"rotary_base": 5.0},
        ),
        (
            None,
            {"rotary_base": 1.0, "rope_parameters": {"rope_theta": 512345.0}},
            True,
            {"rope_theta": 512345.0},
        ),
        (_HEAD, {"rotary_base": 1.0}, True, {"tie_word_embeddings": False}),
        (_HEAD, {"rotary_base": 1.0, "tie_word_embeddings": False}, True, {}),
    ]:
        with subtests.test(reads=reads):
            entry = _ENTRY if reads is None else {**_ENTRY, "reads": reads}
            verdict = judge(_known(entries={"TinyForCausalLM": entry}), _subject(config=config))
            assert (verdict.loads, verdict.additions) == (loads, additions)
            assert bool(verdict.reasons) == bool(additions)

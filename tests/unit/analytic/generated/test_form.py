import json
import math
import zlib

import msgspec
import pytest

from auditor.analytic import generated
from auditor.analytic.expectation import Role
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import Form
from auditor.analytic.generated.tree import form_tree, memory_tree
from auditor.analytic.listing import inventory
from auditor.errors import CheckpointError

D, N = ["k", "width"], ["k", "text.layers"]
FORM = {
    "target": "ToyModel",
    "model_type": "toy",
    "library": "transformers 5.24.0",
    "prefix": "model",
    "held": 20,
    "defaults": {
        "width": 8,
        "text.layers": 2,
        "text.kinds": ["a", "b"],
        "act": "silu",
        "gated": False,
    },
    "free": ["dropout"],
    "hidden": ["read"],
    "items": {"text.kinds": ["a", "b"]},
    "split": ["text.kinds"],
    "parts": {"text": {"text.layers": 3}},
    "part_types": {"text": "toy_text"},
    "aliases": {"hidden_size": "width"},
    "derived": [["text.kinds", N, ["if", ["==", ["%", ["i", 0], 2], 0], ["q", "a"], ["q", "b"]]]],
    "guards": {"act": ["silu", "gelu"]},
    "kinds": {"width": ["int"], "text.layers": ["int"], "gated": ["bool"]},
    "rows": [
        ["embed.weight", [], True, [100, D], [[["parameter", None], True]], {}],
        [
            "layers.*.weight",
            [[N, ["==", ["at", ["k", "text.kinds"], ["i", 0]], ["q", "a"]]]],
            True,
            [["*", 2, D], D],
            [[["parameter", None], True]],
            {},
        ],
        ["gate.weight", [], ["k", "gated"], [D], [[["parameter", None], True]], {"act": ["silu"]}],
        ["head.weight", [], True, [100, D], [[["tied", "embed.weight"], True]], {}],
    ],
}


def form(**changed):
    return msgspec.convert(FORM | changed, Form)


def tensors(config, **changed):
    return inventory(form_tree(form(**changed), config), {}).tensors


def shapes(config, **changed):
    return {one.name: one.shape for one in tensors({"model_type": "toy", **config}, **changed)}


def test_a_form_lists_what_the_config_implies(subtests):
    for config, layers, width in [
        ({}, [0], 8),
        ({"width": 4, "dropout": 0.5, "architectures": ["ToyModel"]}, [0], 4),
        ({"hidden_size": 4}, [0], 4),
        ({"text": None}, [0], 8),
        ({"unheard_of": 1, "transformers_version": "4.57.0.dev0"}, [0], 8),  # no class reads it
        ({"text": {"model_type": "toy_text", "layers": 2, "kinds": "b|a"}}, [1], 8),
        ({"text": {"model_type": "toy_text"}}, [0, 2], 8),  # a given part has other defaults
        ({"text": {"model_type": "toy_text", "layers": 5}}, [0, 2, 4], 8),
        ({"text": {"model_type": "toy_text", "layers": 2, "kinds": ["b", "a"]}}, [1], 8),
    ]:
        with subtests.test(config=config, layers=layers, width=width):
            inner = {f"layers.{n}.weight": (2 * width, width) for n in layers}
            ends = {"embed.weight": (100, width), "head.weight": (100, width)}
            assert shapes(config) == inner | ends


def test_a_nested_config_may_have_no_type(subtests):
    for written in [{}, {"model_type": None}, {"model_type": ""}]:
        with subtests.test(written=written):
            assert "layers.2.weight" in shapes({"text": written}, part_types={})


def test_tensors_in_memory_are_rows_of_their_own():
    config = {"model_type": "toy", "width": 4}
    tree = memory_tree(form(memory_rows=FORM["rows"][:1]), config)
    assert {one.name: one.shape for one in inventory(tree, {}).tensors} == {
        "embed.weight": (100, 4)
    }
    assert memory_tree(form(), config) is None


def test_a_tied_tensor_names_its_source():
    last = tensors({"model_type": "toy"})[-1]
    assert (last.name, last.role, last.tied_to) == ("head.weight", Role.TIED, "embed.weight")


def test_a_config_outside_the_guards_names_its_key(subtests):
    for config, key in [
        ({"unheard_of": 1, "transformers_version": "5.25.0"}, "unheard_of"),
        ({"unheard_of": 1, "transformers_version": "main"}, "unheard_of"),
        ({"read": 1}, "read"),
        ({"text": {"model_type": "toy_text", "read": 1}}, "text.read"),
        ({"text": {"model_type": "toy_text", "kinds": ["a", "c", "a"]}}, "text.kinds"),
        ({"act": "relu"}, "act"),
        ({"width": "8"}, "width"),
        ({"width": True}, "width"),
        ({"width": None}, "width"),
        ({"width": 4, "hidden_size": 8}, "width"),
        ({"model_type": "other"}, "model_type"),
        ({"text": {"layers": 2}}, "text.model_type"),
        ({"text": {"model_type": "llama"}}, "text.model_type"),
        ({"text": 3}, "text"),
        ({"text": {"model_type": "toy_text", "layers": 10**12}}, "text.kinds"),
        ({"text": {"model_type": "toy_text", "layers": 3, "kinds": ["a"]}}, "text.kinds"),
        ({"text": {"model_type": "toy_text", "layers": 1, "kinds": ["a", "b"]}}, "text.kinds"),
        ({"width": -1}, "width"),
        ({"gated": True, "act": "gelu"}, "act"),  # the row was not seen with gelu
        ({"id2label": {"0": "x"}}, "id2label"),
    ]:
        with subtests.test(config=config, key=key):
            with pytest.raises(Outside) as outside:
                shapes(config)
            assert outside.value.key == key


def test_a_derived_key_without_a_rule_must_be_written():
    unfit = {"derived": [["text.kinds", None, None]]}
    with pytest.raises(Outside):
        shapes({}, **unfit)
    part = {"model_type": "toy_text", "layers": 1, "kinds": ["a"]}
    assert "layers.0.weight" in shapes({"text": part}, **unfit)


def test_a_default_may_be_infinite():
    form = FORM | {"defaults": {"time_step_limit": [0.0, math.inf]}}
    chunk = zlib.compress(json.dumps({"ToyModel": form}).encode())
    assert generated.decoded(chunk)["ToyModel"].defaults == form["defaults"]


def test_a_broken_or_huge_chunk_is_refused(subtests):
    for chunk in [
        b"",
        b"not zlib",
        zlib.compress(b"[1]"),
        zlib.compress(b"[Infinity"),
        zlib.compress(b'{"a": "' + b"x" * 2**25),
    ]:
        with subtests.test(chunk=chunk), pytest.raises(CheckpointError):
            generated.decoded(chunk)

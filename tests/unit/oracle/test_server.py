"""An answer of the oracle through JSON: the same expectation, or none."""

import json

import pytest
from msgspec.structs import replace
from support.bert_configs import config_of

from auditor.analytic import Expectation, catalogue
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading, Memory, Operation, Rule
from auditor.oracle.server import from_json, to_json

CUT = Operation("Chunk", (0,), 3, ("q_proj",))
RULES = (
    Rule((r"^a\.(\d+)",), (r"b.\1",), ("m.", ""), offset=1),
    Rule(("x", "y"), ("y", "z"), paired=True),
)


def made() -> Expectation:
    bert = catalogue.expect(config_of(model_type="bert", num_hidden_layers=1), "BertForMaskedLM")
    loading = Loading(
        renames=RULES,
        legacy=RULES[:1],
        converters=(Rule(("qkv",), ("q", "k"), operations=(CUT,)),),
        silent=("^mtp",),
        buffers=(r"inv_freq",),
        unmissed=("bias$",),
        optional_buffers=(".",),
        not_renamed=frozenset({"a.0"}),
        memory=Memory({"b.1": (2, 3), "c": ()}, (("c", "b.1"),), frozenset({"d"})),
        reports=True,
    )
    return summed_expectation(
        "Model",
        model_type="type",
        prefix="bert",
        tensors=bert.tensors,
        loading=loading,
        library="transformers 5",
    )


def test_an_answer_through_json_is_the_same_expectation():
    through = json.loads(json.dumps(to_json(made())))
    assert from_json(through, "Model", "transformers 5") == made()


BROKEN = [None, 3, "text", [3], [[3]], {"a": 3}, {}]


def test_a_broken_part_makes_no_answer():
    answer = json.loads(json.dumps(to_json(made())))
    valid = {("tensors", "[]"), ("model_type", '"text"'), ("prefix", '"text"')}
    for key in answer:
        for broken in (*BROKEN, []):
            is_valid = (key, json.dumps(broken)) in valid
            assert (from_json({**answer, key: broken}, "Model", "x") is not None) == is_valid


def test_a_broken_rule_makes_no_answer():
    answer = json.loads(json.dumps(to_json(made())))
    for key in answer["loading"]:
        for broken in BROKEN:
            if (key, broken) != ("memory", None):  # it follows from the tensors
                loading = {**answer["loading"], key: broken}
                assert from_json({**answer, "loading": loading}, "Model", "x") is None


def test_an_answer_without_a_rule_is_refused():
    answer = json.loads(json.dumps(to_json(made())))
    del answer["loading"]["not_renamed"]
    assert from_json(answer, "Model", "x") is None


@pytest.mark.oracle
def test_the_rules_of_a_model_of_the_library_come_through(subtests):
    for target in ["RadioModel", "OlmoeForCausalLM"]:
        with subtests.test(target=target):
            from auditor.oracle.build import build_expectation  # noqa: PLC0415 - seconds

            found = build_expectation({"num_hidden_layers": 1}, target)
            assert found.loading.memory is not None
            answer = json.loads(json.dumps(to_json(found)))
            assert from_json(answer, target, "") == replace(found, library="")

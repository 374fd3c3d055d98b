"""The page of `audit doctor`: each property is ok, wrong with what to do, or not checked."""

import pytest
from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, gated

from auditor.findings import FINDING_KINDS, EngineRefuses, Severity
from auditor.formats import doctor

ALARMING = {kind.kind for kind in FINDING_KINDS if kind.severity is not Severity.INFO}


def states(outcome):
    """Topic -> its state, by the first words of its line."""
    lines = doctor.render(outcome, width=300, color=False).splitlines()
    return {
        topic.name: line.partition(topic.name)[0].strip()
        for topic in doctor.TOPICS
        for line in lines
        if line[13:].startswith(topic.name)
    }


def test_every_alarming_kind_of_finding_contradicts_one_topic():
    kinds = [kind for topic in doctor.TOPICS for kind in topic.kinds]
    assert sorted(kinds) == sorted(ALARMING - {EngineRefuses.kind})  # only `--for` asks engines


def test_every_topic_is_wrong_for_its_findings_and_shows_what_to_do():
    page = doctor.render(every_kind(), width=300, color=False)
    assert set(states(every_kind()).values()) == {"wrong"}
    assert page.count("\N{RIGHTWARDS ARROW}") >= len(doctor.TOPICS)


def test_a_clean_model_is_ok_where_it_was_checked():
    report = bert_base_chinese()
    found = states(report)
    assert (found["tensors"], found["files"], found["config"]) == ("ok", "ok", "ok")
    assert found["values"] == found["end tokens"] == found["vocabulary"] == "not checked"
    with_tokenizer = states(replace(report, companions=("tokenizer.json",)))
    assert (with_tokenizer["vocabulary"], with_tokenizer["generation"]) == ("ok", "not checked")


@pytest.mark.parametrize("outcome", [gated(), EXAMPLES["pipeline"]()], ids=["gated", "pipeline"])
def test_what_was_not_audited_is_not_ok(outcome):
    assert "ok" not in {states(outcome)[name] for name in ("tensors", "dtype", "quantization")}


def test_a_fix_of_a_cause_comes_before_general_advice():
    page = doctor.render(EXAMPLES["diagnosed"](), width=300, color=False)
    assert "set num_hidden_layers to 3 in config.json" in page

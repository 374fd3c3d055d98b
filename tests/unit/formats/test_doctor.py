"""The page of `audit doctor`: each property is ok, wrong with what to do, or not checked."""

from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind, expected
from support.outcomes.examples import EXAMPLES, gated

from auditor.findings import FINDING_KINDS, EngineRefuses, NewlyInitialized, Severity
from auditor.formats import doctor
from auditor.observation import Checked

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
    assert (found["tensors"], found["files"], found["quantization"]) == ("ok", "ok", "not needed")
    assert found["values"] == found["end tokens"] == found["vocabulary"] == "not checked"
    assert states(replace(report, companions=("tokenizer.json",))) == found


ANSWERS = {
    "compared": "ok",
    "absent": "not there",
    "unneeded": "not needed",
    "unread": "not checked",
    "incomparable": "cannot tell",
}


def test_a_row_about_files_says_what_the_rules_compared(subtests):
    for answer, state in ANSWERS.items():
        with subtests.test(answer=answer):
            for topic in [topic.name for topic in doctor.TOPICS if not topic.ok]:
                outcome = replace(
                    bert_base_chinese(), checked={topic: Checked(answer, "so and so")}
                )
                assert states(outcome)[topic] == state
                assert "So and so." in doctor.render(outcome, width=300, color=False)
                part = replace(
                    bert_base_chinese(), component="a", checked={topic: Checked("unread", "x")}
                )
                assert states(replace(outcome, parts=(part,)))[topic] == "not checked"


def test_a_row_about_weights_is_not_ok_over_what_was_not_read(subtests):
    for line, rows in [
        ("shapes and dtypes: shards are not here", {"files", "tensors", "dtype", "quantization"}),
        ("2 weight files that could not be read", {"files", "tensors", "dtype", "quantization"}),
        ("the dtype: the config declares none", {"dtype"}),
        ("what packed tensors lack: a file that", {"tensors", "quantization"}),
        ("everything: the config does not say", {"files", "tensors", "dtype", "quantization"}),
    ]:
        with subtests.test(line=line, rows=rows):
            outcome = replace(bert_base_chinese(), unchecked=(line,))
            names = {"files", "tensors", "dtype", "quantization"}
            found = states(outcome)
            assert {name for name in names if found[name] == "not checked"} == rows


def test_an_unaudited_component_is_not_ok():
    clean = replace(bert_base_chinese(), component="a")
    outcome = replace(bert_base_chinese(), parts=(clean, replace(gated(), component="b")))
    assert "ok" not in states(outcome).values()


def test_a_note_of_the_audit_is_no_good_word():
    note = NewlyInitialized(tensors=(expected("classifier.weight", 2, 3),), reason="r")
    outcome = replace(bert_base_chinese(), findings=(note,))
    assert states(outcome)["tensors"] == "note"


def test_what_was_not_audited_is_not_ok(subtests):
    for outcome in [gated(), EXAMPLES["pipeline"]()]:
        with subtests.test(outcome=outcome):
            assert "ok" not in {
                states(outcome)[name] for name in ("tensors", "dtype", "quantization")
            }


def test_a_fix_of_a_cause_comes_before_general_advice():
    page = doctor.render(EXAMPLES["diagnosed"](), width=300, color=False)
    assert "set num_hidden_layers to 3 in config.json" in page

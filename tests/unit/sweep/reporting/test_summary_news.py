"""What is new of a night: a line for each cause or kind of a model, bounded, and nothing known."""

from support.nightly_stores import (
    SECOND,
    THIRD,
    A,
    B,
    baseline,
    finding,
    outcome_of,
    plain,
    written,
)
from support.outcomes.examples import diagnosed, pipeline

from auditor.sweep.reporting import summary


def told(report):
    listed = report.summary["news"]["listed"]
    return [(item["model"], item["component"], item["what"], item["said"]) for item in listed]


def test_a_cause_stands_for_the_findings_that_it_explains(tmp_path):
    report, _ = written(tmp_path, {THIRD: [outcome_of(diagnosed())]})
    assert told(report) == [
        (
            "org/short",
            None,
            "config-field",
            "num_hidden_layers is 4, the files hold 3",
        ),
        ("org/short", None, "unexpected", "1 name, 1 parameter: stray"),
    ]


def test_what_was_known_or_is_accepted_is_no_news(tmp_path):
    accepts = baseline(tmp_path, {"kind": "missing", "model": "o/b", "reason": "known"})
    nights = {
        SECOND: [plain("o/a", A)],
        THIRD: [plain("o/a", A, B, commit="b" * 40), plain("o/b", A)],
    }
    report, _ = written(tmp_path, nights, baseline=accepts)
    assert told(report) == [("o/a", None, "unexpected", "1 name, 6 parameters: b.{0-3}")]


def test_findings_of_a_kind_are_one_line_for_each_component(tmp_path):
    several = plain("o/a", finding("missing", "a"), finding("missing", "b", "c"))
    report, _ = written(tmp_path, {THIRD: [several, outcome_of(pipeline())]})
    assert told(report) == [
        ("o/a", None, "missing", "3 names, 12 parameters: a and 2 more"),
        ("org/pipeline", None, "missing-component", "1 name: vae"),
        ("org/pipeline", "text_encoder", "unexpected", "1 name, 5 parameters: stray"),
    ]


def test_errors_come_first_and_what_is_not_listed_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "MOST_LISTED", 3)
    nights = {THIRD: [*(plain(f"o/{n}", B) for n in range(4)), plain("o/z", A)]}
    report, _ = written(tmp_path, nights)
    assert [item[0] for item in told(report)] == ["o/z", "o/0", "o/1"]
    assert report.summary["news"]["more"] == 2

"""What changed between two nights: each finding is accounted for once, on either side."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from support.nightly_stores import finding, outcome_of, plain, unaudited
from support.outcomes.examples import EXAMPLES

from auditor.formats.document import Document, listed_findings
from auditor.sweep.reporting import changes
from auditor.sweep.reporting.changes import COLUMNS, NO_OUTCOME, ChangeKind, of_model

NAMES = st.lists(st.sampled_from(["a.weight", "b.{0-3}", "c"]), min_size=1, max_size=2, unique=True)
FINDINGS = st.lists(
    st.builds(
        lambda kind, names, parameters: finding(kind, *names, parameters=parameters),
        st.sampled_from(["missing", "unexpected", "renamed"]),
        NAMES,
        st.integers(0, 2),
    ),
    max_size=8,
)


def listed(findings):
    """Findings of a store, each with its component."""
    parts = [
        convert({"component": one.get("component"), "findings": [one]}, Document)
        for one in findings
    ]
    return [one for part in parts for one in listed_findings(part)]


def matched(tonight, before, **unseen):
    return changes.matched(listed(tonight), listed(before), **unseen)


def with_change(matches, *changes):
    return [match for match in matches if match.change in changes]


@given(tonight=FINDINGS, before=FINDINGS)
def test_new_changed_and_still_open_ones_are_tonights(tonight, before):
    matches = matched(tonight, before)
    here = with_change(matches, ChangeKind.NEW, ChangeKind.CHANGED, ChangeKind.STILL_OPEN)
    assert Counter(match.tonight for match in here) == Counter(listed(tonight))


@given(tonight=FINDINGS, before=FINDINGS)
def test_fixed_changed_and_still_open_ones_are_those_of_before(tonight, before):
    matches = matched(tonight, before)
    there = with_change(matches, ChangeKind.FIXED, ChangeKind.CHANGED, ChangeKind.STILL_OPEN)
    assert Counter(match.before for match in there) == Counter(listed(before))


@given(tonight=FINDINGS, before=FINDINGS)
def test_what_answers_each_other_has_one_identity_and_still_open_says_the_same(tonight, before):
    for match in matched(tonight, before):
        if match.tonight is not None and match.before is not None:
            assert match.tonight.identity == match.before.identity
            assert (match.tonight == match.before) == (match.change is ChangeKind.STILL_OPEN)


def test_a_report_compared_with_itself_has_no_changes():
    for example in EXAMPLES.values():
        outcome = convert(outcome_of(example()), Document)
        matches = changes.matched(changes.findings(outcome), changes.findings(outcome))
        assert all(match.change is ChangeKind.STILL_OPEN for match in matches)
        assert not list(of_model(outcome, outcome, first=False))


@given(before=FINDINGS)
def test_what_tonight_could_not_see_is_not_fixed(before):
    matches = matched((), before, unseen=[None])
    assert [match.change for match in matches] == [ChangeKind.UNSEEN] * len(before)


def test_of_a_component_that_tonight_could_not_see_nothing_is_fixed():
    unet, vae = (finding("missing", "a", component=name) for name in ("unet", "vae"))
    matches = matched((), [unet, vae], unseen=["unet"])
    assert [match.change for match in matches] == [ChangeKind.UNSEEN, ChangeKind.FIXED]


A = finding("missing", "a.weight")
PAIRS = {
    "the same": (A, A, ChangeKind.STILL_OPEN),
    "another count of parameters": (A, {**A, "parameters": 7}, ChangeKind.CHANGED),
    "another reason": (A, {**A, "reason": "x"}, ChangeKind.CHANGED),
    "a key that an older version did not write": (A, {**A, "of": ["b"]}, ChangeKind.STILL_OPEN),
}


def test_two_findings_of_one_identity(subtests):
    for tonight, before, change in PAIRS.values():
        with subtests.test(tonight=tonight, before=before, change=change):
            assert [match.change for match in matched([tonight], [before])] == [change]


OTHERS = {
    "another kind": finding("unexpected", "a.weight"),
    "other names": finding("missing", "a.weight", "b.weight"),
    "another component": finding("missing", "a.weight", component="unet"),
    "another file": finding("missing", "a.weight", file="b.safetensors"),
}


def test_two_findings_of_two_identities(subtests):
    for before in OTHERS.values():
        with subtests.test(before=before):
            assert [match.change for match in matched([A], [before])] == [
                ChangeKind.NEW,
                ChangeKind.FIXED,
            ]


def rows(tonight, before, *, first=False):
    """(change, kind, before, after) of what changed of a model."""
    pair = (convert(one, Document) if one else NO_OUTCOME for one in (tonight, before))
    found = list(of_model(*pair, first=first))
    assert all(set(row) == set(COLUMNS) for row in found)
    return [tuple(row[name] for name in ("change", "kind", "before", "after")) for row in found]


def test_commits_that_moved_and_counts_that_changed_are_rows():
    grown = {"files": 1, "bytes": 60, "tensors": 2, "elements": 15, "parameters": 15}
    tonight = plain("o/a", A, commit="b" * 40, observed=grown)
    assert rows(tonight, plain("o/a")) == [
        ("commit", None, "a" * 40, "b" * 40),
        ("verdict", None, "clean", "findings"),
        ("count", "bytes", 48, 60),
        ("count", "elements", 12, 15),
        ("count", "parameters", 12, 15),
    ]


def test_counts_that_one_night_did_not_see_have_not_changed():
    assert rows(unaudited("o/a"), plain("o/a")) == [("verdict", None, "clean", "gated")]


def test_models_come_and_go_but_not_on_the_first_night():
    assert rows(plain("o/a"), None) == [("selected", None, None, None)]
    assert rows(None, plain("o/a")) == [("deselected", None, None, None)]
    assert rows(plain("o/a"), None, first=True) == []

"""The baseline: what it accepts, until when, and what it says of itself."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nightly_stores import finding

from auditor.errors import UsageError
from auditor.sweep.reporting.baseline import Baseline, BaselineEntry, read_baseline

DAY = date(2026, 11, 21)


def entry(kind="unexpected", model="o/*", **rest):
    return BaselineEntry(kind=kind, model=model, reason="known", **rest)


def accepted(found, *entries, model="o/a"):
    return Baseline(entries=entries, day=DAY).accepted(model, found["kind"], found["names"])


FOUND = finding("unexpected", "h.0.attn.bias", "h.1.attn.bias")
ACCEPTING = {
    "all names": [entry()],
    "each name by a glob": [entry(name="h.*.attn.bias")],
    "each name by an entry of its own": [entry(name="h.0.*"), entry(name="h.1.*")],
    "the last night": [entry(expires=DAY)],
    "beside one that has expired": [entry(expires=date(2026, 11, 20)), entry()],
}
REFUSING = {
    "another kind": [entry(kind="missing")],
    "another model": [entry(model="p/*")],
    "some names": [entry(name="h.0.*")],
    "expired the night before": [entry(expires=date(2026, 11, 20))],
    "in another case": [entry(model="O/*")],
    "none": [],
}


@pytest.mark.parametrize("entries", ACCEPTING.values(), ids=ACCEPTING)
def test_a_finding_whose_every_name_is_covered_is_accepted(entries):
    assert accepted(FOUND, *entries) in {"known", f"known (until {DAY})"}


@pytest.mark.parametrize("entries", REFUSING.values(), ids=REFUSING)
def test_a_finding_that_is_not_covered_is_not_accepted(entries):
    assert accepted(FOUND, *entries) is None


@given(
    globs=st.lists(st.sampled_from(["*", "a*", "b.?", "[ab]*", "c"]), max_size=4),
    names=st.lists(st.sampled_from(["a.w", "b.w", "b.x", "c"]), min_size=1, unique=True),
)
def test_more_entries_never_accept_less(globs, names):
    found = finding("unexpected", *names)
    entries = [entry(name=glob) for glob in globs]
    fewer = any(accepted(found, *entries[:at]) for at in range(len(entries)))
    assert not fewer or accepted(found, *entries)


def test_a_model_that_is_not_audited_is_excused_by_its_reason():
    baseline = Baseline(entries=(entry(kind="gated"),), day=DAY)
    assert baseline.accepted("o/a", "gated") == "known"
    assert baseline.accepted("o/a", "no-config") is None


def test_expired_and_unused_entries_are_reported():
    old = entry(name="h.*", expires=date(2026, 11, 1))
    baseline = Baseline(entries=(entry(), old, entry(model="gone/*", kind="missing")), day=DAY)
    baseline.accepted("o/a", FOUND["kind"], FOUND["names"])
    assert tuple(baseline.notes()) == (
        "expired on 2026-11-01: unexpected of 'o/*', 'h.*' ('known'); it would accept 0 findings",
        "unused tonight: missing of 'gone/*' ('known')",
    )


def test_an_expired_entry_has_the_number_of_findings_that_alarm_again():
    baseline = Baseline(entries=(entry(expires=date(2026, 11, 1)),), day=DAY)
    for model in ("o/a", "o/b", "p/c"):
        assert baseline.accepted(model, FOUND["kind"], FOUND["names"]) is None
    assert [line.partition("; ")[2] for line in baseline.notes()] == ["it would accept 2 findings"]


TOML = """
[[accept]]
kind = "unexpected"
model = "o/*"
name = "*.bias"
reason = "an old version wrote it"
expires = 2027-03-31

[[accept]]
kind = "gated"
model = "meta/*"
reason = "no licence"
"""
JSON = """{"accept": [
    {"kind": "unexpected", "model": "o/*", "name": "*.bias", "reason": "an old version wrote it",
     "expires": "2027-03-31"},
    {"kind": "gated", "model": "meta/*", "reason": "no licence"}]}"""


@pytest.mark.parametrize(("name", "text"), [("b.toml", TOML), ("b.json", JSON)])
def test_toml_and_json_agree(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    reason = "an old version wrote it"
    assert read_baseline(tmp_path / name) == (
        BaselineEntry(
            kind="unexpected",
            model="o/*",
            name="*.bias",
            reason=reason,
            expires=date(2027, 3, 31),
        ),
        BaselineEntry(kind="gated", model="meta/*", reason="no licence"),
    )


GOOD = 'kind = "missing"\nmodel = "*"\nreason = "r"\n'
WRONG = {
    "": r"missing required field `kind` - at `\$.accept\[0\]`",
    'kind = "missing"\nmodel = "*"\n': r"missing required field `reason` - at `\$.accept\[0\]`",
    GOOD.replace("missing", "messing"): r"the kind is 'messing' - at `\$.accept\[0\]`, expected ",
    GOOD.replace('"r"', "1"): r"Expected `str`, got `int` - at `\$.accept\[0\].reason`",
    GOOD.replace('"r"', '""'): r"Expected `str` of length >= 1 - at `\$.accept\[0\].reason`",
    f"{GOOD}until = 1": r"`until` - at `\$.accept\[0\]`; known are kind, model, name, reason, by",
    f'{GOOD}expires = "soon"': r"Invalid RFC3339 encoded date - at `\$.accept\[0\].expires`",
    f"{GOOD}expires = 2027": r"Expected `date.*`, got `int` - at `\$.accept\[0\].expires`",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_an_entry_that_is_wrong_is_named_in_one_line(text, message, tmp_path):
    path = tmp_path / "b.toml"
    path.write_text(f"[[accept]]\n{text}")
    with pytest.raises(UsageError, match=message) as told:
        read_baseline(path)
    assert "\n" not in str(told.value)


FILES = {
    "not TOML": (b"[[", "b.toml' is not TOML"),
    "not UTF-8": (b"\xff", "b.toml' is not TOML"),
    "too long": (b"#" * (16 * 1024 * 1024 + 1), "b.toml' has more than 16,777,216 bytes"),
    "another table": (b"[ignore]", "b.toml': .*`ignore`; known are accept"),
    "no list": (b"accept = 1", r"Expected `array`, got `int` - at `\$.accept`"),
    "no tables": (b"accept = [1]", r"Expected `object`, got `int` - at `\$.accept\[0\]`"),
}


@pytest.mark.parametrize(("content", "message"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_baseline_is_refused(content, message, tmp_path):
    path = tmp_path / "b.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_baseline(path)


def test_a_missing_baseline_is_reported(tmp_path):
    with pytest.raises(UsageError, match=r"b.json' cannot be read: No such file"):
        read_baseline(tmp_path / "b.json")


@pytest.mark.parametrize("text", ["[1]", "[" * 100_000])
def test_json_that_is_no_object_is_refused(text, tmp_path):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(
        UsageError, match=r"b.json'(: Expected `object`, got `array`| is not JSON: )"
    ):
        read_baseline(path)

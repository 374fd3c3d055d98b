"""The baseline: what it accepts, until when; and decisions that `audit accept` appends to it."""

import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nightly_stores import (
    SECOND,
    THIRD,
    A,
    B,
    finding,
    plain,
    store_of,
    table,
    unaudited,
    written,
)

from auditor.errors import UsageError
from auditor.sweep.reporting.baseline import Baseline, BaselineEntry, accept, read_baseline
from auditor.sweep.reporting.night import Wanted, write_night

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


def test_a_finding_whose_every_name_is_covered_is_accepted(subtests):
    for entries in ACCEPTING.values():
        with subtests.test(entries=entries):
            assert accepted(FOUND, *entries) in {"known", f"known (until {DAY})"}


def test_a_finding_that_is_not_covered_is_not_accepted(subtests):
    for entries in REFUSING.values():
        with subtests.test(entries=entries):
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


def test_expired_and_unused_entries_are_reported():
    old = entry(model="p/*", name="h.*", by="A. Reviewer", expires=date(2026, 11, 1))
    baseline = Baseline(entries=(entry(), old, entry(model="gone/*", kind="missing")), day=DAY)
    decisions = [baseline.accepted(one, FOUND["kind"], FOUND["names"]) for one in ("o/a", "p/b")]
    assert decisions == ["known", None]
    old_one, unused = baseline.notes()
    assert old_one.startswith("expired on 2026-11-01: unexpected of 'p/*', 'h.*' ('known' by 'A.")
    assert old_one.endswith("; it would accept 1 finding")
    assert unused == "unused tonight: missing of 'gone/*' ('known')"


GOOD = 'kind = "missing"\nmodel = "*"\nreason = "r"\n'
WRONG = {
    "": r"missing required field `kind` - at `\$.accept\[0\]`",
    GOOD.replace("missing", "messing"): r"the kind is 'messing' - at `\$.accept\[0\]`, expected ",
    GOOD.replace('"r"', '""'): r"Expected `str` of length >= 1 - at `\$.accept\[0\].reason`",
    f"{GOOD}until = 1": r"`until` - at `\$.accept\[0\]`; known are kind, model, name, reason, by",
    f'{GOOD}expires = "soon"': r"Invalid RFC3339 encoded date - at `\$.accept\[0\].expires`",
}


def test_an_entry_that_is_wrong_is_named_in_one_line(subtests, tmp_path):
    for text, message in WRONG.items():
        with subtests.test(text=text, message=message):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = place / "b.toml"
            path.write_text(f"[[accept]]\n{text}")
            with pytest.raises(UsageError, match=message) as told:
                read_baseline(path)
            assert "\n" not in str(told.value)


FILES = {
    "not UTF-8": (b"\xff", "b.toml' is not TOML"),
    "too long": (b"#" * (16 * 1024 * 1024 + 1), "b.toml' has more than 16,777,216 bytes"),
    "another table": (b"[ignore]", "b.toml': .*`ignore`; known are accept"),
}


def test_a_file_that_is_no_baseline_is_refused(subtests, tmp_path):
    for content, message in FILES.values():
        with subtests.test(content=content, message=message):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = place / "b.toml"
            path.write_bytes(content)
            with pytest.raises(UsageError, match=message):
                read_baseline(path)


def test_json_that_is_no_object_is_refused(subtests, tmp_path):
    for text in ["[1]", "[" * 100_000]:
        with subtests.test(text=text):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = place / "b.json"
            path.write_text(text)
            with pytest.raises(
                UsageError, match=r"b.json'(: Expected `object`, got `array`| is not JSON: )"
            ):
                read_baseline(path)


# --- audit accept ---------------------------------------------------------------------------------


UNTIL = date(2026, 12, 31)
NIGHT = {THIRD: [plain("o/a", A, B), unaudited("o/gated"), plain("p/b", B)]}


def decision(kind="missing", model="o/a", **rest):
    details = {"reason": "known", "by": "A. Reviewer", "expires": UNTIL}
    return BaselineEntry(kind=kind, model=model, **{**details, **rest})


@pytest.fixture
def folder(tmp_path):
    store_of(tmp_path / "sweep.sqlite", NIGHT)
    return tmp_path


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@pytest.mark.parametrize("name", ["b.toml", "b.json"])
def test_any_decisions_are_read_as_they_were_written(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    store_of(folder / "sweep.sqlite", NIGHT)
    path = folder / name

    @given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3))
    def holds(texts):
        path.unlink(missing_ok=True)
        entries = [decision(reason=reason, by=by) for reason, by in texts]
        for entry in entries:
            written_path, covered = accept(folder, entry, baseline=path)
            assert (written_path, len(covered)) == (path, 1)
        assert read_baseline(path) == (*entries,)

    holds()


def test_a_file_keeps_its_comments(folder):
    path = folder / "baseline.toml"
    old = '# ours\n[[accept]]\nkind = "gated"\nmodel = "*"\nreason = "r" # why'
    path.write_text(old)
    accept(folder, decision())
    assert path.read_text().startswith(f"{old}\n")
    assert read_baseline(path)[1] == decision()


COUNTED = {
    "a model": (decision(), 1),
    "several models": (decision("unexpected", "*"), 2),
    "a reason of an unaudited model": (decision("gated", "o/*"), 1),
    "names": (decision("unexpected", "o/a", name="b.*"), 1),
}


@pytest.mark.parametrize(("entry", "count"), COUNTED.values(), ids=COUNTED)
def test_the_findings_of_the_latest_night_that_it_accepts_are_counted(entry, count, folder):
    path, covered = accept(folder / "sweep.sqlite", entry)
    assert (path, len(covered)) == (folder / "baseline.toml", count)


CAUSE = {
    "cause": "wrapper-prefix",
    "severity": "warning",
    "summary": "every name begins with module.",
    "fix": "strip it",
    "findings": [0],
}


def test_a_cause_covers_the_findings_that_it_explains_and_is_not_new_then(tmp_path):
    """The other finding of the model stays as it is."""
    explained = finding("unexpected", "module.a"), finding("unexpected", "c")
    nights = {
        SECOND: [plain("o/a", commit="b" * 40)],
        THIRD: [plain("o/a", *explained, diagnosis=[CAUSE]), plain("o/b", *explained[1:])],
    }
    store_of(tmp_path / "sweep.sqlite", nights)
    path, covered = accept(tmp_path, decision("wrapper-prefix", "o/*"))
    assert [line.partition(":")[0] for line in covered] == ["o/a"]
    assert "module.a" in covered[0]
    for baseline, new in ((None, 1), (path, 0)):
        wanted = Wanted(folder=tmp_path / "night", baseline=baseline)
        summary = write_night(tmp_path / "sweep.sqlite", wanted=wanted).summary
        assert summary["causes"]["wrapper-prefix"]["new"] == new


REFUSED = {
    "another model": decision(model="o/b"),
    "another kind": decision(kind="mismatched"),
    "no kind": decision(kind="messing"),
    "other names": decision(name="c.*"),
    "expired": decision(expires=date(2026, 11, 20)),
    "not Unicode": decision(reason="\udc80"),
}


@pytest.mark.parametrize("entry", REFUSED.values(), ids=REFUSED)
def test_a_decision_that_accepts_nothing_is_not_written(entry, folder):
    with pytest.raises(UsageError):
        accept(folder, entry)
    assert not (folder / "baseline.toml").exists()


def test_a_file_that_cannot_be_extended_stays_as_it_is(folder):
    path = folder / "baseline.toml"
    old = 'accept = [{kind = "gated", model = "*", reason = "r"}]\n'
    path.write_text(old)
    with pytest.raises(UsageError, match=r"baseline\.toml"):
        accept(folder, decision())
    assert path.read_text() == old


def test_reports_name_the_reviewer_the_reason_and_the_last_night(folder):
    path, _ = accept(folder, decision())
    report, out = written(folder, NIGHT, baseline=path)
    [row] = [row for row in table(out / "changes.csv") if row["kind"] == "missing"]
    assert row["accepted"] == "known (A. Reviewer, until 2026-12-31)"
    [listed] = report.summary["baseline"]["decisions"]["listed"]
    said = {key: listed[key] for key in ("by", "reason", "expires", "state", "findings")}
    assert said == {
        "by": "A. Reviewer",
        "reason": "known",
        "expires": "2026-12-31",
        "state": "accepted",
        "findings": 1,
    }
    text = (out / "index.html").read_text()
    assert all(word in text for word in ("A. Reviewer", "known", "2026-12-31"))


AT_ONCE = """
import os, signal, sys
from datetime import date
from pathlib import Path
if "no-flock" in sys.argv:
    sys.modules["fcntl"] = None
from auditor.sweep.reporting.baseline import BaselineEntry, accept

signal.alarm(100)
folder, count, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
reading, writing = os.pipe()
children = []
for number in range(count):
    if not (child := os.fork()):
        os.close(writing)
        os.read(reading, 1)  # until all exist
        entry = BaselineEntry(
            kind="missing", model="o/a", reason=str(number), by="R", expires=date(2026, 12, 31)
        )
        accept(folder, entry, baseline=folder / name)
        os._exit(0)
    children.append(child)
os.close(writing)
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize(("way", "name"), [("flock", "baseline.toml"), ("no-flock", "new/b.json")])
def test_of_decisions_at_once_none_is_lost(way, name, folder):
    command = [sys.executable, "-c", AT_ONCE, str(folder), "8", name, way]
    subprocess.run(command, timeout=120, check=True)  # noqa: S603 - our own script
    reasons = {entry.reason for entry in read_baseline(folder / name)}
    assert reasons == {str(number) for number in range(8)}
    assert [path.name for path in (folder / name).parent.iterdir() if "lock" in path.name] == []


def test_a_baseline_that_is_a_link_is_refused(folder):
    (folder / "elsewhere").write_bytes(b"")
    (folder / "baseline.toml").symlink_to("elsewhere")
    with pytest.raises(OSError, match="is a link to 'elsewhere'"):
        accept(folder, decision())
    assert (folder / "elsewhere").read_bytes() == b""

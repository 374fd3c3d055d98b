"""A reviewer's decision: what is written into the baseline, and what is refused."""

import os
import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nightly_stores import THIRD, A, B, plain, store_of, table, unaudited, written

from auditor.errors import UsageError
from auditor.sweep.reporting.accepting import accept
from auditor.sweep.reporting.baseline import BaselineEntry, read_baseline

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
            assert accept(folder, entry, baseline=path) == (path, 1)
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
    assert accept(folder / "sweep.sqlite", entry) == (folder / "baseline.toml", count)


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


def test_an_expired_decision_alarms_again_and_is_reported(folder):
    path = folder / "baseline.toml"
    path.write_text('[[accept]]\nkind = "missing"\nmodel = "o/a"\nreason = "known"\n')
    accepted, _ = written(folder, NIGHT, baseline=path)
    with path.open("a") as file:
        file.write('by = "A. Reviewer"\nexpires = 2026-11-20\n')
    expired, _ = written(folder, NIGHT, baseline=path)
    assert expired.alarms.errors == accepted.alarms.errors + 1
    [listed] = expired.summary["baseline"]["decisions"]["listed"]
    assert (listed["state"], listed["findings"]) == ("expired", 1)
    [note] = expired.summary["baseline"]["notes"]
    assert "'known' by 'A. Reviewer'" in note


AT_ONCE = """
import os, signal, sys
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
if "no-flock" in sys.argv:
    sys.modules["fcntl"] = None
from auditor.sweep.reporting.accepting import accept
from auditor.sweep.reporting.baseline import BaselineEntry

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
@pytest.mark.parametrize("way", ["flock", "no-flock"])
@pytest.mark.parametrize("name", ["baseline.toml", "new/b.json"])
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

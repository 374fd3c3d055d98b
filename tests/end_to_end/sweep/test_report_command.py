"""`audit report`: the files, the last word and the exit code, through the real command."""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from support.nightly_stores import (
    SECOND,
    THIRD,
    A,
    B,
    baseline,
    finding,
    plain,
    store_of,
    unaudited,
)
from support.running import run

from auditor.sweep.reporting.files import TABLES


def command(tmp_path, *options):
    done = run("report", *options, cwd=tmp_path)
    return done.returncode, done.stdout, done.stderr


def test_the_command_writes_the_night_and_ends_with_what_is_new(tmp_path):
    nights = {SECOND: [plain("o/a", A)], THIRD: [plain("o/a", A), plain("o/b", B)]}
    store_of(tmp_path / "sweep.sqlite", nights)
    code, out, said = command(tmp_path)
    assert (code, out) == (1, "")
    models = "2 models (1 with new findings, 1 with known findings)"
    line = f"{models}; errors and warnings: 1 new, 0 changed, 1 still-open, 0 fixed"
    assert said.splitlines() == [
        "audit: new: o/b: unexpected: 1 name, 6 parameters: b.{0-3}",
        f"audit: wrote 'reports/nightly/{THIRD}': {line}",
    ]
    names = {path.name for path in (tmp_path / "reports/nightly" / THIRD).iterdir()}
    tables = {f"{name}.csv" for name in TABLES}
    assert names == {*tables, "summary.json", "index.html", "models"}
    accepts = [
        {"kind": kind, "model": "*", "reason": "r"} for kind in ("missing", "unexpected", "tied")
    ]
    path = str(baseline(tmp_path, *accepts))
    code, out, said = command(tmp_path, "sweep.sqlite", "--baseline", path, "--night", THIRD)
    assert (code, out) == (0, "")
    assert said.startswith("audit: baseline: unused tonight: tied of '*' ('r')\n")
    assert command(tmp_path, "--fail-on", "never", "-q", "-o", "x") == (0, "", "")


def test_a_night_that_is_not_complete_is_no_green_night(tmp_path):
    store = store_of(tmp_path / "sweep.sqlite", {SECOND: [plain("o/a")], THIRD: []})
    empty = f"audit: the night '{THIRD}' has no models: nothing was audited\n"
    assert command(tmp_path, "-q") == (3, "", empty)
    assert command(tmp_path, "-q", "--night", SECOND) == (0, "", "")
    with closing(sqlite3.connect(store)) as database:
        database.execute("UPDATE nights SET plan = NULL WHERE night = ?", (THIRD,))
        database.commit()
    code, _, said = command(tmp_path, "-q")
    assert code == 3
    assert said.startswith(f"audit: the last night '{THIRD}' has no models yet, its selection is")
    assert said.endswith(f"this is the report of '{SECOND}'\n")
    assert command(tmp_path, "-q", "--night", THIRD)[0] == 2
    assert command(tmp_path, "-q", "--night", SECOND) == (0, "", "")


def test_ten_lines_list_new_findings_and_one_counts_the_others(tmp_path):
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain(f"o/{n:02}", A) for n in range(13)]})
    lines = command(tmp_path)[2].splitlines()
    assert [line.split(": ")[2] for line in lines[:10]] == [f"o/{n:02}" for n in range(10)]
    assert lines[10] == (
        f"audit: and 3 more new or changed, in 'reports/nightly/{THIRD}/changes.csv'"
    )
    assert len(lines) == 12


def test_a_report_is_the_same_bytes_in_every_process(tmp_path):
    lines = [f"{name}: not read" for name in "abcdefgh"]
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain("o/a", A, unchecked=lines)]})
    for seed in "01":
        env = {**os.environ, "PYTHONHASHSEED": seed}
        assert run("report", "-o", seed, cwd=tmp_path, env=env).returncode == 1
    for name in ("summary.json", "index.html", "models.csv"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


def test_changed_and_unseen_findings_are_named_so_and_accepted_reasons_are_counted(tmp_path):
    other = finding("missing", "a.weight", parameters=9)
    nights = {
        SECOND: [plain("o/a", A), plain("o/b", B)],
        THIRD: [
            plain("o/a", other, commit="b" * 40),
            *(unaudited(name, commit="b" * 40) for name in ("o/b", "o/c")),
        ],
    }
    store_of(tmp_path / "sweep.sqlite", nights)
    accepts = baseline(tmp_path, {"kind": "gated", "model": "o/c", "reason": "r"})
    _, _, said = command(tmp_path, "--baseline", str(accepts), "-o", "out")
    first, *_, last = said.splitlines()
    assert first == "audit: changed: o/a: missing: 1 name, 9 parameters: a.weight"
    assert last.endswith("0 new, 1 changed, 0 still-open, 0 fixed, 1 not seen tonight")
    page = (tmp_path / "out/index.html").read_text()
    assert "missing</span> (changed)" in page
    assert "<span>models not audited</span><small>2 gated; 1 of them accepted</small>" in page


SIGNED = {"--kind": "missing", "--by": "A. Reviewer", "--reason": "r", "--until": "2999-12-31"}


def accepting(tmp_path, **changed):
    words = {**SIGNED, **{f"--{name}": text for name, text in changed.items()}}
    options = [word for pair in words.items() for word in pair]
    done = run("accept", "sweep.sqlite", "o/a", *options, cwd=tmp_path)
    return done.returncode, done.stderr


def test_an_accepted_finding_does_not_end_a_report_with_1(tmp_path):
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain("o/a", A)]})
    code, said = accepting(tmp_path)
    assert (code, said) == (
        0,
        (
            "audit: accepts o/a: error missing: a.weight\n"
            "audit: wrote 'baseline.toml': 1 finding accepted until 2999-12-31\n"
        ),
    )
    assert command(tmp_path)[0] == 1
    assert command(tmp_path, "--baseline", "baseline.toml")[0] == 0


NOT_SIGNED = {
    "by": (" ", "--by is empty"),
    "until": ("2020-01-01", "--until is 2020-01-01, expected today or a later day"),
    "kind": ("tied", "nothing is written"),
}


def test_a_decision_that_is_not_complete_ends_with_one_line(subtests, tmp_path):
    for option, (text, message) in NOT_SIGNED.items():
        with subtests.test(option=option):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            store_of(place / "sweep.sqlite", {THIRD: [plain("o/a", A)]})
            code, said = accepting(place, **{option: text})
            assert (code, said.count("\n")) == (2, 1)
            assert message in said


WRONG = {
    ("none.sqlite",): "the store 'none.sqlite' does not exist",
    ("--night", "x"): "this store has no night 'x'",
    ("--baseline", "none.toml"): "'none.toml' cannot be read: No such file",
    ("--depth", "-1"): "invalid value for '--depth'",
}


def test_a_night_that_cannot_be_reported_ends_with_one_line(subtests, tmp_path):
    for options, message in WRONG.items():
        with subtests.test(options=options, message=message):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            store_of(place / "sweep.sqlite", {THIRD: [plain("o/a")]})
            code, out, said = command(place, *options)
            assert (code, out, said.count("\n")) == (2, "", 1)
            assert message in said

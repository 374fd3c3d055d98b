"""`audit report`: the files, the last word and the exit code, through the real command."""

import pytest
from support.nightly_stores import SECOND, THIRD, A, B, baseline, plain, store_of
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
    line = "2 models (1 new, 1 open); findings: 1 new, 0 changed, 1 still-open, 0 fixed"
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


def test_ten_lines_list_new_findings_and_one_counts_the_others(tmp_path):
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain(f"o/{n:02}", A) for n in range(13)]})
    lines = command(tmp_path)[2].splitlines()
    assert [line.split(": ")[2] for line in lines[:10]] == [f"o/{n:02}" for n in range(10)]
    assert lines[10] == (
        f"audit: and 3 more new findings, in 'reports/nightly/{THIRD}/changes.csv'"
    )
    assert len(lines) == 12


WRONG = {
    ("none.sqlite",): "the store 'none.sqlite' does not exist",
    ("--night", "x"): "this store has no night 'x'",
    ("--baseline", "none.toml"): "'none.toml' cannot be read: No such file",
    ("--depth", "-1"): "invalid value for '--depth'",
}


@pytest.mark.parametrize(("options", "message"), WRONG.items(), ids=map(" ".join, WRONG))
def test_a_night_that_cannot_be_reported_ends_with_one_line(options, message, tmp_path):
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain("o/a")]})
    code, out, said = command(tmp_path, *options)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert message in said


def test_a_folder_that_cannot_be_written_to_is_reported_in_one_line(tmp_path):
    store_of(tmp_path / "sweep.sqlite", {THIRD: [plain("o/a")]})
    (tmp_path / "file").write_text("")
    code, _, said = command(tmp_path, "-o", "file")
    assert (code, said.count("\n")) == (3, 1)
    assert "cannot write" in said

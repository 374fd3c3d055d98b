"""What every format makes of every example, against files that were read by a person."""

import csv
import re
import subprocess
import sys

import pytest
from golden import FOLDER, golden
from support.outcomes.examples import EXAMPLES, names_alone

from auditor.formats import View
from auditor.formats.registry import FORMATS

NAMES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(scope="module")
def observed():
    return golden()


def test_the_outputs_equal_the_golden_files(observed):
    assert sorted(observed) == NAMES
    for name in NAMES:
        expected = (FOLDER / name).read_bytes().decode("utf-8")
        assert observed[name] == expected, f"{name}; if this is meant: make rewrite"


COLUMNS = ("tensors", "elements", "parameters", "expected", "difference", "trainable", "bytes")


def test_a_column_adds_up_to_its_module(subtests):
    for prefix in ["", "cls", "bert.encoder.layer"]:
        with subtests.test(prefix=prefix):
            with (FOLDER / "bert-base-chinese.modules.csv").open(
                encoding="utf-8", newline=""
            ) as file:
                rows = {row["prefix"]: row for row in csv.DictReader(file)}
            whole = rows.pop("(whole model)") if not prefix else rows[prefix]
            parts = [
                row for name, row in rows.items() if name and name.rpartition(".")[0] == prefix
            ]
            for column in COLUMNS:
                assert sum(int(part[column]) for part in parts) == int(whole[column]), column


def test_a_column_of_the_terminal_adds_up_to_the_total(subtests):
    """Beside what is unused, and listed above the table."""
    for name in ["bert-base-chinese", "every-kind", "diagnosed"]:
        for heading in ["stored", "expected"]:
            with subtests.test(heading=heading, name=name):
                text = (FOLDER / f"{name}.report.txt").read_text(encoding="utf-8")
                [table] = [block for block in text.split("\n\n") if block.startswith("module ")]
                rows = [re.split(" {2,}", line) for line in table.splitlines()[1:]]
                figures = [
                    row[1] if heading == "stored" or row[2] == "=" else row[2] for row in rows
                ]
                report = EXAMPLES[name]()
                side = report.observed if heading == "stored" else report.expected
                beside = {"unused": "stored", "newly-initialized": "expected"}
                told = [one for one in report.findings if beside.get(one.kind) == heading]
                skipped = {row.prefix for row in report.modules if row.status in beside}
                listed = sum(one.parameters for one in told) if skipped else 0
                assert (
                    sum(int(figure.replace(",", "")) for figure in figures) + listed
                    == side.parameters
                )


def test_the_terms_of_an_example_leave_no_residual():
    """Law 3, so that what the golden files show is arithmetic."""
    for name in ("bert-base-chinese", "every-kind", "hostile"):
        report = EXAMPLES[name]()
        explained = sum(finding.explains for finding in (*report.findings, *report.ignored))
        difference = report.observed.parameters - report.expected.parameters
        assert difference - explained == report.residual, name


# --- all formats of one report --------------------------------------------------------------------


def test_several_reports_follow_each_other():
    view = View()
    [text] = FORMATS["terminal"]([names_alone(), names_alone()], view).values()
    [lines] = FORMATS["json"]([names_alone(), names_alone()], view).values()
    assert text.count("OK  ") == 2
    assert len(lines.splitlines()) == 2
    assert len(FORMATS["csv"]([names_alone()] * 2, view)["models.csv"].splitlines()) == 3


def test_the_formats_for_machines_do_not_wait_for_rich():
    code = "import sys, auditor.formats; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603

"""What every format makes of every example, against files that were read by a person."""

import csv
import json
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


@pytest.mark.parametrize("name", NAMES)
def test_the_output_equals_the_golden_file(name, observed):
    expected = (FOLDER / name).read_bytes().decode("utf-8")
    assert observed[name] == expected, "if this is meant: make rewrite"


def test_no_golden_file_is_left_over_and_none_is_lacking(observed):
    assert sorted(observed) == NAMES


def modules(name):
    with (FOLDER / f"{name}.modules.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["prefix"] == "(whole model)"
    return [rows[0] | {"prefix": ""}, *rows[1:]]


COLUMNS = ("tensors", "elements", "parameters", "expected", "difference", "trainable", "bytes")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(
    "prefix", ["", "bert", "cls", "bert.encoder", "bert.encoder.layer", "bert.encoder.layer.7"]
)
def test_a_column_adds_up_to_its_module(prefix, column):
    rows = modules("bert-base-chinese")
    parts = [row for row in rows if row["prefix"] and parent(row["prefix"]) == prefix]
    [whole] = [row for row in rows if row["prefix"] == prefix]
    assert sum(int(part[column]) for part in parts) == int(whole[column])


def parent(prefix):
    return prefix.rpartition(".")[0]


@pytest.mark.parametrize("heading", ["stored", "expected"])
@pytest.mark.parametrize("name", ["bert-base-chinese", "every-kind", "diagnosed"])
def test_a_column_of_the_terminal_adds_up_to_the_total(name, heading):
    """Beside what is unused, and listed above the table."""
    text = (FOLDER / f"{name}.report.txt").read_text(encoding="utf-8")
    [table] = [block for block in text.split("\n\n") if block.startswith("module ")]
    rows = [re.split(" {2,}", line) for line in table.splitlines()[1:]]
    figures = [row[1] if heading == "stored" or row[2] == "=" else row[2] for row in rows]
    report = EXAMPLES[name]()
    side = report.observed if heading == "stored" else report.expected
    beside = {"unused": "stored", "newly-initialized": "expected"}
    told = [one for one in report.findings if beside.get(one.kind) == heading]
    skipped = {row.prefix for row in report.modules if row.status in beside}
    listed = sum(one.parameters for one in told) if skipped else 0
    assert sum(int(figure.replace(",", "")) for figure in figures) + listed == side.parameters


@pytest.mark.parametrize("name", ["bert-base-chinese", "every-kind", "hostile"])
def test_the_terms_of_an_example_leave_no_residual(name):
    """Law 3, so that what the golden files show is arithmetic."""
    report = EXAMPLES[name]()
    explained = sum(finding.explains for finding in (*report.findings, *report.ignored))
    difference = report.observed.parameters - report.expected.parameters
    assert difference - explained == report.residual


def test_the_published_figures_are_those_of_the_example():
    """D of the published counts: embeddings + encoder + head, and what the file has beside them."""
    assert 16_622_592 + 85_054_464 + 613_256 == 102_290_312
    assert 102_290_312 + 590_592 + 1_538 == 102_882_442
    lines = (FOLDER / "bert-base-chinese.report.txt").read_text(encoding="utf-8").splitlines()
    assert lines[3:5] == [
        "OK  All 202 tensors that BertForMaskedLM needs are stored, in the right shapes.",
        "    102,290,312 used + 592,130 unused = 102,882,442 parameters stored",
    ]


# --- all formats of one report --------------------------------------------------------------------


def test_all_formats_of_one_report_agree():
    view = View()
    [text] = FORMATS["terminal"]([names_alone()], view).values()
    [lines] = FORMATS["json"]([names_alone()], view).values()
    tables = FORMATS["csv"]([names_alone()], view)
    assert text == (
        "some/folder \N{MIDDLE DOT} BertModel \N{MIDDLE DOT} 0 files\n"
        "\n"
        "OK  All 2 tensors that BertModel needs are named by the index; shapes unknown.\n"
        "\n"
        "module         expected\n"
        "(whole model)        12\n"
        "\n"
        "Not checked: shapes and dtypes. -v says more.\n"
    )
    outcome = json.loads(lines)
    assert outcome["verdict"] == "clean"
    assert outcome["observed"]["tensors"] == 2
    assert outcome["observed"]["parameters"] is None
    assert outcome["modules"][0]["expected"] == 12
    assert tables["models.csv"].splitlines()[1] == (
        "some/folder,some/folder,,folder,BertModel,bert,clean,,,12,,,,,2,0,,0,0,0,0,"
        "shapes and dtypes: no shard of the index is here,0,0,,closed-form,3*D,"
        "read from a folder of this machine,,"
    )
    assert tables["modules.csv"].splitlines()[1] == (
        "some/folder,,(whole model),0,2,,,12,,unchecked,3*D,,,,"
    )
    assert tables["findings.csv"].splitlines()[1:] == []


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

"""The CSV tables: what a spreadsheet makes of them."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, HOSTILE, gated, hostile

from auditor.formats.as_csv import files
from auditor.reconciler.rows import ModuleRow

DESIGN = (
    "model, commit_sha, prefix, depth, tensors, elements, parameters, expected, difference, "
    "status, formula"
)
DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
NUMERIC = {
    "expected",
    "elements",
    "parameters",
    "difference",
    "residual",
    "tensors",
    "files",
    "bytes",
    "errors",
    "warnings",
    "infos",
    "ignored",
    "unchecked",
    "requests",
    "fetched_bytes",
    "trainable",
    "depth",
    "share",
    "count",
    "explains",
}


def table(outcomes, name):
    return list(csv.DictReader(io.StringIO(files(outcomes)[name], newline=""), strict=True))


@given(st.text(st.characters(exclude_categories=())) | st.sampled_from(HOSTILE))
def test_no_text_is_run_as_a_formula(text):
    [row] = table([replace(gated(), requested=text, detail=text)], "models.csv")
    for column in ("requested", "detail"):
        assert not row[column].lstrip().startswith(DANGEROUS)
        assert row[column].isprintable()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("bert-base", "bert-base"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", r"'\t=1"),
        ("\r=1", r"'\r=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ('say "no", twice', 'say "no", twice'),
        ("中文", "中文"),
        ("\ud800", r"\ud800"),
        ("a\x1b[31m", r"a\x1b[31m"),
    ],
)
def test_a_cell_of_text_reads_as(text, cell):
    [row] = table([replace(gated(), requested=text)], "models.csv")
    assert row["requested"] == cell


def test_a_negative_number_stays_a_number():
    assert ",-5,0," in files([every_kind()])["models.csv"]
    assert next(row["difference"] for row in table([every_kind()], "modules.csv")) == "-5"
    assert "-12" in [row["explains"] for row in table([every_kind()], "findings.csv")]


@pytest.mark.parametrize("name", ["models.csv", "modules.csv", "findings.csv", "diagnosis.csv"])
def test_columns_of_numbers_hold_numbers_or_nothing(name):
    for row in table([example() for example in EXAMPLES.values()], name):
        marks = {"unchecked"} if name == "models.csv" else {"ignored"}
        for column in NUMERIC & row.keys() - marks:
            assert not row[column] or float(row[column]) is not None


@pytest.mark.parametrize("name", ["models.csv", "modules.csv", "findings.csv", "diagnosis.csv"])
def test_lines_end_in_lf_and_every_record_is_one_line(name):
    text = files([hostile(), bert_base_chinese()])[name]
    assert "\r" not in text
    assert len(text.splitlines()) == 1 + len(table([hostile(), bert_base_chinese()], name))
    assert text.encode("utf-8").endswith(b"\n")


def test_the_columns_of_a_module_are_those_of_the_design_with_additions_last():
    columns = files([])["modules.csv"].rstrip("\n").split(",")
    assert columns[:11] == DESIGN.split(", ")
    added = {"model", "commit_sha", "component"}
    assert set(columns) == {*added, *ModuleRow.__struct_fields__}


def test_there_is_a_row_for_every_model_module_and_finding():
    outcomes = [example() for example in EXAMPLES.values()]
    assert [row["requested"] for row in table(outcomes, "models.csv")][2] == gated().requested
    every = [one for outcome in outcomes for one in outcome.every]
    assert len(table(outcomes, "models.csv")) == len(every)
    assert len(table(outcomes, "modules.csv")) == sum(len(one.modules) for one in every)
    found = sum(len(one.findings) + len(one.ignored) for one in every)
    assert len(table(outcomes, "findings.csv")) == found


def test_what_findings_explain_adds_up_to_the_difference_with_the_ignored_ones():
    [model] = table([every_kind()], "models.csv")
    found = table([every_kind()], "findings.csv")
    assert sum(int(row["explains"]) for row in found) == int(model["difference"])
    assert [row["folded"] for row in found if row["ignored"] == "yes"] == ["bar"]

"""Every table that a command writes, read by `pandas.read_csv` without arguments."""

import csv
import io
import re
from itertools import chain
from math import isclose
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.nightly_stores import FIRST, SECOND, outcome_of, written
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import EXAMPLES, diagnosed, hostile
from support.outcomes.making import row
from support.tensor_tables import ListedTensors, tensor

from auditor.claims.hand_counts import CountTable
from auditor.formats import as_csv, escapes, tensor_table
from auditor.formats.tables import TABLE_FORMATS
from auditor.reconciler.tensor_values import TensorValues, ValuesRead

pandas = pytest.importorskip("pandas")

# Each is one that read_csv takes for no value, for a number or for a truth value.
STRANGE = (
    *("NA", "null", "None", "nan", "N/A", "<NA>", "-nan", "#N/A", "True", "false"),
    *("007", "1e5", "12", "1.", ".5", "inf", "Infinity", "12345678901234567890123", " 12"),
)


TEXTS = {"shape", "before", "after"}  # and figures, where all of them are some


def strange():
    """A commit, an id, names and modules that look like something else; and counts without end."""
    one = TensorValues(
        name="NA",
        file="007",
        dtype="F32",
        numbers=2,
        read=2,
        nan=1,
        inf=0,
        nonzero=True,
        absmax=1.0,
    )
    few = [row(name, 1, 1, 0, "unexpected", of=9) for name in STRANGE]
    huge, lost = 2**70, tensor("lost", 1, file=None)
    report = bert_base_chinese()
    return replace(
        report,
        requested="0123",
        model="0123",
        commit="1" * 39 + "e",
        modules=(row("", 9, 9, 0, "unexpected", of=9), *few),
        observed=replace(report.observed, bytes=huge, parameters=huge, elements=2**53 - 1),
        tensors=ListedTensors(*(tensor(name, 2, 3, file="007") for name in STRANGE), lost),
        values=ValuesRead(bytes=8, of=8, of_tensors=1, tensors=(one,)),
    )


def tables_of_audits():
    outcomes = [strange(), *(make() for make in EXAMPLES.values())]
    return {
        **as_csv.files(outcomes),
        **{f"alone/{name}": text for name, text in as_csv.files([strange()]).items()},
        "tensors.csv": tensors_csv([strange()]),
        **{f"hostile/{name}": text for name, text in as_csv.files([hostile()]).items()},
    }


def tensors_csv(outcomes):
    """As it is written, with the columns of numbers."""
    columns = tensor_table.columns_of(outcomes)
    rows = [tensor_table.csv_lines(one, columns) for one in outcomes]
    return "".join([tensor_table.csv_line(columns), *chain(*rows)])


def tables_of_nights(tmp_path):
    nights = {
        FIRST: [outcome_of(strange())],
        SECOND: [outcome_of(strange(), commit="2" * 40), outcome_of(diagnosed())],
    }
    _, folder = written(tmp_path, nights, night=SECOND)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.csv")}


def tables_of_counts():
    """What `audit explain` and `audit diff` print, one table and several."""
    tensors = CountTable(
        title="tensors",
        columns=("tensor", "shape", "parameters"),
        rows=(("NA", "7", 7), ("1.0", "", None)),
    )
    models = CountTable(title="modules", columns=("module", "=a", "b"), rows=(("null", 3, -2),))
    kinds = [[tensors], [tensors, models], [models]]
    return {f"counts-{n}": TABLE_FORMATS["csv"](found) for n, found in enumerate(kinds)}


def test_every_table_is_read_as_it_was_written(tmp_path):
    tables = tables_of_audits() | tables_of_nights(tmp_path) | tables_of_counts()
    assert {"models.csv", "modules.csv", "findings.csv", "diagnosis.csv", "tensors.csv"} <= {
        *tables
    }
    assert {"changes.csv", "open.csv"} <= {*tables}
    assert "absmax" in tables["tensors.csv"]
    for name, text in tables.items():
        cells = [*csv.DictReader(io.StringIO(text, newline=""), strict=True)]
        frame = pandas.read_csv(io.StringIO(text, newline=""))
        assert len(frame) == len(cells), name
        for column in frame:
            said = [each[column] for each in cells]
            for cell, found in zip(said, frame[column], strict=True):
                assert same(cell, found), (name, column, cell, found)
            if said and all(map(is_integer, said)) and column not in TEXTS:
                assert frame[column].dtype == "int64", (name, column)


NEVER_EMPTY = {
    "models": ("errors", "warnings", "infos", "ignored", "requests", "fetched_bytes"),
    "modules": ("depth", "tensors"),
    "findings": ("count", "parameters", "explains"),
    "diagnosis": ("findings",),
}


def test_counts_that_are_said_to_be_never_empty_are_integers():
    said = " ".join(Path("docs/reports.md").read_text(encoding="utf-8").split())
    [listed] = re.findall(r"Never empty are (.*?)\.", said)
    assert set(re.findall(r"`(\w+)`", listed)) == {*chain(*NEVER_EMPTY.values())}
    tables = tables_of_audits()
    for name, columns in NEVER_EMPTY.items():
        frame = pandas.read_csv(io.StringIO(tables[f"{name}.csv"]))
        assert len(frame), name
        assert {column: frame[column].dtype for column in columns} == dict.fromkeys(
            columns, "int64"
        )


def is_integer(cell):
    return cell.removeprefix("-").isdecimal()


def same(cell, found):
    """Whether a cell was read as what it says: nothing, a number where it is plain, or text."""
    if not cell or cell in {"nan", "inf"}:
        return found != found or str(found) == cell  # noqa: PLR0124 - NaN
    if isinstance(found, str):
        return found == cell
    if is_integer(cell):
        return not isinstance(found, bool) and int(cell) == found
    return not isinstance(found, bool) and isclose(float(cell), found)  # pandas 2 drops a digit


def test_text_that_looks_like_something_else_is_text_in_every_column():
    text = as_csv.files([strange()])
    models = pandas.read_csv(io.StringIO(text["models.csv"]))
    assert models.loc[0, ["model", "commit_sha"]].tolist() == ["'0123", "'" + "1" * 39 + "e"]
    modules = pandas.read_csv(io.StringIO(text["modules.csv"]))
    assert modules["prefix"].tolist() == ["(whole model)", *(f"'{name}" for name in STRANGE)]
    assert modules["model"].unique().tolist() == ["'0123"]
    assert pandas.isna(models["parameters"][0])  # more than 64 bits
    assert models["elements"][0] == 2**53 - 1


@given(
    st.text(st.characters(exclude_categories=()), min_size=1)
    | st.text("0123456789eE+-._ xinfatyNrul#</>", min_size=1, max_size=12)
)
@example("1e")
@example("0x1F")
@example("1_000")
@example("  ")
def test_whatever_a_text_is_it_is_read_as_text(text):
    for column in ([text], [text, "1"], ["1.5", text]):
        file = io.StringIO(newline="")
        rows = [("a", "b"), *((1, escapes.safe(cell)) for cell in column)]
        csv.writer(file, lineterminator="\n").writerows(rows)
        found = pandas.read_csv(io.StringIO(file.getvalue(), newline=""))["b"].tolist()
        assert found == [escapes.safe(cell) for cell in column]

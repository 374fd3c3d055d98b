"""The reports of a night: what each file says, and that the store alone decides it."""

import csv
import io
import json
import keyword
import sqlite3
import sys
import tempfile
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace
from support.examples import examples
from support.nightly_stores import (
    FIRST,
    SECOND,
    THIRD,
    A,
    B,
    outcome_of,
    plain,
    store_of,
    table,
    unaudited,
    written,
)
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, HOSTILE, diagnosed, gated, pipeline

from auditor.errors import StoreError, UsageError
from auditor.formats import as_csv, escapes
from auditor.formats.as_csv import rows_of
from auditor.formats.as_json import document_of
from auditor.formats.document import Document
from auditor.sweep.reporting import files, page
from auditor.sweep.reporting.files import TABLES
from auditor.sweep.reporting.night import Wanted, write_night
from auditor.sweep.store.reading import Store


def changes(folder, name="changes"):
    keys = ("change", "model", "kind")
    return [tuple(row[key] for key in keys) for row in table(folder / f"{name}.csv")]


def every_change(folder):
    return [*changes(folder), *changes(folder, "open")]


# --- tables ---------------------------------------------------------------------------------


def as_text(name, rows):
    file = io.BytesIO()
    sink = files.Csv(file, name)
    sink.add({name: [*rows]})
    sink.close()
    return file.getvalue().decode()


def test_no_column_is_a_keyword_of_python_or_of_sql():
    """Unquoted, each column is a name: in SQLite, which reserves more words, too."""
    for name, columns in TABLES.items():
        assert not {*columns} & {*keyword.kwlist, *("select", "from", "where", "group", "by")}
        listed = ", ".join(columns)
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(f"CREATE TABLE {name} ({listed})")
            found = database.execute(f"PRAGMA table_info({name})").fetchall()
        assert [column for _, column, *_ in found] == [*columns]


def test_tables_of_stored_json_are_those_of_audit_format_csv(subtests):
    for example in EXAMPLES.values():
        with subtests.test(example=example):
            outcomes, expected = document_of(example()).every, as_csv.files([example()])
            made = {name: [] for name in as_csv.COLUMNS}
            for outcome in outcomes:
                for name, rows in rows_of(outcome):
                    made[name] += map(night_row, rows)
            texts = {f"{name}.csv": as_text(name, rows) for name, rows in made.items()}
            models, expected_models = (
                list(csv.reader(io.StringIO(one.pop("models.csv"), newline="")))
                for one in (texts, expected)
            )
            added = [[row.pop(), row.pop()] for row in models]
            assert added == [["commit_authors", "last_modified"], *[["", ""]] * len(outcomes)]
            assert (models, texts) == (expected_models, expected)


def night_row(row):
    return {**row, "last_modified": None, "commit_authors": None}


@given(st.text(st.characters(exclude_categories=())) | st.sampled_from(HOSTILE))
def test_no_cell_of_any_table_is_run_as_a_formula(text):
    models = dict(rows_of(document_of(replace(gated(), requested=text, detail=text))))["models"]
    rows = {name: [dict.fromkeys(columns, text)] for name, columns in TABLES.items()}
    rows["models"] += map(night_row, models)
    for name, found in rows.items():
        for row in csv.DictReader(io.StringIO(as_text(name, found), newline=""), strict=True):
            for cell in row.values():
                assert not cell.lstrip(" ").startswith(escapes._FORMULA)  # noqa: SLF001 - the list
                assert cell.isprintable()


def test_findings_of_a_component_are_the_repositorys(tmp_path):
    report, folder = written(tmp_path, {THIRD: [outcome_of(pipeline())]})
    found = [(row["component"], row["kind"]) for row in table(folder / "changes.csv")]
    assert found == [("", "missing-component"), ("text_encoder", "unexpected")]
    assert [row["component"] for row in table(folder / "models.csv")] == [
        "",
        "text_encoder",
        "unet",
    ]
    assert report.summary["models"] == report.alarms.errors == 1
    assert report.summary["findings"]["unexpected"]["findings"] == 1


def test_a_cause_leads_the_changes_of_its_model_and_changes_as_findings_do(tmp_path):
    outcome = outcome_of(diagnosed())
    [cause] = outcome["diagnosis"]
    other = {**cause, "summary": "num_hidden_layers is 4, the files hold 2"}
    gone = {**outcome, "diagnosis": [], "findings": [], "verdict": "clean"}
    nights = {
        FIRST: [outcome],
        SECOND: [{**outcome, "diagnosis": [other], "commit": "b" * 40}],
        THIRD: [{**gone, "commit": "c" * 40}],
    }
    found = {}
    for night in nights:
        report, folder = written(tmp_path, nights, night=night)
        rows = [row for row in table(folder / "changes.csv") if row["change"] != "commit"]
        found[night] = [(row["change"], row["cause"], row["kind"]) for row in rows]
        assert [*report.summary["causes"]] == [
            one["cause"] for one in nights[night][0]["diagnosis"]
        ]
    assert found[FIRST] == [
        ("new", "config-field", ""),
        ("new", "config-field", "missing"),
        ("new", "", "unexpected"),
    ]
    assert found[SECOND][0] == ("changed", "config-field", "")
    assert found[THIRD][0] == ("fixed", "config-field", "")


def test_modules_are_listed_to_the_chosen_depth(tmp_path):
    _, folder = written(tmp_path, {THIRD: [outcome_of(every_kind())]}, depth=1)
    assert [row["prefix"] for row in table(folder / "modules.csv")] == [
        "(whole model)",
        "encoder",
    ]


# --- changes --------------------------------------------------------------------------------

MODEL = st.builds(
    lambda known, tonight: (known, tonight),
    *[st.none() | st.lists(st.sampled_from([A, B]), max_size=2, unique_by=str)] * 2,
)


@examples(20)  # each makes a store
@given(models=st.lists(MODEL, min_size=1, max_size=4))
def test_changes_account_for_the_findings_of_both_nights(models, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("law")
    nights = {
        SECOND: [plain(f"o/{n}", *one[0]) for n, one in enumerate(models) if one[0] is not None],
        THIRD: [
            plain(f"o/{n}", *one[1], commit="b" * 40)
            for n, one in enumerate(models)
            if one[1] is not None
        ],
    }
    _, folder = written(tmp_path, nights)
    counted = [change for change, _, kind in every_change(folder) if kind and change != "count"]
    here = {"new", "changed", "still-open"}
    there = {"fixed", "changed", "still-open", "unseen"}
    found = {name: sum(len(one["findings"]) for one in nights[name]) for name in nights}
    assert sum(change in here for change in counted) == found[THIRD]
    assert sum(change in there for change in counted) == found[SECOND]
    assert len(table(folder / "findings.csv")) == found[THIRD]


SEEN = plain("o/a")["observed"]
AWAY = unaudited("o/a", "timed-out", commit=None)


def unknown(*findings, **changes):
    """A model of a class that nobody knows, whose files were read."""
    known = {"observed": SEEN, "findings": list(findings), **changes}
    return unaudited("o/a", "unknown-architecture", **known)


# The nights' models, and the rows of changes.csv and then open.csv in the last night.
COMPARED = {
    "the first night": ([[plain("o/a", A)]], [("new", "o/a", "missing")]),
    "models that come, go and change": (
        [
            [plain("o/a", A), plain("o/b", A, B), plain("o/gone", A)],
            [plain("o/a", A), plain("o/b", A, commit="b" * 40), plain("o/come", B)],
        ],
        [
            ("commit", "o/b", ""),
            ("fixed", "o/b", "unexpected"),
            ("selected", "o/come", ""),
            ("new", "o/come", "unexpected"),
            ("deselected", "o/gone", ""),
            ("unseen", "o/gone", "missing"),
            ("still-open", "o/a", "missing"),
            ("still-open", "o/b", "missing"),
        ],
    ),
    "a night without network": (
        [[plain("o/a", A)], [AWAY]],
        [("verdict", "o/a", ""), ("unseen", "o/a", "missing")],
    ),
    "the night after": (
        [[plain("o/a", A)], [AWAY], [plain("o/a", A)]],
        [("still-open", "o/a", "missing")],
    ),
    "findings of files of a model that is never audited": (
        [[unknown(A)], [unknown(A, commit="b" * 40)]],
        [("commit", "o/a", ""), ("still-open", "o/a", "missing")],
    ),
    "such findings after a night without network": (
        [[unknown(A)], [AWAY], [unknown(A)]],
        [("still-open", "o/a", "missing")],
    ),
    "such findings that are gone": (
        [[unknown(A)], [unknown(commit="c" * 40)]],
        [("commit", "o/a", ""), ("fixed", "o/a", "missing")],
    ),
    "an audit that is no longer possible": (
        [[plain("o/a", A)], [unknown(B, commit="b" * 40)]],
        [
            ("commit", "o/a", ""),
            ("verdict", "o/a", ""),
            ("new", "o/a", "unexpected"),
            ("unseen", "o/a", "missing"),
        ],
    ),
}


def test_a_night_is_compared_with_the_last_that_knew_its_models(subtests, tmp_path):
    for nights, expected in COMPARED.values():
        with subtests.test(nights=nights, expected=expected):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            names = (FIRST, SECOND, THIRD)
            report, folder = written(place, dict(zip(names, nights, strict=False)))
            found = [row for row in every_change(folder) if row[0] != "count"]
            assert found == expected
            previous = report.summary["previous"]
            assert (previous and previous["night"]) == (
                names[len(nights) - 2] if len(nights) > 1 else None
            )


def test_models_come_in_the_order_of_ids_whatever_their_letters(tmp_path):
    names = ["o/a", "o/\u00e9", "o/\U0001f600", "o/\uffee", "O/z"]
    both = {SECOND: map(plain, names[::2]), THIRD: map(plain, names[1:])}
    with Store.open(store_of(tmp_path / "s", both)) as nights:
        night = nights.chosen(None)
        found = [one.model for one in nights.compared(night, nights.previous(THIRD))]
    assert found == sorted(names)
    assert all(one < other for one, other in pairwise(found))


# --- files ----------------------------------------------------------------------------------

NIGHTS = {
    SECOND: [*(outcome_of(every_kind()),), plain("o/a", A), plain("o/b")],
    THIRD: [outcome_of(every_kind()), plain("o/a"), plain("o/b", B, commit="b" * 40)],
}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_store_gives_the_same_bytes(tmp_path):
    found = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        sarif = tmp_path / name / "x.sarif"
        _, folder = written(tmp_path / name, NIGHTS, sarif=sarif, parquet=True)
        found.append({**contents(folder), "sarif": sarif.read_bytes()})
    _, folder = written(tmp_path / "one", NIGHTS, sarif=tmp_path / "y", parquet=True)
    found.append({**contents(folder), "sarif": (tmp_path / "y").read_bytes()})
    assert found[0] == found[1] == found[2]
    pages = json.loads(found[0]["summary.json"])["pages"]
    assert len(found[0]) == len(TABLES) + len(TABLES) + 2 + 1 + pages


def test_what_fails_half_way_leaves_the_last_files_as_they_were(tmp_path, monkeypatch):
    _, folder = written(tmp_path, NIGHTS)
    before = contents(folder)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page.NightPage, "write", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path, NIGHTS, night=SECOND)
    assert contents(folder) == before


def test_parquet_holds_what_the_csv_does(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    _, folder = written(tmp_path, NIGHTS, parquet=True)
    for name, columns in TABLES.items():
        found = parquet.read_table(folder / f"{name}.parquet")
        assert tuple(found.column_names) == tuple(columns)
        rows = table(folder / f"{name}.csv")
        assert len(rows) == found.num_rows
        for row, kept in zip(rows, found.to_pylist(), strict=True):
            for column, cell in kept.items():
                shown = "" if cell is None else str(cell)
                assert row[column] == escapes.safe(shown) or float(row[column]) == float(cell)


def test_a_number_of_more_than_64_bits_is_unknown_to_parquet():
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    file = io.BytesIO()
    sink = files.Parquet(file, "models")
    large = convert(plain("o/a", expected={"parameters": 10**30}), Document)
    sink.add({"models": map(night_row, dict(rows_of(large))["models"])})
    sink.close()
    import pyarrow.parquet  # noqa: PLC0415 - only where it is there

    [row] = pyarrow.parquet.read_table(file).to_pylist()
    assert (row["expected"], row["parameters"]) == (None, 12)


def test_without_pyarrow_parquet_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="--parquet needs pyarrow: pip install pyarrow"):
        written(tmp_path, NIGHTS, parquet=True)


def test_summary_json_counts_what_the_tables_hold(tmp_path):
    report, folder = written(tmp_path, NIGHTS)
    assert report.summary["night"] == THIRD  # the latest
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == json.loads(json.dumps(report.summary))
    assert summary["models"] == sum(summary["verdicts"].values()) == 3
    assert summary["models"] == sum(summary["states"].values())
    found = table(folder / "findings.csv")
    kept = sum(row["ignored"] == "no" for row in found)
    assert sum(kind["findings"] for kind in summary["findings"].values()) == kept
    counted = [change for change, _, _ in every_change(folder)]
    assert summary["changes"] == {change: counted.count(change) for change in sorted({*counted})}


# --- which night ----------------------------------------------------------------------------


def test_an_unknown_night_is_reported_with_the_existing_ones(tmp_path):
    told = rf"this store has no night '2026-01-01'; its last ones are '{SECOND}', '{THIRD}'"
    with pytest.raises(UsageError, match=told):
        written(tmp_path, NIGHTS, night="2026-01-01")


def test_a_night_whose_selection_was_stopped_is_reported(tmp_path):
    store_of(tmp_path / "sweep.sqlite", NIGHTS)
    with closing(sqlite3.connect(tmp_path / "sweep.sqlite")) as database:
        database.execute("UPDATE nights SET plan = NULL WHERE night = ?", (THIRD,))
        database.commit()
    assert written(tmp_path, NIGHTS)[0].summary["night"] == SECOND
    with pytest.raises(UsageError, match=f"the night '{THIRD}' has nothing to report: its selec"):
        written(tmp_path, NIGHTS, night=THIRD)


def test_a_damaged_store_is_reported_in_one_line(subtests, tmp_path):
    for content in [b"no zlib", zlib.compress(b"{")]:
        with subtests.test(content=content):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            store = store_of(place / "sweep.sqlite", NIGHTS)
            with closing(sqlite3.connect(store)) as database:
                database.execute("UPDATE outcomes SET content = ? WHERE model = 'o/b'", (content,))
                database.commit()
            with pytest.raises(StoreError, match=r"the store '.*sweep.sqlite' is damaged: .*"):
                written(place, NIGHTS)
            assert not [*(place / "out").iterdir()]


@pytest.mark.parametrize("night", ["../x", "..", "a\\b"])
def test_a_night_whose_name_leads_elsewhere_needs_a_folder(night, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = store_of(tmp_path / "sweep.sqlite", {night: [plain("o/a")]})
    with pytest.raises(UsageError, match=r"the night is '.*', expected a name"):
        write_night(store)
    write_night(store, wanted=Wanted(folder=tmp_path / "out"))

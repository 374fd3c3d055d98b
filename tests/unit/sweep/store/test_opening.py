"""A file is opened as a store of this version, or refused in one line and left as it is."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.nightly_stores import plain, store_of

from auditor.errors import StoreError, UsageError
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Store
from auditor.sweep.store.schema import VERSION

OUTCOMES = [plain("o/a"), plain("o/b")]


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "sweep.sqlite", {"n1": OUTCOMES})


def altered(path, statement):
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    return path.read_bytes()


@pytest.mark.parametrize("kind", [Store, StoreWriter])
@pytest.mark.parametrize("version", [1, VERSION - 1, VERSION + 1])
def test_a_store_of_another_version_is_refused_and_left_as_it_is(version, kind, store):
    before = altered(store, f"PRAGMA user_version = {version}")
    why = rf"'.*sweep.sqlite' has version {version}, expected {VERSION}"
    with pytest.raises(UsageError, match=f"{why}; move it away and sweep again") as refused:
        kind.open(store).__enter__()
    assert "\n" not in str(refused.value)
    assert store.read_bytes() == before


def test_one_of_this_version_is_not(store):
    with Store.open(store) as opened:
        assert [one.outcome for one in opened.results("n1")] == OUTCOMES


@pytest.mark.parametrize("kind", [Store, StoreWriter])
def test_one_that_lacks_a_table_is_damaged_and_left_as_it_is(kind, store):
    before = altered(store, "DROP TABLE failures")
    said = r"'.*sweep.sqlite' is damaged: no such table: .*failures; .* saves what it can"
    with pytest.raises(StoreError, match=said), kind.open(store) as opened:
        opened.alarms("n1")
    assert store.read_bytes() == before


def test_one_with_a_damaged_outcome_shows_the_others(store):
    altered(store, "UPDATE outcomes SET content = x'00' WHERE model = 'o/a'")
    with Store.open(store) as opened:
        assert opened.result("n1", "o/b").outcome == OUTCOMES[1]
    with pytest.raises(StoreError, match=r"is damaged: .* incomplete or truncated"):  # noqa: SIM117
        with Store.open(store) as opened:
            _ = opened.result("n1", "o/a").outcome


def test_a_folder_is_none_though_it_has_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in (Store, StoreWriter):
        with pytest.raises(StoreError, match=r"the store '\.' is a folder, expected a file"):
            kind.open(Path()).__enter__()


def test_a_store_whose_folder_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    said = r"the store '.*s.sqlite' cannot be opened or made: .*file"
    with pytest.raises(StoreError, match=said) as refused:
        StoreWriter.open(tmp_path / "file" / "s.sqlite").__enter__()
    assert "\n" not in str(refused.value)

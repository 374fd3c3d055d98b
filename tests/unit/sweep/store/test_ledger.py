"""The store: what it keeps, what it refuses, and that order and repetition change nothing."""

import json
import signal
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.nightly_stores import plain, store_of

from auditor.errors import StoreError, UsageError
from auditor.sweep.store import opening
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Recorded, SelectedModel, Store, Versions
from auditor.sweep.store.schema import (
    VERSION,
    Shared,
    StoredNight,
    StoredObject,
    compress_text,
    decompress_text,
    digest_of,
)

NOW = Versions(auditor="1", catalogue="a")
LATER = Versions(auditor="1", catalogue="b")
EMPTY = StoredNight("clean", None, 0, 0, 0, None, None)


def recorded(verdict="clean", reason=None, **counts):
    summary = EMPTY._replace(verdict=verdict, reason=reason, **counts)
    return Recorded(summary, StoredObject(packed({"verdict": verdict, "reason": reason})))


def packed(value):
    return compress_text(json.dumps(value).encode())


def shared(value):
    return Shared(digest_of(json.dumps(value).encode()), packed(value))


def found(name, commit="a" * 40, siblings=None):
    return SelectedModel(name, commit, name, siblings)


@contextmanager
def opened(path, *models, night="n1", versions=NOW):
    """A ledger, and a night whose plan has these models."""
    with StoreWriter.open(path) as ledger:
        started = ledger.begin(night, "all", versions)
        plan = ledger.new_plan(night)
        ledger.add(started, plan, models)
        yield ledger, ledger.freeze(night, plan)


def shown(ledger, night="n1"):
    return [(one.model, one.verdict, one.reason) for one in ledger.results(night)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "folder" / "sweep.sqlite"


def test_what_is_recorded_is_shown_and_no_longer_waits(path):
    with opened(path, found("o/b"), found("o/a"), found("o/a", "b" * 40)) as (ledger, night):
        assert shown(ledger) == [("o/a", None, None), ("o/b", None, None)]
        assert ledger.left(night) == 2
        ledger.record(
            night, "o/a", "a" * 40, recorded("findings", errors=2), snapshot=StoredObject(b"s")
        )
        assert shown(ledger) == [("o/a", "findings", None), ("o/b", None, None)]
        assert [one.model for one in ledger.waiting(night)] == ["o/b"]
        result = ledger.result("n1", "o/a")
        assert result.outcome == {"verdict": "findings", "reason": None}
        assert result.commit_sha == "a" * 40
        versions = "SELECT DISTINCT auditor, catalogue FROM results WHERE verdict IS NOT NULL"
        assert ledger._database.execute(versions).fetchall() == [("1", "a")]  # noqa: SLF001 - its view
        assert ledger.tally("n1") == ((None, None, 1), ("findings", None, 1))
        assert ledger.alarms("n1") == (1, 0, 1, 0, 0, 0)


def test_a_count_of_more_than_64_bits_is_stored_as_the_largest(path):
    """A config may ask for that many; one such model ended a night."""
    with opened(path, found("o/a")) as (ledger, night):
        ledger.record(night, "o/a", "a" * 40, recorded("clean", tensors=2**70, residual=-(2**70)))
        assert shown(ledger) == [("o/a", "clean", None)]


def test_a_new_version_waits_for_all_and_hands_out_what_is_stored(path):
    with opened(path, found("o/a", siblings=[]), found("o/b", siblings=[])) as (ledger, night):
        ledger.record(night, "o/a", "a" * 40, recorded(), snapshot=StoredObject(b"s"))
        later = ledger.begin("n1", "all", LATER)
        waiting = {one.model: one for one in ledger.waiting(later)}
        assert waiting["o/a"].snapshot == b"s"
        assert waiting["o/a"].listing is None
        assert decompress_text(waiting["o/b"].listing) == b"[]"
        assert waiting["o/b"].snapshot is None


def test_a_failure_belongs_to_its_night_and_ends_with_an_outcome_of_the_same_night(path):
    with opened(path, found("o/a")) as (ledger, first):
        ledger.record(first, "o/a", "a" * 40, recorded("unaudited", "timed-out"))
        ledger.finish(first)
        assert shown(ledger) == [("o/a", "unaudited", "timed-out")]
        assert [one.model for one in ledger.waiting(first)] == ["o/a"]
    with opened(path, found("o/a"), night="n2") as (ledger, second):
        ledger.record(second, "o/a", "a" * 40, recorded())
        assert shown(ledger, "n1") == [("o/a", "unaudited", "timed-out")]
        assert shown(ledger, "n2") == [("o/a", "clean", None)]
        for record in (recorded(), recorded("unaudited", "timed-out")):
            ledger.record(first, "o/a", "a" * 40, record)
            assert shown(ledger, "n1") == [("o/a", "clean", None)]


def test_what_another_night_has_seen_since_is_no_failure_of_a_night_that_goes_on(path):
    with opened(path, found("o/a"), found("o/b")) as (ledger, night):
        for model in ("o/a", "o/b"):
            ledger.record(night, model, "a" * 40, recorded("unaudited", "timed-out"))
    with opened(path, found("o/a"), night="n2") as (ledger, second):
        ledger.record(second, "o/a", "a" * 40, recorded())
    with opened(path) as (ledger, _):
        assert shown(ledger) == [("o/a", "clean", None), ("o/b", "unaudited", "timed-out")]


def test_a_model_without_a_commit_is_asked_for_again_where_its_reason_passes(path):
    with opened(path) as (ledger, night):
        for name, reason in (("o/away", "not-found"), ("o/bad", "bad-request")):
            refusal = recorded("unaudited", reason)
            ledger.add(night, night.plan, [SelectedModel(name, "", name, refusal=refusal)])
        assert ledger.unresolved(night) == ("o/away",)
        assert list(ledger.waiting(night)) == []
        ledger.add(night, night.plan, [SelectedModel("o/here", "c" * 40, "o/away", [])])
        assert shown(ledger) == [("o/bad", "unaudited", "bad-request"), ("o/here", None, None)]


def test_a_plan_that_was_not_frozen_leaves_no_trace(path):
    with StoreWriter.open(path) as ledger:
        night = ledger.begin("n1", "all", NOW)
        ledger.add(night, ledger.new_plan("n1"), [found("o/left")])
        assert ledger.night("n1").plan is None
        assert shown(ledger) == []
    with opened(path, found("o/a")) as (ledger, _):
        assert shown(ledger) == [("o/a", None, None)]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT model FROM planned").fetchall() == [("o/a",)]


def test_of_two_selections_at_once_the_first_to_end_is_the_nights(path):
    with StoreWriter.open(path) as one, StoreWriter.open(path) as other:
        night = one.begin("n1", "all", NOW)
        other.begin("n1", "all", NOW)
        plans = one.new_plan("n1"), other.new_plan("n1")
        one.add(night, plans[0], [found("o/a")])
        other.add(night, plans[1], [found("o/a"), found("o/b")])
        assert other.freeze("n1", plans[1]).plan == plans[1]
        assert one.freeze("n1", plans[0]).plan == plans[1]
        one.add(night, plans[0], [found("o/late")])
        assert [model for model, *_ in shown(one)] == ["o/a", "o/b"]
        assert other.night("n1") == one.night("n1")


def test_a_model_that_was_refused_and_is_found_after_all_takes_its_place(path):
    refusal = recorded("unaudited", "not-found")
    refused = SelectedModel("o/a", "", "o/a", refusal=refusal)
    with opened(path, refused, found("o/a"), refused) as (ledger, night):
        assert [(one.model, one.commit_sha) for one in ledger.results("n1")] == [("o/a", "a" * 40)]
        assert shown(ledger) == [("o/a", None, None)]
        assert ledger.unresolved(night) == ()


def test_a_finished_night_is_selected_anew_and_one_under_way_goes_on(path):
    with opened(path, found("o/a")) as (ledger, night):
        assert ledger.begin("n1", "all", NOW).plan == night.plan
        ledger.finish(night)
        assert ledger.previous("n2").night == "n1"
        assert ledger.previous("n1") is None
        assert ledger.begin("n1", "all", NOW).plan is None


def test_a_finished_night_stays_until_its_models_are_selected_again(path):
    with opened(path, found("o/a")) as (ledger, night):
        ledger.finish(night)
        finished = ledger.night("n1")
        again = ledger.begin("n1", "all", LATER)
        plan = ledger.new_plan("n1")
        ledger.add(again, plan, [found("o/b")])
        with opened(path, found("o/c"), night="n2"):  # another sweep deletes stale plans
            assert ledger.night("n1") == finished
        assert [model for model, *_ in shown(ledger)] == ["o/a"]
        ledger.withdraw("n1")
        assert ledger.night("n1") == finished
    with StoreWriter.open(path) as ledger:
        again = ledger.begin("n1", "all", LATER)
        plan = ledger.new_plan("n1")
        ledger.add(again, plan, [found("o/b")])
        frozen = ledger.freeze("n1", plan)
        assert (frozen.plan, frozen.catalogue, frozen.finished) == (plan, LATER.catalogue, None)
        assert [model for model, *_ in shown(ledger)] == ["o/b"]


def test_a_refused_night_leaves_no_trace(path):
    refusal = recorded("unaudited", "not-found")
    with StoreWriter.open(path) as ledger:
        night = ledger.begin("n1", "all", NOW)
        refused = SelectedModel("o/a", "", "o/a", refusal=refusal)
        ledger.add(night, ledger.new_plan("n1"), [refused])
        ledger.withdraw("n1")
        assert ledger.nights() == ()
    with closing(sqlite3.connect(path)) as database:
        for table in ("plans", "planned", "failures"):
            query = f"SELECT count(*) FROM {table}"  # noqa: S608 - our own
            assert database.execute(query).fetchone() == (0,)


def test_a_night_is_another_selections_only_if_it_is_finished_and_by_force(path):
    with opened(path, found("o/a")) as (ledger, night):
        for force in (False, True):
            with pytest.raises(UsageError, match="'n1' is under way for all, not for more"):
                ledger.begin("n1", "more", NOW, force=force)
        ledger.finish(night)
        with pytest.raises(UsageError, match="'n1' is finished for all, not for more"):
            ledger.begin("n1", "more", NOW)
        assert ledger.begin("n1", "more", NOW, force=True).plan is None


def test_a_database_of_something_else_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    for kind in (Store, StoreWriter):
        with pytest.raises(UsageError, match=r"'.*other.sqlite' is a database of another program"):
            kind.open(path).__enter__()
    assert path.read_bytes() == before


class EnoughError(Exception):
    """What a test's own signal raises."""


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_another_writer(path):
    """SQLite itself hears none while it waits, and would end with an error after a minute."""

    def ring(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise EnoughError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with StoreWriter.open(path) as one, one.together():
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(EnoughError):
                StoreWriter.open(path).__enter__()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_store_locked_by_another_process_is_reported(path, monkeypatch):
    monkeypatch.setattr(opening, "_BUSY", 0.0)
    with (
        StoreWriter.open(path) as one,
        one.together(),
        pytest.raises(StoreError, match="was locked by another sweep for a minute; wait"),
    ):
        StoreWriter.open(path).__enter__()


# --- opening a store ------------------------------------------------------------------------------


OUTCOMES = [plain("o/a"), plain("o/b")]


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "sweep.sqlite", {"n1": OUTCOMES})


def altered(path, statement):
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    return path.read_bytes()


def test_a_store_of_another_version_is_refused_and_left_as_it_is(subtests, store):
    for version in [VERSION - 1, VERSION + 1]:
        for kind in [Store, StoreWriter]:
            with subtests.test(kind=kind, version=version):
                before = altered(store, f"PRAGMA user_version = {version}")
                why = rf"'.*sweep.sqlite' has version {version}, expected {VERSION}"
                with pytest.raises(
                    UsageError, match=f"{why}; move it away and sweep again"
                ) as refused:
                    kind.open(store).__enter__()
                assert "\n" not in str(refused.value)
                assert store.read_bytes() == before


def test_a_store_whose_folder_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    said = r"the store '.*s.sqlite' cannot be opened or made: File exists$"
    with pytest.raises(StoreError, match=said) as refused:
        StoreWriter.open(tmp_path / "file" / "s.sqlite").__enter__()
    assert "\n" not in str(refused.value)

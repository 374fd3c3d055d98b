"""Nights that are dropped take with them what is theirs alone, and nothing that another needs."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples
from support.nightly_stores import plain, recorded, store_of, unaudited
from support.sweep_models import healthy, planted
from support.sweep_stores import TABLES, contents

from auditor.sweep import runner
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import SelectedModel, Store, Versions
from auditor.sweep.store.schema import Shared, StoredObject, compress_text, digest_of

pytestmark = pytest.mark.slow

OURS = ModelSelection(author="sweep")
OLD, NEW = (Versions(auditor="1", catalogue=name) for name in ("old", "new"))
COMMITS = ("a" * 40, "b" * 40)

# --- histories ----------------------------------------------------------------------------------

PARTS = st.sampled_from(["one", "two", "three"])  # what rows share
MODEL = st.tuples(
    st.sampled_from(COMMITS),
    st.sampled_from(["audited", "audited", "audited", "failed", "refused", "waiting"]),
    PARTS,  # of the outcome
    PARTS,  # of the snapshot
)
NIGHT = st.fixed_dictionaries(
    {
        "night": st.sampled_from(["n1", "n2", "n3", "n4", "n5"]),
        "versions": st.sampled_from([OLD, NEW]),
        "models": st.dictionaries(st.sampled_from(["o/a", "o/b", "o/c"]), MODEL, min_size=1),
        "ends": st.sampled_from(["finished", "finished", "stopped", "selecting"]),
    }
)
HISTORY = st.lists(NIGHT, min_size=2, max_size=7)


def kept(part, **own):
    """A row that has something of its own, and shares a part with others."""
    rest = json.dumps({"part": part}).encode()
    return StoredObject(
        compress_text(json.dumps(own).encode()), Shared(digest_of(rest), compress_text(rest))
    )


def sweep(ledger, night, versions, models, ends):
    """One night as a sweep goes: begun, or gone on with, selected, audited, and perhaps ended."""
    current = ledger.begin(night, "all", versions)
    if current.plan is None:
        plan = ledger.new_plan(night)
        for name, (commit, what, *_) in models.items():
            if what == "refused":
                record = recorded(unaudited(name, "not-found"))
                ledger.add(current, plan, [SelectedModel(name, "", name, refusal=record)])
            else:
                ledger.add(current, plan, [SelectedModel(name, commit, name, [])])
        if ends == "selecting":
            return
        ledger.freeze(night, plan)
        current = ledger.night(night)
    for waiting in [*ledger.waiting(current)]:
        _, what, outcome, snapshot = models.get(waiting.model, (None, "waiting", "", ""))
        key = (waiting.model, waiting.commit_sha)
        if what == "audited":
            record = recorded(plain(key[0], commit=key[1]))
            record = record._replace(
                stored_outcome=kept(outcome, model=key[0], versions=versions.catalogue)
            )
            ledger.record(current, *key, record, snapshot=kept(snapshot, of=key))
            ledger.record_authors(*key, outcome)
        elif what == "failed":
            record = recorded(unaudited(key[0], "timed-out"))
            ledger.record(current, *key, record)
    if ends == "finished":
        ledger.finish(current)


def swept(path, history):
    """A store that this has happened to; the last night has finished."""
    with StoreWriter.open(path) as ledger:
        for step in history:
            sweep(ledger, **step)
        sweep(ledger, **{**history[-1], "ends": "finished"})
        last = ledger.night(history[-1]["night"])
        if last.finished is None:
            ledger.finish(last)
    return last.night


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return lambda: tmp_path_factory.mktemp("store")


def prune(path, *, night, keep):
    with StoreWriter.open(path) as store:
        return store.prune(night, keep)


def before_and_after(folders, history, keep):
    """The same store before and after, the night that was swept last, how many were dropped."""
    folder = folders()
    before, after = folder / "before.sqlite", folder / "after.sqlite"
    last = swept(before, history)
    shutil.copy(before, after)
    return before, after, last, prune(after, night=last, keep=keep)


def nights(path):
    with Store.open(path) as store:
        return {one.night: one for one in store.nights()}


def rows(path):
    """Every row of every table."""
    with closing(sqlite3.connect(path)) as database:
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}  # noqa: S608 - ours


def next_night(path, planned, versions):
    """What a night of these models would have to do, and what it would do it from."""
    with StoreWriter.open(path) as ledger:
        night = ledger.begin("next", "all", versions)
        plan = ledger.new_plan("next")
        ledger.add(night, plan, [SelectedModel(*one, []) for one in planned])
        ledger.freeze("next", plan)
        return [*ledger.waiting(ledger.night("next"))]


@examples(120)  # each makes two files
@given(history=HISTORY, keep=st.integers(1, 3))
def test_pruning_keeps_the_last_nights_and_all_that_they_need(history, keep, folders):
    before, after, last, dropped = before_and_after(folders, history, keep)
    there, left = nights(before), nights(after)
    finished = [name for name in sorted(there) if there[name].finished]
    others = [name for name in finished if name != last]
    due = {last, *others[max(0, len(others) - keep + 1) :]}
    assert left == {name: one for name, one in there.items() if name in due or not one.finished}
    assert dropped == len(there) - len(left)
    once = rows(after)
    if dropped:
        assert_nothing_unneeded(after)
    else:
        assert once == rows(before)
    with StoreWriter.open(before) as then, StoreWriter.open(after) as now:
        for name in left:
            assert [*now.results(name)] == [*then.results(name)]
            assert now.tally(name) == then.tally(name)
            assert now.alarms(name) == then.alarms(name)
        planned = [(one.model, one.commit_sha, one.requested) for one in now.results(last)]
    assert prune(after, night=last, keep=keep) == 0
    assert rows(after) == once
    newer = Versions(auditor="2", catalogue="newer")  # starts from the stored snapshots
    for versions in (Versions(left[last].auditor, left[last].catalogue), newer):
        todo = [next_night(path, planned, versions) for path in (before, after)]
        assert todo[0] == todo[1]


KEYS = {
    "outcomes": "SELECT model, commit_sha, auditor, catalogue FROM outcomes",
    "snapshots": "SELECT model, commit_sha FROM snapshots",
    "listings": "SELECT model, commit_sha FROM listings",
    "commits": "SELECT model, commit_sha FROM commits",
}


def assert_nothing_unneeded(path):
    """Each row belongs to a night that is left, and what rows share is there once."""
    with closing(sqlite3.connect(path)) as database:
        planned = database.execute(
            "SELECT model, commit_sha, auditor, catalogue"
            " FROM planned JOIN plans USING (plan) JOIN nights USING (night)"
        ).fetchall()
        found = {name: {*database.execute(query)} for name, query in KEYS.items()}
        failures = {night for (night,) in database.execute("SELECT night FROM failures")}
    assert found["outcomes"] <= {*planned}
    for table in ("snapshots", "listings", "commits"):
        assert found[table] <= {row[:2] for row in planned}
    assert failures <= {*nights(path)}
    kept_rows = contents(path)
    shared = {row["shared"] for name in ("outcomes", "snapshots") for row in kept_rows[name]}
    assert shared == {row["digest"] for row in kept_rows["contents"]}


# --- by hand ------------------------------------------------------------------------------------


def test_one_that_is_killed_in_the_middle_has_dropped_nothing(tmp_path):
    path = store_of(tmp_path / "s.sqlite", {"n1": [plain("o/a")], "n2": [plain("o/b")]})
    before = rows(path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)  # noqa: S603 - ours
    assert done.returncode == -signal.SIGKILL
    assert rows(path) == before
    assert prune(path, night="n2", keep=1) == 1
    assert [model for model, *_ in rows(path)["outcomes"]] == ["o/b"]


KILLED = """
import os, signal, sys
from pathlib import Path
from auditor.sweep.store import ledger
def kill(statement):
    if "DELETE FROM contents" in statement:
        os.kill(os.getpid(), signal.SIGKILL)
with ledger.StoreWriter.open(Path(sys.argv[1])) as pruner:
    pruner._database.set_trace_callback(kill)
    pruner.prune("n2", 1)
"""


def test_what_another_sweep_has_selected_meanwhile_stays_for_it(tmp_path):
    path, both = tmp_path / "s.sqlite", {}
    for name in ("o/a", "o/b"):
        both[name] = (COMMITS[0], "audited", name, name)
    with StoreWriter.open(path) as pruner, StoreWriter.open(path) as other:
        sweep(pruner, "n1", NEW, both, "finished")
        sweep(other, "n2", NEW, {"o/a": both["o/a"]}, "selecting")
        sweep(pruner, "n3", NEW, {"o/b": both["o/b"]}, "finished")
        assert pruner.prune("n3", 1) == 1
        sweep(other, "n4", NEW, {}, "finished")
        assert other.freeze("n2", 2).plan == 2
        assert [(one.model, one.verdict) for one in other.results("n2")] == [("o/a", "clean")]


def test_what_a_failure_alone_shared_goes_with_it(tmp_path):
    path, failed = tmp_path / "s.sqlite", recorded(unaudited("o/a", "timed-out"))
    night = {"o/a": (COMMITS[0], "waiting", "", "")}
    with StoreWriter.open(path) as pruner:
        for name in ("n1", "n2"):
            sweep(pruner, name, NEW, night, "finished")
            part = failed._replace(stored_outcome=kept(name, model="o/a"))
            pruner.record(pruner.night(name), "o/a", COMMITS[0], part)
        assert pruner.prune("n2", 1) == 1
        assert pruner.result("n2", "o/a").outcome == {"part": "n2", "model": "o/a"}
    assert len(contents(path)["contents"]) == 1


# --- whole nights -------------------------------------------------------------------------------


def keeping(settings, keep):
    made = settings(OURS)
    return replace(made, output=replace(made.output, keep=keep))


@pytest.mark.parametrize("keep", [2])
def test_an_unchanged_night_after_nights_were_dropped_makes_no_request_for_a_model(
    keep, at_hub, settings
):
    for name, files, _ in planted(12):
        at_hub.add(name, files)
    ours = keeping(settings, keep)
    dropped = []
    for number in range(1, 5):
        at_hub.push("sweep/m00003", healthy(number))
        dropped.append(runner.sweep(ours, night=f"n{number}").dropped)
    assert sum(dropped) == 4 - keep
    at_hub.reset_log()
    swept = runner.sweep(ours, night="n5")
    assert {record.path for record in at_hub.log} == {"/api/models"}
    assert (swept.models, swept.audited, swept.dropped) == (12, 0, 1)
    kept_rows = contents(ours.output.store)
    assert len(kept_rows["nights"]) == keep
    assert len(kept_rows["outcomes"]) == len(kept_rows["snapshots"]) == 12

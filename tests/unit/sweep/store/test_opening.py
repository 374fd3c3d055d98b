"""A store of an earlier version is taken over where it lies, whole or not at all."""

import json
import signal
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from support.nightly_stores import COMMIT, VERSIONS, finding, plain, recorded, unaudited

from auditor.errors import StoreError
from auditor.sweep.store.ledger import FoundModel, StoreWriter
from auditor.sweep.store.opening import reworded
from auditor.sweep.store.packing import Kept, Shared, compress_text, decompress_text, digest_of
from auditor.sweep.store.reading import Planned, Store, Versions
from auditor.sweep.store.schema import VERSION

STORES = Path(__file__).parents[3] / "data" / "sweep"
SQL = (STORES / "store-1.sql").read_text()
A, B = finding("missing", "a"), finding("unexpected", "b")
PARTS = [
    plain("o/pipe", B, component="unet"),
    unaudited("o/pipe", "unknown-architecture", component="vae"),
]
OUTCOMES = (
    plain("o/clean"),
    plain("o/found", A),
    plain("o/pipe", parts=PARTS, residual=None, verdict="findings"),
    unaudited("o/shut"),
)
FAILURE = unaudited("o/late", "timed-out")
SNAPSHOT = b'{"format":"hf-audit-snapshot"}'


def fill(database):
    """A finished night of the outcomes and the failure, as version 1 wrote them."""
    times = ("2026-11-20T02:00:00+00:00", "2026-11-20T02:09:00+00:00")
    versions = (VERSIONS.auditor, VERSIONS.catalogue)
    database.execute("INSERT INTO nights VALUES ('n1', 'all', 1, ?, ?, ?, ?)", (*versions, *times))
    database.execute("INSERT INTO plans VALUES (1, 'n1')")
    for outcome in (*OUTCOMES, FAILURE):
        name = outcome["model"]
        database.execute("INSERT INTO planned VALUES (1, ?, ?, ?)", (name, COMMIT, name))
        text = json.dumps(outcome, separators=(",", ":")).encode()
        numbers = recorded(outcome).summary._asdict()
        del numbers["blind"]
        given = {**numbers, "recorded": times[1], "content": zlib.compress(text, 1)}
        table, key = "outcomes", dict(zip(("auditor", "catalogue"), versions, strict=True))
        if outcome is FAILURE:
            table, key = "failures", {"night": "n1", "passing": 1}
        row = {"model": name, "commit_sha": COMMIT, **key, **given}
        marks = ", ".join("?" for _ in row)
        into = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"  # noqa: S608 - ours
        database.execute(into, [*row.values()])
    database.execute(
        "INSERT INTO snapshots VALUES ('o/clean', ?, ?)", (COMMIT, zlib.compress(SNAPSHOT, 1))
    )


@pytest.fixture
def earlier(tmp_path):
    path = tmp_path / "sweep.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SQL)
        fill(database)
        database.commit()
    return path


def shown(path):
    with Store.open(path) as store:
        return [one.outcome for one in store.results("n1")]


def version(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def columns(path):
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        return {
            name: sorted(row[1:4] for row in database.execute(f"PRAGMA table_info({name})"))
            for name in names
        }


def test_outcomes_and_failures_are_the_same_in_a_store_that_was_taken_over(earlier):
    assert shown(earlier) == sorted((*OUTCOMES, FAILURE), key=lambda one: one["model"])
    assert version(earlier) == VERSION
    assert shown(earlier) == sorted((*OUTCOMES, FAILURE), key=lambda one: one["model"])


def test_a_store_that_was_taken_over_has_the_tables_of_a_new_one(earlier, tmp_path):
    Store.open(earlier).__exit__()
    Store.open(tmp_path / "new.sqlite", create=True).__exit__()
    assert columns(earlier) == columns(tmp_path / "new.sqlite")


def test_its_snapshots_are_handed_out_whole_to_a_new_version(earlier):
    with StoreWriter.open(earlier) as ledger:
        night = ledger.begin("n2", "all", Versions(auditor="2", catalogue="b"))
        plan = ledger.new_plan("n2")
        ledger.add(night, plan, [FoundModel(Planned("o/clean", COMMIT, "o/clean"))])
        ledger.freeze("n2", plan)
        (waiting,) = ledger.waiting(ledger.known("n2"))
    assert (decompress_text(waiting.snapshot), waiting.shared) == (SNAPSHOT, None)


def test_its_components_that_are_not_audited_count_from_then_on(earlier):
    with StoreWriter.open(earlier) as ledger:
        alarms = ledger.alarms("n1")
    assert (alarms.errors, alarms.warnings, alarms.unaudited) == (1, 1, 2)
    assert (alarms.blind_errors, alarms.blind_warnings) == (0, 1)


def test_it_goes_on_with_rows_that_share(earlier):
    rest = b'{"verdict":"clean","model":null}'
    shared = Shared(digest_of(rest), compress_text(rest))
    with StoreWriter.open(earlier) as ledger:
        record = recorded(FAILURE)._replace(kept=Kept(compress_text(b'{"model":"o/late"}'), shared))
        ledger.record(ledger.known("n1"), "o/late", COMMIT, record)
        assert ledger.result("n1", "o/late").outcome == {"verdict": "clean", "model": "o/late"}
        assert ledger.result("n1", "o/found").outcome == OUTCOMES[1]


KILLED = """
import os, signal, sys
from pathlib import Path
from auditor.sweep.store import opening
from auditor.sweep.store.reading import Store
opening._blind_parts = lambda _content: os.kill(os.getpid(), signal.SIGKILL)
Store.open(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_one_that_is_killed_while_it_is_taken_over_is_of_version_1_as_before(earlier):
    before = columns(earlier)
    done = subprocess.run([sys.executable, "-c", KILLED, str(earlier)], check=False)  # noqa: S603 - ours
    assert done.returncode == -signal.SIGKILL
    assert (version(earlier), columns(earlier)) == (1, before)
    assert shown(earlier) == sorted((*OUTCOMES, FAILURE), key=lambda one: one["model"])


def test_one_with_a_damaged_outcome_is_taken_over_with_the_damage(earlier):
    with closing(sqlite3.connect(earlier)) as database:
        database.execute("UPDATE outcomes SET content = x'00' WHERE model = 'o/found'")
        database.commit()
    with Store.open(earlier) as store:
        assert store.result("n1", "o/pipe").outcome == OUTCOMES[2]
        with pytest.raises(zlib.error, match="incomplete or truncated"):
            _ = store.result("n1", "o/found").outcome


def test_one_that_lacks_a_table_is_said_in_one_line_and_left_as_it_is(earlier):
    with closing(sqlite3.connect(earlier)) as database:
        database.execute("DROP TABLE failures")
        database.commit()
    with pytest.raises(StoreError, match=r"'.*sweep.sqlite' is damaged: no such table"):
        Store.open(earlier)
    assert version(earlier) == 1


# --- words ------------------------------------------------------------------------------------

# The words that version 2 has for kinds of findings, and those of version 3.
KINDS = {
    "mis-shaped": "mismatched",
    "new": "newly-initialized",
    "absent": "missing-component",
    "bookkeeping": "quantization-data",
    "bad-layout": "bad-quantization",
    "twin": "copy-differs",
    "beside": "other-weights",
    "disputed": "formula-disputed",
    "missing": "missing",
    "unused": "unused",
}
STATUSES = ("new", "mis-shaped", "bookkeeping", "equal")


def in_words(by, word):
    """An outcome whose words are `word(...)` of those of version 2."""
    names = ['"kind":"new"', '{"from":null}']  # as a stranger may have them
    return {
        **plain("o/found"),
        "expected": {by: "closed-form", "parameters": 12},
        "observed": {"weights": [{"dtype": "F32"}, {"dtype": word("bookkeeping")}]},
        "modules": [{"prefix": "new", "status": word(status)} for status in STATUSES],
        "findings": [
            {**finding(), "kind": word(kind), "names": names, "reason": "new"} for kind in KINDS
        ],
        "parts": [{**plain("o/found", component="vae"), "expected": {by: None}}],
    }


BEFORE, AFTER = in_words("from", str), in_words("by", lambda word: KINDS.get(word, word))
COMPONENT = '{{"config": null, "heads": [], "name": "vae", "{}": [], "unopened": []}}'
HEADER = '"header": "{\\"twins\\": [], \\"kind\\": \\"new\\"}"'
SNAPSHOTS = [
    f'{{"heads": [{{{HEADER}}}], "{name}": [], "components": [{COMPONENT.format(name)}]}}'.encode()
    for name in ("twins", "torch_copies")
]


@pytest.fixture
def second(tmp_path):
    """A store of version 2: an outcome and a snapshot, each in part and as a whole."""
    path = tmp_path / "second.sqlite"
    texts = [json.dumps(BEFORE, separators=(",", ":")).encode(), SNAPSHOTS[0]]
    with closing(sqlite3.connect(path)) as database:
        database.executescript((STORES / "store-2.sql").read_text())
        database.execute("INSERT INTO nights VALUES ('n1', 'all', 1, '1', 'a', 'then', 'then')")
        database.execute("INSERT INTO plans VALUES (1, 'n1')")
        for text in texts:
            database.execute(
                "INSERT INTO contents VALUES (?, ?)", (digest_of(text), compress_text(text))
            )
        numbers = recorded(plain("o/found")).summary._asdict()
        for name in ("o/part", "o/whole"):
            own, rest = [
                (compress_text(b"{}"), digest_of(text))
                if name == "o/part"
                else (compress_text(text), None)
                for text in texts
            ]
            database.execute("INSERT INTO planned VALUES (1, ?, ?, ?)", (name, COMMIT, name))
            row = {"model": name, "commit_sha": COMMIT, "auditor": "1", "catalogue": "a", **numbers}
            row |= {"recorded": "then", "content": own[0], "shared": own[1]}
            marks = ", ".join("?" for _ in row)
            into = f"INSERT INTO outcomes ({', '.join(row)}) VALUES ({marks})"  # noqa: S608 - ours
            database.execute(into, [*row.values()])
            database.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", (name, COMMIT, *rest))
        database.commit()
    return path


def test_outcomes_of_version_2_have_the_words_of_version_3(second):
    assert BEFORE != AFTER
    assert shown(second) == [AFTER, AFTER]
    assert version(second) == VERSION
    assert shown(second) == [AFTER, AFTER]


def test_snapshots_of_version_2_have_the_keys_of_version_3(second):
    with StoreWriter.open(second) as ledger:
        night = ledger.begin("n2", "all", Versions(auditor="2", catalogue="b"))
        plan = ledger.new_plan("n2")
        names = ("o/part", "o/whole")
        found = [FoundModel(Planned(name, COMMIT, name)) for name in names]
        ledger.add(night, plan, found)
        ledger.freeze("n2", plan)
        part, whole = ledger.waiting(ledger.known("n2"))
    assert (decompress_text(part.snapshot), decompress_text(part.shared)) == (b"{}", SNAPSHOTS[1])
    assert (decompress_text(whole.snapshot), whole.shared) == (SNAPSHOTS[1], None)


def test_a_store_of_version_2_that_was_taken_over_has_the_tables_of_a_new_one(second, tmp_path):
    Store.open(second).__exit__()
    Store.open(tmp_path / "new.sqlite", create=True).__exit__()
    assert columns(second) == columns(tmp_path / "new.sqlite")


@pytest.mark.parametrize("content", [b"", b"x", compress_text(b"{}")[:-3]])
def test_what_is_damaged_stays_as_it_is(content):
    assert reworded(content) == content

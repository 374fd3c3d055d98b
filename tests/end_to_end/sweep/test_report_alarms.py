"""What of a night's report alarms, and what a baseline accepts of it."""

import sqlite3
from contextlib import closing
from datetime import date

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.nightly_stores import (
    SECOND,
    THIRD,
    A,
    B,
    baseline,
    plain,
    store_of,
    table,
    unaudited,
    written,
)


def half(name, *findings):
    """A pipeline of which one component has these findings, and one could not be audited."""
    parts = [
        plain(name, *findings, component="unet"),
        unaudited(name, "unknown-architecture", component="vae"),
    ]
    return plain(name, parts=parts, residual=None, verdict="findings")


def test_a_component_that_is_not_audited_alarms_once_its_findings_are_accepted(tmp_path):
    known = {"model": "o/*", "reason": "known"}
    found, unseen = {"kind": "unexpected", **known}, {"kind": "unknown-architecture", **known}
    nights = {THIRD: [half("o/a", B)]}
    assert written(tmp_path, nights)[0].alarms == (0, 1, 0, 0, 0, 1)
    half_way, _ = written(tmp_path, nights, baseline=baseline(tmp_path, found))
    assert half_way.alarms == (0, 0, 1, 0, 0, 0)
    assert half_way.summary["states"]["unaudited"] == 1
    report, _ = written(tmp_path, nights, baseline=baseline(tmp_path, found, unseen))
    assert report.alarms == (0, 0, 0, 0, 0, 0)
    assert report.summary["states"]["accepted"] == 1


def test_findings_of_files_alarm_though_the_model_is_not_audited(tmp_path):
    """And once it is accepted, it alarms that they are not."""
    known = {"model": "o/*", "reason": "known"}
    found, unseen = {"kind": "missing", **known}, {"kind": "unknown-architecture", **known}
    nights = {THIRD: [unaudited("o/a", "unknown-architecture", findings=[A])]}
    report, folder = written(tmp_path, nights)
    assert report.alarms == (1, 0, 0, 0, 1, 0)
    assert report.summary["states"]["new"] == 1
    assert [row["change"] for row in table(folder / "changes.csv")] == ["new"]
    half_way, _ = written(tmp_path, nights, baseline=baseline(tmp_path, found))
    assert half_way.alarms == (0, 0, 1, 0, 0, 0)
    report, _ = written(tmp_path, nights, baseline=baseline(tmp_path, found, unseen))
    assert report.alarms == (0, 0, 0, 0, 0, 0)


def test_what_the_baseline_accepts_does_not_alarm(tmp_path):
    known = {"model": "o/*", "reason": "known"}
    accepts = baseline(tmp_path, {"kind": "missing", **known}, {"kind": "gated", **known})
    nights = {THIRD: [plain("o/a", A), unaudited("o/b")]}
    assert written(tmp_path, nights)[0].alarms == (1, 0, 1, 0, 0, 0)
    report, folder = written(tmp_path, nights, baseline=accepts)
    assert report.alarms == (0, 0, 0, 0, 0, 0)
    counts = {"entries": 2, "accepted": 1, "excused": 1, "notes": []}
    assert report.summary["baseline"].items() >= counts.items()
    assert [row["accepted"] for row in table(folder / "changes.csv")] == ["known"]


def test_an_entry_expires_by_the_nights_own_date(tmp_path):
    entry = {"kind": "missing", "model": "*", "reason": "known", "expires": SECOND}
    nights = {SECOND: [plain("o/a", A)], THIRD: [plain("o/a", A)]}
    accepts = baseline(tmp_path, entry)
    assert written(tmp_path, nights, night=SECOND, baseline=accepts)[0].alarms.errors == 0
    late, _ = written(tmp_path, nights, night=THIRD, baseline=accepts)
    assert late.alarms.errors == 1
    [note] = late.summary["baseline"]["notes"]
    assert note.startswith(f"expired on {SECOND}: missing of '*'")


def test_a_residual_alarms_whatever_is_accepted(tmp_path):
    entry = {"kind": "missing", "model": "*", "reason": "known"}
    nights = {THIRD: [plain("o/a", A, residual=3)]}
    report, _ = written(tmp_path, nights, baseline=baseline(tmp_path, entry))
    assert report.alarms.errors == 1


@examples(15)  # each makes a store
@given(
    outcomes=st.lists(
        st.sampled_from(
            [
                plain,
                lambda name: plain(name, A),
                lambda name: plain(name, B),
                lambda name: plain(name, A, B),
                lambda name: plain(name, residual=1),
                unaudited,
                lambda name: unaudited(name, "bad-request"),
                lambda name: unaudited(name, "unknown-architecture", findings=[A]),
                lambda name: unaudited(name, "unknown-architecture", findings=[B]),
                half,
                lambda name: half(name, A),
                lambda name: half(name, B),
                lambda name: plain(name, verdict=None),
            ]
        ),
        max_size=6,
    )
)
def test_without_a_baseline_a_report_alarms_as_the_sweep_did(outcomes, tmp_path_factory):
    from auditor.sweep.store.ledger import StoreWriter  # noqa: PLC0415 - the other side, for this law alone

    tmp_path = tmp_path_factory.mktemp("law")
    made = [make(f"o/{number}") for number, make in enumerate(outcomes)]
    report, _ = written(tmp_path, {THIRD: made})
    with StoreWriter.open(tmp_path / "sweep.sqlite") as ledger:
        assert report.alarms == ledger.alarms(THIRD)


def test_a_name_that_is_no_date_expires_by_when_the_night_started(tmp_path):
    store = store_of(tmp_path / "sweep.sqlite", {"n1": [plain("o/a", A)]})
    with closing(sqlite3.connect(store)) as database:
        database.execute("UPDATE nights SET started = '2026-11-20T23:00:00+00:00'")
        database.commit()
    entry = {"kind": "missing", "model": "*", "reason": "r", "expires": str(date(2026, 11, 19))}
    report, _ = written(tmp_path, {}, baseline=baseline(tmp_path, entry))
    assert report.alarms.errors == 1

"""From a sweep to its reports: what is planted on the Hub is what the reviewer reads."""

import csv

from support.sweep_models import FAULTS, healthy, planted

from auditor.sweep import runner
from auditor.sweep.reporting.night import Wanted, write_night
from auditor.sweep.settings import ModelSelection

OURS = ModelSelection(author="sweep")


def alarming(folder, table):
    """(change, model, kind) of what alarms."""
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["severity"] in {"error", "warning"}]
    return [(row.get("change"), row["model"], row["kind"]) for row in rows]


def test_planted_faults_are_reported_then_what_changed_of_them(at_hub, settings, tmp_path):
    faults = {}
    for name, files, fault in planted(80):
        at_hub.add(name, files)
        faults[name] = fault
    expected = [(None, name, fault) for name, fault in faults.items() if fault]
    night = settings(OURS)
    runner.sweep(night, night="2026-11-20")
    wanted = Wanted(folder=tmp_path / "first")
    write_night(night.output.store, wanted=wanted)
    assert len(expected) == 8
    assert alarming(tmp_path / "first", "findings") == expected

    mended, broken = "sweep/m00003", "sweep/m00004"
    at_hub.push(mended, healthy(3))
    at_hub.push(broken, FAULTS["unexpected"](4))
    runner.sweep(night, night="2026-11-21")
    report = write_night(night.output.store, wanted=Wanted(folder=tmp_path / "second"))
    changed = alarming(tmp_path / "second", "changes")
    assert changed == [
        ("fixed", mended, faults[mended]),
        ("new", broken, "unexpected"),
    ]
    known = [row for row in alarming(tmp_path / "second", "open") if row[2]]  # causes have no kind
    assert {change for change, *_ in known} == {"still-open"}
    assert len(changed) + len(known) == len(expected) + 1
    assert report.summary["changes"]["commit"] == 2

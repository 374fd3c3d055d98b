"""Stores of made-up nights, given as reports or as their JSON objects; and what is told of them."""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from auditor.formats import as_json
from auditor.report import Report, Unaudited
from auditor.sweep.reporting.night import Wanted, write_night
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import Recorded, SelectedModel, Versions
from auditor.sweep.store.schema import StoredNight, StoredObject, compress_text

Outcome = Mapping[str, Any]
VERSIONS = Versions(auditor="1.0", catalogue="abc")
COMMIT = "a" * 40
TIMES = ("started", "finished")


def outcome_of(example: Report | Unaudited, **changes: Any) -> dict[str, Any]:
    """The JSON object of an outcome."""
    return {**json.loads(as_json.render(example)), **changes}


def finding(kind: str = "unexpected", *folded: str, **changes: Any) -> dict[str, Any]:
    """A finding of an outcome, the smallest that there is."""
    severities = {"missing": "error", "unexpected": "warning", "renamed": "info"}
    return {
        "kind": kind,
        "severity": severities[kind],
        "names": list(folded),
        "folded": list(folded),
        "count": len(folded),
        "parameters": 6,
        "reason": f"{kind} for a reason",
        "explains": 0,
        **changes,
    }


def plain(model: str, *findings: Outcome, commit: str = COMMIT, **changes: Any) -> dict[str, Any]:
    """An audited model with these findings, and little else."""
    alarming = any(one["severity"] != "info" for one in findings)
    return {
        "schema": 1,
        "requested": model,
        "model": model,
        "commit": commit,
        "expected": {"by": "closed-form", "parameters": 12},
        "observed": {"files": 1, "bytes": 48, "tensors": 2, "elements": 12, "parameters": 12},
        "modules": [],
        "findings": list(findings),
        "residual": 0,
        "verdict": "findings" if alarming else "clean",
        "fetched": {"requests": 2, "bytes": 100, "seconds": 0.1},
        **changes,
    }


def unaudited(model: str, reason: str = "gated", **changes: Any) -> dict[str, Any]:
    known = {"expected": None, "observed": None, "residual": None, "findings": []}
    said = {"verdict": "unaudited", "reason": reason, "detail": f"{model} is {reason}"}
    return plain(model, **{**known, **said, **changes})


def store_of(
    path: Path,
    nights: Mapping[str, Iterable[Outcome]],
    *,
    pushed: str | None = None,
    authors: str | None = None,
) -> Path:
    """A store of finished nights; an outcome of verdict None is planned, and not audited."""
    with StoreWriter.open(path) as ledger:
        for name, outcomes in nights.items():
            _night(ledger, name, outcomes, pushed)
            for result in ledger.results(name) if authors else ():
                ledger.record_authors(result.model, result.commit_sha, authors)
        for column in TIMES:  # so that two stores of the same outcomes are the same
            ledger._database.execute(f"UPDATE nights SET {column} = '2026-11-21T02:03:04+00:00'")  # noqa: S608, SLF001 - ours
    return path


def _night(ledger: StoreWriter, name: str, outcomes: Iterable[Outcome], pushed: str | None) -> None:
    night = ledger.begin(name, '[{"author": "o"}]', VERSIONS)
    plan = ledger.new_plan(name)
    ledger.freeze(name, plan)
    night = ledger.night(name)
    for outcome in outcomes:
        key = (outcome["model"] or outcome["requested"], outcome["commit"] or "")
        ledger.add(night, plan, [SelectedModel(*key, outcome["requested"], pushed=pushed)])
        if outcome["verdict"] is None:
            continue
        ledger.record(night, *key, recorded(outcome))
    ledger.finish(night)


def recorded(outcome: Outcome) -> Recorded:
    """What a sweep would keep of it."""
    parts = outcome.get("parts", ())
    severities = [one["severity"] for each in (outcome, *parts) for one in each["findings"]]
    observed = outcome["observed"] or {}
    known = StoredNight(
        verdict=outcome["verdict"],
        reason=outcome.get("reason"),
        errors=severities.count("error"),
        warnings=severities.count("warning"),
        blind=sum(part["verdict"] == "unaudited" for part in parts),
        residual=outcome["residual"],
        tensors=observed.get("tensors"),
    )
    return Recorded(known, StoredObject(compress_text(json.dumps(outcome).encode())))


# --- their reports ----------------------------------------------------------------------------

FIRST, SECOND, THIRD = "2026-11-19", "2026-11-20", "2026-11-21"
A, B = finding("missing", "a.weight"), finding("unexpected", "b.{0-3}")


def written(tmp_path, nights, *, night=None, **wanted):
    """The reports of a store of these nights, and the folder they are in."""
    store = tmp_path / "sweep.sqlite"
    if not store.exists():
        store_of(store, nights)
    folder = tmp_path / "out"
    return write_night(store, night=night, wanted=Wanted(folder=folder, **wanted)), folder


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def baseline(tmp_path, *entries):
    """A file that accepts these."""
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"accept": list(entries)}))
    return path

"""--format sarif: errors and warnings of single audits, for pages of code-scanning results."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditor.formats.as_json import as_object
from auditor.formats.finding_identity import identity
from auditor.formats.sarif_parts import (
    SARIF_SCHEMA,
    SARIF_VERSION,
    finding_fingerprint,
    message,
    place_of,
    rules,
    said_of,
)
from auditor.formats.view import View
from auditor.report import Report, Unaudited
from auditor.version import VERSION

_IGNORED = {"kind": "external", "status": "accepted", "justification": "left out by --ignore"}


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """One log with one run; what --ignore leaves out is there, and suppressed."""
    driver = {"name": "hf-audit", "version": VERSION, "rules": rules()}
    results = [result for outcome in outcomes for result in _results(outcome)]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "audit/"},
        "results": results,
    }
    if sampled := [one for outcome in outcomes for one in _sampled(outcome)]:
        run["properties"] = {"sampled": sampled}
    log = {"$schema": SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return {"report.sarif": json.dumps(log, indent=1) + "\n"}


def _sampled(outcome: Report | Unaudited) -> Iterator[Mapping[str, Any]]:
    """How much of the numbers was seen, where that is a sample."""
    for one in outcome.every:
        if one.values and one.values.sampled:
            yield {
                "model": outcome.model or outcome.requested,
                "component": one.component,
                "bytes": one.values.bytes,
                "of": one.values.of,
                "tensors": len(one.values.tensors),
                "of_tensors": one.values.of_tensors,
            }


def _results(outcome: Report | Unaudited) -> Iterator[Mapping[str, Any]]:
    model = outcome.model or outcome.requested
    seen: Counter[tuple[str, ...]] = Counter()
    for one in (as_object(each) for each in outcome.every):
        both = [(finding, False) for finding in one["findings"]]
        both += [(finding, True) for finding in one["ignored"]]
        for at, (found, ignored) in enumerate(both):
            if found["severity"] == "info":
                continue
            finding = {**found, "component": one["component"]}
            explaining = () if ignored else one["diagnosis"]
            causes = [
                {"reason": each["summary"], "fix": each["fix"], "cause": each["cause"]}
                for each in explaining
                if at in each["findings"]
            ]
            key = identity(finding)
            yield {
                "ruleId": finding["kind"],
                "level": finding["severity"],
                "message": {"text": message(said_of(model, finding, causes))},
                "locations": [place_of(model, finding)],
                "partialFingerprints": {
                    "primaryLocationLineHash": finding_fingerprint(model, key, seen[key])
                },
                "suppressions": [_IGNORED] if ignored else [],
                "properties": {
                    "count": finding["count"],
                    "parameters": finding["parameters"],
                    "causes": [each["cause"] for each in causes],
                },
            }
            seen[key] += 1

"""--format sarif: errors and warnings for pages of code-scanning results, also of a night.

A finding's place is a path, `MODEL/FILE`, or the model's where no file is named; those pages tell
old results from new ones by the fingerprint, which is the finding's identity.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from auditor.formats import View
from auditor.formats.as_json import as_object
from auditor.formats.json_values import identity
from auditor.formats.meanings import kind_meanings
from auditor.formats.text import counted, printable
from auditor.reconciler.findings import Severity
from auditor.report import Report, Unaudited
from auditor.version import VERSION

SARIF_VERSION = "2.1.0"
SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_MOST_PATTERNS = 10  # of folded names in one result; findings.csv has them all
_MOST_SAID = 3  # of them in its message
_LONGEST = 1000  # characters of a message


def rules() -> list[Mapping[str, Any]]:
    """One for each kind that alarms: what it means, and what to do."""
    alarming = (kind for kind in kind_meanings() if kind.severity is not Severity.INFO)
    return [
        {
            "id": kind.name,
            "name": kind.name.title().replace("-", ""),
            "shortDescription": {"text": message(kind.said)},
            "fullDescription": {"text": message(f"{kind.said} {kind.details}".rstrip())},
            "help": {"text": message(f"To do: {kind.to_do}")},
            "defaultConfiguration": {"level": str(kind.severity)},
        }
        for kind in sorted(alarming, key=lambda kind: kind.name)
    ]


def finding_fingerprint(model: str, key: Sequence[str], nth: int) -> str:
    """The same for the same finding of the same model, whenever it is found."""
    digest = sha256("\0".join((model, *key)).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{digest[:32]}:{nth + 1}"


def said_of(model: str, finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong, with numbers and names, and why: `org/name: 2 names missing (a, b): ...`."""
    patterns = finding["folded"]
    shown = ", ".join(patterns[:_MOST_SAID])
    more = f" and {len(patterns) - _MOST_SAID:,} more" if len(patterns) > _MOST_SAID else ""
    count, parameters = finding["count"], finding["parameters"]
    names, learned = counted(count, "name"), f", {counted(parameters, 'parameter')}"
    what = f"{model}: {finding['kind']}, {names}{learned if parameters else ''}"
    why = "".join(f" Cause: {one['reason']}. Fix: {one['fix']}." for one in causes)
    return f"{what} ({shown}{more}): {finding['reason']}.{why}"


def message(text: str) -> str:
    """Plain text that stays it: brackets would make links, and braces stand for arguments."""
    shown = printable(text)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    for char, escaped in (("\\", r"\\"), ("[", r"\["), ("]", r"\]"), ("{", "{{"), ("}", "}}")):
        shown = shown.replace(char, escaped)
    return shown


def place_of(model: str, finding: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": "/".join(_segments(model, finding))},
            "region": {"startLine": 1},
        },
        "logicalLocations": [
            {"fullyQualifiedName": printable(pattern), "kind": "member"}
            for pattern in finding["folded"][:_MOST_PATTERNS]
        ],
    }


def _segments(model: str, finding: Mapping[str, Any]) -> Iterator[str]:
    """The parts of a relative path; none of them leads up or away, whatever a name holds."""
    place = finding.get("file") or finding.get("component") or ""
    for part in filter(None, f"{model}/{place}".split("/")):
        shown = quote(printable(part), safe="")
        yield shown if part.strip(".") else shown.replace(".", "%2E")


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

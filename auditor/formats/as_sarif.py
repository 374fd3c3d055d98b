"""--format sarif: errors and warnings for pages of code-scanning results, also of a night.

A finding's place is a path, `MODEL/FILE`, or the model's where no file is named; those pages tell
old results from new ones by the fingerprint, which is the finding's identity.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from auditor.findings import Severity
from auditor.formats import View
from auditor.formats.as_json import as_object
from auditor.formats.json_values import identity, json_text
from auditor.formats.meanings import kind_meanings
from auditor.formats.text import counted
from auditor.messages import printable
from auditor.report import Report, Unaudited
from auditor.version import VERSION

_VERSION = "2.1.0"
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_MOST_PATTERNS = 10  # of folded names in one result; findings.csv has them all
_MOST_SAID = 3  # of them in its message
_LONGEST = 1000  # characters of a message


def _rules() -> list[Mapping[str, Any]]:
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


def _said(model: str, finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """Say what is wrong, with numbers and names: `org/name: 2 names missing (a, b): ...`."""
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


def _place(model: str, finding: Mapping[str, Any]) -> Mapping[str, Any]:
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


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """One log with one run; what --ignore leaves out is there, and suppressed."""
    results = [result for outcome in outcomes for result in _results(outcome)]
    run: dict[str, Any] = {"automationDetails": {"id": "audit/"}, "results": results}
    if sampled := [one for outcome in outcomes for one in _sampled(outcome)]:
        run["properties"] = {"sampled": sampled}
    return {"report.sarif": json_text(log_of(run, VERSION), indent=1) + "\n"}


def log_of(run: Mapping[str, Any], version: str, **driver: Any) -> Mapping[str, Any]:
    """The log of one run by a version of the auditor; `driver` says more of that."""
    tool = {"driver": {"name": "hf-audit", "version": version, "rules": _rules(), **driver}}
    return {"$schema": _SCHEMA, "version": _VERSION, "runs": [{"tool": tool, **run}]}


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
                {"kind": each["cause"], "reason": each["summary"], "fix": each["fix"]}
                for each in explaining
                if at in each["findings"]
            ]
            why = "left out by --ignore" if ignored else None
            yield result_of(model, finding, causes, seen=seen, suppressed=why)


def result_of(  # noqa: PLR0913 - what a result is made of
    model: str,
    finding: Mapping[str, Any],
    causes: Sequence[Mapping[str, Any]],
    *,
    seen: Counter[tuple[str, ...]],
    suppressed: str | None,
    state: str | None = None,
) -> Mapping[str, Any]:
    """One finding with its component; causes are in the form of findings, and have a fix.

    `seen` counts the model's findings by identity; `state` is what a run before makes it.
    """
    key = identity(finding)  # so that the fingerprint is the same whenever it is found
    seen[key] += 1
    digest = sha256("\0".join((model, *key)).encode("utf-8", "backslashreplace")).hexdigest()
    accepted = {"kind": "external", "status": "accepted"}
    return {
        "ruleId": finding["kind"],
        "level": finding["severity"],
        "message": {"text": message(_said(model, finding, causes))},
        "locations": [_place(model, finding)],
        "partialFingerprints": {"primaryLocationLineHash": f"{digest[:32]}:{seen[key]}"},
        **({"baselineState": state} if state else {}),
        "suppressions": (
            [] if suppressed is None else [{**accepted, "justification": printable(suppressed)}]
        ),
        "properties": {
            "count": finding["count"],
            "parameters": finding["parameters"],
            "causes": [cause["kind"] for cause in causes],
        },
    }

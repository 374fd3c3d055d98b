"""--format sarif: errors and warnings of audits or of a sweep, for code-scanning pages.

The location of a finding is a path: `MODEL/FILE`, or `MODEL` if no file is named. The pages
recognise a known result by its fingerprint, which is the finding's identity.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from auditor.findings import Severity
from auditor.formats import View
from auditor.formats.as_json import document_of
from auditor.formats.document import ListedFinding, listed_causes, listed_findings
from auditor.formats.json_values import json_text
from auditor.formats.meanings import kind_meanings
from auditor.formats.text import counted
from auditor.messages import printable
from auditor.report import Report, Unaudited
from auditor.version import VERSION

_VERSION = "2.1.0"
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_MOST_PATTERNS = 10  # folded names in one result; findings.csv has all
_MOST_IN_MESSAGE = 3  # folded names in a message
_LONGEST = 1000  # characters of a message


def _rules() -> list[Mapping[str, Any]]:
    """Return a rule for each kind of error or warning: its meaning, and what to do."""
    alarming = (kind for kind in kind_meanings() if kind.severity is not Severity.INFO)
    return [
        {
            "id": kind.name,
            "name": kind.name.title().replace("-", ""),
            "shortDescription": {"text": message(kind.summary)},
            "fullDescription": {"text": message(f"{kind.summary} {kind.details}".rstrip())},
            "help": {"text": message(f"To do: {kind.to_do}")},
            "defaultConfiguration": {"level": str(kind.severity)},
        }
        for kind in sorted(alarming, key=lambda kind: kind.name)
    ]


def _sentence(model: str, finding: ListedFinding, causes: Sequence[ListedFinding]) -> str:
    """Return a finding's message: `org/name: missing, 2 names, 8 parameters (a, b): ...`."""
    shown = ", ".join(finding.folded[:_MOST_IN_MESSAGE])
    left = len(finding.folded) - _MOST_IN_MESSAGE
    more = f" and {left:,} more" if left > 0 else ""
    counts = counted(finding.count, "name")
    if finding.parameters:
        counts += f", {counted(finding.parameters, 'parameter')}"
    why = "".join(f" Cause: {cause.reason}. Fix: {cause.fix}." for cause in causes)
    return f"{model}: {finding.kind}, {counts} ({shown}{more}): {finding.reason}.{why}"


def message(text: str) -> str:
    """Escape a text for SARIF, in which brackets make links and braces stand for arguments."""
    shown = printable(text)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    for char, escaped in (("\\", r"\\"), ("[", r"\["), ("]", r"\]"), ("{", "{{"), ("}", "}}")):
        shown = shown.replace(char, escaped)
    return shown


def _place(model: str, finding: ListedFinding) -> Mapping[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": "/".join(_segments(model, finding))},
            "region": {"startLine": 1},
        },
        "logicalLocations": [
            {"fullyQualifiedName": printable(pattern), "kind": "member"}
            for pattern in finding.folded[:_MOST_PATTERNS]
        ],
    }


def _segments(model: str, finding: ListedFinding) -> Iterator[str]:
    """Yield the segments of a finding's relative path.

    Names are escaped so that the path cannot lead to a parent folder or to another host.
    """
    place = finding.file or finding.component or ""
    for part in filter(None, f"{model}/{place}".split("/")):
        shown = quote(printable(part), safe="")
        yield shown if part.strip(".") else shown.replace(".", "%2E")


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one log with one run; findings that --ignore leaves out are suppressed results."""
    results = [result for outcome in outcomes for result in _results(outcome)]
    run: dict[str, Any] = {"automationDetails": {"id": "audit/"}, "results": results}
    if sampled := [part for outcome in outcomes for part in _sampled(outcome)]:
        run["properties"] = {"sampled": sampled}
    return {"report.sarif": json_text(log_of(run, VERSION), indent=1) + "\n"}


def log_of(run: Mapping[str, Any], version: str, **driver: Any) -> Mapping[str, Any]:
    """Return a SARIF log with one run; `driver` adds fields to the description of the tool."""
    tool = {"driver": {"name": "hf-audit", "version": version, "rules": _rules(), **driver}}
    return {"$schema": _SCHEMA, "version": _VERSION, "runs": [{"tool": tool, **run}]}


def _sampled(outcome: Report | Unaudited) -> Iterator[Mapping[str, Any]]:
    """Yield a notice for each component that was only sampled, with the amount that was read."""
    for part in outcome.every:
        if part.values and part.values.sampled:
            yield {
                "model": outcome.model or outcome.requested,
                "component": part.component,
                "bytes": part.values.bytes,
                "of": part.values.of,
                "tensors": len(part.values.tensors),
                "of_tensors": part.values.of_tensors,
            }


def _results(outcome: Report | Unaudited) -> Iterator[Mapping[str, Any]]:
    model = outcome.model or outcome.requested
    seen: Counter[tuple[str, ...]] = Counter()
    for part in document_of(outcome).every:
        causes = listed_causes(part)
        for ignored in (False, True):
            for finding in listed_findings(part, ignored=ignored):
                if finding.severity is not Severity.INFO:
                    yield result_of(
                        model,
                        finding,
                        [cause for cause in causes if cause.kind in finding.causes],
                        seen=seen,
                        suppressed="left out by --ignore" if ignored else None,
                    )


def result_of(  # noqa: PLR0913 - the parts of a result
    model: str,
    finding: ListedFinding,
    causes: Sequence[ListedFinding],
    *,
    seen: Counter[tuple[str, ...]],
    suppressed: str | None,
    state: str | None = None,
) -> Mapping[str, Any]:
    """Return the SARIF result of a finding.

    `seen` counts the findings of the model so far, keyed by identity. `suppressed` is the reason
    why the finding is suppressed, or None. `state` is the finding's SARIF baselineState, such as
    `new`, compared with an earlier run.
    """
    key = finding.identity
    seen[key] += 1
    digest = sha256("\0".join((model, *key)).encode("utf-8", "backslashreplace")).hexdigest()
    accepted = {"kind": "external", "status": "accepted"}
    return {
        "ruleId": finding.kind,
        "level": finding.severity,
        "message": {"text": message(_sentence(model, finding, causes))},
        "locations": [_place(model, finding)],
        "partialFingerprints": {"primaryLocationLineHash": f"{digest[:32]}:{seen[key]}"},
        **({"baselineState": state} if state else {}),
        "suppressions": (
            [] if suppressed is None else [{**accepted, "justification": printable(suppressed)}]
        ),
        "properties": {
            "count": finding.count,
            "parameters": finding.parameters,
            "causes": [cause.kind for cause in causes],
        },
    }

"""What results and rules of SARIF 2.1.0 are made of, for a single audit and for a night.

A finding's place is a path, `MODEL/FILE`, or the model's where no file is named; code-scanning
pages tell old results from new ones by the fingerprint, which is the finding's identity.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from auditor.formats.meanings import kind_meanings
from auditor.formats.text import counted, printable
from auditor.reconciler.findings import Severity

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

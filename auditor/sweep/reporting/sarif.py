"""SARIF 2.1.0 of a night's errors and warnings, for pages of code-scanning results.

Results are written as they come. A finding's place is a path, `MODEL/FILE`, or the model's where no
file is named; code-scanning pages tell old results from new ones by the fingerprint, which is the
finding's identity. What the baseline accepts is there, and suppressed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import IO, Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from auditor.formats.meanings import kind_meanings
from auditor.formats.text import printable
from auditor.sweep.reporting.changes import Change, Matched, identity
from auditor.sweep.reporting.model_entry import ALARMING, ModelEntry
from auditor.sweep.store.reading import Night

VERSION = "2.1.0"
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_STATES = {
    Change.NEW: "new",
    Change.CHANGED: "updated",
    Change.STILL_OPEN: "unchanged",
}
_MOST_PATTERNS = 10  # of folded names in one result; findings.csv has them all
_MOST_SAID = 3  # of them in its message
_LONGEST = 1000  # characters of a message
_RULES = {kind.name: kind for kind in kind_meanings() if kind.severity in ALARMING}


class Sarif:
    """Writes one run; a context manager, whose end closes what it opened, not the file."""

    def __init__(self, file: IO[bytes], night: Night, previous: Night | None) -> None:
        self._file, self._first, self._compared = file, True, previous is not None
        opening, self._end = json.dumps(_log(night, previous), separators=(",", ":")).split('"@"')
        self._write(opening)

    def add(self, judged: ModelEntry) -> None:
        seen: Counter[tuple[str, ...]] = Counter()
        for match, why in judged.standing:
            if match.finding["severity"] in ALARMING:
                key = identity(match.finding)
                result = self._result(judged, match, why, key, seen[key])
                seen[key] += 1
                self._write("\n" if self._first else ",\n")
                self._write(json.dumps(result, separators=(",", ":")))
                self._first = False

    def finish(self) -> None:
        self._write(f"\n{self._end}\n")

    def _write(self, text: str) -> None:
        self._file.write(text.encode("ascii"))

    def _result(
        self, judged: ModelEntry, match: Matched, why: str | None, key: tuple[str, ...], nth: int
    ) -> Mapping[str, Any]:
        model, finding = judged.model, match.finding
        digest = sha256("\0".join((model, *key)).encode("utf-8", "backslashreplace")).hexdigest()
        causes = [cause.finding for cause in judged.why if _explains(cause, match)]
        return {
            "ruleId": finding["kind"],
            "level": finding["severity"],
            "message": {"text": message(said_of(model, finding, causes))},
            "locations": [_location(model, finding)],
            "partialFingerprints": {"primaryLocationLineHash": f"{digest[:32]}:{nth + 1}"},
            **({"baselineState": _STATES[match.change]} if self._compared else {}),
            "suppressions": [] if why is None else [_suppression(why)],
            "properties": {
                "count": finding["count"],
                "parameters": finding["parameters"],
                "causes": [cause["kind"] for cause in causes],
            },
        }


def _explains(cause: Matched, match: Matched) -> bool:
    """Whether a cause of tonight is one of a finding's, in the same component."""
    finding, found = match.finding, cause.finding
    named = found["kind"] in finding.get("cause", "").split("; ")
    same = found["component"] == finding.get("component")
    return cause.tonight is not None and named and same


def said_of(model: str, finding: Mapping[str, Any], causes: Sequence[Mapping[str, Any]]) -> str:
    """What is wrong, with numbers and names, and why: `org/name: 2 names missing (a, b): ...`."""
    patterns = finding["folded"]
    shown = ", ".join(patterns[:_MOST_SAID])
    more = f" and {len(patterns) - _MOST_SAID:,} more" if len(patterns) > _MOST_SAID else ""
    count, parameters = finding["count"], finding["parameters"]
    names = f"{count:,} {'name' if count == 1 else 'names'}"
    learned = f", {parameters:,} {'parameter' if parameters == 1 else 'parameters'}"
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


def _suppression(why: str) -> Mapping[str, str]:
    return {"kind": "external", "status": "accepted", "justification": printable(why)}


def _location(model: str, finding: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _log(night: Night, previous: Night | None) -> Mapping[str, Any]:
    """The log around its results, which go where the mark is."""
    name = f"audit sweep/{printable(night.night)}"
    baseline = {} if previous is None else {"baselineGuid": _guid(previous)}
    return {
        "$schema": _SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hf-audit",
                        "version": night.auditor,
                        "rules": [_rule(kind) for kind in sorted(_RULES)],
                        "properties": {"catalogue": night.catalogue},
                    }
                },
                "automationDetails": {"id": name, "guid": _guid(night)},
                **baseline,
                "results": ["@"],
            }
        ],
    }


def _guid(night: Night) -> str:
    """The same for the same night of the same store."""
    return str(uuid5(NAMESPACE_URL, f"hf-audit:{night.night}:{night.started}"))


def _rule(kind: str) -> Mapping[str, Any]:
    found = _RULES[kind]
    full = f"{found.said} {found.details}".rstrip()
    return {
        "id": kind,
        "name": kind.title().replace("-", ""),
        "shortDescription": {"text": message(found.said)},
        "fullDescription": {"text": message(full)},
        "help": {"text": message(f"To do: {found.to_do}")},
        "defaultConfiguration": {"level": found.severity},
    }

"""SARIF 2.1.0 of a night's errors and warnings, for pages of code-scanning results.

Results are written as they come. A finding's place is a path, `MODEL/FILE`, or the model's where no
file is named; code-scanning pages tell old results from new ones by the fingerprint, which is the
finding's identity. What the baseline accepts is there, and suppressed.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any
from uuid import NAMESPACE_URL, uuid5

from auditor.formats.as_sarif import (
    SARIF_SCHEMA,
    SARIF_VERSION,
    finding_fingerprint,
    message,
    place_of,
    rules,
    said_of,
)
from auditor.formats.json_values import identity
from auditor.formats.text import printable
from auditor.sweep.reporting.changes import Change, Matched
from auditor.sweep.reporting.model_entry import ALARMING, ModelEntry
from auditor.sweep.store.reading import Night

_STATES = {
    Change.NEW: "new",
    Change.CHANGED: "updated",
    Change.STILL_OPEN: "unchanged",
}


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
        causes = [cause.finding for cause in judged.why if _explains(cause, match)]
        return {
            "ruleId": finding["kind"],
            "level": finding["severity"],
            "message": {"text": message(said_of(model, finding, causes))},
            "locations": [place_of(model, finding)],
            "partialFingerprints": {
                "primaryLocationLineHash": finding_fingerprint(model, key, nth)
            },
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


def _suppression(why: str) -> Mapping[str, str]:
    return {"kind": "external", "status": "accepted", "justification": printable(why)}


def _log(night: Night, previous: Night | None) -> Mapping[str, Any]:
    """The log around its results, which go where the mark is."""
    name = f"audit sweep/{printable(night.night)}"
    baseline = {} if previous is None else {"baselineGuid": _guid(previous)}
    return {
        "$schema": SARIF_SCHEMA,
        "version": SARIF_VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hf-audit",
                        "version": night.auditor,
                        "rules": rules(),
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

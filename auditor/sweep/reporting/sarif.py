"""SARIF 2.1.0 of a night's errors and warnings, for pages of code-scanning results.

Results are written model by model. Findings that the baseline accepts are included as suppressed.
"""

from collections import Counter
from collections.abc import Mapping
from typing import IO, Any
from uuid import NAMESPACE_URL, uuid5

from auditor.formats.as_sarif import log_of, result_of
from auditor.formats.json_values import json_text
from auditor.messages import printable
from auditor.sweep.reporting.changes import Change
from auditor.sweep.reporting.json_array import JsonArray
from auditor.sweep.reporting.model_entry import ModelEntry
from auditor.sweep.store.reading import Night

_STATES = {
    Change.NEW: "new",
    Change.CHANGED: "updated",
    Change.STILL_OPEN: "unchanged",
}


class Sarif:
    """The log of one run, written result by result."""

    def __init__(self, file: IO[bytes], night: Night, previous: Night | None) -> None:
        self._file, self._compared = file, previous is not None
        log = json_text(_log(night, previous))
        opening, self._end = log.split('"@"')  # the results go between them
        file.write(opening.encode())
        self._results = JsonArray(file)

    def add(self, entry: ModelEntry) -> None:
        seen: Counter[tuple[str, ...]] = Counter()
        for match in entry.matches:
            if match.alarming:
                result = result_of(
                    entry.model,
                    match.finding,
                    entry.causes_of(match.finding),
                    seen=seen,
                    suppressed=match.accepted,
                    state=_STATES[match.change] if self._compared else None,
                )
                self._results.add(result)

    def close(self) -> None:
        self._results.close()
        self._file.write(f"{self._end}\n".encode())


def _log(night: Night, previous: Night | None) -> Mapping[str, Any]:
    """Return the log with the mark "@" in the place of its results."""
    name = f"audit sweep/{printable(night.night)}"
    run = {
        "automationDetails": {"id": name, "guid": _guid(night)},
        **({"baselineGuid": _guid(previous)} if previous else {}),
        "results": "@",
    }
    return log_of(run, night.auditor, properties={"catalogue": night.catalogue})


def _guid(night: Night) -> str:
    """Return an id that is stable for a night of a store."""
    return str(uuid5(NAMESPACE_URL, f"hf-audit:{night.night}:{night.started}"))

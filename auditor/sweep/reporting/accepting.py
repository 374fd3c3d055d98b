"""`audit accept`: a reviewer's decision, appended to the baseline file of a store.

The decision must concern findings of the store's latest night, so a misspelt model or kind is an
error and not an entry without effect.
"""

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from auditor.errors import UsageError
from auditor.formats.document import Document
from auditor.formats.json_values import json_text
from auditor.messages import quoted
from auditor.sweep.reporting.baseline import Baseline, BaselineEntry, parse_baseline
from auditor.sweep.reporting.changes import ALARMING, NO_OUTCOME, findings
from auditor.sweep.settings import STORE
from auditor.sweep.store.reading import Store
from auditor.writing import locked, require_no_link, write_atomically

_BASELINE = "baseline.toml"
_PATIENCE = 60.0  # seconds in which other decisions are written


def accept(place: Path, entry: BaselineEntry, *, baseline: Path | None = None) -> tuple[Path, int]:
    """Append a decision to a baseline file; return the file and the number of accepted findings.

    `place` is a store, or the folder of `sweep.sqlite`; the file is `baseline.toml` beside it
    unless `baseline` is another one. Raise UsageError, and change nothing, if the latest night has
    no such finding, or if the entry cannot be appended; raise OSError if writing fails. Of several
    decisions at once, each waits for the others.
    """
    store = place / STORE if place.is_dir() else place
    path = baseline or store.parent / _BASELINE
    require_no_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent, f".{path.name}.lock", patience=_PATIENCE):
        return path, _accept(store, entry, path)


def _accept(store: Path, entry: BaselineEntry, path: Path) -> int:
    before = path.read_bytes() if path.exists() else b""
    entries = parse_baseline(before, path) if before else ()
    after = _appended(before, path, (*entries, entry))
    with Store.open(store) as nights:
        night = nights.chosen(None)
        # The new entry is first, so findings that it covers count as its own.
        decisions = Baseline(entries=(entry, *entries), day=night.day)
        for result in nights.results(night.night):
            if fnmatchcase(result.model, entry.model):
                _apply(decisions, result.model, result.document or NO_OUTCOME, entry.kind)
    if not decisions.used[0]:
        names = "" if entry.name == "*" else f" with {quoted(entry.name)}"
        until = f" until {entry.expires}" if entry.expires else ""
        raise UsageError(
            f"nothing is written: the night {quoted(night.night)} has no finding "
            f"{quoted(entry.kind)} of {quoted(entry.model)}{names} to accept{until}"
        )
    write_atomically(path, after)
    return decisions.used[0]


def _apply(decisions: Baseline, model: str, outcome: Document, kind: str) -> None:
    """Apply decisions to a model's errors and warnings of a kind, and to its unaudited parts."""
    for finding in findings(outcome):
        if finding.kind == kind and finding.severity in ALARMING:
            decisions.accepted(model, kind, finding.names)
    for part in outcome.every:
        if part.reason == kind:
            decisions.accepted(model, kind)


def _appended(before: bytes, path: Path, entries: Sequence[BaselineEntry]) -> bytes:
    """Return the content of a baseline file with the last entry, which `before` does not have.

    Raise UsageError if the file would then not contain these entries.
    """
    if path.suffix == ".json":
        after = f"{json_text({'accept': [*map(_fields, entries)]}, indent=2)}\n".encode()
    else:
        lines = (f"{key} = {_toml(key, value)}\n" for key, value in _fields(entries[-1]).items())
        separator = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
        try:
            after = before + separator + f"[[accept]]\n{''.join(lines)}".encode()
        except UnicodeEncodeError:
            raise UsageError("the decision is not Unicode text") from None
    if parse_baseline(after, path) != entries:
        raise UsageError(f"{quoted(str(path))} cannot be extended; write the entry by hand")
    return after


def _fields(entry: BaselineEntry) -> dict[str, Any]:
    """Return the fields of an entry that are not their defaults, as text."""
    return {
        name: str(value)
        for name, value in asdict(entry).items()
        if value is not None and (name, value) != ("name", "*")
    }


def _toml(key: str, value: str) -> str:
    """Return a TOML value: a date, or a JSON string, which TOML reads except for DEL."""
    if key == "expires":
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

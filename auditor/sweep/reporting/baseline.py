"""The baseline: accepted findings, and accepted reasons for unaudited models.

A TOML or JSON file. Each entry accepts one kind of finding, all findings of one cause, or one
reason of `unaudited`, for the models and the tensor or file names that two globs cover, until a
date:

    [[accept]]
    kind = "unexpected"       # or a cause: "wrapper-prefix"; or a reason: "gated"
    model = "acme/*"
    name = "*.rotary_emb.inv_freq"
    reason = "written by an old version; harmless"
    by = "A. Reviewer"        # who decided
    expires = 2027-03-31      # the last night on which the entry applies

A finding is accepted if each of its names matches an entry that has not expired. `audit accept`
appends an entry to the file.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase, translate
from functools import cached_property
from pathlib import Path
from re import compile as compiled
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import asdict

from auditor.diagnosis.known_causes import described_causes
from auditor.errors import Reason, UsageError
from auditor.findings.ignore import KINDS
from auditor.formats.document import Document
from auditor.formats.json_values import json_text
from auditor.formats.text import counted
from auditor.messages import quoted
from auditor.sweep.reporting.changes import ALARMING, NO_OUTCOME, findings
from auditor.sweep.settings import STORE, Text, parse_settings, read_settings_file
from auditor.sweep.store.reading import Store
from auditor.writing import locked, require_no_link, write_atomically

_MOST_BYTES = 16 * 1024 * 1024  # a hundred thousand entries
_ACCEPTABLE = frozenset((*KINDS, *Reason))
_BASELINE = "baseline.toml"
_MOST_NAMED = 3  # folded names of a finding in a line
_LOCK_SECONDS = 60.0  # in which other decisions are written


class BaselineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of a baseline: the findings that it accepts, and the reason."""

    kind: Text
    model: Text  # glob
    name: Text = "*"  # glob for each name of the finding, or for the file's name
    reason: Text
    by: Text | None = None  # the reviewer who decided
    expires: date | None = None  # the last night on which it applies; None: it never expires

    def __str__(self) -> str:
        names = "" if self.name == "*" else f", {quoted(self.name)}"
        by = f" by {quoted(self.by)}" if self.by else ""
        return f"{self.kind} of {quoted(self.model)}{names} ({quoted(self.reason)}{by})"

    @property
    def decision(self) -> str:
        """The reason with the reviewer's name and the last night, as reports print it."""
        until = f"until {self.expires}" if self.expires else None
        details = ", ".join(filter(None, (self.by, until)))
        return f"{self.reason} ({details})" if details else self.reason


class _Rule(NamedTuple):
    """A baseline entry with compiled globs, and whether the entry has expired on the night."""

    at: int  # index in `entries`
    model: Callable[[str], object]
    name: Callable[[str], object]
    expired: bool


class Baseline(Struct, kw_only=True, dict=True):
    """The entries of a baseline file, applied to one night; `accepted` records those it uses."""

    entries: tuple[BaselineEntry, ...] = ()
    day: date | None = None  # date of the night; None: no entry expires
    used: Counter[int] = field(default_factory=Counter)  # findings by index of the entry
    missed: Counter[int] = field(default_factory=Counter)  # findings by index of an expired entry

    def accepted(
        self, model: str, kind: str, names: Sequence[str] = (), causes: Sequence[str] = ()
    ) -> str | None:
        """Return the decision by which a finding, or an unaudited model, is accepted, else None.

        `kind` is the finding's kind, or the `Reason` for which the model is unaudited; `causes` are
        the names of the finding's causes.
        """
        names = names or ("",)
        of_kinds = (rule for one in (kind, *causes) for rule in self._rules.get(one, ()))
        rules = [rule for rule in of_kinds if rule.model(model)]
        if used := _covering([rule for rule in rules if not rule.expired], names):
            self.used.update(rule.at for rule in used)
            return self.entries[used[0].at].decision
        self.missed.update(rule.at for rule in _covering(rules, names) if rule.expired)
        return None

    @cached_property
    def _rules(self) -> Mapping[str, Sequence[_Rule]]:
        """The rules by kind of finding, so that a finding is compared with few of 100,000 rules."""
        rules = defaultdict(list)
        for at, entry in enumerate(self.entries):
            model, name = (compiled(translate(glob)).match for glob in (entry.model, entry.name))
            rules[entry.kind].append(_Rule(at, model, name, self.expired(entry)))
        return rules

    def expired(self, entry: BaselineEntry) -> bool:
        return entry.expires is not None and self.day is not None and self.day > entry.expires

    def decisions(self) -> Iterator[Mapping[str, Any]]:
        """Yield each entry with its state tonight, and the findings that it accepts or missed."""
        for at, entry in enumerate(self.entries):
            expired = self.expired(entry)
            yield {
                **asdict(entry),
                "expires": entry.expires and entry.expires.isoformat(),
                "state": "expired" if expired else "accepted" if self.used[at] else "unused",
                "findings": (self.missed if expired else self.used)[at],
            }

    def notes(self) -> Iterator[str]:
        """Yield a line for each expired entry, then for each entry that accepted nothing."""
        for at, entry in enumerate(self.entries):
            if self.expired(entry):
                count = counted(self.missed[at], "finding")
                yield f"expired on {entry.expires}: {entry}; it would accept {count}"
        for at, entry in enumerate(self.entries):
            if not self.used[at] and not self.expired(entry):
                yield f"unused tonight: {entry}"


def _covering(rules: Sequence[_Rule], names: Sequence[str]) -> Sequence[_Rule]:
    """Return rules that together accept all names; return () if they do not accept all."""
    remaining_names, used = list(names), []
    for rule in rules:
        unmatched = [name for name in remaining_names if not rule.name(name)]
        if len(unmatched) < len(remaining_names):
            used.append(rule)
        remaining_names = unmatched
    return () if remaining_names else used


class _BaselineFile(Struct, forbid_unknown_fields=True):
    accept: tuple[BaselineEntry, ...] = ()


def read_baseline(path: Path) -> tuple[BaselineEntry, ...]:
    """Read a baseline file; raise UsageError with file and entry if it is invalid."""
    return _checked(read_settings_file(path, _BaselineFile, most_bytes=_MOST_BYTES), path)


def _checked(file: _BaselineFile, path: Path) -> tuple[BaselineEntry, ...]:
    entries = file.accept
    for at, entry in enumerate(entries):
        if entry.kind not in _ACCEPTABLE | described_causes().keys():
            known_kinds = f"{', '.join(KINDS)}, a cause, and the reasons of unaudited models"
            raise UsageError(
                f"{quoted(str(path))}: the kind is {quoted(entry.kind)} - at `$.accept[{at}]`, "
                f"expected one of {known_kinds}"
            )
    return entries


# --- audit accept ---------------------------------------------------------------------------------


def accept(
    place: Path, entry: BaselineEntry, *, baseline: Path | None = None
) -> tuple[Path, list[str]]:
    """Append a decision to a baseline file; return the file and a line for each accepted finding.

    The decision must concern findings of the store's latest night, so a misspelt model or kind is
    an error and not an entry without effect.
    `place` is a store, or the folder of `sweep.sqlite`; the file is `baseline.toml` beside it
    unless `baseline` is another one. Raise UsageError, and change nothing, if the latest night has
    no such finding, or if the entry cannot be appended; raise OSError if writing fails. Of several
    decisions at once, each waits for the others.
    """
    store = place / STORE if place.is_dir() else place
    path = baseline or store.parent / _BASELINE
    require_no_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent, f".{path.name}.lock", patience=_LOCK_SECONDS):
        return path, _accept(store, entry, path)


def _accept(store: Path, entry: BaselineEntry, path: Path) -> list[str]:
    before = path.read_bytes() if path.exists() else b""
    entries = _parsed(before, path) if before else ()
    after = _appended(before, path, (*entries, entry))
    with Store.open(store) as nights:
        night = nights.chosen(None)
        # The new entry is first, so findings that it covers count as its own.
        decisions, covered = Baseline(entries=(entry, *entries), day=night.day), list[str]()
        for result in nights.results(night.night):
            if fnmatchcase(result.model, entry.model):
                outcome = result.document or NO_OUTCOME
                covered += _covered(decisions, result.model, outcome, entry.kind)
    if not covered:
        names = "" if entry.name == "*" else f" with {quoted(entry.name)}"
        until = f" until {entry.expires}" if entry.expires else ""
        raise UsageError(
            f"nothing is written: the night {quoted(night.night)} has no finding "
            f"{quoted(entry.kind)} of {quoted(entry.model)}{names} to accept{until}"
        )
    write_atomically(path, after)
    return covered


def _covered(decisions: Baseline, model: str, outcome: Document, kind: str) -> Iterator[str]:
    """Yield a line for each error, warning or unaudited part that the first decision accepts.

    `kind` is the kind, the cause or the reason that the decision names.
    """
    used = decisions.used[0]
    for finding in findings(outcome):
        if kind in {finding.kind, *finding.causes} and finding.severity in ALARMING:
            decisions.accepted(model, finding.kind, finding.names, finding.causes)
            if decisions.used[0] > used:
                names = ", ".join(finding.folded[:_MOST_NAMED]) or finding.file or ""
                more = f" and {len(finding.folded) - _MOST_NAMED:,} more"
                more = more if len(finding.folded) > _MOST_NAMED else ""
                yield f"{model}: {finding.severity} {finding.kind}: {names}{more}"
            used = decisions.used[0]
    for part in outcome.every:
        if part.reason == kind:
            decisions.accepted(model, kind)
            yield f"{model}: {kind}"


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
    if _parsed(after, path) != entries:
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


def _parsed(content: bytes, path: Path) -> tuple[BaselineEntry, ...]:
    return _checked(parse_settings(content, path, _BaselineFile, most_bytes=_MOST_BYTES), path)

"""The baseline: findings, and reasons why a model is not audited, that were accepted.

A TOML or JSON file. Each entry accepts one kind of finding (or one reason of `unaudited`) for the
models and the tensor or file names that two globs cover, until a date:

    [[accept]]
    kind = "unexpected"       # or a reason: "gated"
    model = "acme/*"
    name = "*.rotary_emb.inv_freq"
    reason = "written by an old version; harmless"
    expires = 2027-03-31      # the last night that it holds

A finding is accepted where each of its names is covered by some entry that holds.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from re import Pattern
from re import compile as compiled
from typing import Any

from msgspec import Struct, field

from auditor.errors import Reason, UsageError
from auditor.messages import described, quoted
from auditor.reconciler.ignore import KINDS
from auditor.sweep.reporting.changes import Finding

_MOST_BYTES = 16 * 1024 * 1024  # a hundred thousand entries
_REASONS = tuple(reason.value for reason in Reason)
_KEYS = ("kind", "model", "name", "reason", "expires")


class BaselineEntry(Struct, frozen=True, kw_only=True, dict=True):
    """What is accepted, and why."""

    kind: str
    model: str  # glob
    reason: str
    name: str = "*"  # glob; each name of the finding, or the file's
    expires: date | None = None  # the last night that it holds; None: it holds for good

    @cached_property
    def _model(self) -> Pattern[str]:
        return compiled(translate(self.model))

    @cached_property
    def _name(self) -> Pattern[str]:
        return compiled(translate(self.name))

    def covers(self, model: str) -> bool:
        return self._model.match(model) is not None

    def accepts(self, name: str) -> bool:
        return self._name.match(name) is not None

    def __str__(self) -> str:
        names = "" if self.name == "*" else f", {quoted(self.name)}"
        return f"{self.kind} of {quoted(self.model)}{names} ({quoted(self.reason)})"


class Baseline(Struct, kw_only=True, dict=True):
    """The entries of a file on one night, and which of them were of use; fills as it is asked."""

    entries: tuple[BaselineEntry, ...] = ()
    day: date | None = None  # the night's; None: nothing expires
    used: set[int] = field(default_factory=set)  # places in `entries`
    missed: dict[int, int] = field(default_factory=dict)  # expired ones, and what they would accept

    def accepted(self, model: str, finding: Finding) -> str | None:
        """Why the finding is accepted; None: it is not."""
        return self._accepted(model, finding["kind"], finding["names"] or ("",))

    def excused(self, model: str, reason: str) -> str | None:
        """Why it is accepted that the model is not audited for this reason; None: it is not."""
        return self._accepted(model, reason, ("",))

    def _accepted(self, model: str, kind: str, names: Sequence[str]) -> str | None:
        of_kind = self._by_kind.get(kind)
        entries = [at for at in of_kind or () if self.entries[at].covers(model)]
        holding = [at for at in entries if not self.expired(self.entries[at])]
        used = self._covering(holding, names)
        if used:
            self.used.update(used)
            return self.entries[used[0]].reason
        for at in set(self._covering(entries, names) or ()).difference(holding):
            self.missed[at] = self.missed.get(at, 0) + 1
        return None

    def _covering(self, entries: Iterable[int], names: Sequence[str]) -> list[int] | None:
        """The entries that together accept all the names; None: they do not."""
        left, used = list(names), []
        for at in entries:
            rest = [name for name in left if not self.entries[at].accepts(name)]
            if len(rest) < len(left):
                used.append(at)
            left = rest
        return used if used and not left else None

    @cached_property
    def _by_kind(self) -> Mapping[str, Sequence[int]]:
        kinds: dict[str, list[int]] = {}
        for at, entry in enumerate(self.entries):
            kinds.setdefault(entry.kind, []).append(at)
        return kinds

    def expired(self, entry: BaselineEntry) -> bool:
        return entry.expires is not None and self.day is not None and self.day > entry.expires

    def said(self) -> tuple[str, ...]:
        """A line for each entry that has expired, and for each that nothing needed."""
        return (*self._expired(), *self._unused())

    def _expired(self) -> Iterable[str]:
        for at, entry in enumerate(self.entries):
            if self.expired(entry):
                again = f"{self.missed.get(at, 0)} of them stand again"
                yield f"expired on {entry.expires}: {entry}; {again}"

    def _unused(self) -> Iterable[str]:
        for at, entry in enumerate(self.entries):
            if at not in self.used and not self.expired(entry):
                yield f"accepts nothing tonight: {entry}"


def read_baseline(path: Path) -> tuple[BaselineEntry, ...]:
    """The entries of a baseline file; UsageError names file and entry of what is wrong."""
    table = _parsed(path)
    strange = ", ".join(map(quoted, sorted(table.keys() - {"accept"})))
    if strange:
        raise UsageError(f"{quoted(str(path))}: {strange} is not known; accept is")
    entries = table.get("accept", [])
    if not isinstance(entries, list):
        raise UsageError(
            f"{quoted(str(path))}: accept: expected a list, found {described(entries)}"
        )
    return tuple(_entry(path, at, entry) for at, entry in enumerate(entries, 1))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        content = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else None
        if content is None:
            raise UsageError(f"{quoted(str(path))} has more than {_MOST_BYTES:,} bytes")
        text = content.decode()
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{quoted(str(path))}, a baseline, cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{quoted(str(path))}: expected an object, found {described(table)}")
    return table


def _entry(path: Path, at: int, entry: object) -> BaselineEntry:
    where = f"{quoted(str(path))}: entry {at}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: expected a table, found {described(entry)}")
    strange = ", ".join(map(quoted, sorted(entry.keys() - set(_KEYS))))
    if strange:
        raise UsageError(f"{where}: {strange} is not known; {', '.join(_KEYS)} are")
    for key in ("kind", "model", "reason"):
        if key not in entry:
            raise UsageError(f"{where} has no {key}")
    texts = {key: entry[key] for key in ("kind", "model", "name", "reason") if key in entry}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise UsageError(f"{where}: {key}: expected a string, found {described(value)}")
    if texts["kind"] not in {*KINDS, *_REASONS}:
        known = f"kinds are {', '.join(KINDS)}, and the reasons of what is unaudited"
        raise UsageError(f"{where}: no such kind {quoted(texts['kind'])}; {known}")
    return BaselineEntry(**texts, expires=_date(where, entry.get("expires")))


def _date(where: str, value: object) -> date | None:
    """A date of TOML, or of a string; the day of a date with a time."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise UsageError(f"{where}: expires is {described(value)}; 2027-03-31 is one") from None
    if isinstance(value, datetime):
        return value.date()
    if value is None or isinstance(value, date):
        return value
    raise UsageError(f"{where}: expires: expected a date, found {described(value)}")

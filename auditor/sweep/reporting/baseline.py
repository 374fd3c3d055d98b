"""The baseline: accepted findings, and accepted reasons for unaudited models.

A TOML or JSON file. Each entry accepts one kind of finding (or one reason of `unaudited`) for the
models and the tensor or file names that two globs cover, until a date:

    [[accept]]
    kind = "unexpected"       # or a reason: "gated"
    model = "acme/*"
    name = "*.rotary_emb.inv_freq"
    reason = "written by an old version; harmless"
    by = "A. Reviewer"        # who decided
    expires = 2027-03-31      # the last night on which the entry applies

A finding is accepted if each of its names matches an entry that has not expired. `audit accept`
appends an entry to the file.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from re import compile as compiled
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import asdict

from auditor.errors import Reason, UsageError
from auditor.findings.ignore import KINDS
from auditor.formats.text import counted
from auditor.messages import quoted
from auditor.sweep.settings import Text, parse_settings, read_settings_file

_MOST_BYTES = 16 * 1024 * 1024  # a hundred thousand entries
_ACCEPTABLE = frozenset((*KINDS, *Reason))


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

    def accepted(self, model: str, kind: str, names: Sequence[str] = ()) -> str | None:
        """Return the decision by which a finding, or an unaudited model, is accepted, else None.

        `kind` is the finding's kind, or the `Reason` for which the model is unaudited.
        """
        names = names or ("",)
        rules = [rule for rule in self._rules.get(kind, ()) if rule.model(model)]
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


def parse_baseline(content: bytes, path: Path) -> tuple[BaselineEntry, ...]:
    """Parse the content of a baseline file, as `read_baseline` does."""
    return _checked(parse_settings(content, path, _BaselineFile, most_bytes=_MOST_BYTES), path)


def _checked(file: _BaselineFile, path: Path) -> tuple[BaselineEntry, ...]:
    entries = file.accept
    for at, entry in enumerate(entries):
        if entry.kind not in _ACCEPTABLE:
            known_kinds = f"{', '.join(KINDS)}, and the reasons of unaudited models"
            raise UsageError(
                f"{quoted(str(path))}: the kind is {quoted(entry.kind)} - at `$.accept[{at}]`, "
                f"expected one of {known_kinds}"
            )
    return entries

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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from re import compile as compiled
from typing import NamedTuple

from msgspec import Struct, field

from auditor.errors import Reason, UsageError
from auditor.messages import quoted
from auditor.reconciler.ignore import KINDS
from auditor.sweep.settings_file import Text, read_settings_file

_MOST_BYTES = 16 * 1024 * 1024  # a hundred thousand entries
_ACCEPTABLE = frozenset((*KINDS, *Reason))


class BaselineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is accepted, and why."""

    kind: Text
    model: Text  # glob
    name: Text = "*"  # glob; each name of the finding, or the file's
    reason: Text
    expires: date | None = None  # the last night that it holds; None: it holds for good

    def __str__(self) -> str:
        names = "" if self.name == "*" else f", {quoted(self.name)}"
        return f"{self.kind} of {quoted(self.model)}{names} ({quoted(self.reason)})"


class _Rule(NamedTuple):
    """An entry on one night."""

    at: int  # its place in the file
    model: Callable[[str], object]
    name: Callable[[str], object]
    expired: bool


class Baseline(Struct, kw_only=True, dict=True):
    """The entries of a file on one night, and which of them were of use; fills as it is asked."""

    entries: tuple[BaselineEntry, ...] = ()
    day: date | None = None  # the night's; None: nothing expires
    used: set[int] = field(default_factory=set)  # places in `entries`
    missed: Counter[int] = field(default_factory=Counter)  # what expired ones would accept

    def accepted(self, model: str, kind: str, names: Sequence[str] = ()) -> str | None:
        """Why a finding of a model, or a reason of its being unaudited, is accepted; None: not."""
        names = names or ("",)
        rules = [rule for rule in self._rules.get(kind, ()) if rule.model(model)]
        if used := _covering([rule for rule in rules if not rule.expired], names):
            self.used.update(rule.at for rule in used)
            return self.entries[used[0].at].reason
        self.missed.update(rule.at for rule in _covering(rules, names) if rule.expired)
        return None

    @cached_property
    def _rules(self) -> Mapping[str, Sequence[_Rule]]:
        """By kind: a file may have a hundred thousand, and each finding of a night asks."""
        rules = defaultdict(list)
        for at, entry in enumerate(self.entries):
            model, name = (compiled(translate(glob)).match for glob in (entry.model, entry.name))
            rules[entry.kind].append(_Rule(at, model, name, self.expired(entry)))
        return rules

    def expired(self, entry: BaselineEntry) -> bool:
        return entry.expires is not None and self.day is not None and self.day > entry.expires

    def said(self) -> Iterator[str]:
        """A line for each entry that has expired, then for each that nothing needed."""
        for at, entry in enumerate(self.entries):
            if self.expired(entry):
                yield f"expired on {entry.expires}: {entry}; {self.missed[at]} of them stand again"
        for at, entry in enumerate(self.entries):
            if at not in self.used and not self.expired(entry):
                yield f"accepts nothing tonight: {entry}"


def _covering(rules: Sequence[_Rule], names: Sequence[str]) -> Sequence[_Rule]:
    """The rules that together accept all the names; none where they do not."""
    left, used = list(names), []
    for rule in rules:
        rest = [name for name in left if not rule.name(name)]
        if len(rest) < len(left):
            used.append(rule)
        left = rest
    return () if left else used


class _BaselineFile(Struct, forbid_unknown_fields=True):
    accept: tuple[BaselineEntry, ...] = ()


def read_baseline(path: Path) -> tuple[BaselineEntry, ...]:
    """The entries of a baseline file; UsageError names file and entry of what is wrong."""
    entries = read_settings_file(path, _BaselineFile, most_bytes=_MOST_BYTES).accept
    for at, entry in enumerate(entries):
        if entry.kind not in _ACCEPTABLE:
            place = f"{quoted(str(path))}: no such kind {quoted(entry.kind)} - at `$.accept[{at}]`"
            known = f"kinds are {', '.join(KINDS)}, and the reasons of what is unaudited"
            raise UsageError(f"{place}; {known}")
    return entries

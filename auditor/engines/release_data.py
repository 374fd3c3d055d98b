"""The records of releases of transformers, which `make releases` writes.

An entry stands whole at the newest release that has it, and as differences at older ones.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from auditor.errors import UsageError
from auditor.messages import quoted

LIBRARY = "transformers"
_DATA = Path(__file__).parents[1] / "data" / "engines" / "transformers.json"
_CONDITION = re.compile(r"(==|>=|<=|!=|<|>)\s*(\d+(?:\.\d+){0,2})")
_GONE = "-"  # the keys that an older entry lacks

Entry = Mapping[str, Any]


class ReleaseFacts(Struct, frozen=True):
    """The facts about one release that hold for all checkpoints."""

    floats: bool  # whether it reads {"__float__": "Infinity"} of a config
    rope_types: frozenset[str]
    companions: frozenset[str]  # classes of tokenizers and processors


class ForwardChange(Struct, frozen=True):
    """A change of a class's code that gives other outputs from the same files."""

    model_type: str
    before: str  # the first release with the new code
    why: str
    when: Mapping[str, Any] = {}  # values of the config with which the outputs differ
    unless: Mapping[str, Any] = {}


class Releases(Struct, frozen=True):
    """The records of several releases."""

    date: str
    releases: tuple[str, ...]  # the newest first
    facts: Mapping[str, ReleaseFacts]
    types: Mapping[str, Raw]
    classes: Mapping[str, Raw]
    saves: Mapping[str, Raw]
    changes: tuple[ForwardChange, ...] = ()

    def type(self, name: str, release: str) -> Entry | None:
        """Return a release's entry of a model type; None if it does not know the type."""
        return self._at(self.types.get(name), release)

    def of_class(self, name: str, release: str) -> Entry | None:
        """Return a release's entry of a class; None if it does not have the class."""
        return self._at(self.classes.get(name), release)

    def save(self, name: str) -> Entry | None:
        """Return the layouts of a class and what releases make of its saves."""
        raw = self.saves.get(name)
        return None if raw is None else decode(raw)

    def outcomes(self, save: Entry, release: str) -> Entry:
        """Return what a release makes of a class's saves, by layout; right ones are left out."""
        newer = self.releases[: self.releases.index(release) + 1]
        found: Entry = next((save["by"][one] for one in newer[::-1] if one in save["by"]), {})
        return found

    def writer(self, version: str | None) -> str:
        """Return the newest recorded release that is not newer than a version, else the oldest."""
        numbers = numbers_of(version or "")
        older = (one for one in self.releases if numbers and numbers_of(one) <= numbers)
        return next(older, self.releases[-1])

    def _at(self, raw: Raw | None, release: str) -> Entry | None:
        entry: dict[str, Any] | None = None
        if raw is None:
            return None
        chain = _decoded(bytes(raw))
        for one in self.releases:
            if one in chain:
                entry = _patched(entry, chain[one])
            if one == release:
                return entry
        return None


@cache
def _decoded(raw: bytes) -> dict[str, Any]:
    chain: dict[str, Any] = decode(raw)
    return chain


def _patched(entry: dict[str, Any] | None, patch: dict[str, Any] | None) -> dict[str, Any] | None:
    if patch is None:
        return None
    gone = {_GONE, *patch.get(_GONE, ())}
    return {key: value for key, value in {**(entry or {}), **patch}.items() if key not in gone}


@cache
def release_records() -> Releases:
    """Return the records of all releases."""
    return decode(_DATA.read_bytes(), type=Releases)


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version; () if it does not begin with a number."""
    match = re.match(r"\d{1,6}(?:\.\d{1,6}){0,2}", version)
    parts = [int(part) for part in match[0].split(".")] if match else []
    return tuple(parts + [0] * (3 - len(parts))) if parts else ()


def release_name(version: str) -> str:
    """Return the name under which a release's verdict stands."""
    return f"{LIBRARY} {version}"


def releases_named(text: str) -> tuple[str, ...]:
    """Return the releases that conditions such as `transformers>=5,<5.20` name, oldest first.

    Raise UsageError for a release that nothing is recorded of.
    """
    conditions = [one.strip() for one in text.removeprefix(LIBRARY).split(",")]
    known = release_records().releases[::-1]
    found = known
    for condition in filter(None, conditions):
        match = _CONDITION.fullmatch(condition)
        if match is None:
            raise UsageError(f"--for {quoted(text)}: expected such as {LIBRARY}=={known[0]}")
        sign, version = match.groups()
        found = tuple(one for one in found if _fits(numbers_of(one), sign, version))
    if not found:
        raise UsageError(f"--for {quoted(text)}: recorded are {', '.join(known)}")
    return tuple(map(release_name, found))


def _fits(release: tuple[int, ...], sign: str, version: str) -> bool:
    wanted = numbers_of(version)
    if sign in {"==", "!="}:
        count = version.count(".") + 1  # 5.5 means every release 5.5.x
        return (release[:count] == wanted[:count]) is (sign == "==")
    return {
        ">=": release >= wanted,
        "<=": release <= wanted,
        ">": release > wanted,
        "<": release < wanted,
    }[sign]


def engine_groups(text: str) -> Sequence[str]:
    """Return the parts of a list; a condition without a name belongs to the part before it."""
    parts: list[str] = []
    for part in (one.strip().lower() for one in text.split(",")):
        if parts and part[:1] in {"<", ">", "=", "!"} and part[:1]:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts

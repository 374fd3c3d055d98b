"""Loading: what transformers does to a stored name before it looks for it in a class."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from auditor.analytic.families import _loading as facts
from auditor.analytic.families._loading import Renames
from auditor.analytic.family import Family


class Rename(NamedTuple):
    """A rename of the names below one of the heads; the first head that fits is taken."""

    pattern: str
    replacement: str
    heads: tuple[str, ...] = ("",)  # with their dot: "model.vision_tower."

    def __call__(self, name: str) -> str:
        for head in self.heads:
            if name.startswith(head):
                return head + _compiled(self.pattern).sub(self.replacement, name[len(head) :], 1)
        return name


@dataclass(frozen=True, kw_only=True)
class Loading:
    """The loading rules of one class that are not those of all classes."""

    renames: tuple[Rename, ...] = ()  # in their order
    silent: tuple[str, ...] = ()  # patterns of names that are left out without a word
    buffers: tuple[str, ...] = ()  # the same, of what nobody learns
    fused: tuple[str, ...] = ()  # heads below which experts are found; anywhere without

    def renamed(self, name: str) -> str:
        """The name as the class has it in memory, but for experts, which it fuses there."""
        for rename in self.renames:
            name = rename(name)
        return name

    def finds(self, name: str) -> bool:
        """Whether a renamed name is looked for: fusing experts asks for the whole path to them."""
        return not self.fused or name.startswith(self.fused) or not _EXPERT.search(name)

    def leaves_out(self, name: str) -> bool:
        """Whether loading says nothing of a name that the class does not have."""
        return _any(self.silent, name) or self.is_buffer(name)

    def is_buffer(self, name: str) -> bool:
        """Whether the class knows the name for something that nobody learns."""
        return _any(self.buffers, name)


_EXPERT = re.compile(r"\.experts\.\d+\.")

PLAIN = Loading()  # the rules of all classes and no more


class Inside(NamedTuple):
    """A model inside another one, and where it is."""

    path: str
    family: Family


def loading(family: Family, target: str, inside: tuple[Inside, ...]) -> Loading:
    """The rules of a class of the family, and those of the models inside it."""
    kinds = [(target, family), *((each.family.base, each.family) for each in inside)]
    return Loading(
        renames=tuple(_renames(family, target, inside)),
        silent=tuple(
            dict.fromkeys(
                pattern
                for name, each in kinds
                for key in (each.model_type, name)
                for table in (facts.SILENT, facts.TAKEN)
                for pattern in table.get(key, ())
            )
        ),
        buffers=tuple(dict.fromkeys(p for _, each in kinds for p in _buffers(each.model_type))),
        fused=tuple(
            head
            for each in inside
            if each.family.model_type in facts.FUSED
            for head in _heads(each.path, family.prefix)
        ),
    )


def _renames(family: Family, target: str, inside: tuple[Inside, ...]) -> Iterator[Rename]:
    """The class's own; then its base model's, and those of the models inside that."""
    by_class, by_type = facts.RENAMES.get(target), facts.RENAMES.get(family.model_type, ())
    for own in by_type if by_class is None else by_class:
        yield Rename(*own)
    if target != family.base:
        path = facts.BASES.get(target, family.prefix)
        rest = by_type if by_class is not None else ()  # else they are the class's own already
        yield from _below(path, facts.RENAMES.get(family.base, rest), family.prefix)
    for each in inside:
        yield from _below(each.path, _own(each.family), family.prefix)


def _own(family: Family) -> Renames:
    return facts.RENAMES.get(family.base) or facts.RENAMES.get(family.model_type, ())


def _below(path: str, renames: Renames, prefix: str) -> Iterator[Rename]:
    heads = _heads(path, prefix)
    return (Rename(pattern, replacement, heads) for pattern, replacement in renames)


def _heads(path: str, prefix: str) -> tuple[str, str]:
    """How names below a path begin, which the file may have with the base model's prefix or not."""
    scope = path.removeprefix(prefix).removeprefix(".")
    below = f"{scope}." if scope else ""
    return (f"{prefix}.{below}" if prefix else below, below)


def _buffers(model_type: str) -> Iterator[str]:
    if model_type in facts.ROTARY:
        yield r"rotary_emb\.inv_freq"
    if model_type in facts.POSITIONS:
        yield r"(^|\.)position_ids$"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern that ends in a letter or digit ends where the name's part does."""
    return re.compile(pattern + (r"(?!\w)" if pattern[-1].isalnum() else ""))


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)

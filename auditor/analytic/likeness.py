"""The classes whose names are most similar to given names, by kinds of names.

A kind is the names that differ only in their numbers.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import not_
from typing import NamedTuple

from auditor.analytic import catalogue
from auditor.analytic.config import Config
from auditor.analytic.outline import leaves
from auditor.errors import CheckpointError, SourceError
from auditor.names.kinds import name_pattern

_EQUAL = 0.9  # least overlap with the class that a config without a type is of
_MOST_PATTERNS = 2_000  # patterns of names that are compared; models have a few hundred
_ALIKE = 0.4  # least overlap of kinds of names: common kinds, divided by all kinds

# The most frequent types of published models; preferred among types with equal tensors.
_USUAL = ("llama", "bert", "gpt2", "qwen2", "mistral", "roberta", "t5", "vit", "clip")
_TASK = re.compile(r"(For[A-Z]\w*|LMHeadModel|MTModel)$")


class Likeness(NamedTuple):
    """A class, and how similar its names are."""

    alike: float  # common kinds of names, divided by the kinds of either
    as_spelt: int  # common kinds of names that are equal including the prefix
    like_declared: tuple[bool, bool]  # whether the class, and the end of its name, are as declared
    model_type: str
    target: str


def class_by_names(names: Iterable[str], declared: str | None = None) -> Likeness | None:
    """Return the class with nearly all of these names, of the declared model type if it has one.

    Return None if no class has them, or if classes of several types have equally many of them.
    """
    alike = likenesses(frozenset(map(name_pattern, names)), "", frozenset())
    own = [one for one in alike if one.model_type == declared and one.alike >= _EQUAL]
    best = own or [one for one in alike if one[:2] == alike[0][:2] and one.alike >= _EQUAL]
    return best[0] if len({one.model_type for one in best}) == 1 else None


def likenesses(
    stored: frozenset[str],
    declared: str,
    left_out: frozenset[str],
    own_names: tuple[frozenset[str], frozenset[str]] | None = None,
) -> list[Likeness]:
    """Return the classes with similar names, except classes of some types or with equal names."""
    found: list[Likeness] = []
    for model_type in catalogue.model_types():
        if model_type in left_out or len(stored) > _MOST_PATTERNS:
            continue
        prefix = catalogue.family(model_type).prefix
        have = frozenset(_bare(name, prefix) for name in stored)
        for target in catalogue.siblings(model_type):
            if names_of_class(model_type, target) == own_names:
                continue  # a class with equal names has the same differences
            names, spelt = names_of_class(model_type, target)
            alike = len(have & names) / max(1, len(have | names))
            if alike >= _ALIKE:
                like = (target == declared, _ending(target) == _ending(declared))
                likeness = Likeness(alike, len(spelt & stored), like, model_type, target)
                found.append(likeness)
    return sorted(found, key=_order)


def _order(one: Likeness) -> tuple[object, ...]:
    rank = _USUAL.index(one.model_type) if one.model_type in _USUAL else len(_USUAL)
    return (-one.alike, -one.as_spelt, *map(not_, one.like_declared), rank, one.model_type)


def _ending(target: str) -> str:
    """Return the task at the end of a class's name: ForMaskedLM, ForCausalLM; "" without a task."""
    task = match[0] if (match := _TASK.search(target)) else ""
    return "ForCausalLM" if task == "LMHeadModel" else task


@lru_cache(maxsize=512)
def names_of_class(model_type: str, target: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the name patterns of a class with its default config, without and with the prefix."""
    try:
        tree = catalogue.block_tree(Config(values={"model_type": model_type}), target)
    except (CheckpointError, SourceError, LookupError):
        return frozenset(), frozenset()
    prefix = catalogue.family(model_type).prefix
    names = frozenset(name_pattern(leaf.name) for leaf in leaves(tree))
    return frozenset(_bare(name, prefix) for name in names), names


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(f"{prefix}.") if prefix else name

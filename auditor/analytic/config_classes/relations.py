"""Relations between numbers of a config that a model's forward pass needs.

`auditor/data/config_relations.json` has, for each model type, the keys of its relations and the
class of the error that transformers raises if one is broken. `tools/rebuild_relations.py` breaks
each of them in a small model; a type or a relation without an entry is not checked.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.json import decode

from auditor.analytic.config_classes.declarations import ConfigClass, library, of_model_type
from auditor.messages import named

_FILE = Path(__file__).parents[2] / "data" / "config_relations.json"
_HEADS = ("num_attention_heads", "n_heads", "num_heads", "n_head")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "n_experts")
_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
_GROUPS = ("n_group", "num_expert_groups")
_MOST_SHOWN = 6  # values that fit


class Relation(NamedTuple):
    """Two numbers: the second must divide the first, or must not exceed it."""

    name: str
    first: tuple[str, ...]  # synonyms of the key
    second: tuple[str, ...]
    divides: bool

    def holds(self, first: int, second: int) -> bool:
        """Return whether a model with these numbers works."""
        return (second > 0 and first % second == 0) if self.divides else second <= first

    def broken(self, first: int) -> int:
        """Return a second number for which the relation does not hold."""
        return next(n for n in range(2, first + 2) if first % n) if self.divides else first + 1

    def fits(self, first: int) -> str:
        """Return the second numbers that fit, as the object of a sentence."""
        if not self.divides:
            return f"at most {first}"
        divisors = [str(n) for n in range(1, first + 1) if first % n == 0]
        return " or ".join(divisors) if len(divisors) <= _MOST_SHOWN else f"a divisor of {first}"


RELATIONS = (
    Relation("kv-heads", _HEADS, ("num_key_value_heads", "num_kv_heads"), divides=True),
    Relation("experts-per-token", _EXPERTS, (*_PER_TOKEN, "top_k"), divides=False),
    Relation("expert-groups", _EXPERTS, _GROUPS, divides=True),
    Relation("groups-per-token", _GROUPS, ("topk_group",), divides=False),
)


def keys_of(
    relation: Relation, fields: Mapping[str, object], synonyms: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the two keys of a relation in a config class; None if the class lacks one."""

    def own(keys: tuple[str, ...]) -> str | None:
        names = (key if key in fields else synonyms.get(key) for key in keys)
        return next((name for name in names if name in fields), None)

    first, second = own(relation.first), own(relation.second)
    return (first, second) if first and second else None


def broken_relations(
    values: Mapping[str, Any], path: str = "", model_type: str = ""
) -> Iterator[str]:
    """Yield a sentence for each broken relation of a config, and of the configs in it.

    Both numbers must be stated: what a class derives from a default is not known here. `model_type`
    is the type of a nested config that states none.
    """
    stated = values.get("model_type", model_type)
    kind = of_model_type(stated) if isinstance(stated, str) else None
    relations = errors_by_type().get(stated, {}) if isinstance(stated, str) else {}
    for relation in RELATIONS if relations else ():
        first_key, second_key, error = relations.get(relation.name, ("", "", ""))
        first, second = (_number(values, kind, key) for key in (first_key, second_key))
        if first is None or second is None or not 0 < first <= _LARGEST:
            continue
        if not relation.holds(first, second):
            needs = "does not divide" if relation.divides else "is above"
            yield (
                f"{named(path + second_key)} {second} {needs} {named(path + first_key)} {first}, "
                f"and the forward pass of {library().short} raises {error}; "
                f"{relation.fits(first)} would fit"
            )
    for key, inner in values.items():
        if isinstance(inner, Mapping):
            part = kind.parts.get(key) if kind else None
            yield from broken_relations(inner, f"{path}{key}.", part.model_type if part else "")


def _number(values: Mapping[str, Any], kind: ConfigClass | None, key: str) -> int | None:
    """Return the integer under a key or its synonym, else None."""
    synonyms = kind.attribute_map.items() if kind else ()
    names = (key, *(other for other, own in synonyms if own == key))
    value = next((values[name] for name in names if name in values), None)
    return value if type(value) is int else None


_LARGEST = 100_000  # larger numbers are of no model, and finding divisors takes time


@cache
def errors_by_type() -> Mapping[str, Mapping[str, tuple[str, str, str]]]:
    """Return {model type: {relation: (first key, second key, class of the error)}}."""
    return decode(_FILE.read_bytes(), type=dict[str, dict[str, tuple[str, str, str]]])

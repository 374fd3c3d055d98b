"""Config keys that an engine does not read although tensors' shapes follow from them.

Each key is set to another value, in a save that transformers writes with it. If the engine refuses
that save, it takes the size from other keys or compares it with them. The rule is looked for among
these, and it counts only if saves that keep it load when the other keys change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from auditor.engines.knowledge import value_by_rule
from engines import saves
from engines.saves import Config, Outside, Save

Loads = Callable[[list[Save]], list[bool | None]]  # None: not judged
_FACTORS = (1, 2, 3, 4, 6, 8)


class Guard(NamedTuple):
    """A key that an engine does not read, the rule for its value, and what happens beside it."""

    key: str
    rule: str | bool  # a bool is the one value that the engine takes
    outcomes: Mapping[str, bool]  # by probe


def guards(save: Save, loads: Loads) -> Iterator[Guard]:
    """Yield the guards of a save that loads, those of keys that the engine does not read first."""
    refused: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
    for key, value in _shaping(save):
        if isinstance(value, bool):
            if loads(_built(save, [{key: not value}])) == [False]:
                yield Guard(key, value, {f"other {key}": False})
        elif (less := _built(save, [{key: value // 2}])) and loads(less) == [False]:
            alone = save._replace(config={**save.config, key: value // 2})
            refused[loads([alone]) == [True]].append((key, value))
    operands: set[str] = set()
    for key, value in refused[True] + refused[False]:
        if key in operands:
            continue
        more = loads(_built(save, [{key: value * 2}]))
        rule = next((one for one in _rules(save.config, key) if _holds(save, key, one, loads)), "")
        if rule:
            operands.update(_keys(rule))
            found = {f"less {key}": False}
            if more and more[0] is not None:
                found[f"more {key}"] = more[0]
            yield Guard(key, rule, found)


def _shaping(save: Save) -> Iterator[tuple[str, int]]:
    """Yield the keys that change shapes, and no names, of a class's tensors."""
    plain = _shapes(save.class_name, {})
    for key, value in save.config.items():
        if type(value) not in {int, bool} or key.endswith("token_id") or value == 1:
            continue
        other = not value if isinstance(value, bool) else value // 2
        try:
            shapes = _shapes(save.class_name, {key: other})
        except Outside:
            continue
        if shapes != plain and shapes.keys() == plain.keys():
            yield key, value


def _shapes(class_name: str, changes: Config) -> dict[str, tuple[int, ...]]:
    tensors = saves.hollow(class_name, changes, {}).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _built(save: Save, changes: list[Config]) -> list[Save]:
    try:
        return [saves.build(save.class_name, one) for one in changes]
    except Outside:
        return []


def _rules(config: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the ways in which a value follows from other keys, those from two keys first.

    A number in a rule may be another key's value by chance; two keys are both changed to see that.
    """
    value = config[key]
    sizes = {
        k: v
        for k, v in config.items()
        if type(v) is int and v > 1 and k != key and not k.endswith("token_id")
    }
    for one, size in sizes.items():
        for other, divisor in sizes.items():
            if size == value * divisor and one != other:
                yield f"{one}/{other}"
            if size * divisor == value and one < other:
                yield f"{one}*{other}"
    for one, size in sizes.items():
        yield from (f"{factor}*{one}" for factor in _FACTORS if factor * size == value)
        yield from (f"{one}/{factor}" for factor in _FACTORS[1:] if factor * value == size)


def _holds(save: Save, key: str, rule: str, loads: Loads) -> bool:
    """Return whether saves load that keep a rule while each other key of it changes."""
    config = save.config
    for operand in _keys(rule):
        changed = {operand: config[operand] * 2}
        value = value_by_rule(rule, {**config, **changed})
        built = _built(save, [{**changed, key: value}]) if value else []
        if loads(built) != [True]:
            return False
    return True


def _keys(rule: str) -> list[str]:
    return [part for part in rule.replace("/", "*").split("*") if not part.isdecimal()]

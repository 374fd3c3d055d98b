"""Config keys that an engine does not read although shapes or numbers of layers follow from them.

Each key is set to another value, in a save that transformers writes with it. If the engine refuses
that save, it takes the size from other keys or compares it with them. The rule is looked for among
these, and it counts only if saves that keep it load when the other keys change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from auditor.engines.knowledge import value_by_rule
from engines import saves
from engines.saves import Config, Outside, Save

Loads = Callable[[list[Save]], list[bool | None]]  # None: not judged
_FACTORS = (1, 2, 3, 4, 6, 8)
_OTHERS = {"hidden_size": 128, "num_attention_heads": 8, "intermediate_size": 224}


class Guard(NamedTuple):
    """A key that an engine does not read, the rule for its value, and what happens beside it."""

    key: str
    rule: str | bool  # a bool is the one value that the engine takes; "" if no rule was found
    outcomes: Mapping[str, bool]  # by probe


def guards(save: Save, loads: Loads) -> Iterator[Guard]:
    """Yield the guards of a save that loads, those of keys that the engine does not read first."""
    for key, flag in deciding(save, loads, loaded=True):
        yield Guard(key, flag, {f"other {key}": False})
    refused: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
    for key, value, other in _shaping(save):
        if loads(_built(save, {key: other})) != [False]:
            continue
        alone = save._replace(config={**save.config, key: value // 2})
        refused[loads([alone]) == [True]].append((key, value))
    operands: set[str] = set()
    for key, value in refused[True] + refused[False]:
        if key in operands:
            continue
        rule = next((one for one in _rules(save, key) if _holds(save, key, one, loads)), "")
        operands.update(_keys(rule))
        found: dict[str, bool | None] = {}
        beside = {"less": value // 2, "more": value * 2} if rule else {}
        for word, other in beside.items():
            found |= {f"{word} {key}": one for one in loads(_built(save, {key: other}))}
        yield Guard(key, rule, {probe: one for probe, one in found.items() if one is not None})


def deciding(save: Save, loads: Loads, *, loaded: bool) -> Iterator[tuple[str, bool]]:
    """Yield the flags, with their values, whose other value changes the outcome and no names."""
    flags: Config = {}
    for key, flag in saves.flips(save.config):
        for other in _built(save, {key: flag}) if isinstance(flag, bool) else ():
            flags |= {key: flag} if other.tensors.keys() == save.tensors.keys() else {}
    if not flags or loads(_built(save, flags)) == [loaded]:
        return
    for key, flag in flags.items():
        if loads(_built(save, {key: flag})) == [not loaded]:
            yield key, not flag


def _shaping(save: Save) -> Iterator[tuple[str, int, int]]:
    """Yield the keys that change shapes or numbers of layers, but no kinds, and another value.

    The other value is half of a size, and twice a number of layers.
    """
    plain = _shapes(save, {})
    for key, value in save.config.items():
        if type(value) is not int or key.endswith("token_id") or value == 1:
            continue
        try:
            shapes = _shapes(save, {key: value // 2})
        except Outside:
            continue
        if shapes == plain:
            continue
        if shapes.keys() == plain.keys():
            yield key, value, value // 2
        elif saves.kinds(shapes) == saves.kinds(plain):
            yield key, value, value * 2


def _shapes(save: Save, changes: Config) -> dict[str, tuple[int, ...]]:
    tensors = saves.hollow(save.class_name, {**save.changes, **changes}, {}).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _built(save: Save, changes: Config, sizes: Config | None = None) -> list[Save]:
    try:
        return [saves.build(save.class_name, {**save.changes, **changes}, sizes)]
    except Outside:
        return []


def _rules(save: Save, key: str) -> Iterator[str]:
    """Yield the ways in which a value follows from other keys, those from two keys first.

    A number in a rule may be another key's value by chance; two keys are both changed to see that.
    The last rule is the class's own default, as the only value that the engine takes.
    """
    config, value = save.config, save.config[key]
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
    if value == saves.defaults_of(save.model_type).get(key):
        yield f"1*{value}"


def _holds(save: Save, key: str, rule: str, loads: Loads) -> bool:
    """Return whether saves load that keep a rule while other keys change.

    These are each key of the rule, and then the usual sizes all at once, if there is such a save:
    a number in the rule may stand for one of them.
    """
    config = save.config
    each = [{operand: config[operand] * 2} for operand in _keys(rule)]
    others = {name: size for name, size in _OTHERS.items() if name in config}
    for changed in (*each, others):
        value = value_by_rule(rule, {**config, **changed})
        built = _built(save, {**changed, key: value}, changed) if value else []
        if loads(built) != [True] and (built or changed is not others or not each):
            return False
    return True


def _keys(rule: str) -> list[str]:
    return [part for part in rule.replace("/", "*").split("*") if part and not part.isdecimal()]

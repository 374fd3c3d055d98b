"""The forms of an architecture's files: which tensors there are, and their shapes by keys."""

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engines.fits import Observed, fitted
from engines.runtime import (
    PREDICATES,
    PRESETS,
    TOKEN_TYPES,
    VALUES,
    VOCABULARY,
    Grown,
    Layout,
    Learner,
    Setting,
    kind_of,
    without_ones,
)

_ZERO = re.compile(r"expected[\d, ]*\b0\b")  # a shape without elements
_MOST_FORMS = 8
_DRAWS = 10
_TYPES = ("F16", "Q8_0")
_QUANTIZED = 32  # numbers in a block of Q8_0
_OTHERS: Mapping[str, tuple[int, ...]] = {
    "embedding_length": (96, 384),
    "attention.head_count": (8, 2),
    "attention.head_count_kv": (4, 1),
    "block_count": (6, 5),
    "decoder_block_count": (5, 2),
    "expert_count": (4, 8),
}
_SIZES = (  # of files that must compute, if they load
    {"embedding_length": 256, "attention.head_count": 8, "attention.head_count_kv": 4},
    {"embedding_length": 128, "attention.head_count": 4, "attention.head_count_kv": 4},
    {"embedding_length": 128, "attention.head_count": 8, "attention.head_count_kv": 1},
)
_SOME = (16, 24, 1, 2)  # values of a key that a file lacks
_TOGETHER = {"expert_count": {"expert_used_count": 2}}  # llama.cpp wants both or neither


class Seen(NamedTuple):
    """A file that loads."""

    setting: Setting
    layout: Layout


class Forms:
    """The forms of one architecture, found by giving its keys other values."""

    def __init__(self, learner: Learner, tensors: Sequence[str]) -> None:
        self._learner = learner
        self._tensors = tensors
        self._chance = random.Random(7)
        self.reads: dict[str, str] = {}
        self.found: list[dict[str, Any]] = []
        self.errors: list[str] = []

    def learn(self) -> None:
        """Learn each form that a preset or a flag leads to."""
        waiting: list[Grown] = []
        for preset in PRESETS:
            grown = self._learner.grow({**VALUES, **preset}, {})
            if grown.error:
                self.errors.append(grown.error)
            elif all(grown.layout.keys() != one.layout.keys() for one in waiting):
                waiting.append(grown)
        for grown in waiting:
            self.reads |= self._learner.reads(grown)
        self._learner.types |= {k: t for k, t in self.reads.items() if t != "arr"}
        whens: list[Any] = []
        while waiting and len(self.found) < _MOST_FORMS:
            form, others = self._form(waiting.pop(0))
            if form is not None and form["when"] not in whens:
                whens.append(form["when"])
                self.found.append(form)
                waiting += others

    def _form(self, grown: Grown) -> tuple[dict[str, Any] | None, list[Grown]]:
        own = (VOCABULARY, TOKEN_TYPES)
        base = {k: v for k, v in grown.setting.items() if k in self.reads or k in own}
        grown = self._grown(base, grown.layout)
        if grown.error:
            self.errors.append(grown.error)
            return None, []
        bare = grown
        defaults, others, flags = self._explicit(grown)
        grown = self._grown({**base, **{k: v for k, (v, _) in defaults.items()}}, grown.layout)
        if grown.error or grown.layout != bare.layout:
            self.errors.append(f"defaults: {grown.error or 'another layout'}")
            return None, []
        base = grown.setting
        seen = [Seen(base, grown.layout)]
        for key, value in sorted(base.items()):
            if type(value) not in {int, bool}:
                continue
            for other in self._alternatives(key, value):
                varied = self._varied(base, key, other, grown.layout)
                if varied.error:
                    continue
                if bool(other) == bool(value):
                    seen.append(Seen(varied.setting, varied.layout))
                elif varied.layout.keys() != grown.layout.keys():
                    flags[key] = bool(value)
                    others.append(varied)
        seen += self._draws(grown)
        lists = self._lists(grown, seen)
        if lists is None:
            return None, others
        required = sorted(key for key in base if self._is_required(base, key, grown.layout))
        form: dict[str, Any] = {"when": dict(sorted(flags.items())), "lists": lists}
        form["nonzero"] = sorted(
            k for k, v in base.items() if type(v) is int and v and k not in flags
        )
        form["required"] = required
        texts = {k: text for k, (_, text) in defaults.items()}
        texts |= self._own_defaults(base, grown.layout, {*required, *flags, *texts})
        form["defaults"] = dict(sorted(texts.items()))
        form["lists"] = lists
        form["equal"] = self.equal(grown)
        form["by_block"] = self._by_block(base, grown.layout)
        form |= self._types(grown, bare)
        return form, others

    def _grown(self, setting: Setting, layout: Layout) -> Grown:
        """Grow from a layout; from nothing if it has a tensor too many."""
        grown = self._learner.grow(setting, layout)
        if "wrong number of tensors" in grown.error or "wrong shape" in grown.error:
            grown = self._learner.grow(setting, {})
        return grown

    def _varied(self, base: Setting, key: str, value: Any, layout: Layout) -> Grown:
        grown = self._grown({**base, key: value}, layout)
        if grown.error and key in _TOGETHER:
            more = {one: (then if value else 0) for one, then in _TOGETHER[key].items()}
            grown = self._grown({**base, key: value, **more}, layout)
        return grown

    def _is_required(self, base: Setting, key: str, layout: Layout) -> bool:
        error = self._learner.load({k: v for k, v in base.items() if k != key}, layout)
        return "not found in model" in error

    def _alternatives(self, key: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, bool):
            return (not value,)
        if not value:
            return (1, 2, 16)
        if key in _OTHERS:
            return (0, *_OTHERS[key]) if key in _TOGETHER else _OTHERS[key]
        return (0, value + 2, 2 * value, 3)

    def _explicit(
        self, grown: Grown
    ) -> tuple[dict[str, tuple[int, str]], list[Grown], dict[str, bool]]:
        """Return the values that the loader takes for absent keys, and other forms by such keys."""
        defaults: dict[str, tuple[int, str]] = {}
        others: list[Grown] = []
        flags: dict[str, bool] = {}
        setting = grown.setting
        for key, kind in sorted(self.reads.items()):
            if key in setting or kind not in {"u32", "bool"}:
                continue
            for value in (True, False) if kind == "bool" else _SOME:
                varied = self._varied(setting, key, value, grown.layout)
                if varied.error:
                    continue
                if varied.layout.keys() != grown.layout.keys():
                    flags[key] = not value if kind == "bool" else False
                    others.append(varied)
                elif varied.layout != grown.layout:
                    if found := self._default(grown, key):
                        defaults[key] = found
                        setting = {**setting, key: found[0]}
                        grown = Grown(setting, grown.layout)
                    else:
                        flags[key] = False
                        self.errors.append(f"no default of {key}")
                    break
        return defaults, others, flags

    def equal(self, grown: Grown) -> dict[str, str]:
        """Return the keys that may have one value only, as an expression of others."""
        found: dict[str, str] = {}
        for key, kind in sorted(self.reads.items()):
            if key in grown.setting or kind != "u32":
                continue
            refuses = all(self._varied(grown.setting, key, v, grown.layout).error for v in _SOME)
            if refuses and (default := self._default(grown, key)):
                found[key] = default[1]
        return found

    def _own_defaults(self, base: Setting, layout: Layout, known: set[str]) -> dict[str, str]:
        """Return what the loader takes for keys of the file if they are left out."""
        found: dict[str, str] = {}
        for key, value in sorted(base.items()):
            if key in known or type(value) is not int or key not in {*self.reads, VOCABULARY}:
                continue
            less = self._grown({k: v for k, v in base.items() if k != key}, layout)
            if _ZERO.search(less.error):
                found[key] = "0"
            if less.error or key in less.setting or less.layout.keys() != layout.keys():
                continue
            if (
                less.layout == layout
                and self._varied(base, key, 2 * value, layout).layout == layout
            ):
                found[key] = str(value)  # no shape depends on it
            elif default := self._default(less, key):
                found[key] = default[1]
        return found

    def _by_block(self, base: Setting, layout: Layout) -> list[str]:
        """Return the keys that may have a value for each block."""
        blocks = base.get("block_count")
        numbers = [k for k, v in base.items() if type(v) is int and k in self.reads]
        return (
            sorted(
                key
                for key in numbers
                if not self._learner.load({**base, key: [base[key]] * blocks}, layout)
            )
            if type(blocks) is int
            else []
        )

    def _default(self, grown: Grown, key: str) -> tuple[int, str] | None:
        """Return the value and the expression that the loader takes for a key."""
        numbers = {k: v for k, v in grown.setting.items() if type(v) is int and v}
        values: dict[str, int] = dict(numbers)
        for (one, above), (other, below) in itertools.permutations(numbers.items(), 2):
            if above % below == 0:
                values[f"{one}/{other}"] = above // below
        values |= {str(number): number for number in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
        works: dict[int, bool] = {}
        for number in values.values():
            if number not in works:
                error = self._learner.load({**grown.setting, key: number}, grown.layout)
                works[number] = not error
        fitting = [text for text, number in values.items() if works[number]]
        for change in (
            {"embedding_length": 384},
            {"attention.head_count": 8},
            {"attention.head_count_kv": 1},
            {"feed_forward_length": 96},
        ):
            if not change.keys() <= grown.setting.keys():
                continue
            other = self._grown({**grown.setting, **change}, grown.layout)
            if other.error:
                continue
            fitting = [
                text
                for text in fitting
                if (number := _value(text, other.setting)) is not None
                and not self._learner.load({**other.setting, key: number}, other.layout)
            ]
        if not fitting:
            return None
        text = min(
            fitting, key=lambda one: (not one.isdecimal() and "context" in one, "/" in one, one)
        )
        return values[text], text

    def _draws(self, grown: Grown) -> Iterator[Seen]:
        """Yield files in which several keys have other values."""
        found = 0
        for _ in range(3 * _DRAWS):
            setting = dict(grown.setting)
            for key, value in grown.setting.items():
                if type(value) is int and value and self._chance.random() < 0.5:
                    options = [one for one in self._alternatives(key, value) if one]
                    setting[key] = self._chance.choice(options)
            varied = self._grown(setting, grown.layout)
            if not varied.error:
                found += 1
                yield Seen(varied.setting, varied.layout)
            if found == _DRAWS:
                return

    # --- what the files of a form have in common -------------------------------------------------

    def _lists(self, grown: Grown, seen: Sequence[Seen]) -> dict[str, Any] | None:
        result: dict[str, Any] = {}
        first = _sets(grown.layout)
        for list_ in sorted({name for one in seen for name in _sets(one.layout)}):
            sets = [_sets(one.layout).get(list_, {}) for one in seen]
            count: str | None = None
            if list_:
                numbers = [
                    Observed(_flat(one.setting, 0), max(has, default=-1) + 1)
                    for one, has in zip(seen, sets, strict=True)
                ]
                count = fitted(numbers, _deciding(numbers))
                if count is None:
                    self.errors.append(f"no rule for the number of {list_}")
                    return None
            groups = self._groups(seen, sets)
            if groups is None:
                self.errors.append(f"no rule for the blocks of {list_}")
                return None
            rows = []
            for rule, chosen in groups:
                at = next((n for n, s in sorted(first.get(list_, {}).items()) if s == chosen), None)
                shapes = {
                    kind: self._shape(list_, kind, chosen, seen, sets) for kind in sorted(chosen)
                }
                row: dict[str, Any] = {"rule": rule, "needs": shapes}
                if at is not None:
                    row |= self._optional(grown, seen, list_, at, chosen)
                rows.append(row)
            result[list_] = {"count": count, "groups": rows}
        return result

    def _groups(
        self, seen: Sequence[Seen], sets: Sequence[Mapping[int, frozenset[str]]]
    ) -> list[tuple[list[str], frozenset[str]]] | None:
        """Return the sets of kinds that blocks have, each with the rule that gives its blocks."""
        rest = [dict(one) for one in sets]
        distinct = list(dict.fromkeys(kinds for one in sets for kinds in one.values()))
        groups: list[tuple[list[str], frozenset[str]]] = []
        while len(distinct) > 1:
            picked = _rule(
                distinct, [(one.setting, has) for one, has in zip(seen, rest, strict=True)]
            )
            if picked is None:
                return None
            groups.append(picked)
            distinct.remove(picked[1])
            rest = [{n: s for n, s in one.items() if s != picked[1]} for one in rest]
        return [*groups, *(([], one) for one in distinct)]

    def _shape(
        self,
        list_: str,
        kind: str,
        chosen: frozenset[str],
        seen: Sequence[Seen],
        sets: Sequence[Mapping[int, frozenset[str]]],
    ) -> list[str] | None:
        rows = [
            (_flat(one.setting, number), one.layout[_name(list_, number, kind)])
            for one, has in zip(seen, sets, strict=True)
            for number, kinds in has.items()
            if kinds == chosen
        ]
        return self._fitted_shape(rows, f"{list_}.{kind}")

    def _fitted_shape(
        self, rows: Sequence[tuple[dict[str, int], tuple[int, ...]]], name: str
    ) -> list[str] | None:
        shapes = [without_ones(shape) for _, shape in rows]
        dims = []
        for axis in range(-max(map(len, shapes)), 0):
            numbers = [
                Observed(env, shape[axis] if len(shape) >= -axis else 1)
                for (env, _), shape in zip(rows, shapes, strict=True)
            ]
            expression = fitted(numbers, _deciding(numbers))
            if expression is None:
                self.errors.append(f"no rule for the shape of {name}")
                return None
            dims.append(expression)
        return dims

    def _optional(
        self, grown: Grown, seen: Sequence[Seen], list_: str, number: int, chosen: frozenset[str]
    ) -> dict[str, Any]:
        """Return the kinds that are read if they are stored, and those whose place they take."""
        plain: dict[str, Any] = {}
        instead: dict[str, Any] = {}
        patterns = list(self._tensors)
        for _ in range(3):
            named = self._learner.optional(grown, [(list_, number)], patterns)
            taken = set()
            for name, shape in named.items():
                kind = kind_of(name)[2]
                if kind in plain or kind in instead:
                    continue
                with_it = {**grown.layout, name: shape}
                error = self._learner.load(grown.setting, with_it)
                if not error:
                    plain[kind] = self._optional_shape(seen, list_, number, kind, frozenset())
                    continue
                lost = self._replaced(
                    grown, list_=list_, number=number, chosen=chosen, name=name, shape=shape
                )
                taken.add(name)
                instead[kind] = None
                if lost:
                    dims = self._optional_shape(seen, list_, number, kind, lost)
                    instead[kind] = {"shape": dims, "replaces": sorted(lost)}
            if not taken:
                break
            ends = {kind_of(name)[2].rpartition(".")[0] for name in taken}
            patterns = [one for one in patterns if one.rpartition("%d.")[2] not in ends]
        return {"may": plain, "instead": instead}

    def _replaced(  # noqa: PLR0913 - a tensor and its block
        self,
        grown: Grown,
        *,
        list_: str,
        number: int,
        chosen: frozenset[str],
        name: str,
        shape: tuple[int, ...],
    ) -> frozenset[str]:
        """Return the kinds that a block need not have if it has a tensor; none if it needs more."""
        lost = []
        layout = {**grown.layout, name: shape}
        for kind in sorted(chosen):
            less = {k: v for k, v in layout.items() if k != _name(list_, number, kind)}
            if "not found" not in self._learner.load(grown.setting, less):
                lost.append(kind)
        less = {
            k: v
            for k, v in layout.items()
            if kind_of(k) not in {(list_, number, kind) for kind in lost}
        }
        return frozenset() if self._learner.load(grown.setting, less) else frozenset(lost)

    def _optional_shape(
        self, seen: Sequence[Seen], list_: str, number: int, kind: str, lost: frozenset[str]
    ) -> list[str] | None:
        rows = []
        name = _name(list_, number, kind)
        for one in seen[:3] if kind.endswith("scale") else seen:
            layout = {
                k: v
                for k, v in one.layout.items()
                if kind_of(k) not in {(list_, number, k2) for k2 in lost}
            }
            error = self._learner.load(one.setting, {**layout, name: (7, 3)})
            if shape := self._learner.expected_shape(error, name):
                rows.append((_flat(one.setting, number), shape))
        return self._fitted_shape(rows, name) if rows else None

    def other_heads(self) -> bool:
        """Return whether a file computes whose heads have another size than usual."""
        sizes = {"attention.key_length": 40, "attention.value_length": 40}
        for preset in PRESETS[:2]:
            grown = self._learner.grow({**VALUES, **preset, **sizes}, {})
            if not grown.error:
                return not self._learner.load(grown.setting, grown.layout, run=True)
        return False

    # --- types -----------------------------------------------------------------------------------

    def _types(self, grown: Grown, bare: Grown) -> dict[str, Any]:
        """Return the kinds that stop the first computation if they have another type than F32."""
        sizes = [self._grown({**bare.setting, **one}, bare.layout) for one in _SIZES]
        tried = [grown, *(one for one in sizes if not one.error)]
        if any(self._learner.load(one.setting, one.layout, run=True) for one in tried):
            return {"runs": False}
        refused: dict[str, list[str]] = {one: [] for one in _TYPES}
        for (list_, kind), name in {kind_of(n)[::2]: n for n in grown.layout}.items():
            for ggml in _TYPES:
                if ggml == "Q8_0" and grown.layout[name][-1] % _QUANTIZED:
                    continue
                if self._learner.load(grown.setting, grown.layout, run=True, types={name: ggml}):
                    refused[ggml].append(f"{list_}.*.{kind}" if list_ else kind)
        return {"refused_types": {key: sorted(names) for key, names in refused.items()}}


def _sets(layout: Layout) -> dict[str, dict[int, frozenset[str]]]:
    """Return the kinds of each block, by list."""
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in layout:
        list_, number, kind = kind_of(name)
        found[list_][number].add(kind)
    return {key: {n: frozenset(s) for n, s in one.items()} for key, one in found.items()}


def _name(list_: str, number: int, kind: str) -> str:
    return f"{list_}.{number}.{kind}" if list_ else kind


def _at(value: Any, number: int) -> int:
    if isinstance(value, list):
        return int(value[number]) if 0 <= number < len(value) else 0
    return int(value)


def _flat(setting: Setting, number: int) -> dict[str, int]:
    """Return the values of a block's keys."""
    return {k: _at(v, max(number, 0)) for k, v in setting.items() if not isinstance(v, float | str)}


def _value(text: str, setting: Setting) -> int | None:
    first, _, second = text.partition("/")
    one, two = (
        int(part) if part.isdecimal() else setting.get(part) for part in (first, second or "1")
    )
    if type(one) is not int or type(two) is not int or not two or one % two:
        return None
    return one // two


def _rule(
    distinct: Sequence[frozenset[str]], per: Sequence[tuple[Setting, Mapping[int, frozenset[str]]]]
) -> tuple[list[str], frozenset[str]] | None:
    """Return a set of kinds and the rule that gives the blocks with it."""
    keys = sorted(set.intersection(*(set(_flat(setting, 0)) for setting, _ in per)))
    for chosen in distinct:
        for key in keys:
            for word, holds in PREDICATES.items():
                if all(
                    holds(number, _at(setting[key], number)) == (kinds == chosen)
                    for setting, sets in per
                    for number, kinds in sets.items()
                ):
                    return [word, key], chosen
    return None


def _deciding(observed: Sequence[Observed]) -> list[str]:
    """Return the keys that change a number where they alone differ."""
    first = observed[0]
    keys = [key for key in first.keys if len({one.keys.get(key) for one in observed}) > 1]
    found: dict[str, None] = {}
    for one in observed[1:]:
        differing = [key for key in keys if one.keys.get(key) != first.keys.get(key)]
        if one.number != first.number and len(differing) == 1:
            found[differing[0]] = None
    if not found:  # the first block with such tensors may not be in the first file
        found = dict.fromkeys(keys) if len({one.number for one in observed}) > 1 else {}
    return list(found)[:8]

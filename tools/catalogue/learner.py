"""Learn the form of one class from about a hundred of its builds, and hold it to twenty more."""

import itertools
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import msgspec

from auditor.analytic.expectation import ExpectedTensor
from auditor.analytic.generated.expressions import Outside, keys_of
from auditor.analytic.generated.form import IGNORED, Form, Row, kind_of
from auditor.analytic.generated.tree import form_tree, memory_tree
from auditor.analytic.listing import inventory
from auditor.errors import CheckpointError
from catalogue.fitting import HINTS, TEXTS, Observation, columns, fit_any, fit_test, fit_value
from catalogue.probe import MEMORY, Probe, Sample
from catalogue.rows import of_row

_NOISE = re.compile(
    r"(attn_implementation|initializer|init_std|init_range|rope_|token_id|token_index|_token$|"
    r"dropout|drop_path|eps$|epsilon$|output_(att|hidden_st|past|scores|router)|loss|pruned|temperature|_coef$|range$|momentum$)"
)
# What acts rarely, and is moved together first.
_QUIET = re.compile(
    r"mask_|_prob$|scale|alpha|beta|threshold|weight$|_tokens?$|_ids?$|rate$|theta|factor|"
    r"sampl|norm_topk|clip|coef|use_cache|seconds|_start|_end|normalize|momentum|window|chunk"
)
_ACTIVATION = re.compile(r"act$|activation|act_fn|_function$|nonlinearity$")
_COUNTS = re.compile(
    r"layers?$|depth$|n_layer|experts$|num_blocks|num_labels|num_queries|num_local_experts"
)
_SMALL = re.compile(
    r"layers?$|depth|blocks?$|experts|n_layer|stages|num_queries|labels|levels|num_hidden|_every|"
    r"first_k|interval|freq|step|groups?$|per_tok|topk|top_k|window|heads?$"
)
_PLACES = re.compile(r"layers?$|_idxs?$|_ids$|indices$|indexes$")  # lists of layers' numbers
_OUTPUTS = ("out_features", "out_indices", "stage_names")  # of a backbone
_NORMS = ("rms_norm", "layer_norm", "rms_norm_across_heads")
_FEED_FORWARDS = ("gated-gelu", "gated-silu", "relu", "gelu")
_HELD = 20
_MOST_PLACES = 4  # of a loop whose indices have rows of their own
_MOST_ROWS = 700  # of a form for the default alone
_LOADING = "loading rules"  # among the templates, which have no spaces


class UnfitError(Exception):
    """The class is not learned, and why."""


@lru_cache(maxsize=2**17)
def template(name: str) -> tuple[str, tuple[int, ...]]:
    parts = name.split(".")
    indices = tuple(int(part) for part in parts if part.isdecimal())
    return ".".join("*" if part.isdecimal() else part for part in parts), indices


class Learner:
    """The learning of one class; `form` is the result."""

    def __init__(
        self, probe: Probe, seconds: float, known: "Learner | None" = None, seed: int = 0
    ) -> None:
        self.probe, self.seconds, self.known, self.seed = probe, seconds, known, seed
        self.rng = random.Random(seed)
        self.start = time.process_time()
        self.rows: dict[str, Any] = {}  # template -> the row that was fitted
        TEXTS.clear()
        HINTS[:] = probe.hints
        self.why, self.held, self.promoted = "", 100 * seed, []
        self.joint: list[dict[str, Any]] = []  # keys that move together only
        self.base: dict[str, Any] = {}
        self.samples: list[Sample] = []
        self.acts: dict[str, set[str]] = defaultdict(set)  # template -> keys
        self.moves: dict[str, set[str]] = defaultdict(set)  # key -> the keys that change it
        self.menu: dict[str, list[Any]] = {}
        self.tried: dict[str, Any] = {}  # another value of a key that does not act
        self.choices = self.menu  # what held configs are drawn from
        self.aliases: dict[str, str] = {}  # another name of a key that the class takes
        self.naming: set[str] = set()  # keys that change names
        self.guards: dict[str, list[Any]] = {}
        self.free: set[str] = set()

    def used(self) -> float:
        return (time.process_time() - self.start) / self.seconds

    def learn(self) -> Form:
        default = self.probe.default()
        if default is None:
            raise UnfitError(f"the default does not build: {self.probe.error}")
        self.default = default
        self.prefix = self.probe.built.prefix
        try:
            form = self._right_when_held()
        except UnfitError as error:
            self.why = str(error)
            form = self._for_default()
            if (wrong := self._wrong_when_held(form)) is not None:
                said = f"{self.why}; wrong when held: {_said(form, wrong)}"
                raise UnfitError(said[:600]) from None
        return msgspec.structs.replace(form, held=self.report["exact"])

    def _right_when_held(self) -> Form:
        """Return a form that is fitted again to each config for which it was wrong."""
        try:
            form, frozen = self._learned()
        except UnfitError:
            if self.known is None:
                raise
            self.known = None  # what acts on other classes was not enough
            form, frozen = self._learned()
        for _ in range(8):
            wrong = self._wrong_when_held(form)
            if wrong is None:
                return form
            self.samples.append(wrong)
            form, frozen = self._fitted()
            if any(key in self.base for key in frozen):
                raise UnfitError(f"fits only {sorted(frozen)} as reduced")
        raise UnfitError(f"wrong when held: {_said(form, wrong)}"[:300])

    def _learned(self) -> tuple[Form, dict[str, Any]]:
        keep: set[str] = set()
        frozen: dict[str, Any] = {}
        for _ in range(4):
            self._shrink(keep)
            if not self._taken_over():
                self._move_each()
                self._move_joint()
                self._move_under_switches()
            reduced = {k for k in self.guards if k in self.base and k not in keep}
            if reduced:  # a guard holds for the default, never for the reduced number
                keep |= reduced
                self.known = None
                continue
            self._move_together()
            form, frozen = self._fitted()
            again = {key for key in frozen if key in self.base}
            if not again:
                return form, frozen
            keep |= again
            self.known = None
        raise UnfitError(f"fits only {sorted(frozen)} as reduced")

    # --- samples ---------------------------------------------------------------------------------

    def _shrink(self, keep: set[str]) -> None:
        """Reduce the numbers of layers and experts, together if that builds, else one by one."""
        self.base, self.samples = {}, []
        tables = self.acts, self.moves, self.menu, self.naming, self.guards, self.free, self.tried
        for table in tables:
            table.clear()
        self.joint.clear()
        self.rows.clear()
        self.aliases.clear()
        known = self.known
        if known is not None and known.base and self._ok(known.base):
            self.base = dict(known.base)
            return
        leaves = self.default.leaves
        many = [
            key
            for key, value in leaves.items()
            if type(value) is int and value > 6 and _COUNTS.search(key) and "per_tok" not in key
            if key not in keep
        ]
        for small in (4, 8, 6):
            base = {
                key: min(leaves[key], small + (n % 3 if small == 4 else 0))
                for n, key in enumerate(many)
            }
            if many and self._ok(base):
                self.base = base
                return
        for key in many:
            for small in (4, 6, 8):
                if self._ok({**self.base, key: small}):
                    self.base[key] = small
                    break

    def _ok(self, overrides: dict[str, Any]) -> bool:
        sample = self.probe(overrides)
        return sample is not None and all(sample.leaves.get(k) == v for k, v in overrides.items())

    def _move_each(self) -> None:
        origin = self.probe(self.base)
        if origin is None:
            raise UnfitError(f"the shrunken default does not build: {self.probe.error}")
        self.origin = origin
        self.samples = [origin]
        leaves = origin.leaves
        noise = {
            key: _another(value)
            for key, value in leaves.items()
            if type(value) in (int, float, bool) and value != -1
            if _NOISE.search(last := key.rpartition(".")[2]) or _QUIET.search(last)
        }
        floats = [key for key in noise if type(leaves[key]) is float]
        absent = {key: 0.0 for key in floats if leaves[key]}
        present = {key: 0.5 for key in floats if not leaves[key]}
        quiet = set(noise) - {
            key for moved in (noise, absent, present) for key in self._acting(moved, {}, origin)
        }
        for key, value in leaves.items():
            last = key.rpartition(".")[2]
            if key in quiet or last in IGNORED or last == "stage_names":  # its class computes it
                self.free.add(key)
            elif isinstance(value, dict) or (value == [] and not self._candidates(key, value)):
                if last.startswith("rope_") or (value and self._is_idle(key, value)):
                    self.free.add(key)
                else:
                    self.guards[key] = [value]
            elif self.used() > 0.4:
                self.guards[key] = [value]
            else:
                self._move(key, value)

    def _is_idle(self, key: str, value: dict[str, Any]) -> bool:
        """Return whether other tables than a key's default change nothing."""
        numbers = {k: _another(v) for k, v in value.items() if type(v) in (bool, int, float)}
        builds = (self.probe({**self.base, key: other}) for other in ({}, {**value, **numbers}))
        return bool(numbers) and all(_is_like(one, self.origin) for one in builds)

    def _move(self, key: str, value: Any) -> None:
        origin, taken, changed, overwritten = self.origin, [], False, False
        for candidate in self._candidates(key, value):
            sample = self.probe({**self.base, key: candidate})
            if sample is None:
                continue
            if (other := self._alias(key, candidate, sample)) is not None:
                self.aliases[key] = other
                return
            if sample.leaves.get(key) != candidate:
                overwritten |= sample.tensors == origin.tensors
                continue
            taken.append(candidate)
            changed |= self._note({key}, sample, origin)
            if len(taken) >= 3 or (len(taken) >= 2 and not changed):
                break
        is_size = changed and isinstance(value, float)
        absences = []
        for candidate in self._absences(key, value):
            sample = self.probe({**self.base, key: candidate})
            if sample is not None and sample.leaves.get(key, value) == candidate:
                absences += [candidate] * self._note({key}, sample, origin)
        if (changed or absences) and not is_size:
            changed = True
            taken = absences if isinstance(value, float) else [*taken, *absences]
            self.menu[key] = [value, *taken]
        elif taken and not changed:
            self.tried[key] = taken[0]
            is_string = isinstance(value, str)
            if is_string and _ACTIVATION.search(key):
                self.guards[key] = sorted({value, *taken, *_plain_activations()})
            elif is_string:
                self.guards[key] = [value, *taken]
            else:
                self.free.add(key)
        elif overwritten and not taken:
            self.free.add(key)
        else:
            self.guards[key] = [value]

    def _alias(self, key: str, value: Any, sample: Sample) -> str | None:
        """Return the key for which this one is another name."""
        known = self.origin.leaves
        for other, now in sample.leaves.items() if known[key] is None else ():
            is_set = other != key and type(now) is type(value) and now == value != known.get(other)
            if is_set and _is_like(self.probe({**self.base, other: value}), sample):
                return other
        return None

    def _note(self, keys: set[str], sample: Sample, origin: Sample) -> bool:
        """Keep a sample, and what the keys changed in it; return whether they changed anything."""
        self.samples.append(sample)
        for other, now in sample.leaves.items():
            if other not in keys and now != origin.leaves.get(other):
                self.moves[other] |= keys
        changed = sample.loading != origin.loading
        if changed:
            self.acts[_LOADING] |= keys
        if set(sample.tensors) != set(origin.tensors):
            self.naming |= keys
        for name in {*sample.tensors, *origin.tensors}:
            if sample.tensors.get(name) != origin.tensors.get(name):
                changed = True
                self.acts[template(name)[0]] |= keys
        return changed

    def _acting(
        self, moved: dict[str, Any], under: dict[str, Any], origin: Sample
    ) -> Iterator[str]:
        """Yield the keys that change something, or build alone never, by halving the group."""
        if not moved:
            return
        if self.used() > 0.6:  # not tried, so they may act
            yield from moved
            return
        sample = self.probe({**self.base, **under, **moved})
        if _is_like(sample, origin):
            return
        if len(moved) == 1:
            yield from moved
            return
        keys = list(moved)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            yield from self._acting({key: moved[key] for key in half}, under, origin)

    def _others(self) -> dict[str, Any]:
        """Return another value for each key that does not act."""
        moved = {}
        for key in sorted(self.free):
            value, last = self.origin.leaves.get(key), key.rpartition(".")[2]
            if last in IGNORED or last.startswith("tie_"):  # one may undo another: not in a group
                continue
            if key in self.tried:
                moved[key] = self.tried[key]
            elif type(value) in (bool, int, float) and value != -1:
                moved[key] = _another(value)
        return moved

    def _taken_over(self) -> bool:
        """Move what acts on a class of the same type; return whether there is such a class."""
        known, origin = self.known, self.probe(self.base)
        if known is None or origin is None or origin.leaves.keys() != known.origin.leaves.keys():
            return False
        if known.base != self.base:
            return False
        self.origin, self.samples = origin, [origin]
        self.guards.update(known.guards)
        self.aliases.update(known.aliases)
        self.free |= known.free
        self.tried.update(known.tried)
        for key, values in known.menu.items():
            taken = []
            for value in [*values[1:2], *(v for v in values[2:] if not v)]:
                sample = self.probe({**self.base, key: value})
                if sample is not None and sample.leaves.get(key) == value:
                    self._note({key}, sample, origin)
                    taken.append(value)
            if taken:
                self.menu[key] = [values[0], *taken]
            else:
                self.guards[key] = [values[0]]
        for moved in known.joint:
            sample = self.probe({**self.base, **moved})
            if sample is not None:
                self._note(set(moved), sample, origin)
                self.joint.append(moved)
                for key in moved:
                    self.guards.pop(key, None)
                    self.menu.setdefault(key, [origin.leaves[key]])
        ties = [key for key in self.free if key.rpartition(".")[2].startswith("tie_")]
        for key in [*self._acting(self._others(), {}, origin), *ties]:
            self.free.discard(key)
            self._move(key, origin.leaves[key])
        for moved in known.promoted:
            self._promote(*moved)
        self._move_under_switches()
        return True

    def _move_under_switches(self) -> None:
        """Look for keys that act only under another value of a flag, a string or a derived key."""
        counts = {key for key in self.menu if _COUNTS.search(key)}
        switches = [
            {key: value}
            for key in self.menu
            # a key that is derived from others hides what they do until it is given
            if type(self.origin.leaves[key]) not in (int, list)
            or key in self.moves
            or key in self.naming - counts
            for value in self.menu[key][1 : 4 if isinstance(self.menu[key][0], str) else 2]
        ]
        if self.known is None:
            for key, under in list(self._acting_together(self._others(), {})):
                self._promote(key, self._others().get(key), self._least(key, under))
        for under in switches[:24]:
            if self.used() > 0.5:
                break
            origin = self.probe({**self.base, **under})
            if origin is None:
                continue
            others = {k: v for k, v in self._others().items() if not _NOISE.search(k)}
            others |= {
                k: not v
                for k, v in self.origin.leaves.items()
                if k in self.free and k.rpartition(".")[2].startswith("tie_")
            }
            for key in list(self._acting(others, under, origin)):
                self._promote(key, others[key], under)

    def _acting_together(
        self, moved: dict[str, Any], under: dict[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield keys that act under other values of idle keys only, and these values."""
        origin = self.probe({**self.base, **under})
        sample = self.probe({**self.base, **under, **moved})
        if not moved or self.used() > 0.4 or origin is None or _is_like(sample, origin):
            return
        keys = list(moved)
        if len(keys) == 1:
            if sample is not None:
                yield keys[0], under
            return
        halves = [{k: moved[k] for k in part} for part in (keys[::2], keys[1::2])]
        found = [pair for half in halves for pair in self._acting_together(half, under)]
        yield from found
        if not found:
            for half, other in (halves, halves[::-1]):
                yield from self._acting_together(half, {**under, **other})

    def _least(self, key: str, under: dict[str, Any]) -> dict[str, Any]:
        """Return the values without which a key does not act."""
        for switch in list(under):
            fewer = {k: v for k, v in under.items() if k != switch}
            origin = self.probe({**self.base, **fewer})
            sample = self.probe({**self.base, **fewer, key: self._others()[key]})
            if origin is not None and sample is not None and not _is_like(sample, origin):
                under = fewer
        return under

    def _promote(self, key: str, value: Any, under: dict[str, Any]) -> None:
        """Let a key act that acts only under other values of others."""
        origin = self.probe({**self.base, **under})
        sample = self.probe({**self.base, **under, key: value})
        if origin is None or sample is None or _is_like(sample, origin):
            return
        self._note({key}, sample, origin)
        for switch in under:
            for title in [t for t, keys in self.acts.items() if key in keys]:
                self.acts[title].add(switch)
        self.free.discard(key)
        self.menu.setdefault(key, [self.origin.leaves[key], value])
        self.promoted.append((key, value, under))

    def _move_joint(self) -> None:
        """Move numbers that cannot move alone with others, and the lengths of lists together."""
        leaves = self.origin.leaves
        for moved in self.probe.joint:
            self._joined(moved)
        numbers = {
            k: v for k, v in leaves.items() if type(v) is int and v > 1 and k not in self.free
        }
        stuck = [key for key in numbers if key in self.guards]
        for key in stuck:
            if self.used() > 0.5:
                break
            value = numbers[key]
            kin = [k for k in numbers if k != key and _related(numbers[k], value)]
            kin.sort(key=lambda k: (_shared(k, key), numbers[k] == value), reverse=True)
            for others in [*([k] for k in kin[:5]), kin[:2], kin[:3]]:
                moved = {k: numbers[k] * 2 for k in [key, *others]}
                if self._joined(moved):
                    self._joined({k: v * 3 // 2 for k, v in moved.items()})
                    break
        flags = [k for k, v in leaves.items() if type(v) is bool]
        for key, other in itertools.permutations(flags, 2):
            if key in self.guards and self.used() < 0.5:
                self._joined({key: not leaves[key], other: not leaves[other]})
        lists = [k for k, v in leaves.items() if isinstance(v, list) and len(v) > 1]
        for length in sorted({len(leaves[k]) for k in lists if k in self.menu or k in self.guards}):
            same = [k for k in lists if len(leaves[k]) == length]
            counts = [
                k for k, v in numbers.items() if v == length and k in {*self.guards, *self.menu}
            ]
            shorter = {k: leaves[k][:-1] for k in same}
            for also in ({}, dict.fromkeys(counts, length - 1)):
                if self.used() < 0.5 and self._joined(shorter | also):
                    longer = {k: [*leaves[k], leaves[k][-1]] for k in same}
                    self._joined(longer | dict.fromkeys(also, length + 1))
                    break

    def _joined(self, moved: dict[str, Any]) -> bool:
        """Try to move several keys at once; return whether that builds."""
        sample = self.probe({**self.base, **moved})
        if sample is None or any(sample.leaves.get(k) != v for k, v in moved.items()):
            return False
        if not self._note(set(moved), sample, self.origin):
            return False
        self.joint.append(moved)
        for key in moved:
            self.guards.pop(key, None)
            self.free.discard(key)
            alone = [self.tried[key]] if key in self.tried else []  # what changed nothing
            self.menu.setdefault(key, [self.origin.leaves[key], *alone])
        return True

    def _absences(self, key: str, value: Any) -> list[Any]:
        """Return the values of a key that may take tensors away: 0 and null."""
        if type(value) is bool:
            return [None] * (key in self.probe.nullable)
        if type(value) not in (int, float) or not value:
            return []
        is_small = value < 8 or _SMALL.search(key.rpartition(".")[2])
        return [value * 0] * bool(is_small) + [None] * (key in self.probe.nullable)

    def _candidates(self, key: str, value: Any) -> list[Any]:
        if key in self.probe.menu:
            return self.probe.menu[key]
        last = key.rpartition(".")[2]
        match value:
            case bool():
                return [not value]
            case -1:
                return [16, 32]
            case int() if last.endswith("heads") and value > 3:
                return [value // 2, value // 4, value * 2, value + 1, 1]
            case int() if _SMALL.search(last) or value < 8:
                return [value + 1, value + 2, max(value - 1, 0), value * 2]
            case int():
                return [value * 2, value * 3, value // 2, value + 8]
            case float():
                return [value * 2 or 0.5, value / 2]
            case str() if last == "feed_forward_proj":
                return [one for one in _FEED_FORWARDS if one != value]
            case str() if _ACTIVATION.search(last):
                return ["silu", "gelu", "relu"]
            case str() | None if last == "qk_norm":
                return [one for one in _NORMS if one != value]
            case str():
                return [word for word in self.probe.words(key) if word != value]
            case None if re.search(r"bias|use_|tie_|is_", last):
                return [True, False]
            case None if re.search(r"dim$|size$|heads$|rank$|channels$", last):
                return [32, 64, 48]
            case None if re.search(r"layers$|experts$", last):
                return [2, 3]
            case [] if _PLACES.search(last):
                return [[0], [1, 2], [0, 2]]
            case list() if last == "out_indices":
                return [one for one in ([1], [2], [1, 2]) if one != value]
            case list() if _are_numbers(value):
                double = [item * 2 for item in value]
                return [
                    double,
                    [value[0] * 2, *value[1:]],
                    [item + 1 for item in value],
                    [*value[:-1], value[-1] * 2],
                ]
            case [] if words := self.probe.words(key):
                return [words, words[:1], words[0]]
            case None if words := self.probe.words(key):
                return [*words[:2], words]
            case None:
                return [32, 2, True]
            case list() if value and all(type(item) is float for item in value):
                return [[item / 2 for item in value], [*value, 1.0]]
            case list() if last == "out_features":
                return [[one] for one in self.origin.leaves.get(key[:-12] + "stage_names", [])[1:3]]
            case list() if value and all(isinstance(item, str) for item in value):
                known = self.default.leaves.get(key) or ()
                items = dict.fromkeys([*value, *known, *self.probe.words(key)])
                alike = ([item] * len(value) for item in items)
                moved = (value[1:] + value[:1], value[::-1], *alike)
                return [one for one in moved if one != value]
        return []

    def _draw(self, rng: random.Random, share: float) -> dict[str, Any]:
        drawn = dict(self.base)
        for key, values in self.menu.items():
            if rng.random() < share:
                drawn[key] = rng.choice(values)
        for moved in self.joint:
            if rng.random() < share / 2:
                drawn.update(moved)
        return drawn

    def _move_together(self) -> None:
        wanted, tries = len(self.samples) + (10 if self.known else 20) * (1 + self.seed), 0
        while len(self.samples) < wanted and tries < 90 * (1 + self.seed) and self.used() < 0.6:
            tries += 1
            sample = self.probe(self._draw(self.rng, self.rng.choice((0.25, 0.5, 0.8))))
            if sample is not None:
                self.samples.append(sample)
        seen = defaultdict(list)
        for place, sample in enumerate(self.samples):
            for name in {template(one)[0] for one in sample.tensors}:
                if self.known is None or name not in self.known.rows:
                    seen[name].append(place)
        for places in {tuple(where) for where in seen.values() if len(where) < 14}:
            if self.used() > 0.7:
                break
            flags = [
                key
                for key in self.menu
                if key in self.naming
                and any(self.samples[n].leaves.get(key) != self.origin.leaves[key] for n in places)
            ]
            for _ in range(7):
                source = self.samples[self.rng.choice(places)].leaves
                drawn = {
                    **{key: source.get(key) for key in flags},
                    **{
                        key: self.rng.choice(values)
                        for key, values in self.menu.items()
                        if key not in flags and self.rng.random() < 0.6
                    },
                }
                sample = self.probe({**self.base, **drawn})
                if sample is not None:
                    self.samples.append(sample)

    # --- the fit ---------------------------------------------------------------------------------

    def _fitted(self) -> tuple[Form, dict[str, Any]]:
        """Return a form that is right on five further draws, and the keys that it freezes."""
        frozen: dict[str, Any] = {}
        rng = random.Random(7)
        count = 4
        checks = [
            s for n in range(count) if (s := self.probe(self._larger(rng, n % 2))) is not None
        ]
        failed: list[str] = []
        for attempt in range(16):
            if self.used() > 1.2:
                raise UnfitError("the time is up")
            rows, failed = self._rows(frozen)
            if not failed:
                form = self._form(rows, frozen)
                wrong = next((one for one in checks if _outcome(form, one) == "wrong"), None)
                if wrong is None:
                    return form, frozen
                checks.remove(wrong)
                self.samples.append(wrong)
                if attempt < 4:
                    continue
                failed = sorted(_differing(form, wrong))
            blamed = self._blamed(failed, frozen)
            if not blamed:
                break
            frozen.update({key: self.origin.leaves[key] for key in blamed})
        raise UnfitError(f"unfit: {failed[:3]}")

    def _blamed(self, failed: list[str], frozen: dict[str, Any]) -> set[str]:
        """Return the keys whose default values take away the most failures at the least cost.

        First a key without whose other values the failed tensors would not exist; then the keys
        that act on few other tensors.
        """
        live = set(self.menu) - set(frozen)
        extra = [name for name in failed if not self._is_in(name, self.origin)]
        for key in sorted(live & self.naming, key=lambda k: type(self.origin.leaves[k]) is int):
            usual = [one for one in self.samples if one.leaves.get(key) == self.origin.leaves[key]]
            if extra and not any(self._is_in(extra[0], one) for one in usual):
                return {key}
        acted = defaultdict(set)
        for name, keys in self.acts.items():
            for key in keys & live:
                acted[key].add(name)
        shares = {
            key: len(hit) / len(names)
            for key, names in acted.items()
            if (hit := names.intersection(failed))
        }
        worst = max(shares.values(), default=0)
        alone = {key for key, share in shares.items() if share == 1}
        return alone or {max(shares, key=lambda key: (shares[key], key))} if worst else set()

    def _is_in(self, title: str, sample: Sample) -> bool:
        return any(template(name)[0] == title for name in sample.tensors)

    def _larger(self, rng: random.Random, odd: int) -> dict[str, Any]:
        drawn = self._draw(rng, 0.4)
        for key in self.menu:
            value = self.origin.leaves[key]
            if odd and type(value) is int and value > 1 and rng.random() < 0.3:
                drawn[key] = value * rng.choice((2, 3, 5)) // rng.choice((1, 2))
        return drawn | self._one_list(rng)

    def _rows(self, frozen: dict[str, Any]) -> tuple[list[Any], list[str]]:
        guards = {**self.guards, **{key: [value] for key, value in frozen.items()}}
        samples = [
            one
            for one in self.samples
            if all(
                one.leaves.get(key) in allowed
                for key, allowed in guards.items()
                if key not in self.moves or key in one.flat
            )
        ]
        live = set(self.menu) - set(frozen)
        # derived lists act as the keys that they are derived from
        lists = {k for k in self.moves if isinstance(self.origin.leaves.get(k), list)}
        derived = {key for key in self.moves if key in live} | lists
        ranked: dict[tuple[str, int], list[dict[tuple[int, ...], Any]]] = {}
        for place, sample in enumerate(samples):
            for name, what in sample.tensors.items():
                title, index = template(name)
                found = ranked.get((title, len(what[0])))
                if found is None:
                    found = ranked[title, len(what[0])] = [{} for _ in samples]
                found[place][index] = what
        rows, failed, self.memo = [], [], {}
        for (title, _), found in ranked.items():
            if self.used() > 1.2:
                failed.append(title)
                continue
            near = set(self.acts[title])
            if not all(found):
                near |= self._around(title, ranked)
            near |= {key for key in derived if self.moves[key] & near}
            order = sorted(
                near & (live | lists), key=lambda key: (key not in self.acts[title], key)
            )
            row = self.rows.get(title)
            if row is None or not self._is_right(row, found, samples):
                row = self._known_row(title, found, samples)
            row = row or self._row(title, found, samples, order, live)
            if row is None and len(order) < len(live) < 30 and self.used() < 0.8:
                wider = [*order, *sorted(live - set(order))]
                row = self._row(title, found, samples, wider, live)
            parts = [row] if row else self._rows_by_place(title, found, samples, order, live)
            rows += parts
            if row is not None:
                self.rows[title] = row
            elif not parts:
                failed.append(title)
        return rows, failed

    def _rows_by_place(
        self, title: str, found: Any, samples: list[Sample], near: list[str], live: set[str]
    ) -> list[Any]:
        """Return a row for each index of one loop that has few; [] if one of them is unfit."""
        parts = title.split(".")
        for level in range(title.count("*") - 1, -1, -1):
            places = sorted({index[level] for one in found for index in one})
            if not 1 < len(places) <= _MOST_PLACES or self.used() > 0.5:
                continue
            at = [n for n, part in enumerate(parts) if part == "*"][level]
            rows = []
            for place in places:
                own = [
                    {
                        (*i[:level], *i[level + 1 :]): what
                        for i, what in one.items()
                        if i[level] == place
                    }
                    for one in found
                ]
                name = ".".join([*parts[:at], str(place), *parts[at + 1 :]])
                row = self._row(name, own, samples, near, live)
                if row is None:
                    break
                rows.append(row)
            else:
                return rows
        return []

    def _known_row(self, title: str, found: Any, samples: list[Sample]) -> Any:
        """Return the row of a class of the same type if it is right for every sample."""
        known = self.known.rows if self.known else {}
        parts = title.split(".")
        for cut in range(min(3, len(parts))):
            row, prefix = known.get(".".join(parts[cut:])), "".join(p + "." for p in parts[:cut])
            if row is None or "*" in prefix:
                continue
            roles = [[[r, t and prefix + t], test] for (r, t), test in row[4]]
            mine = [title, *row[1:4], roles, row[5]]
            if self._is_right(mine, found, samples):
                return mine
        for other, row in known.items():  # the base model of a class that was learned before
            prefix = other.removesuffix(title)
            if prefix != other and prefix.endswith(".") and prefix.count(".") == 1:
                roles = [[[r, t and t.removeprefix(prefix)], test] for (r, t), test in row[4]]
                mine = [title, *row[1:4], roles, row[5]]
                if self._is_right(mine, found, samples):
                    return mine
        return None

    def _is_right(self, row: Any, found: Any, samples: list[Sample]) -> bool:
        typed = msgspec.convert(row, Row)
        for one, sample in zip(found, samples, strict=True):
            try:
                made = dict(of_row(typed, sample.leaves))
            except Outside:
                return False
            if len(made) != len(one):
                return False
            if any(one.get(template(name)[1]) != what for name, what in made.items()):
                return False
        return True

    def _around(self, title: str, ranked: Any) -> set[str]:
        """Return what acts on the neighbours of a tensor that not every sample has."""
        parts = title.split(".")
        for length in range(len(parts) - 1, -1, -1):
            prefix = "".join(f"{part}." for part in parts[:length])
            more: set[str] = set()
            for other, _ in ranked:
                if other.startswith(prefix) and other != title:
                    more |= self.acts[other]
            if more:
                return more
        return set()

    def _once(
        self, kind: str, values: Any, seen: list[Observation], near: list[str], fit: Any
    ) -> Any:
        key = (kind, str(values), tuple((id(o.leaves), o.index) for o in seen), tuple(near))
        if key not in self.memo:
            self.memo[key] = fit(values, seen, near)
        return self.memo[key]

    def _row(
        self, title: str, found: Any, samples: list[Sample], near: list[str], live: set[str]
    ) -> Any:
        here = [Observation(sample.leaves) for sample in samples]
        present = self._once("t", [bool(one) for one in found], here, near, fit_test)
        depth = title.count("*")
        if present is None and not depth:
            return None
        levels = []
        for level in range(depth):
            one_level = self._level(level, found, samples, near, empties=present is None)
            if one_level is None:
                return None
            levels.append(one_level)
        at = [
            (Observation(samples[n].leaves, index), what)
            for n, one in enumerate(found)
            for index, what in one.items()
        ]
        if len(at) > 900:
            at = random.Random(1).sample(at, 900)
        seen = [one for one, _ in at]
        shape = []
        for axis in range(len(at[0][1][0])):
            size = self._once("d", [what[0][axis] for _, what in at], seen, near, fit_value)
            if size is None:
                return None
            shape.append(size)
        tags = [_tag(what[1], one.index) for one, what in at]
        kinds = sorted(set(tags), key=lambda one: (tags.count(one), str(one)))
        roles = []
        for kind in kinds[:-1]:
            test = self._once("r", [tag == kind for tag in tags], seen, near, fit_test)
            if test is None:
                return None
            roles.append([kind, test])
        roles.append([kinds[-1], True])
        there = [samples[n].leaves for n, one in enumerate(found) if one]
        still = {}
        for key in live:
            mine = {json.dumps(leaves.get(key)) for leaves in there}
            everywhere = {json.dumps(sample.leaves.get(key)) for sample in samples}
            # a number stands for others: they differ only if one side has another kind of value
            here, all_kinds = ({_kind_of_text(text) for text in one} for one in (mine, everywhere))
            few = here not in (all_kinds, {"number"})
            if mine != everywhere and (len(mine) == 1 or few):
                still[key] = [json.loads(text) for text in sorted(mine)]
        return [title, levels, True if present is None else present, shape, roles, still]

    def _level(
        self, level: int, found: Any, samples: list[Sample], near: list[str], *, empties: bool
    ) -> Any:
        seen, sets = [], []
        for sample, indices in zip(samples, found, strict=True):
            if not indices and empties and level == 0:
                seen.append(Observation(sample.leaves))
                sets.append(set())
            for prefix in sorted({index[:level] for index in indices}):
                seen.append(Observation(sample.leaves, prefix))
                sets.append({index[level] for index in indices if index[:level] == prefix})
        tops = [max(one, default=-1) + 1 for one in sets]
        if all(one == set(range(top)) for one, top in zip(sets, tops, strict=True)):
            bound = self._once("n", tops, seen, near, fit_value)
            if bound is not None:
                return [bound, True]
        if all(one == sets[0] for one in sets):
            return [max(tops), ["in", ["i", level], ["q", sorted(sets[0])]]]
        numbers = columns(seen, near, indices=False)
        bounds = [
            *numbers,
            *((["-", e, 1], v - 1) for e, v in numbers),
            *((["+", e, f], v + w) for (e, v), (f, w) in itertools.combinations(numbers, 2)),
        ]
        for bound, vector in bounds:
            if (vector < tops).any() or vector.max() > 64:
                continue
            turns = [
                (Observation(one.leaves, (*one.index, i)), i in there)
                for one, there, count in zip(seen, sets, vector.tolist(), strict=True)
                for i in range(count)
            ]
            if len(turns) > 4000:
                continue
            test = fit_test([there for _, there in turns], [one for one, _ in turns], near)
            if test is not None:
                return [bound, test]
        return None

    def _form(self, rows: list[Any], frozen: dict[str, Any]) -> Form:
        """Return the form with what it reads of a config as written."""
        loadings = self._loadings()
        default, parts = self.default, {}
        for part, model_type in self.probe.parts.items():
            written = self.probe({f"{part}.model_type": model_type}) if model_type else None
            parts[part] = (
                {}
                if written is None
                else {
                    key: value
                    for key, value in written.leaves.items()
                    if key.startswith(f"{part}.") and value != default.leaves.get(key)
                }
            )
        idle = {k for k in self.free if k.rpartition(".")[2] in _OUTPUTS}
        lists = {k for k in self.moves if isinstance(self.origin.leaves.get(k), list)} - idle
        if not self.menu:  # a form for the default alone: they are guards
            lists = set()
        live = {*(set(self.menu) - set(frozen)), *lists}
        guards = {**self.guards, **{key: [value] for key, value in frozen.items()}}
        guards = {key: allowed for key, allowed in guards.items() if key not in live}
        acting = {*live, *guards}
        order = sorted(self.moves, key=lambda key: (len(self.moves[key]), key))
        derived = [[key, *self._derivation(key)] for key in order if key in live]
        acting |= {key for _, *made in derived for one in made for key in keys_of(one)}
        kinds, lengths, items = {}, {}, {}
        for key in live:
            values = [s.leaves.get(key) for s in self.samples]
            if self.known and key in self.free:  # what another class has shown not to act
                values += [s.leaves.get(key) for s in self.known.samples]
            strings = {i for v in values if isinstance(v, list) for i in v if isinstance(i, str)}
            if strings and (key in self.moves or len({len(v) for v in values if v}) > 1):
                items[key] = sorted(strings)
            elif strings or any(isinstance(value, str) for value in values):
                guards[key] = [json.loads(t) for t in sorted({json.dumps(v) for v in values})]
            kinds[key] = sorted({kind_of(value) for value in values})
            if "float" in kinds[key]:  # of which only the truth acts
                kinds[key].append("int")
            sizes = {len(v) for v in values if isinstance(v, list)}
            if len(sizes) == 1 and all(isinstance(v, list) for v in values):
                [lengths[key]] = sizes
        known = default.leaves
        for key in self.free & self.tried.keys():  # other types of values were not tried
            if known.get(key, 0) is None:
                kinds[key] = sorted({"null", kind_of(self.tried[key])})
                acting.add(key)
        return msgspec.convert(
            {
                "target": self.probe.target,
                "model_type": self.probe.model_type,
                "library": "",
                "prefix": self.prefix,
                "held": 0,
                "defaults": {
                    key: None if key in self.probe.needed else known[key]
                    for key in sorted(acting)
                    if key in known
                },
                "free": sorted({*self.free, *self.origin.leaves} - acting),
                "parts": parts,
                "part_types": {k: v for k, v in self.probe.parts.items() if v},
                "untyped": sorted(part for part in self.probe.parts if self._is_untyped(part)),
                "aliases": self._aliases() | self.aliases,
                "derived": derived,
                "guards": guards,
                "filled": {key: fit for key in live if (fit := self._filled(key)) is not None},
                "implied": sorted(set(guards) & set(self.moves)),
                "kinds": kinds,
                "lengths": lengths,
                "items": items,
                "base_key": getattr(self.probe.config_class, "base_config_key", "") or "",
                "split": [key for key in live if self._is_split(key)],
                "rows": [row for row in rows if not row[0].startswith(MEMORY)],
                "memory_rows": [
                    [row[0].removeprefix(MEMORY), *row[1:]]
                    for row in rows
                    if row[0].startswith(MEMORY)
                ],
                "loadings": loadings,
            },
            Form,
        )

    def _for_default(self) -> Form:
        """Return a form for the default alone: every key that acts is a guard."""
        default = self.default
        if not self.menu and not self.guards:
            raise UnfitError(self.why)
        guards = {key: [v] for key, v in default.leaves.items() if key not in self.free}
        self.guards = guards | {k: v for k, v in self.guards.items() if guards.get(k, [0])[0] in v}
        self.choices = dict(self.menu)
        self.menu.clear()
        self.samples = [default]
        found: dict[tuple[str, Any], list[tuple[int, ...]]] = defaultdict(list)
        for name, (shape, tag) in default.tensors.items():
            title, index = template(name)
            found[title, (shape, _tag(tag, index))].append(index)
        rows = []
        for (title, (shape, tag)), indices in found.items():
            levels = [sorted(set(level)) for level in zip(*indices, strict=True)]
            if len(indices) == prod(map(len, levels)):
                loops = [[level[-1] + 1, level == [*range(level[-1] + 1)]
                          or ["in", ["i", n], ["q", level]]]
                         for n, level in enumerate(levels)]  # fmt: skip
                rows.append([title, loops, True, shape, [[tag, True]], {}])
                continue
            for index in indices:
                parts = iter(index)
                name = ".".join(str(next(parts)) if p == "*" else p for p in title.split("."))
                tied = default.tensors[name][1]
                rows.append([name, [], True, shape, [[tied, True]], {}])
        if len(rows) > _MOST_ROWS:
            raise UnfitError(f"{self.why}; {len(rows)} rows")
        return self._form(rows, {})

    def _is_untyped(self, part: str) -> bool:
        """Return whether a nested config needs no model type, in up to three samples."""
        stating = [s for s in self.samples if any(key.startswith(f"{part}.") for key in s.flat)]
        return bool(stating) and not any(self.probe.needs_type(part, s) for s in stating[:3])

    def _is_split(self, key: str) -> bool:
        """Return whether the config class makes a list of "one|other"."""
        items = next(
            (v for v in self.menu.get(key, ()) if isinstance(v, list) and len(v) > 1), None
        )
        if items is None or not all(isinstance(item, str) for item in items):
            return False
        sample = self.probe({key: "|".join(items)})
        return sample is not None and sample.leaves.get(key) == items

    def _loadings(self) -> list[Any]:
        """Return the loading rules, each with a test of the keys that change them."""
        seen = [Observation(sample.leaves) for sample in self.samples]
        texts = [sample.loading for sample in self.samples]
        near = sorted(self.acts[_LOADING])
        kinds = sorted(set(texts), key=lambda one: (texts.count(one), one))
        tests = [
            fit_test([one == kind for one in texts], seen, near) if kind != kinds[-1] else True
            for kind in kinds
        ]
        if None in tests or len(kinds) > 4:
            raise UnfitError("the loading rules depend on the config")
        rules = [json.loads(kind) for kind in kinds]
        if any(one["not_renamed"] for one in rules):
            raise UnfitError("some names are not renamed")
        return [list(pair) for pair in zip(rules, tests, strict=True)]

    def _aliases(self) -> dict[str, str]:
        own = getattr(self.probe.config_class, "attribute_map", None) or {}
        return {alias: key for alias, key in own.items() if alias not in self.default.leaves}

    def _filled(self, key: str) -> Any:
        """Return the key whose value the class takes where a number is null; None without one."""
        value = self.origin.leaves[key]
        if type(value) is not int or key not in self.probe.nullable or key in self.moves:
            return None
        null = self.probe({**self.base, key: None})
        instead = null.leaves.get(key) if null else None
        path = key.rpartition(".")[0]
        for other, now in self.origin.leaves.items() if type(instead) is int else ():
            is_beside = other != key and other.rpartition(".")[0] == path
            if is_beside and type(now) is int and now == instead:
                moved = self.probe({**self.base, key: None, other: 2 * now})
                if moved is not None and moved.leaves.get(key) == 2 * now:
                    return ["k", other]
        return None

    def _derivation(self, key: str) -> list[Any]:
        """Return how an absent key follows from others; [None, None] if it must be given."""
        absent = [one for one in self.samples if key not in one.flat]
        seen = [Observation(one.leaves) for one in absent]
        near = sorted(self.moves[key])
        found = fit_any([one.leaves.get(key) for one in absent], seen, near)
        if found is not None:
            return list(found)
        # where nothing fits: the default, if everything that changes it has its default
        known = self.default.leaves
        if not near or len(near) > 60 or key not in known:
            return [None, None]
        tests = [["==", ["k", one], ["q", known.get(one)]] for one in near]
        while len(tests) > 1:
            tests = [["and", *t] if len(t := tests[n : n + 2]) == 2 else t[0]
                     for n in range(0, len(tests), 2)]  # fmt: skip
        return [None, ["if", tests[0], ["q", known[key]], ["at", ["q", []], 0]]]

    # --- held ------------------------------------------------------------------------------------

    def _wrong_when_held(self, form: Form) -> Sample | None:
        """Return a config for which the form is wrong: the default, or a fresh random one.

        A config is fresh if learning did not build it.
        """
        self.held += 1
        rng = random.Random(f"{self.probe.target} {self.held}")
        default_outcome = _outcome(form, self.default)
        if default_outcome == "wrong":
            return self.default
        exact = outside = 0
        large = len(self.default.tensors) > 3000
        todo = [] if large else [self._as_saved(self.default.leaves)]
        for tried in range(90):
            if exact >= _HELD or (exact + outside >= _HELD and tried > 45):
                break
            overrides = todo.pop() if todo else self._fresh(rng, tried)
            if json.dumps(overrides, sort_keys=True) in self.probe.known:
                continue
            if _is_outside(form, self.probe.full(overrides)):  # no build is needed
                outside += 1
                continue
            if self.used() > 2:
                continue
            sample = self.probe(overrides)
            if sample is None:
                continue
            outcome = _outcome(form, sample)
            if outcome == "wrong":
                return sample
            exact, outside = exact + (outcome == "exact"), outside + (outcome != "exact")
            if tried % 3 == 0 and len(sample.leaves) < 400:
                todo.append(self._as_saved(sample.leaves))
        if exact + outside < _HELD:
            raise UnfitError(f"only {exact + outside} configs to hold it to {self.why}")
        exact += default_outcome == "exact"
        if not exact:
            raise UnfitError(f"always outside: {_said(form, self.default)}")
        self.report = {
            "default": default_outcome, "exact": exact, "outside": outside,
            "builds": self.probe.builds, "rows": len(form.rows),
            "seconds": round(time.process_time() - self.start, 1), "why": self.why,
        }  # fmt: skip
        return None

    def _fresh(self, rng: random.Random, place: int) -> dict[str, Any]:
        """Draw a config that learning did not: other factors, and keys that do not act."""
        drawn = dict(self.base) if place % 4 or len(self.default.tensors) > 1200 else {}
        share = rng.choice((0.15, 0.3, 0.5))
        for key, value in self.origin.leaves.items():
            last = key.rpartition(".")[2]
            if rng.random() > share or last in IGNORED:
                continue
            if key in self.choices:
                choices = list(self.choices[key])
                if type(value) is int and value > 1:
                    choices += [value + 3, value * 4, value * 3 // 2, value * 6]
                elif value is None and type(choices[-1]) is int:
                    choices += [choices[-1] * 3, choices[-1] + 16]
                drawn[key] = rng.choice(choices)
            elif key in self.free and key in self.tried:
                drawn[key] = self.tried[key]
            elif key in self.free and type(value) in (int, bool, float):
                drawn[key] = not value if type(value) is bool else value * rng.choice((2, 3))
            elif len(self.guards.get(key, ())) > 1:
                drawn[key] = rng.choice(self.guards[key])
        return drawn | self._one_list(rng)

    def _as_saved(self, leaves: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in leaves.items()
            if key.rpartition(".")[2] not in IGNORED and key not in self.aliases
            if not isinstance(value, dict)
        }

    def _one_list(self, rng: random.Random) -> dict[str, Any]:
        """Return one list of numbers with each multiplied: the menu never shows what each does."""
        lists = [key for key in self.choices if _are_numbers(self.origin.leaves[key])]
        if not lists or rng.random() < 0.5:
            return {}
        key, every = rng.choice(lists), rng.choice((1, 2, 3))
        return {key: [value * rng.choice((every, 1, 2)) for value in self.origin.leaves[key]]}


def _is_like(one: Sample | None, other: Sample) -> bool:
    return one is not None and (one.tensors, one.loading) == (other.tensors, other.loading)


def _is_outside(form: Form, config: dict[str, Any]) -> bool:
    try:
        form.read(config)
    except Outside:
        return True
    return False


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _another(value: float) -> float:
    if type(value) is bool:
        return not value
    return value / 2 or 0.1 if type(value) is float else value * 2 or 1


def _kind_of_text(text: str) -> str:
    return "number" if type(json.loads(text)) in (int, list) else text


def _related(one: int, other: int) -> bool:
    return one == other or max(one, other) % min(one, other) == 0


def _shared(one: str, other: str) -> int:
    """Return how many parts of two keys are equal: the path and the words of the name."""
    return len(set(re.split(r"[._]", one)) & set(re.split(r"[._]", other)))


def _tag(tag: tuple[str, str | None], index: tuple[int, ...]) -> tuple[str, str | None]:
    role, tied_to = tag
    if tied_to is None or not index:
        return tag
    title, indices = template(tied_to)
    return (role, title) if indices == index else tag


@lru_cache(maxsize=2)
def _shipped(text: bytes) -> Form:
    return msgspec.json.decode(text, type=Form)


def _tensors(form: Form, sample: Sample) -> dict[str, ExpectedTensor]:
    shipped = _shipped(msgspec.json.encode(form))
    memory = memory_tree(shipped, sample.written)
    trees = {"": form_tree(shipped, sample.written), MEMORY: memory}
    return {
        f"{prefix}{one.name}": one
        for prefix, tree in trees.items()
        if tree
        for one in inventory(tree, {}).tensors
    }


def _differing(form: Form, sample: Sample) -> set[str]:
    ours = _tensors(form, sample)
    plain = {name: (one.shape, (one.role.value, one.tied_to)) for name, one in ours.items()}
    names = {*plain, *sample.tensors}
    return {template(n)[0] for n in names if plain.get(n) != sample.tensors.get(n)}


def _outcome(form: Form, sample: Sample) -> str:
    try:
        wrong = _differing(form, sample)
    except Outside as outside:
        return f"outside {outside.key}"
    except CheckpointError:
        return "outside"
    is_right = not wrong and form.loading(sample.written) == json.loads(sample.loading)
    return "exact" if is_right else "wrong"


def _said(form: Form, sample: Sample) -> str:
    try:
        return str(sorted(_differing(form, sample))[:3])
    except Outside as outside:
        return f"outside {outside.key}"


_PLAIN: list[str] = []


def _plain_activations() -> list[str]:
    """Return the activations of transformers that have no tensors."""
    if not _PLAIN:
        from transformers.activations import ACT2FN  # noqa: PLC0415 - seconds

        for name in ACT2FN:
            try:
                if not ACT2FN[name].state_dict():
                    _PLAIN.append(name)
            except Exception:  # noqa: BLE001, S112 - an activation that needs another library
                continue
    return _PLAIN

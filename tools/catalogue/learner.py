"""Learn the form of one class from about a hundred of its builds, and hold it to twenty more."""

import itertools
import json
import random
import re
import time
from collections import defaultdict
from typing import Any

import msgspec

from auditor.analytic.expectation import ExpectedTensor
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import IGNORED, Form, kind_of
from catalogue.fitting import Observation, columns, fit_any, fit_test, fit_value
from catalogue.probe import Probe, Sample

_NOISE = re.compile(
    r"(attn_implementation|initializer|init_std|init_range|rope_|token_id|token_index|_token$|"
    r"dropout|drop_path|eps$|epsilon$|output_|loss|pruned|temperature|_coef$|range$|momentum$)"
)
_ACTIVATION = re.compile(r"act$|activation|act_fn|_function$|nonlinearity$")
_COUNTS = re.compile(
    r"layers?$|depth$|n_layer|experts$|num_blocks|num_labels|num_queries|num_local_experts"
)
_SMALL = re.compile(
    r"layers?$|depth|blocks?$|experts|n_layer|stages|num_queries|labels|levels|num_hidden|_every|"
    r"first_k|interval|freq|step|groups?$|per_tok|topk|top_k|window|heads?$"
)
_HELD = 20
_LOADING = "loading rules"  # among the templates, which have no spaces


class UnfitError(Exception):
    """The class is not learned, and why."""


def template(name: str) -> tuple[str, tuple[int, ...]]:
    parts = name.split(".")
    indices = tuple(int(part) for part in parts if part.isdecimal())
    return ".".join("*" if part.isdecimal() else part for part in parts), indices


class Learner:
    """The learning of one class; `form` is the result."""

    def __init__(self, probe: Probe, seconds: float, seed: int = 0) -> None:
        self.probe, self.seconds = probe, seconds
        self.rng = random.Random(seed)
        self.start = time.process_time()
        self.literal = False
        self.base: dict[str, Any] = {}
        self.samples: list[Sample] = []
        self.acts: dict[str, set[str]] = defaultdict(set)  # template -> keys
        self.moves: dict[str, set[str]] = defaultdict(set)  # key -> the keys that change it
        self.menu: dict[str, list[Any]] = {}
        self.naming: set[str] = set()  # keys that change names
        self.guards: dict[str, list[Any]] = {}
        self.free: set[str] = set()

    def used(self) -> float:
        return (time.process_time() - self.start) / self.seconds

    def learn(self) -> Form:
        default = self.probe({})
        if default is None:
            raise UnfitError(f"the default does not build: {self.probe.error}")
        self.default = default
        self.prefix = self.probe.built.prefix
        keep: set[str] = set()
        for _ in range(3):
            self._shrink(keep)
            self._move_each()
            self._move_together()
            form, frozen = self._fitted()
            again = {key for key in frozen if key in self.base}
            if not again or self.used() > 0.5:
                break
            keep |= again
        return self._held(form)

    # --- samples ---------------------------------------------------------------------------------

    def _shrink(self, keep: set[str]) -> None:
        """Reduce the numbers of layers and experts, together if that builds, else one by one."""
        self.base, self.samples = {}, []
        for table in (self.acts, self.moves, self.menu, self.naming, self.guards, self.free):
            table.clear()
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
            key: value * 2 if type(value) in (int, float) else value
            for key, value in leaves.items()
            if _NOISE.search(key.rpartition(".")[2]) and type(value) in (int, float)
        }
        together = self.probe({**self.base, **noise}) if noise else None
        quiet = set(noise) if _is_like(together, origin) else set()
        for key, value in leaves.items():
            last = key.rpartition(".")[2]
            if key in quiet or last in IGNORED or last == "stage_names":  # its class computes it
                self.free.add(key)
            elif isinstance(value, dict) or (isinstance(value, list) and not value):
                if last.startswith("rope_"):
                    self.free.add(key)
                else:
                    self.guards[key] = [value]
            elif self.used() > 0.4:
                self.guards[key] = [value]
            else:
                self._move(key, value)

    def _move(self, key: str, value: Any) -> None:
        origin, taken, changed, overwritten = self.origin, [], False, False
        for candidate in self._candidates(key, value):
            sample = self.probe({**self.base, key: candidate})
            if sample is None:
                continue
            if sample.leaves.get(key) != candidate:
                overwritten |= sample.tensors == origin.tensors
                continue
            taken.append(candidate)
            self.samples.append(sample)
            for other, now in sample.leaves.items():
                if other != key and now != origin.leaves.get(other):
                    self.moves[other].add(key)
            if sample.loading != origin.loading:
                changed = True
                self.acts[_LOADING].add(key)
            if set(sample.tensors) != set(origin.tensors):
                self.naming.add(key)
            for name in {*sample.tensors, *origin.tensors}:
                if sample.tensors.get(name) != origin.tensors.get(name):
                    changed = True
                    self.acts[template(name)[0]].add(key)
            if len(taken) >= 3 or (len(taken) >= 2 and not changed):
                break
        if changed and not isinstance(value, float):
            self.menu[key] = [value, *taken]
        elif taken and not changed:
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

    def _candidates(self, key: str, value: Any) -> list[Any]:
        last = key.rpartition(".")[2]
        match value:
            case bool():
                return [not value]
            case -1:
                return []
            case int() if _SMALL.search(last) or value < 8:
                return [value + 1, value + 2, max(value - 1, 0), value * 2]
            case int():
                return [value * 2, value * 3, value // 2, value + 8]
            case float():
                return [value * 2 or 0.5, value / 2]
            case str() if _ACTIVATION.search(last):
                return ["silu", "gelu", "relu"]
            case str():
                return [word for word in self.probe.words(key) if word != value]
            case None if re.search(r"bias|use_|tie_|is_", last):
                return [True, False]
            case None if re.search(r"dim$|size$|heads$|rank$|channels$", last):
                return [32, 64]
            case None if re.search(r"layers$|experts$", last):
                return [2, 3]
            case list() if all(type(item) is int for item in value):
                double = [item * 2 for item in value]
                return [
                    double,
                    [value[0] * 2, *value[1:]],
                    [item + 1 for item in value],
                    [*value[:-1], value[-1] * 2],
                ]
            case list() if last == "out_features":
                return [[one] for one in self.origin.leaves.get(key[:-12] + "stage_names", [])[1:3]]
            case list() if all(isinstance(item, str) for item in value):
                return [value[1:] + value[:1], value[::-1], [value[0]] * len(value)]
        return []

    def _draw(self, rng: random.Random, share: float) -> dict[str, Any]:
        drawn = dict(self.base)
        for key, values in self.menu.items():
            if rng.random() < share:
                drawn[key] = rng.choice(values)
        return drawn

    def _move_together(self) -> None:
        wanted, tries = len(self.samples) + 26, 0
        while len(self.samples) < wanted and tries < 90 and self.used() < 0.6:
            tries += 1
            sample = self.probe(self._draw(self.rng, self.rng.choice((0.25, 0.5, 0.8))))
            if sample is not None:
                self.samples.append(sample)
        seen = defaultdict(list)
        for place, sample in enumerate(self.samples):
            for name in {template(one)[0] for one in sample.tensors}:
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
            for _ in range(10):
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
        checks = [s for n in range(10) if (s := self.probe(self._larger(rng, n % 2))) is not None]
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
            blame: dict[str, int] = defaultdict(int)
            for name in failed:
                for key in self.acts[name] & set(self.menu) - set(frozen):
                    is_list = isinstance(self.origin.leaves[key], list)
                    blame[key] += 1 + (key in self.naming) + 2 * is_list
            if not blame:
                break
            worst = max(blame, key=lambda key: (blame[key], key))
            frozen[worst] = self.origin.leaves[worst]
        raise UnfitError(f"unfit: {failed[:3]}")

    def _larger(self, rng: random.Random, odd: int) -> dict[str, Any]:
        drawn = self._draw(rng, 0.4)
        for key in self.menu:
            value = self.origin.leaves[key]
            if odd and type(value) is int and value > 1 and rng.random() < 0.3:
                drawn[key] = value * rng.choice((2, 3, 5)) // rng.choice((1, 2))
        return drawn

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
                found = ranked.setdefault((title, len(what[0])), [{} for _ in samples])
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
            row = self._row(title, found, samples, order, live)
            if row is None:
                failed.append(title)
            else:
                rows.append(row)
        return rows, failed

    def _around(self, title: str, ranked: Any) -> set[str]:
        """Return what acts on the neighbours of a tensor that not every sample has."""
        parts = title.split(".")
        for length in range(len(parts) - 1, 0, -1):
            prefix = ".".join(parts[:length]) + "."
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
            few = type(self.origin.leaves[key]) is not int and not isinstance(
                self.origin.leaves[key], list
            )
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
            return None if bound is None else [bound, True]
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
        lists = {k for k in self.moves if isinstance(self.origin.leaves.get(k), list)}
        live = {*(set(self.menu) - set(frozen)), *lists}
        guards = {**self.guards, **{key: [value] for key, value in frozen.items()}}
        guards = {key: allowed for key, allowed in guards.items() if key not in live}
        acting = {*live, *guards}
        order = sorted(self.moves, key=lambda key: (len(self.moves[key]), key))
        derived = [[key, *self._derivation(key)] for key in order if key in live]
        kinds, lengths = {}, {}
        for key in live:
            values = [s.leaves.get(key) for s in self.samples]
            kinds[key] = sorted({kind_of(value) for value in values})
            sizes = {len(v) for v in values if isinstance(v, list)}
            if len(sizes) == 1 and all(isinstance(v, list) for v in values):
                [lengths[key]] = sizes
        known = default.leaves
        return msgspec.convert(
            {
                "target": self.probe.target,
                "model_type": self.probe.model_type,
                "library": "",
                "prefix": self.prefix,
                "held": 0,
                "defaults": {key: known[key] for key in sorted(acting) if key in known},
                "free": sorted({*self.free, *self.origin.leaves} - acting),
                "parts": parts,
                "part_types": {k: v for k, v in self.probe.parts.items() if v},
                "aliases": self._aliases(),
                "derived": derived,
                "guards": guards,
                "implied": sorted(set(guards) & set(self.moves)),
                "kinds": kinds,
                "lengths": lengths,
                "base_key": getattr(self.probe.config_class, "base_config_key", "") or "",
                "rows": rows,
                "loadings": loadings,
            },
            Form,
        )

    def _loadings(self) -> list[Any]:
        """Return the loading rules, each with a test of the keys that change them."""
        seen = [Observation(sample.leaves) for sample in self.samples]
        texts = [sample.loading for sample in self.samples]
        kinds = sorted(set(texts), key=lambda one: (texts.count(one), one))
        near = sorted(self.acts[_LOADING])
        tests = [
            fit_test([text == kind for text in texts], seen, near) if kind != kinds[-1] else True
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

    def _derivation(self, key: str) -> list[Any]:
        """Return how an absent key follows from others; [None, None] if it must be given."""
        absent = [one for one in self.samples if key not in one.flat]
        seen = [Observation(one.leaves) for one in absent]
        near = sorted(self.moves[key])
        found = fit_any([one.leaves.get(key) for one in absent], seen, near)
        return [None, None] if found is None else list(found)

    # --- held ------------------------------------------------------------------------------------

    def _held(self, form: Form) -> Form:
        """Return the form if the default and fresh random configs are exact or outside."""
        rng = random.Random(int.from_bytes(self.probe.target.encode()[:6]))
        draws: list[dict[str, Any]] = [{}]
        tried = exact = outside = 0
        default_outcome = _outcome(form, self.default)
        if default_outcome == "wrong":
            raise UnfitError(f"wrong for the default: {_said(form, self.default)}")
        if len(self.default.tensors) > 3000:
            draws = []
        written = _as_saved(self.default.leaves) if draws else None
        todo = [written] if written else []
        while tried < 90 and (exact + outside) < _HELD + 2:
            tried += 1
            overrides = todo.pop() if todo else self._fresh(rng, tried)
            was_known = json.dumps(overrides, sort_keys=True) in self.probe.known
            sample = self.probe(overrides) if not was_known else None
            if sample is None:
                if self.used() > 2:
                    break
                continue
            outcome = _outcome(form, sample)
            if outcome == "wrong":
                raise UnfitError(f"wrong when held: {_said(form, sample)} for {overrides}"[:600])
            exact, outside = exact + (outcome == "exact"), outside + (outcome != "exact")
            if tried % 3 == 0 and len(sample.leaves) < 400:
                todo.append(_as_saved(sample.leaves))
        if exact + outside < _HELD:
            raise UnfitError(f"only {exact + outside} configs to hold it to")
        if not exact:
            raise UnfitError(f"always outside: {_said(form, sample)}")
        self.report = {
            "default": default_outcome, "exact": exact, "outside": outside,
            "builds": self.probe.builds, "rows": len(form.rows),
            "seconds": round(time.process_time() - self.start, 1),
        }  # fmt: skip
        return msgspec.structs.replace(form, held=exact)

    def _fresh(self, rng: random.Random, place: int) -> dict[str, Any]:
        """Draw a config that learning did not: other factors, and keys that do not act."""
        drawn = dict(self.base) if place % 2 or len(self.default.tensors) > 1200 else {}
        share = rng.choice((0.15, 0.3, 0.5))
        for key, value in self.origin.leaves.items():
            last = key.rpartition(".")[2]
            if rng.random() > share or last in IGNORED:
                continue
            if key in self.menu:
                choices = list(self.menu[key])
                if type(value) is int and value > 1:
                    choices += [value + 3, value * 4, value * 3 // 2, value * 6]
                drawn[key] = rng.choice(choices)
            elif key in self.free and type(value) in (int, bool, float):
                drawn[key] = not value if type(value) is bool else value * rng.choice((2, 3))
            elif len(self.guards.get(key, ())) > 1:
                drawn[key] = rng.choice(self.guards[key])
        return drawn


def _is_like(one: Sample | None, other: Sample) -> bool:
    return one is not None and (one.tensors, one.loading) == (other.tensors, other.loading)


def _as_saved(leaves: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in leaves.items()
        if key.rpartition(".")[2] not in IGNORED and not isinstance(value, dict)
    }


def _tag(tag: tuple[str, str | None], index: tuple[int, ...]) -> tuple[str, str | None]:
    role, tied_to = tag
    if tied_to is None or not index:
        return tag
    title, indices = template(tied_to)
    return (role, title) if indices == index else tag


def _tensors(form: Form, sample: Sample) -> dict[str, ExpectedTensor]:
    again = msgspec.json.decode(msgspec.json.encode(form), type=Form)
    return {one.name: one for one in again.tensors(sample.written)}


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
    loading = json.loads(sample.loading)
    return "wrong" if wrong or loading != form.loading(sample.written) else "exact"


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

"""Measure how completely a config of another published size is explained.

Each pair is the config of one size over the tensors of another size of the same type, both built
from closed forms; `published_sizes.json` has the sizes. A pair is complete if every
differing key that shapes determine is named with its true value and every other differing key is
named without a value. Any other cause is false. Options: `-v` prints incomplete pairs, `--all`
takes every ordered pair instead of at most six a type, a model type takes only that type's pairs,
and a path of a CSV file takes its pairs: columns `type`, `config of` and `weights of`.
"""

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from support.small_snapshots import FILE, snapshot_of

from auditor.analytic import Config, Role
from auditor.analytic.config_keys import NULL, changed, every_key, value_at
from auditor.audit.expected import Implied, expectation_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.diagnosis.solving.open_keys import other_activations
from auditor.diagnosis.solving.size_keys import is_heads
from auditor.report import Report, Unaudited
from auditor.tensors import Span, StoredTensor
from diagnosing.tally import is_verbose, timed

SIZES = Path(__file__).with_name("published_sizes.json")
MOST_PAIRS = 6  # of one type
CAUSES = {"config-field", "other-size"}

Values = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class Pair(NamedTuple):
    """Two published sizes of one type."""

    name: str
    declared: Values  # the config in the folder
    true: Values  # the config of the weights


def pairs() -> Iterator[Pair]:
    """Yield the pairs of the CSV file among the arguments, else a selection of each type's."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    listed = [word for word in words if word.endswith(".csv")]
    if listed:
        families = {one["model_type"]: one for one in json.loads(SIZES.read_bytes())}
        with Path(listed[0]).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield pair_of(families[row["type"]], row["config of"], row["weights of"])
        return
    for family in json.loads(SIZES.read_bytes()):
        if words and family["model_type"] not in words:
            continue
        every = list(permutations(family["sizes"], 2))
        step = 1 if "--all" in sys.argv else -(-len(every) // MOST_PAIRS)
        for declared, true in every[::step]:
            yield pair_of(family, declared, true)


def pair_of(family: Values, declared: str, true: str) -> Pair:
    """Return the pair of a type with these names of sizes."""
    start = {"model_type": family["model_type"], "architectures": [family["class"]]}
    configs = [{**start, **family["common"], **family["sizes"][name]} for name in (declared, true)]
    return Pair(f"{family['model_type']} {declared} > {true}", *configs)


def shapes_of(config: Values) -> Shapes | None:
    """Return the shapes of the tensors that save_pretrained writes; None for an invalid config."""
    target = config["architectures"][0]
    implied = expectation_of(Config(values=config), target)
    if not isinstance(implied, Implied):
        return None
    tensors = implied.expectation.tensors
    return {one.name: one.shape for one in tensors if one.role in {Role.PARAMETER, Role.BUFFER}}


def stored(shapes: Shapes) -> list[StoredTensor]:
    tensors, at = [], 0
    for name, shape in shapes.items():
        elements = prod(shape)
        span = Span(at, at + 4 * elements)
        tensors.append(StoredTensor(name, "F32", shape, elements, FILE, span))
        at = span.stop
    return tensors


def paths(values: Values, within: str = "") -> Iterator[str]:
    """Yield the dotted path of each value that a config states."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from paths(value, f"{within}{name}.")
        else:
            yield f"{within}{name}"


def differences(pair: Pair) -> dict[str, tuple[Any, Any]]:
    """Return the declared and the true value of each key that either config states."""
    sides = [{key.path: key.value for key in every_key(one)} for one in (pair.declared, pair.true)]
    found = {}
    for path in sorted({*paths(pair.declared), *paths(pair.true)}):
        declared, true = (
            side.get(path, value_at(config, path))
            for side, config in zip(sides, (pair.declared, pair.true), strict=True)
        )
        if declared != true:
            found[path] = declared, true
    return found


def is_determined(
    pair: Pair, path: str, shapes: Shapes, unread: frozenset[str] = frozenset()
) -> bool | None:
    """Return whether shapes leave no choice of a key; None if no other value makes a config.

    A choice may go with another value of one of the `unread` keys: a flag is tried with both
    values, a number with its declared value, 1, every stored length, and 3/2 of it: gated layers
    may have two thirds of a width. Two numbers are also tried with one doubled, the other halved.
    """
    true = {key.path: key.value for key in every_key(pair.true)}
    true_value = true.get(path, value_at(pair.true, path))
    others = [{path: one} for one in (declared_value(pair, path), *_near(true_value))]
    stored_lengths = {length for shape in shapes.values() for length in shape}
    lengths = sorted({1} | stored_lengths | {3 * length // 2 for length in stored_lengths})
    for key in sorted(unread - {path}):
        value = declared_value(pair, key)
        more = lengths if type(value) is int else (not value,) if type(value) is bool else ()
        others += [{**others[0], key: one} for one in (declared_value(pair, key), *more)]
        others += (
            [{path: 2 * true_value, key: true[key] // 2}] if _are_even(true, path, key) else []
        )
    alone = [shapes_of(changed(pair.true, one)) for one in others]
    if shapes in alone or any(shapes_of(one) == shapes for one in _of_other_heads(pair, path)):
        return False
    return None if alone == [None] * len(alone) else True


def _are_even(values: Values, *keys: str) -> bool:
    return all(type(values.get(key)) is int and not values[key] % 2 for key in keys)


def declared_value(pair: Pair, path: str) -> Any:
    """Return the declared value of a key or its class's default, NULL if it is a stated null."""
    value = value_at(pair.declared, path)
    if path in paths(pair.declared):
        return NULL if value is None else value
    return next((key.value for key in every_key(pair.declared) if key.path == path), value)


def may_be_silent(pair: Pair, path: str, values: tuple[Any, Any]) -> bool:
    """Whether a key that acts on no shape may stay unnamed: a flag, a word, or an omitted key."""
    return any(type(one) in {bool, str} for one in values) or path not in paths(pair.declared)


def acts_on_no_shape(pair: Pair, path: str) -> bool:
    """Whether the declared value of a key gives the shapes of the true one."""
    declared = declared_value(pair, path)
    return shapes_of(changed(pair.true, {path: declared})) == shapes_of(pair.true)


def _near(true: Any) -> Iterator[Any]:
    """Yield other values of a number, list or activation that are near the true one."""
    if isinstance(true, str):
        yield from (word for word in other_activations(true) if word != true)
    if type(true) is int:
        yield from (true + 1, true - 1, 2 * true, true // 2)
    for at, item in enumerate(true) if isinstance(true, list) else ():
        others = [item + 1] if type(item) is int else [one for one in true if one != item][:1]
        yield from ([*true[:at], other, *true[at + 1 :]] for other in others)


def _of_other_heads(pair: Pair, path: str) -> Iterator[Values]:
    """Yield the true config with twice as many heads, half as wide if their width is stated."""
    folder, _, name = path.rpartition(".")
    if not is_heads(name) and name != "head_dim":
        return
    beside = {key: value_at(pair.true, key) for key in paths(pair.true)}
    numbers = {
        key: value
        for key, value in beside.items()
        if type(value) is int and key.rpartition(".")[0] == folder
    }
    heads = {key: 2 * value for key, value in numbers.items() if is_heads(key.split(".")[-1])}
    width = {key: value // 2 for key, value in numbers.items() if key.split(".")[-1] == "head_dim"}
    if heads:
        yield changed(pair.true, heads)
        yield changed(pair.true, {**heads, **width})
    elif value_at(pair.true, path) is None:
        yield pair.true


def verdict(pair: Pair) -> tuple[str, str, float]:
    """Return how a pair is explained, what is wrong with it, and its seconds."""
    shapes = shapes_of(pair.true)
    assert shapes is not None, pair.name  # a mistake in the data
    options = Options(requested=pair.name)
    if examine(snapshot_of(stored(shapes), **pair.true), options).diagnosis:
        return "cause on healthy", "", 0.0
    report, solved, spent = timed(snapshot_of(stored(shapes), **pair.declared), options)
    return *judged(pair, shapes, report, solved), spent


def _stands_for_null(pair: Pair, key: str, held: Any, shapes: Shapes) -> bool:
    """Whether the true config omits a key, and its class derives this value for it."""
    is_omitted = value_at(pair.true, key) is None
    return is_omitted and shapes_of(changed(pair.true, {key: held})) == shapes


def judged(
    pair: Pair, shapes: Shapes, report: Report | Unaudited, solved: Values
) -> tuple[str, str]:
    """Return how a report explains a pair, and what is wrong with it.

    If the `solved` config implies the stored shapes too, the keys that differ in it are open.
    """
    if report.verdict == "clean":
        return "same shapes", ""
    if not report.diagnosis:
        return "nothing", ""
    if any(one.cause not in CAUSES for one in report.diagnosis):
        return "false cause", " | ".join(one.summary[:200] for one in report.diagnosis)
    named = {key: held for one in report.diagnosis for key, _, held in one.fields}
    unread = frozenset(key for one in report.diagnosis for key, _ in one.undetermined)
    choices = [values for one in report.diagnosis for values in one.alternatives]
    differ = differences(pair)
    true = {key.path: key.value for key in every_key(pair.true)}
    wrong = {
        key: held
        for key, held in named.items()
        if (None if held is NULL else held) != true.get(key, value_at(pair.true, key))
        and not _stands_for_null(pair, key, held, shapes)
    }
    if wrong:
        return "wrong value", f"{wrong}"
    keys = {key.path: key.value for key in every_key(solved)}
    is_other_reading = bool(solved) and shapes_of(solved) == shapes
    unnamed = [
        key
        for key in differ
        if not (
            key in named
            or any(values.get(key, "") == true.get(key) for values in choices)
            or (key in unread and is_other_reading and keys.get(key) != true.get(key))
            or (key in unread and is_determined(pair, key, shapes, unread) is not True)
            or (may_be_silent(pair, key, differ[key]) and acts_on_no_shape(pair, key))
        )
    ]
    guessed = [
        key
        for key in named
        if not (type(named[key]) is bool or key.endswith("image_size"))  # whole patches
        and is_determined(pair, key, shapes) is False
    ]
    given = {key: value_at(pair.true, key) for key in differ if key not in unnamed}
    follows = {key.path: key.value for key in every_key(changed(pair.declared, given))}
    unnamed = [key for key in unnamed if follows.get(key) != true.get(key)]
    if unnamed or guessed:
        return "partial", f"unnamed {unnamed}, guessed {guessed}, named {sorted(named)}"
    return "complete", ""


def main() -> None:
    counts: Counter[str] = Counter()
    slowest = (0.0, "")
    for pair in pairs():
        result, detail, seconds = verdict(pair)
        counts[result] += 1
        slowest = max(slowest, (seconds, pair.name))
        if is_verbose() and result not in {"complete", "same shapes"}:
            print(f"{pair.name}: {result}: {detail} ({seconds:.2f} s)", flush=True)
    different = counts.total() - counts["same shapes"]
    for result, number in counts.most_common():
        print(f"{result:18}{number:5}{number / max(1, different):8.1%}")
    print(f"the slowest, {slowest[1]}, took {slowest[0]:.2f} s")

"""All keys of a config at once: the values under which the stored tensors are the expected ones.

Every expected shape is a polynomial in config keys, and every stored shape its value. A length that
is one key by itself gives that key's value, for all such keys at once; then single changes follow,
each the one that leaves the fewest tensors differing: a product solved for one of its keys, a flag,
a key set to null, one item of a list.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import chain, islice
from typing import Any, NamedTuple

from auditor.analytic.dims import dim
from auditor.diagnosis.changes import NULL, value_at
from auditor.diagnosis.solving.candidates import (
    GROUPS,
    HEADS,
    WIDTHS,
    KeyChange,
    flags,
    items_in_proportion,
    other_items,
    other_numbers,
    solved,
)
from auditor.diagnosis.solving.determined import determined_sizes
from auditor.diagnosis.solving.keys import Key, config_with, every_key, indexed, key_at
from auditor.diagnosis.solving.outline import follow, leaves
from auditor.diagnosis.solving.trials import ClassTree, TreeComparison, Trials
from auditor.errors import CheckpointError

Trees = Callable[[Mapping[str, Any]], ClassTree | None]  # of the config with these values

_MOST_ROUNDS = 12  # of plain lengths and of single changes, taken together
_MOST_CANDIDATES = 120  # single changes that one round tries
_MOST_INSTEAD = 2  # keys in the place of one: heads and groups for the width of a head
MOST_SECONDS = 1.0  # of processor time
_MOST_NAMES = 20_000  # stored names up to which layers are compared one by one
_HEAD_DIM = "head_dim"
_LAYERS = re.compile(r"layers?$")  # of a key that is a number of layers


class JointSolution(NamedTuple):
    """Values by dotted path that differ from the config's, and what differs all the same."""

    values: Mapping[str, Any]
    remains: TreeComparison
    known: frozenset[str] = frozenset()  # paths of keys that shapes alone determine
    ambiguous: frozenset[str] = frozenset()  # paths in whose place another key could change


def solve(
    config: Mapping[str, Any], trees: Trees, trials: Trials, seconds: float = MOST_SECONDS
) -> JointSolution | None:
    """Return the values that leave least; None if nothing follows from the config.

    No single change is tried after so many seconds of processor time.
    """
    return _Solver(config, trees, trials, seconds).solution()


class _Solver:
    def __init__(
        self, config: Mapping[str, Any], trees: Trees, trials: Trials, seconds: float
    ) -> None:
        self._config = config
        self._trees = trees
        self._trials = trials
        self._votes: dict[str, int] = {}  # by path, the tensors that asked for its plain value
        self._until = time.thread_time() + seconds

    def solution(self) -> JointSolution | None:
        now = self._with({})
        return None if now is None else self._judged(self._solved(now))

    def _solved(self, now: JointSolution) -> JointSolution:
        best, tried = now, {str(now.values)}
        for _ in range(_MOST_ROUNDS):
            if not best.remains.differ:
                break
            after = self._plain(now)
            if after is None or str(after.values) in tried:
                after = self._single(best)
            if after is None:
                break
            tried.add(str(after.values))
            now = after
            best = min(best, now, key=lambda one: one.remains.differ)
        return best

    def _judged(self, best: JointSolution) -> JointSolution:
        """The solution with what its tree shows of how certain each value is."""
        tree = self._trees(best.values)
        known = self._known(best, tree) if tree else frozenset()
        ambiguous: Iterator[str] = iter(())
        if not best.remains.differ:
            ambiguous = chain(self._ambiguous(best, known), self._unseen_lists(best))
        return best._replace(known=known, ambiguous=frozenset(ambiguous))

    def _known(self, best: JointSolution, tree: ClassTree) -> frozenset[str]:
        """The paths of the keys that the stored lengths leave no choice of."""
        config = changed(self._config, best.values)
        symbols = determined_sizes(tree, self._trials.holdings, {})
        return frozenset(key_at(config, symbol.key, symbol.value).path for symbol in symbols)

    def _ambiguous(self, best: JointSolution, known: frozenset[str]) -> Iterator[str]:
        """The keys of products in whose place other keys of the product could change."""
        for path, value in best.values.items():
            if path in known or type(value) is not int:
                continue
            others = {other: one for other, one in best.values.items() if other != path}
            instead = self._with(others)
            for _ in range(_MOST_INSTEAD):
                if instead is None or not instead.remains.differ:
                    break
                instead = self._product_solved(instead, known | {path})
            if instead is not None and not instead.remains.differ:
                yield path
                yield from instead.values.keys() - best.values.keys()

    def _unseen_lists(self, best: JointSolution) -> Iterator[str]:
        """The lists whose items no tensor shows: with any of them in each place all would fit."""
        for path, items in best.values.items():
            if not isinstance(items, list) or "layer" not in path:
                continue
            declared = value_at(self._config, path)
            several = [*items, *(declared if isinstance(declared, list) else ())]
            alike = (
                self._with({**best.values, path: [item] * len(items)})
                for item in {str(item): item for item in several}.values()
            )
            if not any(one is not None and one.remains.differ for one in alike):
                yield path

    def _product_solved(self, now: JointSolution, fixed: frozenset[str]) -> JointSolution | None:
        """The solution with the key of a product solved for that leaves least."""
        found = [
            self._with({**now.values, change.key.path: change.value})
            for change in islice(
                solved(changed(self._config, now.values), now.remains), _MOST_CANDIDATES
            )
            if change.key.path not in fixed
        ]
        least = min(filter(None, found), key=lambda one: one.remains.differ, default=now)
        return least if least.remains.differ < now.remains.differ else None

    def _with(self, values: Mapping[str, Any]) -> JointSolution | None:
        try:
            tree = self._trees(values)
        except CheckpointError:
            return None
        return None if tree is None else JointSolution(values, self._trials.compare(tree))

    # --- lengths that are one key by themselves ---------------------------------------------------

    def _plain(self, now: JointSolution) -> JointSolution | None:
        """The solution with every key that a length gives by itself; None if there is no such."""
        config = changed(self._config, now.values)
        changes = self._supported(plain_values(config, now.remains))
        if not changes:
            return None
        with_heads = {**changes, **dict(_heads_of_the_same_width(config, changes))}
        fitted = {**with_heads, **dict(_fitted_lists(config, with_heads))}
        for several in (fitted, with_heads, changes):
            after = self._with({**now.values, **several})
            if after is not None:
                return after
        return None

    def _supported(self, votes: Mapping[str, tuple[Any, int]]) -> dict[str, Any]:
        """The values that more tensors ask for than asked for the value the key has now."""
        changes: dict[str, Any] = {}
        for path, (value, number) in votes.items():
            if number > self._votes.get(path, 0):
                self._votes[path] = number
                changes.update(config_with(self._config, path, value))
        return changes

    # --- single changes ---------------------------------------------------------------------------

    def _single(self, best: JointSolution) -> JointSolution | None:
        """The solution with one more change that leaves fewer tensors; None if none does."""
        config = changed(self._config, best.values)
        found = [*self._layers_fitted(config, best)]
        for change in islice(self._candidates(config, best), _MOST_CANDIDATES):
            if time.thread_time() > self._until:
                break
            values = config_with(config, change.key.path, change.value)
            if (after := self._with({**best.values, **values})) is not None:
                found.append(after)
                if not after.remains.differ:
                    break
        least = min(found, key=lambda one: one.remains.differ, default=best)
        return least if least.remains.differ < best.remains.differ else None

    def _candidates(self, config: Mapping[str, Any], best: JointSolution) -> Iterator[KeyChange]:
        tree = self._trees(best.values)
        if tree is None:
            return
        keys, remains = every_key(config), best.remains
        held = {key_at(config, key, 0).path for key in self._trials.held_keys(tree)}
        free = [key for key in keys if key.path not in held]
        plain = _plain_keys(config, tree)
        seen: set[tuple[str, str]] = set()
        for change in chain(
            flags(keys),
            (KeyChange(key, NULL) for key in free if type(key.value) is int and key.path in plain),
            (one for one in solved(config, remains) if one.key.path not in held),
            (
                KeyChange(key, length)
                for key in free
                if key.value is None
                for length in sorted({have for _, have in remains.lengths})
            ),
            items_in_proportion(free, remains, frozenset()),
            other_numbers(free, remains),
            other_items(free, remains),
        ):
            if change.field not in seen:
                seen.add(change.field)
                yield change

    def _layers_fitted(
        self, config: Mapping[str, Any], best: JointSolution
    ) -> Iterator[JointSolution]:
        """Solutions in which each item of a list of words is what its layer stores."""
        if self._trials.stored > _MOST_NAMES:
            return
        for key in every_key(config):
            items = key.value if isinstance(key.value, list) else []
            words = sorted({item for item in items if isinstance(item, str)})
            if len(words) < 2 or not all(isinstance(item, str) for item in items):  # noqa: PLR2004
                continue
            trees = {}
            for word in words:
                if tree := self._trees({**best.values, key.path: [word] * len(items)}):
                    trees[word] = tree
            fitted = _words_by_layer(items, trees, self._trials.holdings.shapes)
            if fitted != items and (after := self._with({**best.values, key.path: fitted})):
                yield after


def _plain_keys(config: Mapping[str, Any], tree: ClassTree) -> frozenset[str]:
    """The paths of the keys that a length or a number of modules is by itself."""
    sizes = {
        size
        for leaf in leaves(tree.tree)
        for size in (*map(dim, leaf.shape), *(place.modules for place in leaf.lists))
    }
    plain = (symbol for size in sizes for symbol in size.symbols if size == dim(symbol))
    return frozenset(key_at(config, symbol.key, symbol.value).path for symbol in plain)


def changed(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config under the values, which are by dotted path."""
    copy = deepcopy(dict(config))
    for path, value in values.items():
        *folders, key = path.split(".")
        within: Any = copy
        for folder in folders:
            within = within.setdefault(folder, {}) if isinstance(within, dict) else None
        if isinstance(within, dict):
            within[key] = None if value is NULL else value
    return copy


def plain_values(config: Mapping[str, Any], remains: TreeComparison) -> dict[str, tuple[Any, int]]:
    """The keys that stored lengths give by themselves: the value that most tensors ask for.

    Each value comes with the number of those tensors.
    """
    votes: dict[tuple[str, int | None], Counter[int]] = {}
    for equation, number in remains.equations.items():
        for symbol in equation.size.symbols:
            if equation.size == dim(symbol):
                place = indexed(symbol.key)
                path = key_at(config, place[0] if place else symbol.key, symbol.value).path
                into = votes.setdefault((path, place[1] if place else None), Counter())
                into[equation.wanted] += number
    found: dict[str, tuple[Any, int]] = {}
    for (path, index), wanted in votes.items():
        [(value, number)] = wanted.most_common(1)
        if index is None:
            found[path] = value, number
            continue
        items, before = found.get(path, (value_at(config, path), 0))
        if isinstance(items, list) and index < len(items):
            found[path] = [*items[:index], value, *items[index + 1 :]], before + number
    return {path: one for path, one in found.items() if one[0] != value_at(config, path)}


def is_heads(name: str) -> bool:
    """Whether a key of that name is a number of heads or of groups of heads."""
    return name in HEADS | GROUPS or name.endswith("attention_heads")


def _heads_of_the_same_width(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> Iterator[tuple[str, int]]:
    """Numbers of heads beside a changed width with which heads are as wide as declared.

    Shapes do not determine them where no head_dim is declared: models of one type mostly keep the
    width of a head, and some number has to be there that divides the new width.
    """
    keys = every_key(config)
    for path, width in changes.items():
        within, _, name = path.rpartition(".")
        declared = value_at(config, path)
        if name not in WIDTHS or type(declared) is not int or type(width) is not int:
            continue
        if _has_fixed_heads(config, path):
            continue
        for key in _beside(keys, within):
            heads = key.value
            name = key.path.rpartition(".")[2]
            if not is_heads(name) or type(heads) is not int or not heads or key.path in changes:
                continue
            share = declared // heads
            if name not in GROUPS and not declared % heads and share and not width % share:
                yield key.path, width // share


def _fitted_lists(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> Iterator[tuple[str, list[Any]]]:
    """Lists with an item a layer, beside a depth that changes: as long as the new depth."""
    for path, depth in changes.items():
        declared = value_at(config, path)
        if type(declared) is not int or type(depth) is not int or not 1 < declared < 2**16:
            continue
        if not _LAYERS.search(path):
            continue
        within = value_at(config, path.rpartition(".")[0]) if "." in path else config
        for name, items in within.items() if isinstance(within, Mapping) else ():
            by_layer = isinstance(items, list) and len(items) == declared and "layer" in name
            if by_layer and 0 < depth < 2**16:
                yield f"{path.rpartition('.')[0]}.{name}".lstrip("."), _of_length(items, depth)


def _of_length(items: list[Any], length: int) -> list[Any]:
    """The list cut, or continued in its shortest period."""
    period = next(
        step for step in range(1, len(items) + 1) if items[step:] == items[: len(items) - step]
    )
    return [items[at] if at < len(items) else items[at % period] for at in range(length)]


def _words_by_layer(
    items: list[str],
    trees: Mapping[str, ClassTree],
    shapes: Mapping[str, tuple[int, ...] | None],
) -> list[str]:
    """For each layer the word whose tree has most of its stored tensors, in a tie the declared."""
    places = {
        place.name
        for tree in trees.values()
        for leaf in leaves(tree.tree)
        for place in leaf.lists
        if place.modules.value == len(items)
    }
    scores: dict[int, Counter[str]] = {}
    for name, shape in shapes.items():
        for place in places:
            start = f".{name}".find(f".{place}.")
            number = name[start + len(place) + 1 :].partition(".")[0] if start >= 0 else ""
            if not number.isdecimal() or len(number) > 6:  # noqa: PLR2004 - digits of a million
                continue
            for word, tree in trees.items():
                expected = follow(tree.tree, name).shape
                if expected and (shape is None or tuple(dim(n).value for n in expected) == shape):
                    scores.setdefault(int(number), Counter())[word] += 1
    fitted = list(items)
    for at, declared in enumerate(items):
        if score := scores.get(at):
            most = max(score.values())
            best = [word for word, count in sorted(score.items()) if count == most]
            fitted[at] = declared if declared in best else best[0]
    return fitted


def undetermined(config: Mapping[str, Any], solution: JointSolution) -> dict[str, Any]:
    """Return the keys that go with the changed ones and that no shape gives, as declared.

    These are keys of products that several values satisfy, numbers of heads whose width follows
    from a changed width, and numbers of layers that repeat the declared depth (max_window_layers).
    """
    keys, values = every_key(config), solution.values
    declared_values = {key.path: key.value for key in keys}
    found = {path: declared_values.get(path, value_at(config, path)) for path in solution.ambiguous}
    for path in values:
        within, _, name = path.rpartition(".")
        dot = f"{within}." if within else ""
        folder = value_at(config, within) if within else config
        stated = folder if isinstance(folder, Mapping) else {}
        declared = value_at(config, path)
        if is_heads(name) or name in WIDTHS:
            beside = {
                **stated,
                **{key.path[len(dot) :]: key.value for key in _beside(keys, within)},
            }
            for other, value in beside.items():
                is_open = is_heads(other) or (other == _HEAD_DIM and other in stated)
                if is_open and type(value) is int and f"{dot}{other}" not in solution.known:
                    found[f"{dot}{other}"] = value
        for other, value in stated.items() if _LAYERS.search(name) else ():
            again = type(value) is int and value == declared and _LAYERS.search(other)
            if again and f"{dot}{other}" not in values:
                found[f"{dot}{other}"] = value
    return found


def _beside(keys: Iterable[Key], within: str) -> list[Key]:
    return [key for key in keys if key.path.rpartition(".")[0] == within]


def _has_fixed_heads(config: Mapping[str, Any], path: str) -> bool:
    """Whether the object of that key has a head_dim that does not follow from a width."""
    within = path.rpartition(".")[0]
    dot = f"{within}." if within else ""
    doubled = {
        f"{dot}{name}": 2 * width
        for name in WIDTHS
        if type(width := value_at(config, f"{dot}{name}")) is int
    }
    declared, probed = (
        {key.path: key.value for key in every_key(values)}.get(f"{dot}{_HEAD_DIM}")
        for values in (config, changed(config, doubled))
    )
    return declared is not None and declared == probed


def stated_keys(values: Iterable[str], config: Mapping[str, Any]) -> dict[str, Key]:
    """The keys of the paths, as the config or its class has them."""
    known = {key.path: key for key in every_key(config)}
    return {
        path: known.get(path, Key(path, value_at(config, path), default=False)) for path in values
    }

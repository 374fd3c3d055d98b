"""The modules of one model as a small tree: equal siblings are folded, deep levels cut off.

Folding loses nothing: siblings fold if they and all modules below them are equal, except for the
number in their names.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from auditor.formats.module_table import nearest
from auditor.messages import printable
from auditor.names import how_many
from auditor.reconciler.fold import fold

Module = Mapping[str, Any]  # the JSON object of one module
Outcome = Mapping[str, Any]  # an audit's JSON, of any version of the schema

# Trees of 51 real checkpoints, from one module to a mixture of experts, have a median of 19 nodes
# and 83 at most; larger trees are cut to fewer levels.
MOST_NODES = 96
DEEPEST = 7
_LONGEST = 120  # characters of a name


class Node(NamedTuple):
    """A module, or equal modules whose names fold into one; counts are for each single module."""

    name: str  # such as "{0-11}"; the root's name is ""
    modules: int
    tensors: int | None
    stored: int | None
    expected: int | None
    status: str
    below: Sequence["Node"]


def module_tree(modules: Sequence[Module]) -> Node | None:
    """Return the deepest tree with at most MOST_NODES nodes; None if there is no module."""
    rows = {row["prefix"]: row for row in modules if row["depth"] <= DEEPEST}
    if "" not in rows:
        return None
    below: dict[str, list[str]] = defaultdict(list)
    for prefix in rows:
        if prefix:
            below[nearest(prefix, rows)].append(prefix)
    for depth in range(min(DEEPEST, max(row["depth"] for row in rows.values())), 0, -1):
        tree = _node("", rows, below, depth)
        if _size(tree) <= MOST_NODES:
            return tree
    return _node("", rows, below, 0)


def modules_of(outcome: Outcome) -> Sequence[Module]:
    """Return the modules of an outcome; modules of a component are below the component's name."""
    parts = outcome.get("parts", ())
    if not parts:
        return tuple(outcome.get("modules", ()))
    below = [row for part in parts for row in _of_part(part)]
    is_equal = all(row["status"] == "equal" for row in below if row["depth"] == 1)
    return [_root(outcome, "equal" if is_equal else "differs"), *below]


def _of_part(part: Outcome) -> Iterator[Module]:
    name = part.get("component") or ""
    for row in part.get("modules") or [_root(part, "unchecked")]:
        prefix = f"{name}.{row['prefix']}" if row["prefix"] else name
        yield {**row, "prefix": prefix, "depth": row["depth"] + 1}


def _root(outcome: Outcome, status: str) -> Module:
    observed, expected = outcome.get("observed") or {}, outcome.get("expected") or {}
    return {
        "prefix": "",
        "depth": 0,
        "tensors": observed.get("tensors"),
        "parameters": observed.get("parameters"),
        "expected": expected.get("parameters"),
        "status": status,
    }


def _node(
    prefix: str, rows: Mapping[str, Module], below: Mapping[str, list[str]], depth: int
) -> Node:
    """Return the tree at a prefix; the name of its root stays "" until siblings are folded."""
    row = rows[prefix]
    names_by_tree: dict[str, list[str]] = defaultdict(list)
    trees: dict[str, Node] = {}
    for child in below.get(prefix, ()) if row["depth"] < depth else ():
        tree = _node(child, rows, below, depth)
        key = repr(tree)
        names_by_tree[key].append(child[len(prefix) + 1 :] if prefix else child)
        trees[key] = tree
    children = [
        trees[key]._replace(name=_name(pattern), modules=how_many(pattern))
        for key, names in names_by_tree.items()
        for pattern in fold(names, words=False)
    ]
    tensors, stored, expected = map(row.get, ("tensors", "parameters", "expected"))
    return Node("", 1, tensors, stored, expected, row["status"], children)


def _name(pattern: str) -> str:
    shown = printable(pattern)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _size(tree: Node) -> int:
    return 1 + sum(map(_size, tree.below))

"""The modules of one model as a small tree: equal siblings are folded, deep levels cut off.

Folding loses nothing: siblings fold if they and all modules below them are equal, except for the
number in their names.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.formats.document import Document
from auditor.formats.module_table import nearest
from auditor.messages import printable
from auditor.names import how_many
from auditor.reconciler.fold import fold
from auditor.reconciler.rows import ModuleRow, ModuleStatus
from auditor.report import Report, Unaudited

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


def module_tree(modules: Sequence[ModuleRow]) -> Node | None:
    """Return the deepest tree with at most MOST_NODES nodes; None if there is no module."""
    rows = {row.prefix: row for row in modules if row.depth <= DEEPEST}
    if "" not in rows:
        return None
    below: dict[str, list[str]] = defaultdict(list)
    for prefix in rows:
        if prefix:
            below[nearest(prefix, rows)].append(prefix)
    for depth in range(min(DEEPEST, max(row.depth for row in rows.values())), 0, -1):
        tree = _node("", rows, below, depth)
        if _size(tree) <= MOST_NODES:
            return tree
    return _node("", rows, below, 0)


def modules_of(outcome: Report | Unaudited | Document) -> Sequence[ModuleRow]:
    """Return the modules of an outcome; modules of a component are below the component's name."""
    if not outcome.parts:
        return outcome.modules
    below = [row for part in outcome.parts for row in _of_part(part)]
    is_equal = all(row.status == "equal" for row in below if row.depth == 1)
    return [_root(outcome, "equal" if is_equal else "differs"), *below]


def _of_part(part: Report | Unaudited | Document) -> Iterator[ModuleRow]:
    name = part.component or ""
    for row in part.modules or [_root(part, "unchecked")]:
        prefix = f"{name}.{row.prefix}" if row.prefix else name
        yield replace(row, prefix=prefix, depth=row.depth + 1)


def _root(outcome: Report | Unaudited | Document, status: ModuleStatus) -> ModuleRow:
    observed, expected = outcome.observed, outcome.expected
    counts: dict[str, Any] = {
        "tensors": observed.tensors if observed else None,
        "parameters": observed.parameters if observed else None,
        "expected": expected.parameters if expected else None,
    }
    unknown: dict[str, Any] = dict.fromkeys(("elements", "difference", "formula"))
    return ModuleRow(prefix="", depth=0, status=status, **counts, **unknown)


def _node(
    prefix: str, rows: Mapping[str, ModuleRow], below: Mapping[str, list[str]], depth: int
) -> Node:
    """Return the tree at a prefix; the name of its root stays "" until siblings are folded."""
    row = rows[prefix]
    names_by_tree: dict[str, list[str]] = defaultdict(list)
    trees: dict[str, Node] = {}
    for child in below.get(prefix, ()) if row.depth < depth else ():
        tree = _node(child, rows, below, depth)
        key = repr(tree)
        names_by_tree[key].append(child[len(prefix) + 1 :] if prefix else child)
        trees[key] = tree
    children = [
        trees[key]._replace(name=_name(pattern), modules=how_many(pattern))
        for key, names in names_by_tree.items()
        for pattern in fold(names, words=False)
    ]
    return Node("", 1, row.tensors, row.parameters, row.expected, row.status, children)


def _name(pattern: str) -> str:
    shown = printable(pattern)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _size(tree: Node) -> int:
    return 1 + sum(map(_size, tree.below))

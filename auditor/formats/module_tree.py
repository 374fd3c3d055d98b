"""The modules of one model as a small tree: alike siblings folded, as deep as there is room.

A node is [name, count, tensors, parameters, expected, status, children]: `count` modules whose
names fold into one (`{0-11}`), with the figures of each one of them. Folding loses nothing:
siblings fold where they and all below them are equal but for the number in their names.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditor.messages import printable
from auditor.names import expand
from auditor.reconciler.fold import fold

Node = list[Any]
Module = Mapping[str, Any]  # one of an outcome's modules, as JSON
Outcome = Mapping[str, Any]  # an audit's JSON, of any version of the schema

# The trees of 51 real checkpoints, of one module up to a mixture of experts, have 19 nodes in the
# median and 83 at most; what has more is drawn less deep.
MOST_NODES = 96
DEEPEST = 7
_LONGEST = 120  # characters of a name


def module_tree(modules: Sequence[Module]) -> Node | None:
    """The deepest tree with no more than MOST_NODES nodes; None where there is no module."""
    rows = {row["prefix"]: row for row in modules if row["depth"] <= DEEPEST}
    if "" not in rows:
        return None
    below: dict[str, list[str]] = defaultdict(list)
    for prefix in rows:
        if prefix:
            below[_nearest(prefix, rows)].append(prefix)
    for depth in range(min(DEEPEST, max(row["depth"] for row in rows.values())), 0, -1):
        found = _node("", rows, below, depth)
        if _size(found) <= MOST_NODES:
            return found
    return _node("", rows, below, 0)


def modules_of(outcome: Outcome) -> Sequence[Module]:
    """The modules of an outcome; those of its parts below their names, where it has parts."""
    parts = outcome.get("parts", ())
    if not parts:
        return tuple(outcome.get("modules", ()))
    below = [row for one in parts for row in _below(one)]
    equal = all(row["status"] == "equal" for row in below if row["depth"] == 1)
    return [_whole(outcome, "equal" if equal else "differs"), *below]


def _below(one: Outcome) -> Iterator[Module]:
    name = one.get("component") or ""
    rows = one.get("modules") or [_whole(one, "unchecked")]
    for row in rows:
        prefix = f"{name}.{row['prefix']}" if row["prefix"] else name
        yield {**row, "prefix": prefix, "depth": row["depth"] + 1}


def _whole(outcome: Outcome, status: str) -> Module:
    observed, expected = outcome.get("observed") or {}, outcome.get("expected") or {}
    return {
        "prefix": "",
        "depth": 0,
        "tensors": observed.get("tensors"),
        "parameters": observed.get("parameters"),
        "expected": expected.get("parameters"),
        "status": status,
    }


def _nearest(prefix: str, rows: Mapping[str, Any]) -> str:
    """The longest prefix above that has a row of its own."""
    above = prefix.rpartition(".")[0]
    while above and above not in rows:
        above = above.rpartition(".")[0]
    return above


def _node(
    prefix: str, rows: Mapping[str, Module], below: Mapping[str, list[str]], depth: int
) -> Node:
    row = rows[prefix]
    figures = [row.get(name) for name in ("tensors", "parameters", "expected")]
    children: list[Node] = []
    if row["depth"] < depth:
        alike: dict[str, list[str]] = defaultdict(list)
        nodes: dict[str, Node] = {}
        for child in below.get(prefix, ()):
            node = _node(child, rows, below, depth)
            key = repr(node[1:])
            alike[key].append(child[len(prefix) + 1 :] if prefix else child)
            nodes[key] = node
        for key, names in alike.items():
            children += (
                [_name(pattern), len(expand(pattern)), *nodes[key][2:]]
                for pattern in fold(names, words=False)
            )
    return ["", 1, *figures, row["status"], children]


def _name(pattern: str) -> str:
    shown = printable(pattern)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node[6]))

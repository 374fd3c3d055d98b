"""The modules of one model as a small tree, and the kind of each module, for drawings.

In the tree equal siblings are folded and deep levels cut off.

Folding loses nothing: siblings fold if they and all modules below them are equal, except for the
number in their names.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.formats.document import Document
from auditor.formats.module_table import nearest
from auditor.messages import printable
from auditor.names.folding import first, fold, how_many
from auditor.reconciler.rows import ModuleRow, ModuleStatus
from auditor.report import Report, Unaudited
from auditor.tensor_roles import role_of

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


def first_module(path: str) -> str:
    """Return the first module that a folded path names; the path itself if it was cut."""
    try:
        return first(path)
    except ValueError:
        return path


def _size(tree: Node) -> int:
    return 1 + sum(map(_size, tree.below))


# --- kinds of modules, by the roles of the tensors inside -----------------------------------------

SEVERAL, OTHER, NORMS, EXPERTS = "several", "other", "norms", "experts"
KINDS = (
    *("attention", "feed-forward", EXPERTS, "embeddings", NORMS, "head", OTHER),
    SEVERAL,  # modules of several kinds are inside, such as a layer
)
_ATTENTION = {"q", "k", "v", "o", "qkv", "q-a", "q-b", "kv-a", "kv-b", "bias-of-positions"}
_KIND_BY_PART: Mapping[str, str] = {
    **dict.fromkeys(_ATTENTION, "attention"),
    **dict.fromkeys((f"cross-{part}" for part in _ATTENTION), "attention"),
    **dict.fromkeys(("gate", "up", "gate-up", "down"), "feed-forward"),
    **dict.fromkeys(("shared-gate", "shared-up", "shared-down"), "feed-forward"),
    **dict.fromkeys(("expert-gate", "expert-up", "expert-gate-up", "expert-down"), EXPERTS),
    **dict.fromkeys(("all-gates", "all-ups", "all-downs"), EXPERTS),
    **dict.fromkeys(("tokens", "positions", "type-embeddings", "patches"), "embeddings"),
    **dict.fromkeys(("mask-token", "class-token"), "embeddings"),
    **dict.fromkeys(("head", "mlm-dense", "mlm-bias"), "head"),
}


def kinds_of(prefixes: Iterable[str]) -> Mapping[str, str]:
    """Map each module prefix to its kind.

    Norms, routers and modules of unknown roles do not change the kind of the module above them.
    """
    inside: dict[str, set[str]] = defaultdict(set)
    deepest_first = sorted(prefixes, key=lambda name: -name.count(".") if name else 1)
    for prefix in deepest_first:
        if not inside[prefix]:
            inside[prefix].add(kind := _kind_of_leaf(prefix))
            above = prefix
            while above:
                above = above.rpartition(".")[0]
                inside[above].add(kind)
    return {prefix: _summary(inside[prefix]) for prefix in deepest_first}


def _kind_of_leaf(prefix: str) -> str:
    role = role_of(f"{prefix}.weight")
    if role is None:
        return OTHER
    is_norm = "norm" in role.part.split("-")
    return NORMS if is_norm else _KIND_BY_PART.get(role.part, OTHER)


def _summary(kinds: AbstractSet[str]) -> str:
    main = kinds - {NORMS, OTHER}
    if len(main) > 1:
        return SEVERAL
    return next(iter(main or kinds - {OTHER} or kinds))

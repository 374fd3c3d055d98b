"""The tree of blocks of a list of tensors with size formulas."""

from collections.abc import Mapping
from typing import Any

from auditor.analytic.blocks import Block, Module, Param, Stack
from auditor.analytic.dims import Dim, dim

_Nested = dict[str, Any]  # part of a name -> the parts that may follow, or the tensor


def tree_of_sizes(sizes: Mapping[str, tuple[Dim | int, ...]], modules: Mapping[str, Dim]) -> Module:
    """Return the tree of tensors with these sizes; `modules` has the lists' numbers of modules."""
    nested: _Nested = {}
    for name, shape in sizes.items():
        *folders, last = name.split(".")
        within = nested
        for folder in folders:
            within = within.setdefault(folder, {})
        within[last] = Param(shape)
    block = _block(nested, modules, {}, "")
    assert isinstance(block, Module)  # noqa: S101 - a model has a tensor with a name
    return block


def _block(
    nested: _Nested, modules: Mapping[str, Dim], known: dict[Block, Block], path: str
) -> Block:
    children: list[tuple[str, Block]] = []
    for name, one in nested.items():
        inner = f"{path}.{name}" if path else name
        below = _block(one, modules, known, inner) if isinstance(one, dict) else one
        children.append((name, below))
    numbers = sorted(int(name) for name in nested if name.isdecimal())
    block: Block
    if numbers == list(range(len(children))) and all(
        isinstance(one, Module) for _, one in children
    ):
        by_name = dict(children)
        layers = tuple(by_name[str(at)] for at in numbers)
        count = modules.get(path, dim(len(children)))
        count = count if count.value == len(children) else dim(len(children))
        block = Stack(count, tuple(one for one in layers if isinstance(one, Module)))
    else:
        block = Module(tuple(children))
    return known.setdefault(block, block)  # equal layers are one object

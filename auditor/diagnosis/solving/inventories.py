"""A tree of blocks for a class that only the oracle knows, with guessed formulas.

A length, or the number of modules of a list, that equals the value of exactly one config key is
assumed to be this key. A wrong guess gives a value that the oracle's next list of tensors refutes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from auditor.analytic.blocks import Block, Module, Param, Stack
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.diagnosis.solving.layer_lists import DEPTH
from auditor.diagnosis.solving.trials import ClassTree

_Nested = dict[str, Any]  # part of a name -> the parts that may follow, or the tensor's shape


def tree_of_shapes(shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]) -> ClassTree:
    """Return the tree of these tensors.

    A length that equals the value of exactly one config key is written as the symbol of that key.
    """
    nested: _Nested = {}
    for name, shape in shapes.items():
        *folders, last = name.split(".")
        within = nested
        for folder in folders:
            within = within.setdefault(folder, {})
        within[last] = shape
    keys = _keys_by_value(config)
    block = _block(nested, keys, {})
    assert isinstance(block, Module)  # noqa: S101 - a model has a tensor with a name
    return ClassTree(block, "")


def _block(nested: _Nested, keys: "_Keys", known: dict[Block, Block]) -> Block:
    children = [
        (name, _block(one, keys, known) if isinstance(one, dict) else Param(_shape(one, keys)))
        for name, one in nested.items()
    ]
    numbers = sorted(int(name) for name in nested if name.isdecimal())
    block: Block
    if numbers == list(range(len(children))) and all(
        isinstance(one, Module) for _, one in children
    ):
        by_name = dict(children)
        count = keys.depths.get(len(children), dim(len(children)))
        layers = tuple(by_name[str(at)] for at in numbers)
        block = Stack(count, tuple(one for one in layers if isinstance(one, Module)))
    else:
        block = Module(tuple(children))
    return known.setdefault(block, block)  # equal layers are one object


class _Keys(NamedTuple):
    """The config keys that may be the source of a length or a number of modules, by their value."""

    widths: Mapping[int, Dim]
    depths: Mapping[int, Dim]


def _keys_by_value(config: Mapping[str, Any]) -> _Keys:
    widths: dict[int, list[Dim]] = {}
    depths: dict[int, list[Dim]] = {}
    for path, value in _numbers(config, ""):
        name = path.rpartition(".")[2]
        size = dim(Symbol(letter=name, key=path, value=value, default=False))
        (depths if DEPTH.search(name) else widths).setdefault(value, []).append(size)
    return _Keys(_unique(widths), {**_unique(widths), **_unique(depths)})


def _unique(dims: Mapping[int, list[Dim]]) -> dict[int, Dim]:
    return {value: one[0] for value, one in dims.items() if len(one) == 1}


def _numbers(config: Mapping[str, Any], within: str) -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if type(value) is int and value > 1 and not name.endswith("_token_id"):
            yield f"{within}{name}", value
        elif isinstance(value, Mapping) and name.endswith("_config"):
            yield from _numbers(value, f"{within}{name}.")


def _shape(shape: tuple[int, ...], keys: _Keys) -> tuple[Dim | int, ...]:
    return tuple(keys.widths.get(length, length) for length in shape)

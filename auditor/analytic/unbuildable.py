"""What of a tree of blocks cannot be built: its faults, and the tree without them."""

from collections.abc import Iterator

from auditor.analytic.blocks import (
    Block,
    Experts,
    Extra,
    Module,
    Repeat,
    Stack,
    Submodel,
    Unbuildable,
    distinct,
)
from auditor.analytic.config_classes import ConfigFault


def unbuildable_faults(tree: Module) -> tuple[ConfigFault, ...]:
    """The faults of a tree, each once. Of layers that are repeated no times, nothing is built."""
    return tuple(dict.fromkeys(_faults(tree)))


def _faults(block: Block) -> Iterator[ConfigFault]:
    match block:
        case Unbuildable(fault):
            yield fault
        case Module(children):
            for _, child in children:
                yield from _faults(child)
        case Repeat(count, body) if count.value > 0:
            yield from _faults(body)
        case Stack(_, layers):
            for layer in distinct(layers):
                yield from _faults(layer)
        case Experts(body) | Extra(body) | Submodel(body):
            yield from _faults(body)


def without_unbuildable(tree: Module) -> Module:
    """The tree as it would be if everything could be built."""
    return _without(tree) if unbuildable_faults(tree) else tree


def _without(tree: Module) -> Module:
    children = ((name, _kept(child)) for name, child in tree.children)
    return Module(tuple((name, child) for name, child in children if child is not None))


def _kept(block: Block) -> Block | None:  # noqa: PLR0911 - one for each kind of block
    match block:
        case Unbuildable():
            return None
        case Module():
            return _without(block)
        case Repeat(count, body):
            return Repeat(count, _without(body))
        case Stack(count, layers):
            kept = {id(layer): _without(layer) for layer in distinct(layers)}
            return Stack(count, tuple(kept[id(layer)] for layer in layers))
        case Submodel(body):
            return Submodel(_without(body))
        case Experts(body, count, active):
            return Experts(_kept(body), count, active)  # type: ignore[arg-type]
        case Extra(Module() as body):
            return Extra(_without(body))
    return block

"""What not every config can have: parts that mostly have no tensors, and what faults they leave.

A part is None where it can be built, which leaves it out of its module, and else an Unbuildable. A
family writes parts where the modeling file has them, so that nothing is refused that is not built.
"""

from math import prod
from typing import Any, Literal

from auditor.analytic.blocks import (
    Block,
    Buffer,
    Experts,
    Extra,
    Module,
    Param,
    Repeat,
    Stack,
    Submodel,
    Unbuildable,
    distinct,
    module,
)
from auditor.analytic.config import Config
from auditor.analytic.config_classes import ConfigFault, library
from auditor.analytic.dims import Dim
from auditor.messages import described

_PADDING = "pad_token_id"

# Activations that learn, or keep, numbers of their own.
_LEARNED = {
    "prelu": module(weight=Param((1,))),
    "xielu": module(alpha_p=Param((1,)), alpha_n=Param((1,)), beta=Buffer(()), eps=Buffer(())),
}


def refused(c: Config, reason: str, *keys: str) -> Unbuildable:
    return Unbuildable(ConfigFault(reason, tuple(c.path + key for key in keys)))


def _stated(c: Config, key: str) -> str:
    return f"{c.path}{key} is {described(c.attribute(key))}"


def activation(c: Config, key: str = "hidden_act") -> Block | None:
    """The activation that the key names, which has to be one of transformers' own."""
    name = c.attribute(key)
    if isinstance(name, str) and name in _LEARNED:
        return _LEARNED[name]
    if c.settled is None or (isinstance(name, str) and name in library().activations):
        return None
    return refused(c, f"{_stated(c, key)}, which is not an activation", key)


def known_activation(c: Config) -> Unbuildable | None:
    """The same of experts, whose activation is stored nowhere, whether it learns or not."""
    found = activation(c, "hidden_act")
    return found if isinstance(found, Unbuildable) else None


def dropout(c: Config, key: str) -> Unbuildable | None:
    """Numbers dropped at random; the key says which share of them, from 0 to 1."""
    share = c.attribute(key)
    if c.settled is None or (isinstance(share, int | float) and not (share < 0 or share > 1)):
        return None
    return refused(c, f"{_stated(c, key)}, and a dropout is a number from 0 to 1", key)


def padding(c: Config, rows: Dim, *, row: int | None = None) -> Unbuildable | None:
    """The row of an embedding that stands for padding: one that it has, or null.

    The config says which, unless it is always the same `row`.
    """
    stated = c.attribute(_PADDING) if row is None else row
    if c.settled is None or stated is None or _has(rows.value, stated):
        return None
    has = f"rows 0 to {rows.value - 1}" if rows.value > 0 else "no rows"
    if row is None:
        return refused(c, f"{_stated(c, _PADDING)}, and the embedding has {has}", _PADDING)
    keys = tuple(sorted(symbol.key for symbol in rows.symbols))
    return Unbuildable(
        ConfigFault(f"{rows.named}: row {row} is for padding, and there are {has}", keys)
    )


def _has(rows: int, row: Any) -> bool:
    """Whether there is such a row; negative ones are counted from the end."""
    return isinstance(row, int) and -rows <= row < rows


# How attention is scaled by the width of a head: by 1 / w**0.5, which only a width of zero has not,
# by its square root, by one over that, or not at all.
Scale = Literal["power", "root", "inverse", "none"]
_ZERO, _NEGATIVE = ("power", "inverse"), ("root", "inverse")


def shares(
    c: Config, width: Dim, by: Dim, *, even: bool = True, scale: Scale = "power"
) -> Unbuildable | None:
    """What keeps a width from being shared by that many heads; `even`: it has to divide."""
    if c.settled is None:
        return None
    keys = tuple(sorted(symbol.key for symbol in width.symbols | by.symbols))
    if not by.value:
        return Unbuildable(ConfigFault(f"{width.named} cannot be divided by {by.named}", keys))
    each, rest = divmod(width.value, by.value)
    if even and rest:
        reason = f"{width.named} is not a multiple of {by.named}"
        terms = (described(value) for value in (width.value, each, by.value, rest))
        arithmetic = "{} = {} * {} + {}".format(*terms)
        return Unbuildable(ConfigFault(f"{reason}: {arithmetic}", keys))
    if (scale in _ZERO and not each) or (scale in _NEGATIVE and each < 0):
        reason = f"{width.named} is shared by {by.named}"
        return Unbuildable(
            ConfigFault(f"{reason}: attention cannot be scaled by a width of {each}", keys)
        )
    return None


def groups(c: Config, queries: Dim, keys: Dim) -> Unbuildable | None:
    """What keeps the query heads from being grouped by the key and value heads."""
    if c.settled is None or keys.value:
        return None
    reason = f"{queries.named} cannot be grouped by {keys.named}"
    return Unbuildable(ConfigFault(reason, tuple(symbol.key for symbol in keys.symbols)))


def scaled(c: Config, head: Dim) -> Unbuildable | None:
    """Attention that is scaled by one over the root of the width of a head."""
    if c.settled is None or head.value:
        return None
    keys = tuple(sorted(symbol.key for symbol in head.symbols))
    return Unbuildable(ConfigFault(f"{head.named}: attention cannot be scaled by it", keys))


_ADDRESSED = 2**63 - 1  # bytes that a tensor in torch can have


def unstored(c: Config, *shape: Dim, width: int = 4) -> Unbuildable | None:
    """A tensor that is made and never stored, of that many bytes a number."""
    if c.settled is None:
        return None
    sizes = [size.value for size in shape]
    if min(sizes) >= 0 and width * prod(sizes) <= _ADDRESSED >= max(sizes):
        return None
    what = "a negative size" if min(sizes) < 0 else "more bytes than torch can address"
    keys = tuple(sorted({symbol.key for size in shape for symbol in size.symbols}))
    implied = " by ".join(size.named for size in shape)
    return Unbuildable(ConfigFault(f"a tensor of {implied} would have {what}", keys))


def depthwise(c: Config, channels: Dim) -> Unbuildable | None:
    """A convolution of each channel by itself: a group for each channel, at least one group."""
    if c.settled is None or channels.value > 0:
        return None
    keys = tuple(sorted(symbol.key for symbol in channels.symbols))
    return Unbuildable(
        ConfigFault(f"{channels.named}: a convolution of each channel needs one at least", keys)
    )


def generates(c: Config) -> Unbuildable | None:
    """The settings of generate(), which take padding from a config that need not declare it."""
    token = c.attribute(_PADDING)
    if c.settled is None or token is None or isinstance(token, int | float):
        return None
    return refused(c, f"{_stated(c, _PADDING)}, expected a number or null", _PADDING)


def unbuildable_faults(tree: Module) -> tuple[ConfigFault, ...]:
    """The faults of a tree, each once. Of layers that are repeated no times, nothing is built."""
    faults: dict[ConfigFault, None] = {}
    _gather_faults(tree, faults)
    return tuple(faults)


def _gather_faults(block: Block, faults: dict[ConfigFault, None]) -> None:
    """Add those of a block."""
    match block:
        case Param():  # as most blocks are
            pass
        case Module(children):
            for _, child in children:
                _gather_faults(child, faults)
        case Unbuildable(fault):
            faults[fault] = None
        case Repeat(count, body) if count.value > 0:
            _gather_faults(body, faults)
        case Stack(_, layers):
            for layer in distinct(layers):
                _gather_faults(layer, faults)
        case Experts(body) | Extra(body) | Submodel(body):
            _gather_faults(body, faults)


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

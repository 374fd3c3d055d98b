"""The blocks a model is written in: one tree gives the names, the shapes, the count, the formula.

Names and shapes are those on disk: a Linear's weight is (out, in).
"""

from collections.abc import Callable, Hashable, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.errors import CheckpointError

# Kimi K2, the largest model known, has 70,000. 190,000 were measured at 6 seconds and 310 MB where
# the files hold none of them; a config can ask for 2**40 layers.
MAX_TENSORS = 100_000

Shape = tuple[Dim | int, ...]


class Layer(StrEnum):
    """The layer of a weight whose shape could be that of a Linear or a Conv as well."""

    EMBEDDING = "an embedding"
    CONV1D = "a linear layer stored as (in, out)"
    ODD = "a convolution in groups, or a transposed one"


class Param(Struct, frozen=True):
    """A learned tensor."""

    shape: Shape
    layer: Layer | None = None  # what adapters of the layer need to know
    drawn: bool = False  # by torch.randn, which counts numbers and not their bytes


class Buffer(Struct, frozen=True):
    """A tensor that every version stores and that is not learned, e.g. running_mean."""

    shape: Shape


class Legacy(Struct, frozen=True):
    """A tensor that some versions stored and that is not learned, e.g. position_ids: optional."""

    shape: Shape


class Extra(Struct, frozen=True):
    """Learned, stored by some, and read by no class here: no parameters, and never required."""

    body: "Param | Module"


class Tied(Struct, frozen=True):
    """Another name for the parameter `to`, a full name of the same model; not stored."""

    to: str


class Module(Struct, frozen=True):
    """Named blocks, in the order of the model's state dict. `module(...)` makes one."""

    children: tuple[tuple[str, "Block"], ...]


class Submodel(Struct, frozen=True):
    """A whole model inside another: what its `Tied` name are tensors of its own."""

    body: Module


class Repeat(Struct, frozen=True):
    """`count` modules of the same shapes, named 0, 1, 2, ... as in nn.ModuleList."""

    count: Dim
    body: Module


class Stack(Struct, frozen=True):
    """Modules of several shapes, named 0, 1, 2, ... in this order. `stack(...)` makes one."""

    count: Dim
    layers: tuple[Module, ...]  # as many; those of one kind are one object


def repeat(count: Dim, build: Callable[[], Module]) -> Repeat:
    """`count` layers of one kind; `build` is not called if the count is zero or less."""
    return Repeat(count, build()) if count.value > 0 else Repeat(dim(0), Module(()))


class Experts(Struct, frozen=True):
    """A body of `count` experts, of which one token uses `active`: a Repeat, or fused tensors."""

    body: "Param | Module | Repeat"
    count: Dim
    active: Dim


Block = Param | Buffer | Legacy | Extra | Tied | Module | Submodel | Repeat | Stack | Experts

_Kind = TypeVar("_Kind", bound=Hashable)


def module(**children: Block | None) -> Module:
    """A Module of these children; None leaves one out."""
    return Module(tuple((name, child) for name, child in children.items() if child is not None))


def sequential(*children: Block | None) -> Module:
    """An nn.Sequential, named 0, 1, 2, ...; None is a step without tensors, and has its number."""
    return module(**{str(number): child for number, child in enumerate(children)})


def stack(
    count: Dim, kind: Callable[[int], _Kind], build: Callable[[_Kind], Module]
) -> Repeat | Stack:
    """`count` layers, of which number i is `build(kind(i))`; build runs once for each kind."""
    kinds = [kind(number) for number in list_indices(count)]
    built = {each: build(each) for each in dict.fromkeys(kinds)}
    if len(built) == 1:
        return Repeat(count, built[kinds[0]])
    return Stack(count, tuple(built[each] for each in kinds))


def list_indices(count: Dim) -> range:
    """0, 1, 2, ... below the count; CheckpointError for a count that is too large to be listed."""
    if count.value > MAX_TENSORS:
        raise _too_many(count.named, count.value)
    return range(count.value)


def Linear(inputs: Dim | int, outputs: Dim | int, *, bias: bool = True) -> Module:
    """`weight` of shape (out, in) and `bias` of shape (out,)."""
    return module(weight=Param((outputs, inputs)), bias=Param((outputs,)) if bias else None)


def Conv1D(inputs: Dim | int, outputs: Dim | int) -> Module:
    """GPT-2's linear layer: `weight` of shape (in, out) and `bias` of shape (out,)."""
    return module(weight=Param((inputs, outputs), Layer.CONV1D), bias=Param((outputs,)))


def Conv(
    inputs: Dim | int,
    outputs: Dim | int,
    kernel: Sequence[Dim | int],
    *,
    groups: Dim | int = 1,
    bias: bool = True,
) -> Module:
    """`weight` of shape (out, in / groups, *kernel), one axis for each of the kernel's."""
    shape = (outputs, dim(inputs) // groups, *kernel)
    weight = Param(shape) if groups == 1 else Param(shape, Layer.ODD)
    return module(weight=weight, bias=Param((outputs,)) if bias else None)


def ConvTranspose(inputs: Dim | int, outputs: Dim | int, kernel: Sequence[Dim | int]) -> Module:
    """`weight` of shape (in, out, *kernel) and `bias` of shape (out,)."""
    weight = Param((inputs, outputs, *kernel), Layer.ODD)
    return module(weight=weight, bias=Param((outputs,)))


def FrozenBatchNorm(width: Dim | int) -> Module:
    """A BatchNorm as detectors have it: the same names, and no tensor is learned."""
    return module(
        weight=Buffer((width,)),
        bias=Buffer((width,)),
        running_mean=Buffer((width,)),
        running_var=Buffer((width,)),
    )


def Embedding(rows: Dim | int, width: Dim | int) -> Module:
    """`weight` of shape (rows, width)."""
    return module(weight=Param((rows, width), Layer.EMBEDDING))


def LayerNorm(width: Dim | int, *, bias: bool = True) -> Module:
    """`weight` and `bias`, each of shape (width,)."""
    return module(weight=Param((width,)), bias=Param((width,)) if bias else None)


def RMSNorm(width: Dim | int) -> Module:
    """`weight` of shape (width,)."""
    return module(weight=Param((width,)))


def BatchNorm(width: Dim | int) -> Module:
    """LayerNorm's two, and three buffers: the running statistics and how many batches they are."""
    return module(
        weight=Param((width,)),
        bias=Param((width,)),
        running_mean=Buffer((width,)),
        running_var=Buffer((width,)),
        num_batches_tracked=Buffer(()),
    )


def symbols(block: Block) -> frozenset[Symbol]:
    """The config keys that the block's shapes and counts are made of."""
    sizes: dict[int, Dim] = {}
    _gather(block, sizes)
    return frozenset().union(*(size.symbols for size in sizes.values()))


def _gather(block: Block, sizes: dict[int, Dim]) -> None:
    """Add the sizes in a block, by id: most of a tree's are a few objects."""
    match block:
        case Module(children):
            for _, child in children:
                _gather(child, sizes)
        case Param(shape) | Buffer(shape) | Legacy(shape):
            sizes.update((id(size), size) for size in shape if isinstance(size, Dim))
        case Repeat(count, body):
            sizes[id(count)] = count
            _gather(body, sizes)
        case Stack(count, layers):
            sizes[id(count)] = count
            for layer in distinct(layers):
                _gather(layer, sizes)
        case Experts(body, count, active):
            sizes.update({id(count): count, id(active): active})
            _gather(body, sizes)
        case Extra(body) | Submodel(body):
            _gather(body, sizes)
        case Tied():
            pass


def distinct(layers: tuple[Module, ...]) -> tuple[Module, ...]:
    """The layers of a Stack, each kind once."""
    return tuple({id(layer): layer for layer in layers}.values())


def bounded_tensor_count(block: Block) -> int:
    """Count the block's tensors without making them; CheckpointError if there are too many."""
    match block:
        case Param():
            return 1
        case Module(children):
            implied = sum([bounded_tensor_count(child) for _, child in children])
            if implied > MAX_TENSORS:
                raise _too_many("the config", implied)
            return implied
        case Repeat(count, body):
            implied = count.value * max(
                bounded_tensor_count(body), 1
            )  # an empty body is listed as a module
            if implied > MAX_TENSORS:
                raise _too_many(count.named, implied)
            return implied
        case Stack(count, layers):
            sizes = {id(layer): bounded_tensor_count(layer) for layer in distinct(layers)}
            implied = sum(max(sizes[id(layer)], 1) for layer in layers)
            if implied > MAX_TENSORS:
                raise _too_many(count.named, implied)
            return implied
        case Experts(body) | Extra(body) | Submodel(body):
            return bounded_tensor_count(body)
        case _:
            return 1


def _too_many(what: str, implied: int) -> CheckpointError:
    return CheckpointError(
        f"{what} would imply {implied:,} tensors; {MAX_TENSORS:,} are the most that are listed"
    )

"""The blocks from which a model is described: a tree of blocks gives names, shapes and formula.

Names and shapes are those on disk: a Linear's weight is (out, in).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product
from math import prod
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from msgspec import Struct

from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Role, Symbol
from auditor.errors import CheckpointError

# Kimi K2, the largest known model, has 70,000 tensors. A config that implies 190,000 took 6 seconds
# and 310 MB if none of them is stored; a config can ask for 2**40 layers.
MAX_TENSORS = 100_000

_FEW = 2  # modules of each kind, at most, of a fixed list that is written module by module

Shape = tuple[Dim | int, ...]


class Layer(StrEnum):
    """The layer that owns a weight, if the weight's shape alone does not identify it."""

    EMBEDDING = "an embedding"
    CONV1D = "a linear layer stored as (in, out)"
    ODD = "a convolution in groups, or a transposed one"


class Param(Struct, frozen=True):
    """A learned tensor."""

    shape: Shape
    layer: Layer | None = None  # the layer's type, on which the shapes of adapters depend
    drawn: bool = False  # initialized by torch.randn, which limits the elements, not bytes
    is_frozen: bool = False  # a parameter with requires_grad=False, such as sinusoids


class Buffer(Struct, frozen=True):
    """A tensor that every version stores and that is not learned, e.g. running_mean."""

    shape: Shape


class Legacy(Struct, frozen=True):
    """An optional, not learned tensor that some versions stored, e.g. position_ids."""

    shape: Shape


class Extra(Struct, frozen=True):
    """A learned tensor that some files store and no class reads: optional, not a parameter."""

    body: "Param | Module"


class Tied(Struct, frozen=True):
    """A second name of a parameter, not stored; `to` is the parameter's full name."""

    to: str


class Module(Struct, frozen=True):
    """A set of named blocks, in state dict order; `module(...)` builds a Module."""

    children: tuple[tuple[str, "Block"], ...]


class Submodel(Struct, frozen=True):
    """A complete model inside another model; names in its `Tied` blocks are relative to it."""

    body: Module


class Repeat(Struct, frozen=True):
    """`count` modules of the same shapes, named 0, 1, 2, ... as in nn.ModuleList."""

    count: Dim
    body: Module


class Stack(Struct, frozen=True):
    """Modules of several shapes, named 0, 1, 2, ...; `stack(...)` builds a Stack."""

    count: Dim
    layers: tuple[Module, ...]  # all `count` layers; equal layers are one object


def repeat(count: Dim, build: Callable[[], Module]) -> Repeat:
    """Return `count` equal layers; `build` is not called if the count is zero or less."""
    return Repeat(count, build()) if count.value > 0 else Repeat(dim(0), Module(()))


class Experts(Struct, frozen=True):
    """A Repeat or fused tensors that hold `count` experts; each token uses `active` of them."""

    body: "Param | Module | Repeat"
    count: Dim
    active: Dim


_ROLES: Mapping[object, Role] = MappingProxyType(
    {Param: Role.PARAMETER, Buffer: Role.BUFFER, Legacy: Role.LEGACY, Tied: Role.TIED}
)
Block = Param | Buffer | Legacy | Extra | Tied | Module | Submodel | Repeat | Stack | Experts

_Kind = TypeVar("_Kind", bound=Hashable)


def module(**children: Block | None) -> Module:
    """Return a Module of these children; a child that is None is left out."""
    return Module(tuple((name, child) for name, child in children.items() if child is not None))


def sequential(*children: Block | None) -> Module:
    """Return an nn.Sequential, named 0, 1, 2, ...; a None takes up a number, without tensors."""
    return module(**{str(number): child for number, child in enumerate(children)})


def stack(
    count: Dim, kind: Callable[[int], _Kind], build: Callable[[_Kind], Module]
) -> Repeat | Stack:
    """Return `count` layers; layer i is `build(kind(i))`, and build runs once for each kind."""
    kinds = [kind(number) for number in list_indices(count)]
    built = {each: build(each) for each in dict.fromkeys(kinds)}
    if len(built) == 1:
        return Repeat(count, built[kinds[0]])
    return Stack(count, tuple(built[each] for each in kinds))


def list_of_modules(count: Dim | int, blocks: Mapping[str, Block]) -> Block:
    """Return blocks under their numbers as a list of `count` modules; equal ones are one object.

    It is a Module if numbers are missing, if a block is not a module with named children, or if
    a fixed number of modules are of nearly as many kinds, as in nn.Sequential.
    """
    numbered = (blocks.get(str(number)) for number in range(len(blocks)))
    layers = tuple(block for block in numbered if isinstance(block, Module))
    kinds, size = len(distinct(layers)), dim(count)
    is_list = len(layers) == len(blocks) == size.value
    if is_list and kinds == 1:
        return Repeat(size, layers[0])
    if is_list and (size.symbols or kinds * _FEW < len(layers)):
        return Stack(size, layers)
    return Module(tuple(blocks.items()))


def list_indices(count: Dim) -> range:
    """Return range(count); raise CheckpointError if the count is too large."""
    if count.value > MAX_TENSORS:
        raise _too_many(count.named, count.value)
    return range(count.value)


def Linear(inputs: Dim | int, outputs: Dim | int, *, bias: bool = True) -> Module:
    """Return a linear layer: `weight` of shape (out, in), `bias` of shape (out,)."""
    return module(weight=Param((outputs, inputs)), bias=Param((outputs,)) if bias else None)


def Conv1D(inputs: Dim | int, outputs: Dim | int) -> Module:
    """Return GPT-2's linear layer: `weight` of shape (in, out), `bias` of shape (out,)."""
    return module(weight=Param((inputs, outputs), Layer.CONV1D), bias=Param((outputs,)))


def Conv(
    inputs: Dim | int,
    outputs: Dim | int,
    kernel: Sequence[Dim | int],
    *,
    groups: Dim | int = 1,
    bias: bool = True,
) -> Module:
    """Return a convolution: `weight` (out, in / groups, *kernel), `bias` (out,)."""
    shape = (outputs, dim(inputs) // groups, *kernel)
    weight = Param(shape) if groups == 1 else Param(shape, Layer.ODD)
    return module(weight=weight, bias=Param((outputs,)) if bias else None)


def ConvTranspose(inputs: Dim | int, outputs: Dim | int, kernel: Sequence[Dim | int]) -> Module:
    """Return a transposed convolution: `weight` (in, out, *kernel), `bias` (out,)."""
    weight = Param((inputs, outputs, *kernel), Layer.ODD)
    return module(weight=weight, bias=Param((outputs,)))


def FrozenBatchNorm(width: Dim | int) -> Module:
    """Return the frozen BatchNorm of detectors: all its tensors are buffers."""
    return module(
        weight=Buffer((width,)),
        bias=Buffer((width,)),
        running_mean=Buffer((width,)),
        running_var=Buffer((width,)),
    )


def Embedding(rows: Dim | int, width: Dim | int, *, is_frozen: bool = False) -> Module:
    """Return an embedding: `weight` of shape (rows, width)."""
    return module(weight=Param((rows, width), Layer.EMBEDDING, is_frozen=is_frozen))


def LayerNorm(width: Dim | int, *, bias: bool = True) -> Module:
    """Return a LayerNorm: `weight` and `bias` of shape (width,)."""
    return module(weight=Param((width,)), bias=Param((width,)) if bias else None)


def RMSNorm(width: Dim | int) -> Module:
    """Return an RMSNorm: `weight` of shape (width,)."""
    return module(weight=Param((width,)))


def BatchNorm(width: Dim | int) -> Module:
    """Return a BatchNorm: LayerNorm's two parameters, and three buffers of running statistics."""
    return module(
        weight=Param((width,)),
        bias=Param((width,)),
        running_mean=Buffer((width,)),
        running_var=Buffer((width,)),
        num_batches_tracked=Buffer(()),
    )


class ListAxis(NamedTuple):
    """A list of modules around a tensor, or the experts that one tensor contains."""

    name: str  # of the list, with `*` for outer numbers: "encoder.layer"
    modules: Dim  # the number of its modules, of every kind
    places: Sequence[int] | None  # the numbers of the modules of this kind; None: in one tensor
    kind: int = 0  # the index of the kind in a list of several kinds
    active: Dim | None = None  # the number of experts that one token uses

    @property
    def at(self) -> int:
        """The place of the module's number among the parts of a tensor's name."""
        return self.name.count(".") + 1 if self.name else 0


class TreeTensor(NamedTuple):
    """The tensors of a tree that are equal except for the numbers in their names."""

    name: str  # "encoder.layer.*.output.dense.weight"
    block: Param | Buffer | Legacy | Tied
    axes: tuple[ListAxis, ...] = ()  # outermost first
    submodel: str = ""  # what the names of ties begin with: "clip.", with `*` for numbers
    is_extra: bool = False

    @property
    def role(self) -> Role:
        return role_of(self.block, is_extra=self.is_extra)

    @property
    def lists(self) -> tuple[ListAxis, ...]:
        """The lists of modules around the tensor, outermost first."""
        return tuple(axis for axis in self.axes if axis.places is not None)

    @property
    def number(self) -> int:
        """The number of these tensors."""
        return prod(len(axis.places or ()) for axis in self.lists)

    @property
    def names(self) -> Iterator[str]:
        """The names of all these tensors."""
        return map(self.filled, product(*(axis.places or () for axis in self.lists)))

    def filled(self, numbers: Iterable[object]) -> str:
        """Return the name with a number, or a pattern of numbers, for each list."""
        parts = self.name.split(".")
        for axis, number in zip(self.lists, numbers, strict=True):
            parts[axis.at] = str(number)
        return ".".join(parts)


def role_of(block: Param | Buffer | Legacy | Tied, *, is_extra: bool) -> Role:
    """Return the role of a tensor; `is_extra`: no class reads it."""
    role = _ROLES[type(block)]
    if not is_extra:
        return role
    return Role.EXTRA if role.learned else Role.LEGACY


def sizes_of_shape(shape: Shape) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else size.value for size in shape)


def walk(tree: Block) -> list[TreeTensor]:
    """Return the tensors of a tree; the modules of a list are visited once for each kind."""
    tensors: list[TreeTensor] = []
    _walk(tensors, tree, TreeTensor("", Tied("")))
    return tensors


def _walk(  # noqa: C901 - one case for each kind of block
    tensors: list[TreeTensor], block: Block, at: TreeTensor
) -> None:
    """Append the tensors of a block, which is at a place; a generator would take twice the time."""
    match block:
        case Module(children):
            for key, child in children:
                _walk(tensors, child, at._replace(name=f"{at.name}.{key}" if at.name else key))
        case Repeat(count, body):
            _walk(tensors, body, _in_list(at, ListAxis(at.name, count, range(max(count.value, 0)))))
        case Stack(count, layers):
            places: dict[int, list[int]] = {}
            for place, layer in enumerate(layers):
                places.setdefault(id(layer), []).append(place)
            for kind, numbers in enumerate(places.values()):
                axis = ListAxis(at.name, count, numbers, kind)
                _walk(tensors, layers[numbers[0]], _in_list(at, axis))
        case Experts(body, count, active):
            begin, level = len(tensors), len(at.axes)
            _walk(tensors, body, at)
            for number, tensor in enumerate(tensors[begin:], begin):
                fused = [] if isinstance(body, Repeat) else [ListAxis(at.name, count, None)]
                axis, *inner = fused + list(tensor.axes[level:])
                axes = (*at.axes, axis._replace(active=active), *inner)
                tensors[number] = tensor._replace(axes=axes)
        case Extra(body):
            _walk(tensors, body, at._replace(is_extra=True))
        case Submodel(body):
            _walk(tensors, body, at._replace(submodel=f"{at.name}." if at.name else ""))
        case _:
            tensors.append(at._replace(block=block))


def _in_list(at: TreeTensor, axis: ListAxis) -> TreeTensor:
    return at._replace(name=f"{at.name}.*" if at.name else "*", axes=(*at.axes, axis))


def symbols(block: Block) -> frozenset[Symbol]:
    """Return the config keys that the block's shapes and counts depend on."""
    sizes: dict[int, Dim] = {}  # by object id: blocks share objects
    for tensor in walk(block):
        shape = () if isinstance(tensor.block, Tied) else tensor.block.shape
        counts = (size for axis in tensor.axes for size in (axis.modules, axis.active))
        sizes.update((id(size), size) for size in (*shape, *counts) if isinstance(size, Dim))
    return frozenset().union(*(size.symbols for size in sizes.values()))


def distinct(layers: tuple[Module, ...]) -> tuple[Module, ...]:
    """Return the layers of a Stack without repetitions."""
    return tuple({id(layer): layer for layer in layers}.values())


def bounded_tensor_count(block: Block) -> int:
    """Count the block's tensors without building them; raise CheckpointError if too many."""
    match block:
        case Param():
            return 1
        case Module(children):
            implied = sum([bounded_tensor_count(child) for _, child in children])
            if implied > MAX_TENSORS:
                raise _too_many("the config", implied)
            return implied
        case Repeat(count, body):
            in_body = max(bounded_tensor_count(body), 1)  # an empty body is listed as a module
            implied = count.value * in_body
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
        f"{what} would imply {implied:,} tensors, expected at most {MAX_TENSORS:,}"
    )

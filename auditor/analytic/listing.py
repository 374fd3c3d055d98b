"""The listing of a tree of blocks: tensors, modules and formulas; equal layers are listed once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.analytic.blocks import (
    Block,
    Buffer,
    Experts,
    Extra,
    Legacy,
    Module,
    Param,
    Repeat,
    Shape,
    Stack,
    Submodel,
    Tied,
    TreeTensor,
    bounded_tensor_count,
    distinct,
    sizes_of_shape,
    walk,
)
from auditor.analytic.dims import Dim, counted_dim, dim, product_of_dims, sum_of_dims
from auditor.analytic.expectation import (
    ExpectedTensor,
    ModuleFormula,
    Outline,
    Role,
    Symbol,
    shapes_of_parameters,
)
from auditor.analytic.layers import (
    LayerKind,
    Layers,
    ListedModule,
    every_module,
    every_shape,
    every_tensor,
    folded_modules,
    shapes_under,
)
from auditor.analytic.lookup import NameLookup
from auditor.errors import CheckpointError
from auditor.names.folding import escaped_name, number_pattern
from auditor.tensors import Depth

Replacements = tuple[tuple[Symbol, Dim], ...]  # symbol -> a product of the same value

# A layer of more tensors is not cached. The layers of 59 checkpoints have at most 31, except those
# of more than a hundred experts.
_MOST_KEPT = 256
_LONGEST = 2**63 - 1  # the longest axis in torch
_LARGEST = _LONGEST // 4  # elements of an F32 tensor: torch counts its bytes in 64 bits
_MOST_TERMS = 64  # of a cached formula; the longest of all known classes, SamModel's, has 37


class BlockSize(NamedTuple):
    """The number of parameters of a block, and the number of those that are active for one token.

    Both fields are one object if the numbers are equal.
    """

    total: Dim
    active: Dim


def _all(total: Dim) -> BlockSize:
    return BlockSize(total, total)


def _combined(combine: Callable[[Sequence[Dim]], Dim], sizes: Sequence[BlockSize]) -> BlockSize:
    """Combine sizes; active counts are combined separately only if they differ from totals."""
    total = combine([size.total for size in sizes])
    if all(size.active is size.total for size in sizes):
        return _all(total)
    return BlockSize(total, combine([size.active for size in sizes]))


_NOTHING = _all(dim(0))


class BlockListing:
    """A collector of the tensors and modules of a block, with names relative to the block.

    Replacements are applied to each size when it is added, so that sums need no rewriting.
    """

    def __init__(self, replacements: Replacements) -> None:
        self.replacements = replacements
        self._instead = dict(replacements)
        self._submodel = ""  # to which the names of ties are relative, with a final dot
        self.tensors: list[ExpectedTensor | Layers] = []
        self.modules: list[ListedModule | Layers] = []

    def add(self, block: Block, name: str) -> BlockSize:
        """List the block's tensors and modules under the name; return its size."""
        match block:
            case Param(shape, drawn=drawn):
                self.tensor(name, shape, Role.PARAMETER, most=_LONGEST if drawn else _LARGEST)
                return _all(product_of_dims(shape).substitute(self._instead))
            case Buffer(shape):
                self.tensor(name, shape, Role.BUFFER)
            case Legacy(shape):
                self.tensor(name, shape, Role.LEGACY)
            case Tied(to):
                to = f"{self._submodel}{to}"
                self.tensors.append(ExpectedTensor(name, (), 0, Role.TIED, to))
            case Extra(body):
                self.optional(body, name)
            case Experts(body, count, active):
                size = self.add(body, name)
                if (
                    active.value >= count.value
                ):  # a router cannot choose more experts than there are
                    return size
                return BlockSize(size.total, size.total // count * active)
            case Submodel(body):
                outer, self._submodel = self._submodel, f"{name}." if name else ""
                size = self.add(body, name)
                self._submodel = outer
                return size
            case Module() | Repeat() | Stack():
                return self.module(block, name)
        return _NOTHING

    def tensor(self, name: str, shape: Shape, role: Role, *, most: int = _LARGEST) -> None:
        sizes = tuple(size if isinstance(size, int) else size.value for size in shape)
        elements = prod(sizes)
        if min(sizes, default=0) < 0 or elements > most or max(sizes, default=0) > _LONGEST:
            if role is Role.LEGACY:
                return  # no version of the class could store it
            implied = ", ".join(dim(size).named for size in shape)
            what = "a negative size" if min(sizes) < 0 else "more numbers than torch can address"
            keys = {symbol.key for size in shape for symbol in dim(size).symbols}
            raise CheckpointError(f"{name} would have {what}: ({implied})", *sorted(keys))
        self.tensors.append(ExpectedTensor(name, sizes, elements, role))

    def module(self, block: Module | Repeat | Stack, name: str) -> BlockSize:
        """List a block and the blocks in it; it is not a module if all its tensors are optional."""
        place = len(self.modules)
        self.modules.append(ListedModule(name, ModuleFormula(0, "")))  # before its children
        match block:
            case Module(children):
                sizes = [self.add(child, _join(name, key)) for key, child in children]
                size = _combined(sum_of_dims, sizes)
            case Repeat(count, body):
                kind, layer_size = self.layer_kind(body)
                size = _combined(lambda sizes: count * sizes[0], [layer_size])
                self.layers(name, [kind] * count.value)
            case Stack(count, layers):
                size = self.stack(count, layers, name)
        tensors = () if size.total.terms else walk(block)
        if tensors and all(one.role.optional for one in tensors):
            del self.modules[place]
        else:
            self.modules[place] = ListedModule(name, self.formula(size.total))
        return size

    def stack(self, count: Dim, layers: tuple[Module, ...], name: str) -> BlockSize:
        kinds = {id(layer): self.layer_kind(layer) for layer in distinct(layers)}
        self.layers(name, [kinds[id(layer)][0] for layer in layers])
        alike = Counter(map(id, layers))
        numbers = [alike[kind] for kind in kinds]
        sizes = [size for _, size in kinds.values()]
        return _combined(lambda each: _grouped(count, numbers, each), sizes)

    def layers(self, name: str, kinds: Iterable[LayerKind]) -> None:
        below = Layers(name, tuple(kinds))
        self.tensors.append(below)
        self.modules.append(below)

    def optional(self, body: Param | Module, name: str) -> None:
        try:
            once, _ = self.once(body)
        except CheckpointError:
            return  # too large to store, and not needed by any class
        for tensor in every_tensor(once.tensors):
            role = Role.EXTRA if tensor.role.learned else Role.LEGACY
            self.tensors.append(tensor._replace(name=_join(name, tensor.name), role=role))

    def layer_kind(self, body: Module) -> tuple[LayerKind, BlockSize]:
        """Return a layer's kind and size; small layers are cached, as many models share them."""
        write = _layer_kind if bounded_tensor_count(body) <= _MOST_KEPT else _layer_kind.__wrapped__
        return write(body, self.replacements)

    def once(self, body: Block) -> tuple["BlockListing", BlockSize]:
        """Return a listing of a layer's body, to be copied for each layer, and the body's size."""
        listing = BlockListing(self.replacements)
        return listing, listing.add(body, "")

    def formula(self, total: Dim) -> ModuleFormula:
        text = _text if len(total.terms) <= _MOST_TERMS else _text.__wrapped__
        return ModuleFormula(total.value, text(total if total.symbols else dim(total.value)))


@lru_cache(maxsize=1024)
def _text(size: Dim) -> str:
    return str(size)


@lru_cache(maxsize=128)
def _layer_kind(body: Module, replacements: Replacements) -> tuple[LayerKind, BlockSize]:
    once, size = BlockListing(replacements).once(body)
    return LayerKind(once.tensors, once.modules), size


def _grouped(count: Dim, numbers: Sequence[int], sizes: Sequence[Dim]) -> Dim:
    """Return the sum of the layers' sizes, with equal layers grouped: `3*(...) + 58*(...)`.

    Larger layers are written as a difference from the smallest: `N*(...) + H`.
    """
    if not sizes:
        return dim(0)
    least = min(sizes, key=lambda size: (len(size.terms), size.value))
    plain, total = 0, dim(0)
    for number, size in zip(numbers, sizes, strict=True):
        more = size - least
        if len(more.terms) < len(size.terms) and all(factor > 0 for _, factor in more.terms):
            plain += number
            total += counted_dim(number) * more
        else:
            total += counted_dim(number) * size
    return total + (count if plain == count.value else counted_dim(plain)) * least


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


# --- a complete tree ------------------------------------------------------------------------------


class Inventory(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The tensors of a tree of blocks, and the parameters of each module.

    Repeated layers are expanded on first access.
    """

    tree: Module
    listing: BlockListing
    total: Dim
    active: Dim | None  # the parameters that one token uses; None if it uses all

    @cached_property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """The tensors in the order of the tree."""
        tied = {tensor.name: tensor for tensor in self.others if tensor.tied_to}  # with shapes
        tensors = every_tensor(self.listing.tensors)
        return tuple(
            [tied[one.name] if one.tied_to else one for one in tensors] if tied else tensors
        )

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the parameters, by name."""
        if "tensors" in self.__dict__:  # reuse the name strings: 95,000 take 9 MB
            return shapes_of_parameters(self.tensors)
        return every_shape(self.listing.tensors)

    def shapes_of(
        self, names: Iterable[str], otherwise: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Yield the expected shape of each name; `otherwise` if no parameter has the name."""
        return shapes_under(self.listing.tensors, names, otherwise)

    @cached_property
    def others(self) -> tuple[ExpectedTensor, ...]:
        """The tensors that are not parameters; a tied tensor has the shape of its source."""
        return tuple(self._others())

    def _others(self) -> Iterator[ExpectedTensor]:
        lookup = self.names
        for one in self._walked:
            if isinstance(one.block, Tied):
                yield from lookup.tensors(one.names).values()
            elif one.role is not Role.PARAMETER:
                shape = sizes_of_shape(one.block.shape)
                elements, role = prod(shape), one.role
                if elements <= _LARGEST:
                    yield from (ExpectedTensor(name, shape, elements, role) for name in one.names)

    @property
    def names(self) -> NameLookup:
        """The tensors by name."""
        return NameLookup(self.tree)

    @cached_property
    def _walked(self) -> list[TreeTensor]:
        return [one for one in walk(self.tree) if one.number]

    @property
    def in_order(self) -> bool:
        return True

    @cached_property
    def modules(self) -> Mapping[str, ModuleFormula]:
        """The modules by prefix; "" is the complete tree."""
        return MappingProxyType(every_module(self.listing.modules))

    def modules_to(self, depth: Depth | None) -> Mapping[str, ModuleFormula]:
        """Return the modules that `depth` lists, all modules if it is None."""
        return self.modules if depth is None else every_module(self.listing.modules, depth)

    @cached_property
    def learned(self) -> int:
        return sum(one.number for one in self._walked if one.role is Role.PARAMETER)

    @cached_property
    def outline(self) -> Outline:
        """The tensors and modules with equal layers folded; tied tensors have no shape."""
        modules = folded_modules(self.listing.modules)
        return Outline(tuple(map(_folded, self._walked)), MappingProxyType(modules))

    def __eq__(self, other: object) -> bool:
        """Return whether both contain equal tensors and modules, however these are listed."""
        return type(other) is type(self) and self._written() == other._written()

    def __hash__(self) -> int:
        return hash((self.total, self.active))

    def _written(self) -> tuple[object, ...]:
        return self.tensors, self.modules, self.total, self.active


def _folded(tensor: TreeTensor) -> ExpectedTensor:
    """Return the tensors under one folded name; a tied tensor has no shape."""
    escaped = tensor._replace(name=escaped_name(tensor.name))
    name = escaped.filled(number_pattern(axis.places or ()) for axis in tensor.lists)
    block = tensor.block
    if isinstance(block, Tied):
        return ExpectedTensor(name, (), 0, tensor.role, f"{tensor.submodel}{block.to}")
    shape = sizes_of_shape(block.shape)
    return ExpectedTensor(name, shape, prod(shape), tensor.role)


def inventory(tree: Module, replacements: Mapping[Symbol, Dim]) -> Inventory:
    """Return the inventory of a tree; its formulas use the replacements, e.g. 4*D for F."""
    bounded_tensor_count(tree)
    listing = BlockListing(tuple(replacements.items()))
    total, active = listing.add(tree, "")
    if not any(one.name == "" for one in listing.modules):  # all tensors are optional
        listing.modules.append(ListedModule("", listing.formula(total)))
    return Inventory(
        tree=tree,
        listing=listing,
        total=total,
        active=None if active is total else active,
    )

"""A tree of blocks written out: its tensors, and the parameters and formula of each module."""

from collections.abc import Mapping
from functools import cached_property
from itertools import compress
from operator import attrgetter
from types import MappingProxyType

from msgspec import Struct

from auditor.analytic.blocks import Module, bounded_tensor_count
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import ExpectedTensor, ModuleFormula, Outline, Symbol
from auditor.analytic.layers import (
    ListedModule,
    count_learned,
    every_module,
    every_tensor,
    folded_modules,
    folded_tensors,
)
from auditor.analytic.listing import BlockListing


class Inventory(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What a tree of blocks comes to: its tensors, their parameters, and those of each module.

    What its layers have is written out when somebody asks for it.
    """

    listing: BlockListing
    depth: int | None
    total: Dim
    active: Dim | None  # the parameters that one token uses; None where these are all

    @cached_property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """In the order of the tree."""
        return _resolved(every_tensor(self.listing.tensors))

    @cached_property
    def modules(self) -> Mapping[str, ModuleFormula]:
        """By prefix, in natural order; "" is the tree."""
        return MappingProxyType(every_module(self.listing.modules, self.depth))

    @cached_property
    def learned(self) -> int:
        return count_learned(self.listing.tensors)

    @cached_property
    def outline(self) -> Outline:
        """Both with layers of one kind under one folded name; a tied tensor has no shape here."""
        modules = folded_modules(self.listing.modules)
        return Outline(tuple(folded_tensors(self.listing.tensors)), MappingProxyType(modules))

    def __eq__(self, other: object) -> bool:
        """Two that come to the same are equal, however they were listed."""
        return type(other) is type(self) and self._written() == other._written()

    def __hash__(self) -> int:
        return hash((self.total, self.active))

    def _written(self) -> tuple[object, ...]:
        return self.tensors, self.modules, self.total, self.active


def inventory(
    tree: Module, replacements: Mapping[Symbol, Dim], *, depth: int | None = None
) -> Inventory:
    """The tree listed; its formulas say 4*D for F where the replacements do.

    `modules` are known down to `depth` (None: all): only a list of every module needs those of
    5,000 layers.
    """
    bounded_tensor_count(tree)
    listing = BlockListing(tuple(replacements.items()))
    total, active = listing.add(tree, "")
    if not any(one.name == "" for one in listing.modules):  # all of it is optional
        listing.modules.append(ListedModule("", listing.formula(total)))
    return Inventory(
        listing=listing,
        depth=depth,
        total=total.substitute(replacements),
        active=None if active is total else active.substitute(replacements),
    )


def _resolved(tensors: list[ExpectedTensor]) -> tuple[ExpectedTensor, ...]:
    """Give each tied tensor the shape of the one whose values it shares."""
    tied = tuple(compress(range(len(tensors)), map(_TIED_TO, tensors)))
    wanted = {tensors[place].tied_to for place in tied}
    sources = {tensor.name: tensor for tensor in tensors if tensor.name in wanted} if tied else {}
    for place in tied:
        source = sources[tensors[place].tied_to or ""]
        tensors[place] = tensors[place]._replace(shape=source.shape, elements=source.elements)
    return tuple(tensors)


_TIED_TO = attrgetter("tied_to")

"""A tree of blocks written out: its tensors, and the parameters and formula of each module."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress
from math import prod
from operator import attrgetter
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
    bounded_tensor_count,
    distinct,
)
from auditor.analytic.dims import Dim, counted_dim, dim, product_of_dims, sum_of_dims
from auditor.analytic.expectation import ExpectedTensor, ModuleFormula, Role, Symbol
from auditor.errors import CheckpointError

Replacements = tuple[tuple[Symbol, Dim], ...]  # symbol -> a product of the same value

# Layers of more tensors are written out anew for each model: of 59 checkpoints' layers all have
# fewer (31 at the most), but for those of more than a hundred experts.
_MOST_KEPT = 256
_MOST_REPEATED = 2048  # tensors and modules of all layers that are kept; Llama-2-70B has 1,760
_LONGEST = 2**63 - 1  # an axis in torch
_LARGEST = _LONGEST // 4  # a tensor in torch, of F32: its bytes are counted in 64 bits
_MOST_TERMS = 64  # of a formula that is kept; SamModel's has 37, the most of all classes here


class Inventory(Struct, frozen=True, kw_only=True):
    """What a tree of blocks comes to: its tensors, their parameters, and those of each module."""

    tensors: tuple[ExpectedTensor, ...]  # in the order of the tree
    total: Dim
    active: Dim | None  # the parameters that one token uses; None where these are all
    modules: Mapping[str, ModuleFormula]  # by prefix, a module before its children; "" is the tree


def inventory(
    tree: Module, replacements: Mapping[Symbol, Dim], *, depth: int | None = None
) -> Inventory:
    """The tree written out; its formulas say 4*D for F where the replacements do.

    `modules` are known down to `depth` at least (None: all): only a list of every module needs
    those of 5,000 layers.
    """
    bounded_tensor_count(tree)
    listing = _Listing(tuple(replacements.items()), depth)
    total, active = listing.add(tree, "")
    listing.modules.setdefault("", listing.formula(total))
    return Inventory(
        tensors=_resolved(listing.tensors),
        total=total.substitute(replacements),
        active=None if active is total else active.substitute(replacements),
        modules=MappingProxyType(listing.modules),
    )


class _Size(NamedTuple):
    """The parameters of a block, and those that one token uses; the same object where all are."""

    total: Dim
    active: Dim


def _all(total: Dim) -> _Size:
    return _Size(total, total)


def _each(combine: Callable[[Sequence[Dim]], Dim], sizes: Sequence[_Size]) -> _Size:
    """Combine the totals, and once more what is active, where that is less."""
    total = combine([size.total for size in sizes])
    if all(size.active is size.total for size in sizes):
        return _all(total)
    return _Size(total, combine([size.active for size in sizes]))


_NOTHING = _all(dim(0))


class _Listing:
    """Collects tensors and modules, with names that begin at the block it was given."""

    def __init__(self, replacements: Replacements, depth: int | None) -> None:
        self.replacements = replacements
        self.depth = depth
        self.tensors: list[ExpectedTensor] = []
        self.modules: dict[str, ModuleFormula] = {}

    def add(self, block: Block, name: str) -> _Size:
        """List the block under that name."""
        match block:
            case Param(shape, drawn=drawn):
                self.tensor(name, shape, Role.PARAMETER, most=_LONGEST if drawn else _LARGEST)
                return _all(product_of_dims(shape))
            case Buffer(shape):
                self.tensor(name, shape, Role.BUFFER)
            case Legacy(shape):
                self.tensor(name, shape, Role.LEGACY)
            case Tied(to):
                self.tensors.append(ExpectedTensor(name, (), 0, Role.TIED, to))
            case Extra(body):
                self.optional(body, name)
            case Experts(body, count, active):
                size = self.add(body, name)
                if active.value >= count.value:  # a router that asks for more cannot run
                    return size
                return _Size(size.total, size.total // count * active)
            case Submodel(body):
                return self.submodel(body, name)
            case Module() | Repeat() | Stack():
                return self.module(block, name)
        return _NOTHING

    def tensor(self, name: str, shape: Shape, role: Role, *, most: int = _LARGEST) -> None:
        sizes = tuple(dim(size).value for size in shape)
        elements = prod(sizes)
        if min(sizes, default=0) < 0 or elements > most or max(sizes, default=0) > _LONGEST:
            if role is Role.LEGACY:
                return  # no version could store it
            implied = ", ".join(dim(size).named for size in shape)
            what = "a negative size" if min(sizes) < 0 else "more numbers than torch can address"
            keys = {symbol.key for size in shape for symbol in dim(size).symbols}
            raise CheckpointError(f"{name} would have {what}: ({implied})", *sorted(keys))
        self.tensors.append(ExpectedTensor(name, sizes, elements, role))

    def module(self, block: Module | Repeat | Stack, name: str) -> _Size:
        """List a block of blocks, with a row of its own unless all of it is optional."""
        first = len(self.tensors)
        self.modules[name] = ModuleFormula(0, "")  # keeps the place before its children
        match block:
            case Module(children):
                sizes = [self.add(child, _join(name, key)) for key, child in children]
                size = _each(sum_of_dims, sizes)
            case Repeat(count, body):
                pattern, each = self.pattern(body)
                size = _each(lambda sizes: count * sizes[0], [each])
                self.repeat(pattern, name, count.value)
            case Stack(count, layers):
                size = self.stack(count, layers, name)
        added = self.tensors[first:] if not size.total.terms else ()
        if added and all(tensor.role.optional for tensor in added):
            del self.modules[name]
        else:
            self.modules[name] = self.formula(size.total)
        return size

    def stack(self, count: Dim, layers: tuple[Module, ...], name: str) -> _Size:
        kinds = {id(layer): self.pattern(layer) for layer in distinct(layers)}
        for number, layer in enumerate(layers):
            self.copy(kinds[id(layer)][0], f"{name}.{number}")
        alike = Counter(map(id, layers))
        numbers = [alike[kind] for kind in kinds]
        sizes = [size for _, size in kinds.values()]
        return _each(lambda each: _grouped(count, numbers, each), sizes)

    def submodel(self, body: Module, name: str) -> _Size:
        once, size = self.once(body)
        for place, tensor in enumerate(once.tensors):
            if tensor.tied_to:
                once.tensors[place] = tensor._replace(tied_to=_join(name, tensor.tied_to))
        self.copy(_Pattern(once), name)
        return size

    def optional(self, body: Param | Module, name: str) -> None:
        try:
            once, _ = self.once(body)
        except CheckpointError:
            return  # it cannot be stored, and no class needs it
        for tensor in once.tensors:
            role = Role.EXTRA if tensor.role.learned else Role.LEGACY
            self.tensors.append(tensor._replace(name=_join(name, tensor.name), role=role))

    def pattern(self, body: Module) -> tuple["_Pattern", _Size]:
        """A layer to be copied; one model after another has the same."""
        write = _pattern if bounded_tensor_count(body) <= _MOST_KEPT else _pattern.__wrapped__
        return write(body, self.replacements, self.depth)

    def once(self, body: Block) -> tuple["_Listing", _Size]:
        """The body listed on its own, to be copied: what makes deep models cheap."""
        listing = _Listing(self.replacements, self.depth)
        return listing, listing.add(body, "")

    def copy(self, pattern: "_Pattern", here: str) -> None:
        """List what was listed once, under that name."""
        levels = None if self.depth is None else self.depth - here.count(".") - 1
        self.modules.update(pattern.modules(here, levels))
        self.tensors.extend(pattern.tensors(here))

    def repeat(self, pattern: "_Pattern", name: str, count: int) -> None:
        """List what was listed once, under the numbers below that name."""
        levels = None if self.depth is None else self.depth - name.count(".") - 2
        write = _repeated if count * len(pattern) <= _MOST_REPEATED else _repeated.__wrapped__
        tensors, modules = write(pattern, name, count, levels)
        self.tensors += tensors
        self.modules.update(modules)

    def formula(self, total: Dim) -> ModuleFormula:
        text = _text if len(total.terms) <= _MOST_TERMS else _text.__wrapped__
        return ModuleFormula(total.value, text(total, self.replacements))


@lru_cache(maxsize=1024)
def _text(size: Dim, replacements: Replacements) -> str:
    return str(size.substitute(dict(replacements)))


@lru_cache(maxsize=128)
def _pattern(
    body: Module, replacements: Replacements, depth: int | None
) -> tuple["_Pattern", _Size]:
    once, size = _Listing(replacements, depth).once(body)
    return _Pattern(once), size


@lru_cache(maxsize=64)
def _repeated(
    pattern: "_Pattern", name: str, count: int, levels: int | None
) -> tuple[tuple[ExpectedTensor, ...], Mapping[str, ModuleFormula]]:
    """Models of one size have the same layers, whatever their vocabularies."""
    tensors: list[ExpectedTensor] = []
    modules: dict[str, ModuleFormula] = {}
    for number in range(count):
        here = f"{name}.{number}"
        tensors += pattern.tensors(here)
        modules.update(pattern.modules(here, levels))
    return tuple(tensors), modules


# The constructor without its frame of Python: 12 instead of 19 ms for 90,000.
_expected: Callable[[tuple[object, ...]], ExpectedTensor] = partial(tuple.__new__, ExpectedTensor)


class _Pattern:
    """What was listed once, to be listed again below other names."""

    def __init__(self, once: _Listing) -> None:
        names, *self._rest = tuple(zip(*once.tensors, strict=True)) or ((),)
        self._names = tuple(map(".".__add__, names))
        self._listed = {f".{key}" if key else "": of for key, of in once.modules.items()}
        self._modules: dict[int | None, Mapping[str, ModuleFormula]] = {None: self._listed}

    def __len__(self) -> int:
        """Tensors and modules: a layer without tensors lists itself."""
        return len(self._names) + len(self._listed)

    def tensors(self, here: str) -> Iterator[ExpectedTensor]:
        return map(_expected, zip(map(here.__add__, self._names), *self._rest, strict=True))

    def modules(self, here: str, levels: int | None) -> Iterator[tuple[str, ModuleFormula]]:
        """The modules down to that many levels ("" is at level 0); None: all of them."""
        if levels not in self._modules:
            shown = (item for item in self._listed.items() if item[0].count(".") <= (levels or 0))
            self._modules[levels] = dict(shown)
        listed = self._modules[levels]
        return zip(map(here.__add__, listed), listed.values(), strict=True)


def _grouped(count: Dim, numbers: Sequence[int], sizes: Sequence[Dim]) -> Dim:
    """The layers of each size with their number, kind by kind: `3*(...) + 58*(...)`.

    A kind that is the smallest and something more counts as that: `N*(...) + H`.
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

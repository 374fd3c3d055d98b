"""The possible slips (errors in a count by hand) in a count of given cells, the common ones first.

A cell is a tensor name with its layers folded (see `cells`). A slip counts a group of cells too few
times, too many times or not at all.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from os.path import commonprefix

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Role
from auditor.claims.cells import ACTIVE, COUNTED, LEFT_OUT, ONE_HEAD, CellKind, FoldedTensor
from auditor.claims.parts import (
    has_bias_name,
    is_attention,
    is_embedding,
    is_feed_forward,
    is_head,
    is_pooler,
)

Masks = tuple[tuple[int, int], ...]  # (index of a cell, its mask), sorted

# The order in which the differences of combined slips are computed, each after the slips before.
_ORDER = (
    "part-in-another",
    "tied-twice",
    "buffers-counted",
    "part-counted",
    "trained-only",
    "part-left-out",
    "untied-once",
    "no-norm",
    "no-bias",
    "one-of-n",
    "active-only",
    "all-experts",
)
_MOST = 600  # candidates; DETR has the most cells (356), and pairs are tried, too
_ALL = "all"


class Cost(IntEnum):
    """The significant digits that a figure must have for a slip to explain it.

    Hundreds of rare slips fit a figure of three digits by chance.
    """

    FOR_ANY_FIGURE = 0  # model cards state it on purpose: the parameters that one token uses
    PUBLISHED = 2  # publishers do it; ten of them fit half of the figures of two digits by chance
    COMMON = 3  # 25 of them fit 1 % of the figures of four digits
    RARE = 5  # hundreds of them fit 1 % of the figures of five digits


class PossibleSlip(Struct, frozen=True, kw_only=True, dict=True):
    """A possible error in the count of some cells, such as a module that is left out."""

    slip: str
    fields: tuple[tuple[str, object], ...]
    masks: Masks
    cost: Cost
    difference: int  # to the true count, if it is the only slip
    place: int = 0  # among the candidates

    @property
    def order(self) -> int:
        return _ORDER.index(self.slip)

    @cached_property
    def numbers(self) -> frozenset[int]:
        return frozenset(number for number, _ in self.masks)


class CountedCells(Struct, frozen=True, kw_only=True, dict=True):
    """The cells of a count: first the cells of the claimed part, then the rest of the model."""

    cells: tuple[FoldedTensor, ...]
    inside: int  # the number of cells of the part
    prefix: str  # the base model's prefix
    part: str = ""

    @cached_property
    def total(self) -> int:
        return sum(cell.count() for cell in self.cells)

    def value(self, chosen: Iterable[PossibleSlip]) -> int:
        """Return the count that results from all of these slips together."""
        masks: dict[int, int] = defaultdict(int)
        for slip in chosen:
            for number, mask in slip.masks:
                masks[number] |= mask
        cells = self.cells
        return self.total + sum(
            cells[number].count(mask) - cells[number].count() for number, mask in masks.items()
        )


def candidates(counted: CountedCells) -> tuple[PossibleSlip, ...]:
    """Return the most common possible slips that change the count, without duplicates."""
    groups = _Groups(counted)
    slips: dict[tuple[str, Masks], PossibleSlip] = {}
    for enumerate_slips in _ENUMERATIONS:
        for slip in enumerate_slips(groups):
            key = (slip.slip, slip.masks)
            if slip.difference and (key not in slips or slip.cost < slips[key].cost):
                slips[key] = slip
    ranked = sorted(slips.values(), key=lambda slip: slip.cost)[:_MOST]
    return tuple(replace(slip, place=place) for place, slip in enumerate(ranked))


class _Groups:
    """The groups of cells that people count as one: modules, and groups such as `attention`.

    A group is a list of indices of cells.
    """

    def __init__(self, counted: CountedCells) -> None:
        self.counted = counted
        self.cells = counted.cells
        self.inside = range(counted.inside)
        self.learned = tuple(n for n in self.inside if not self.cells[n].optional)
        self.modules = self.modules_of(self.inside)
        # Groups that are not one module, although people count them together.
        tests: Mapping[str, Callable[[FoldedTensor], bool]] = {
            "embeddings": is_embedding,
            "attention": is_attention,
            "ffn": is_feed_forward,
            "head": lambda cell: is_head(cell, counted.prefix),
            "layers": lambda cell: bool(cell.axes),
        }
        kinds = {name: self.where(test) for name, test in tests.items()}
        self.kinds = {
            name: numbers for name, numbers in kinds.items() if 0 < len(numbers) < len(self.learned)
        }

    def modules_of(self, numbers: Iterable[int]) -> Mapping[str, list[int]]:
        """Return the cells of each module, and of each tensor that is not a weight or a bias."""
        modules: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            parts = self.cells[number].name.split(".")
            last = len(parts) - (parts[-1] in {"weight", "bias"})
            for length in range(last + 1):
                modules[".".join(parts[:length])].append(number)
        return modules

    def where(
        self, test: Callable[[FoldedTensor], bool], numbers: Iterable[int] | None = None
    ) -> tuple[int, ...]:
        """Return those of the cells that pass the test; of all learned cells by default."""
        numbers = self.learned if numbers is None else numbers
        return tuple(number for number in numbers if test(self.cells[number]))

    def learned_of(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return self.where(lambda cell: not cell.optional, numbers)

    def named(self, numbers: Iterable[int]) -> str:
        """Return the narrowest module that contains the cells."""
        modules = [self.cells[number].module.split(".") for number in numbers]
        return ".".join(commonprefix(modules))  # noqa: RUF071 - lists, not paths

    def module(self, module: str, numbers: Sequence[int]) -> str:
        """Return the module, or the narrowest one of `numbers` if it reaches outside the part."""
        others = self.cells[self.counted.inside :]
        reaches_outside = any(cell.name.startswith(f"{module}.") for cell in others)
        return self.named(numbers) or module if reaches_outside else module

    def slip(
        self,
        slip: str,
        masks: Mapping[int, int] | Iterable[int],
        cost: Cost,
        mask: int = LEFT_OUT,
        **fields: object,
    ) -> PossibleSlip:
        """Return a slip by the masks of cells, or by cells that all have the same mask.

        Without `module`, it is the narrowest one that contains the cells.
        """
        if "module" not in fields:
            fields["module"] = self.named(masks) or _ALL
        mask_by_number = dict(masks) if isinstance(masks, Mapping) else dict.fromkeys(masks, mask)
        changes = {
            number: self.cells[number].count(bits) - self.cells[number].count()
            for number, bits in sorted(mask_by_number.items())
        }
        return PossibleSlip(
            slip=slip,
            fields=tuple(fields.items()),
            masks=tuple((number, mask_by_number[number]) for number in changes if changes[number]),
            cost=cost,
            difference=sum(changes.values()),
        )


# --- one property of a cell ---------------------------------------------------------------------


def _is_tied_matrix(cell: FoldedTensor) -> bool:
    return cell.role is Role.TIED and cell.kind is not CellKind.BIAS


_BUFFERS = frozenset({Role.BUFFER, Role.LEGACY})

# A slip of all cells with a property: its name, its cost, how it counts them, and the property.
_PROPERTIES: tuple[tuple[str, Cost, int, Callable[[FoldedTensor], bool]], ...] = (
    ("active-only", Cost.FOR_ANY_FIGURE, ACTIVE, lambda cell: any(one.active for one in cell.axes)),
    ("trained-only", Cost.PUBLISHED, LEFT_OUT, lambda cell: cell.is_frozen),
    ("tied-twice", Cost.PUBLISHED, COUNTED, _is_tied_matrix),
    ("tied-twice", Cost.COMMON, COUNTED, lambda cell: cell.role is Role.TIED),
    # Modules that files store and the class does not use, such as MTP layers.
    ("part-counted", Cost.PUBLISHED, COUNTED, lambda cell: cell.role is Role.EXTRA),
    ("buffers-counted", Cost.COMMON, COUNTED, lambda cell: cell.role in _BUFFERS),
    ("buffers-counted", Cost.COMMON, COUNTED, lambda cell: cell.role is Role.BUFFER),
)


def _of_properties(groups: _Groups) -> Iterator[PossibleSlip]:
    for slip, cost, mask, test in _PROPERTIES:
        if numbers := groups.where(test, groups.inside if mask == COUNTED else groups.learned):
            yield groups.slip(slip, numbers, cost, mask)


def _of_one_cell(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that count one tied matrix again, or an untied matrix as if it were tied."""
    cells = groups.cells
    for number in groups.where(_is_tied_matrix, groups.inside):
        module = cells[number].module
        yield groups.slip("tied-twice", (number,), Cost.PUBLISHED, COUNTED, module=module)
    tables = {
        cells[n].shape: cells[n].module
        for n in groups.learned
        if cells[n].embedding and not cells[n].axes
    }
    for number in groups.learned:
        cell = cells[number]
        twin_module = tables.get(cell.shape)
        if twin_module and not cell.axes and cell.module != twin_module:
            cost = Cost.PUBLISHED if is_head(cell, groups.counted.prefix) else Cost.RARE
            yield groups.slip("untied-once", (number,), cost, module=cell.module)


def _buffers_of_one_name(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that count the buffers of one name: the Hub counts the causal masks of GPT-2."""
    by_leaf: dict[str, list[int]] = defaultdict(list)
    for number in groups.where(lambda cell: cell.role in _BUFFERS, groups.inside):
        by_leaf[groups.cells[number].name.rpartition(".")[2]].append(number)
    for leaf, numbers in by_leaf.items():
        module = f"{groups.named(numbers)}.{leaf}".strip(".")
        yield groups.slip("buffers-counted", numbers, Cost.RARE, COUNTED, module=module)


# --- modules and groups -------------------------------------------------------------------------


def _in_another(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that count a module outside the claimed part as if it were inside."""
    counted = groups.counted
    outside = range(counted.inside, len(counted.cells)) if counted.part else ()
    for module, numbers in groups.modules_of(outside).items():
        if module and module != counted.prefix:
            is_common = all(is_pooler(groups.cells[number]) for number in numbers)
            yield groups.slip(
                "part-in-another",
                numbers,
                Cost.COMMON if is_common else Cost.RARE,
                COUNTED,
                module=module,
                into=counted.part,
            )


def _left_out(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that leave out a module; usual are poolers, heads, embeddings and towers."""
    cells = groups.cells
    embeddings, heads = (groups.kinds.get(name, ()) for name in ("embeddings", "head"))
    tables = groups.where(lambda cell: cell.kind is not CellKind.NORM, embeddings)
    published = {tables, *_towers(groups), *filter(None, (embeddings, heads))}
    for module, numbers in groups.modules.items():
        learned = groups.learned_of(numbers)
        if module and learned:
            is_published = (
                learned in published
                or all(is_pooler(cells[n]) for n in learned)
                or all(cells[n].embedding for n in learned)
            )
            cost = Cost.PUBLISHED if is_published else Cost.RARE
            named = groups.module(module, learned)
            yield groups.slip("part-left-out", learned, cost, module=named)
    for name, chosen in groups.kinds.items():
        cost = Cost.PUBLISHED if name in {"embeddings", "head"} else Cost.COMMON
        yield groups.slip("part-left-out", chosen, cost, module=name)
    shapes = {cells[n].shape for n in embeddings if cells[n].embedding}
    if matrices := groups.where(lambda cell: cell.shape in shapes, heads):
        module = "embeddings and the head's matrix"
        chosen = (*embeddings, *matrices)
        yield groups.slip("part-left-out", chosen, Cost.PUBLISHED, module=module)


def _towers(groups: _Groups) -> tuple[tuple[int, ...], ...]:
    """Return the cells of each stack of layers, such as an encoder, if the model has several."""
    towers: dict[str, list[int]] = defaultdict(list)
    below = f"{groups.counted.prefix}." if groups.counted.prefix else ""
    for number in groups.learned:
        name = groups.cells[number].name.removeprefix(below)
        towers[name.partition(".")[0]].append(number)
    several = [tuple(each) for each in towers.values() if any(groups.cells[n].axes for n in each)]
    return tuple(several) if len(several) > 1 else ()


def _left_out_of_kind(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that leave out the biases or the norms of all modules or of one module."""
    tests: tuple[tuple[str, Callable[[FoldedTensor], bool]], ...] = (
        ("no-bias", lambda cell: cell.kind is CellKind.BIAS),
        ("no-bias", has_bias_name),
        ("no-norm", lambda cell: cell.kind is CellKind.NORM),
        ("no-norm", lambda cell: cell.kind is CellKind.NORM and not has_bias_name(cell)),
    )
    kinds = tuple(groups.kinds.values())
    for slip, test in tests:
        everywhere = groups.where(test)
        fitting, seen = set(everywhere), set()
        for module, numbers in (*groups.kinds.items(), *groups.modules.items()):
            chosen = tuple(number for number in numbers if number in fitting)
            if not chosen or chosen in seen:
                continue
            seen.add(chosen)
            is_common = len(chosen) == len(everywhere) or numbers in kinds
            cost = Cost.COMMON if is_common else Cost.RARE
            narrow = groups.named(chosen)
            around = [
                n for n in everywhere if f"{groups.cells[n].module}.".startswith(f"{narrow}.")
            ]
            is_exact = not narrow or len(around) == len(chosen)
            yield groups.slip(slip, chosen, cost, module=(narrow or _ALL) if is_exact else module)


# --- one of several -----------------------------------------------------------------------------


def _one_of_n(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that count one module instead of all modules of a list.

    If the list has layers of several kinds (shapes), there is one slip for each kind.
    """
    for module in sorted({axis.module for cell in groups.cells for axis in cell.axes}):
        for named, numbers, cost in _within_list(groups, module):
            axes = {}
            for number in numbers:
                for at, axis in enumerate(groups.cells[number].axes):
                    if axis.module == module:
                        axes[number] = (at, axis)
            sizes = {axis.kind: axis.size for _, axis in axes.values()}
            for kind in sizes if sum(sizes.values()) > 1 else ():
                masks = {
                    number: 1 << at if axis.kind == kind else LEFT_OUT
                    for number, (at, axis) in axes.items()
                }
                yield groups.slip("one-of-n", masks, cost, module=named, n=sum(sizes.values()))


def _within_list(groups: _Groups, module: str) -> Iterator[tuple[str, Sequence[int], Cost]]:
    """Yield the groups of cells within a list of modules: name, cells, and the slip's cost."""
    for kind in ("attention", "ffn"):
        within = groups.where(
            lambda cell: any(axis.module == module for axis in cell.axes),
            groups.kinds.get(kind, ()),
        )
        if within:
            named = groups.named(within)
            named = f"{module} {kind}" if module.startswith(named) else named
            yield named, within, Cost.COMMON
    for scope, numbers in groups.modules.items():
        if f"{scope}.".startswith(f"{module}."):
            learned = groups.learned_of(numbers)
            cost = Cost.COMMON if scope == module else Cost.RARE
            yield groups.module(scope, learned), learned, cost


def _one_head(groups: _Groups) -> Iterator[PossibleSlip]:
    """Yield slips that count the projections of one attention head instead of all heads."""
    within: dict[str, list[int]] = defaultdict(list)
    for number in groups.where(lambda cell: bool(cell.heads)):
        module = groups.cells[number].module
        within[module].append(number)
        within[module.rpartition(".")[0]].append(number)
    for module, numbers in within.items():
        n = max(groups.cells[number].heads or 0 for number in numbers)
        yield groups.slip("one-of-n", numbers, Cost.RARE, ONE_HEAD, module=module, n=n)


_ENUMERATIONS: tuple[Callable[[_Groups], Iterator[PossibleSlip]], ...] = (
    _of_properties,
    _in_another,
    _of_one_cell,
    _one_of_n,
    _one_head,
    _left_out,
    _left_out_of_kind,
    _buffers_of_one_name,
)

"""The possible slips (errors in a count by hand) in a count of given cells, the common ones first.

A cell is a tensor name with its layers folded (see `cells`). The cost of a slip is the number of
significant digits that a figure must have for the slip to explain it: hundreds of rare slips fit a
figure of three digits by chance.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile

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

# Costs. Ten slips of publishers fit half of the figures of two digits by chance, but are what
# publishers do; 25 common slips fit 1 % of the figures of four digits, hundreds of others 1 % of
# the figures of five.
FOR_ANY_FIGURE, PUBLISHED, COMMON, RARE = 0, 2, 3, 5


class PossibleSlip(Struct, frozen=True, kw_only=True, dict=True):
    """A possible error in the count of some cells, such as a module that is left out."""

    slip: str
    fields: tuple[tuple[str, object], ...]
    masks: Masks
    cost: int  # digits that a figure must have
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
    slips: dict[tuple[str, Masks], PossibleSlip] = {}
    for slip in _all(counted):
        if not slip.difference:
            continue
        key = (slip.slip, slip.masks)
        if key not in slips or slip.cost < slips[key].cost:
            slips[key] = slip
    ranked = sorted(slips.values(), key=lambda slip: slip.cost)[:_MOST]
    return tuple(replace(slip, place=place) for place, slip in enumerate(ranked))


class _Scopes:
    """The scopes of slips: modules with their cells, and groups such as `attention`."""

    def __init__(self, counted: CountedCells) -> None:
        self.cells = counted.cells
        self.prefix = counted.prefix
        self.modules: dict[str, list[int]] = defaultdict(list)
        for number, cell in enumerate(counted.cells[: counted.inside]):
            for module in _scopes_of(cell):
                self.modules[module].append(number)
        self.inside = range(counted.inside)
        self._learned = frozenset(n for n in self.inside if not counted.cells[n].optional)

    def named(self, numbers: Iterable[int]) -> str:
        """Return the narrowest module that contains the cells."""
        names = [self.cells[number].module.split(".") for number in numbers]
        shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False))
        return ".".join(parts[0] for parts in shared)

    def module(self, scope: str, numbers: Sequence[int]) -> str:
        """Return the scope, or the narrowest module of `numbers` if it reaches outside the part."""
        begin = f"{scope}."
        later_cells = self.cells[self.inside.stop :]
        outside = any(cell.name.startswith(begin) for cell in later_cells)
        return self.named(numbers) or scope if outside else scope

    def learned(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(number for number in numbers if number in self._learned)

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """Groups of cells that people count together although they are not one module."""
        tests: Mapping[str, Callable[[FoldedTensor], bool]] = {
            "embeddings": is_embedding,
            "attention": is_attention,
            "ffn": is_feed_forward,
            "head": lambda cell: is_head(cell, self.prefix),
            "layers": lambda cell: bool(cell.axes),
        }
        numbers = self.learned(self.inside)
        groups = {
            name: tuple(number for number in numbers if test(self.cells[number]))
            for name, test in tests.items()
        }
        return {name: each for name, each in groups.items() if 0 < len(each) < len(numbers)}

    def slip(
        self,
        slip: str,
        masks: Mapping[int, int] | Iterable[int],
        cost: int,
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


def _scopes_of(cell: FoldedTensor) -> Iterator[str]:
    parts = cell.name.split(".")
    last = len(parts) if parts[-1] not in {"weight", "bias"} else len(parts) - 1
    for length in range(last + 1):
        yield ".".join(parts[:length])


def _all(counted: CountedCells) -> Iterator[PossibleSlip]:
    scopes = _Scopes(counted)
    yield from _experts(scopes)
    yield from _trained_only(scopes)
    yield from _in_another(counted, scopes)
    yield from _ties(scopes)
    yield from _unused_parts(scopes)
    yield from _one_of_n(scopes)
    yield from _left_out(scopes)
    yield from _left_out_of_kind(scopes)
    yield from _buffers(scopes)


# --- omissions ----------------------------------------------------------------------------------


def _left_out(scopes: _Scopes) -> Iterator[PossibleSlip]:
    """Yield slips that leave out a module; usual are poolers, heads, embeddings and towers."""
    cells = scopes.cells
    embeddings, heads = (scopes.groups.get(name, ()) for name in ("embeddings", "head"))
    published = {
        tuple(n for n in embeddings if cells[n].kind is not CellKind.NORM),
        *(group for group in (embeddings, heads) if group),
        *_towers(scopes),
    }
    for module, numbers in scopes.modules.items():
        learned = scopes.learned(numbers)
        if module and learned:
            is_published = (
                learned in published
                or all(is_pooler(cells[n]) for n in learned)
                or all(cells[n].embedding for n in learned)
            )
            cost = PUBLISHED if is_published else RARE
            yield scopes.slip("part-left-out", learned, cost, module=scopes.module(module, learned))
    for name, chosen in scopes.groups.items():
        cost = PUBLISHED if name in {"embeddings", "head"} else COMMON
        yield scopes.slip("part-left-out", chosen, cost, module=name)
    shapes = {cells[n].shape for n in embeddings if cells[n].embedding}
    matrices = [n for n in heads if cells[n].shape in shapes]
    if matrices:
        module = "embeddings and the head's matrix"
        yield scopes.slip("part-left-out", (*embeddings, *matrices), PUBLISHED, module=module)


def _towers(scopes: _Scopes) -> tuple[tuple[int, ...], ...]:
    """Return the cells of each stack of layers, such as an encoder, if the model has several."""
    towers: dict[str, list[int]] = defaultdict(list)
    below = f"{scopes.prefix}." if scopes.prefix else ""
    for number in scopes.learned(scopes.inside):
        name = scopes.cells[number].name.removeprefix(below)
        towers[name.partition(".")[0]].append(number)
    several = [tuple(each) for each in towers.values() if any(scopes.cells[n].axes for n in each)]
    return tuple(several) if len(several) > 1 else ()


def _left_out_of_kind(scopes: _Scopes) -> Iterator[PossibleSlip]:
    """Yield slips that leave out the biases or the norms of all modules or of one module."""
    cells = scopes.cells
    tests: tuple[tuple[str, Callable[[FoldedTensor], bool]], ...] = (
        ("no-bias", lambda cell: cell.kind is CellKind.BIAS),
        ("no-bias", has_bias_name),
        ("no-norm", lambda cell: cell.kind is CellKind.NORM),
        ("no-norm", lambda cell: cell.kind is CellKind.NORM and not has_bias_name(cell)),
    )
    groups = tuple(scopes.groups.values())
    places = (*scopes.groups.items(), *scopes.modules.items())
    for slip, test in tests:
        everywhere = [n for n in scopes.learned(scopes.inside) if test(cells[n])]
        fitting, seen = set(everywhere), set()
        for module, numbers in places:
            chosen = [number for number in numbers if number in fitting]
            if not chosen or tuple(chosen) in seen:
                continue
            seen.add(tuple(chosen))
            is_common = len(chosen) == len(everywhere) or numbers in groups
            narrow = scopes.named(chosen)
            around = [n for n in everywhere if f"{cells[n].module}.".startswith(f"{narrow}.")]
            exactly = not narrow or len(around) == len(chosen)
            named = (narrow or _ALL) if exactly else module
            yield scopes.slip(slip, chosen, COMMON if is_common else RARE, module=named)


# --- one of several -----------------------------------------------------------------------------


def _one_of_n(scopes: _Scopes) -> Iterator[PossibleSlip]:
    lists = {axis.module for cell in scopes.cells for axis in cell.axes}
    for module in sorted(lists):
        below = f"{module}."
        for group, chosen in scopes.groups.items():
            within = [n for n in chosen if _position(scopes.cells[n], module) is not None]
            if within and group in {"attention", "ffn"}:
                named = scopes.named(within)
                named = f"{module} {group}" if module.startswith(named) else named
                yield from _one_of_list(scopes, module, within, named, COMMON)
        for scope, numbers in scopes.modules.items():
            if scope == module or scope.startswith(below):
                learned = scopes.learned(numbers)
                cost = COMMON if scope == module else RARE
                named = scopes.module(scope, learned)
                yield from _one_of_list(scopes, module, learned, named, cost)
    yield from _one_head(scopes)


def _position(cell: FoldedTensor, module: str) -> int | None:
    return next((at for at, axis in enumerate(cell.axes) if axis.module == module), None)


def _one_of_list(
    scopes: _Scopes,
    module: str,
    numbers: Sequence[int],
    scope: str,
    cost: int,
) -> Iterator[PossibleSlip]:
    """Yield slips that count one module instead of all modules of a list.

    If the list has layers of several kinds (shapes), there is one slip for each kind.
    """
    axes = {}
    for number in numbers:
        at = _position(scopes.cells[number], module)
        if at is not None:
            axes[number] = (at, scopes.cells[number].axes[at])
    kinds = {axis.kind: axis.size for _, axis in axes.values()}
    n = sum(kinds.values())
    if n < 2:  # noqa: PLR2004 - there is only one
        return
    for kind in kinds:
        masks = {
            number: 1 << at if axis.kind == kind else LEFT_OUT
            for number, (at, axis) in axes.items()
        }
        yield scopes.slip("one-of-n", masks, cost, module=scope, n=n)


def _one_head(scopes: _Scopes) -> Iterator[PossibleSlip]:
    """Yield slips that count the projections of one attention head instead of all heads."""
    within: dict[str, list[int]] = defaultdict(list)
    for number in scopes.learned(scopes.inside):
        cell = scopes.cells[number]
        if cell.heads:
            within[cell.module].append(number)
            within[cell.module.rpartition(".")[0]].append(number)
    for module, numbers in within.items():
        n = max(scopes.cells[number].heads or 0 for number in numbers)
        yield scopes.slip("one-of-n", numbers, RARE, ONE_HEAD, module=module, n=n)


# --- ties, buffers, experts ---------------------------------------------------------------------


def _ties(scopes: _Scopes) -> Iterator[PossibleSlip]:
    cells = scopes.cells
    tied = [n for n in scopes.inside if cells[n].role is Role.TIED]
    matrices = [n for n in tied if cells[n].kind is not CellKind.BIAS]
    if matrices:
        yield scopes.slip("tied-twice", matrices, PUBLISHED, COUNTED)
    if tied and len(tied) > len(matrices):
        yield scopes.slip("tied-twice", tied, COMMON, COUNTED)
    if len(matrices) > 1:
        for number in matrices:
            yield scopes.slip(
                "tied-twice", (number,), PUBLISHED, COUNTED, module=cells[number].module
            )
    tables = {
        cells[n].shape: cells[n].module
        for n in scopes.learned(scopes.inside)
        if cells[n].embedding and not cells[n].axes
    }
    for number in scopes.learned(scopes.inside):
        cell = cells[number]
        twin_module = tables.get(cell.shape)
        if twin_module and not cell.axes and cell.module != twin_module:
            cost = PUBLISHED if is_head(cell, scopes.prefix) else RARE
            yield scopes.slip("untied-once", (number,), cost, module=cell.module)


def _buffers(scopes: _Scopes) -> Iterator[PossibleSlip]:
    cells = scopes.cells
    buffer_roles = {Role.BUFFER, Role.LEGACY}
    buffers = [n for n in scopes.inside if cells[n].role in buffer_roles]
    if not buffers:
        return
    yield scopes.slip("buffers-counted", buffers, COMMON, COUNTED)
    by_leaf: dict[str, list[int]] = defaultdict(list)
    for number in buffers:
        by_leaf[cells[number].name.rpartition(".")[2]].append(number)
    for leaf, numbers in by_leaf.items():  # the Hub counts the causal masks of GPT-2
        place = scopes.named(numbers)
        yield scopes.slip(
            "buffers-counted", numbers, RARE, COUNTED, module=f"{place}.{leaf}".strip(".")
        )
    stored = [n for n in buffers if cells[n].role is Role.BUFFER]
    if stored and len(stored) < len(buffers):
        yield scopes.slip("buffers-counted", stored, COMMON, COUNTED)


def _unused_parts(scopes: _Scopes) -> Iterator[PossibleSlip]:
    """Yield slips that count stored modules which the class does not use, such as MTP layers."""
    unused = [n for n in scopes.inside if scopes.cells[n].role is Role.EXTRA]
    if unused:
        yield scopes.slip("part-counted", unused, PUBLISHED, COUNTED)


def _experts(scopes: _Scopes) -> Iterator[PossibleSlip]:
    numbers = [
        n
        for n in scopes.learned(scopes.inside)
        if any(axis.active is not None for axis in scopes.cells[n].axes)
    ]
    if numbers:
        yield scopes.slip("active-only", numbers, FOR_ANY_FIGURE, ACTIVE)


def _trained_only(scopes: _Scopes) -> Iterator[PossibleSlip]:
    numbers = [n for n in scopes.learned(scopes.inside) if scopes.cells[n].is_frozen]
    if numbers:
        yield scopes.slip("trained-only", numbers, PUBLISHED)


def _in_another(counted: CountedCells, scopes: _Scopes) -> Iterator[PossibleSlip]:
    """Yield slips that count a module outside the claimed part as if it were inside."""
    if not counted.part:
        return
    modules: dict[str, list[int]] = defaultdict(list)
    for number in range(counted.inside, len(counted.cells)):
        for module in _scopes_of(counted.cells[number]):
            modules[module].append(number)
    for module, numbers in modules.items():
        if not module or module == counted.prefix:
            continue
        is_common = all(is_pooler(counted.cells[number]) for number in numbers)
        yield scopes.slip(
            "part-in-another",
            numbers,
            COMMON if is_common else RARE,
            COUNTED,
            module=module,
            into=counted.part,
        )

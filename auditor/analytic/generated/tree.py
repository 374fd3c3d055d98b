"""The tree of blocks of a generated form: the parts of names are modules, the sizes are Dims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from auditor.analytic.blocks import (
    MAX_TENSORS,
    Block,
    Buffer,
    Experts,
    Legacy,
    Module,
    Param,
    Repeat,
    Tied,
    list_of_modules,
)
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import Role
from auditor.analytic.generated.expressions import Outside, evaluator, keys_of
from auditor.analytic.generated.form import Form, Row
from auditor.analytic.generated.sizes import Sizes
from auditor.bounded.json_text import is_identical

_BLOCKS = MappingProxyType({Role.PARAMETER: Param, Role.BUFFER: Buffer, Role.LEGACY: Legacy})

Index = tuple[int, ...]  # the numbers in a name, the first one first


def form_tree(form: Form, config: Mapping[str, Any], *, known_only: bool = False) -> Module:
    """Return the tree of a form under a config; raise Outside for an uncovered config.

    If `known_only`, rows that do not cover the values are left out.
    """
    reader = _TreeReader(Sizes(form, config))
    try:
        return reader.tree(form.rows)
    except Outside:
        if not known_only:
            raise
    return reader.tree([row for row in form.rows if reader.is_known(row)])


def memory_tree(form: Form, config: Mapping[str, Any]) -> Module | None:
    """Return the tree of the class in memory; None if it follows from the loading rules."""
    return _TreeReader(Sizes(form, config)).tree(form.memory_rows) if form.memory_rows else None


class _NamedRow(NamedTuple):
    """A row with the parts of its names, and what shows which loops it reads."""

    row: Row
    parts: tuple[str, ...]
    inner: tuple[str, ...]  # for each loop: the expressions in it, without the loop's own test

    def reads(self, level: int) -> bool:
        """Return whether a tensor differs from one index of a loop to another, but in its name."""
        return f"['i', {level}]" in self.inner[level]


def _named(row: Row) -> _NamedRow:
    ties = "".join(f"['i', {level}]" for level in range(len(row.levels))) * any(
        "*" in (to or "") for (_, to), _ in row.roles
    )
    of_all = f"{row.shape} {row.roles} {ties}"
    inner = tuple(f"{of_all} {row.levels[level + 1 :]}" for level in range(len(row.levels)))
    return _NamedRow(row, tuple(row.template.split(".")), inner)


class _TreeReader:
    """A reader of rows under the values of one config."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._values = sizes.values
        self._turns: dict[tuple[str, Index], Sequence[int]] = {}
        self._covered: set[str] = set()
        self._room = MAX_TENSORS

    def tree(self, rows: Iterable[Row]) -> Module:
        """Return the tree of rows; raise Outside for values that they do not cover."""
        self._room = MAX_TENSORS
        there = [row for row in rows if evaluator(row.present)(self._values, ())]
        return Module(tuple(self._children(_in_order(map(_named, there)), 0, ())))

    def is_known(self, row: Row) -> bool:
        try:
            self.tree((row,))
        except Outside:
            return False
        return True

    def _children(
        self, rows: Iterable[_NamedRow], at: int, index: Index
    ) -> Iterator[tuple[str, Block]]:
        """Yield the children of the module that the first `at` parts of the rows' names lead to."""
        rows_by_part: dict[str, list[_NamedRow]] = {}
        for row in rows:
            rows_by_part.setdefault(row.parts[at], []).append(row)
        for part, below in rows_by_part.items():
            if part == "*":
                yield from self._numbered(below, at, index)
            elif block := self._block(below, at + 1, index):
                yield part, self._mixed(block) if part == "experts" else block

    def _block(self, rows: Sequence[_NamedRow], at: int, index: Index) -> Block | None:
        """Return what the first `at` parts of the rows' names lead to; None if there is nothing."""
        if at == len(rows[-1].parts):
            return self._leaf(rows[-1].row, index)
        if all(row.parts[at] == "*" for row in rows):
            modules = dict(self._numbered(rows, at, index))
            count = self._count(rows, len(modules), index)
            return list_of_modules(count, modules) if modules else None
        children = tuple(self._children(rows, at, index))
        return Module(children) if children else None

    def _mixed(self, block: Block) -> Block:
        """Return a block named `experts` as Experts, if the config says how many a token uses."""
        match block:
            case Repeat(count):
                pass
            case Module(((_, Param((Dim() as count, *_))), *others)) if all(
                isinstance(one, Param) and one.shape[:1] == (count,) for _, one in others
            ):
                pass
            case _:
                return block
        active = self._sizes.active(count)
        return Experts(block, count, active) if active else block

    def _numbered(
        self, rows: Sequence[_NamedRow], at: int, index: Index
    ) -> Iterator[tuple[str, Block]]:
        """Yield the modules of a list by number; equal modules are one object."""
        level = len(index)
        rows_by_number: dict[int, list[_NamedRow]] = {}
        for row in rows:
            for number in self._indices(row.row, index):
                rows_by_number.setdefault(number, []).append(row)
        blocks: dict[tuple[int, ...], Block | None] = {}
        equal: dict[Block, Block] = {}
        reading = {id(row) for row in rows if row.reads(level)}
        for number in sorted(rows_by_number):
            here = rows_by_number[number]
            kind = tuple(map(id, here))
            key = (*kind, number) if reading.intersection(kind) else kind
            if key not in blocks:
                block = self._block(here, at + 1, (*index, number))
                blocks[key] = equal.setdefault(block, block) if block else None
            if block := blocks[key]:
                yield str(number), block

    def _indices(self, row: Row, index: Index) -> Sequence[int]:
        """Return the indices of a row's next loop."""
        bound, test = row.levels[len(index)]
        key = str(row.levels[len(index)]), index
        if key not in self._turns:
            turns = evaluator(bound)(self._values, index)
            if type(turns) is not int or turns > MAX_TENSORS:
                raise Outside(next(keys_of(bound), "config"))
            is_there = evaluator(test)
            self._turns[key] = (
                range(turns)
                if test is True
                else [i for i in range(turns) if is_there(self._values, (*index, i))]
            )
        return self._turns[key]

    def _count(self, rows: Iterable[_NamedRow], number: int, index: Index) -> Dim | int:
        """Return the number of modules of a list as a Dim of config keys, if one has the value."""
        bounds = (self._sizes.size(row.row.levels[len(index)][0], index) for row in rows)
        return next((one for one in bounds if isinstance(one, Dim) and one.value == number), number)

    def _leaf(self, row: Row, index: Index) -> Block:
        self._room -= 1
        if self._room < 0:
            raise Outside(next(keys_of(["+", *(bound for bound, _ in row.levels)]), "config"))
        if row.template not in self._covered:
            self._require_covered(row)
        shape = tuple(self._sizes.size(size, index) for size in row.shape)
        if any((size if type(size) is int else size.value) < 0 for size in shape):
            raise Outside(next(keys_of(["+", *row.shape]), "config"))
        tests = ((tag, evaluator(test)) for tag, test in row.roles)
        role, tied_to = next(tag for tag, test in tests if test(self._values, index))
        if tied_to:
            numbers = iter(index)
            parts = tied_to.split(".")
            return Tied(".".join(str(next(numbers)) if one == "*" else one for one in parts))
        return _BLOCKS[Role(role)](shape)

    def _require_covered(self, row: Row) -> None:
        for key, seen in row.seen.items():
            if not any(is_identical(one, self._values[key]) for one in seen):
                raise Outside(key, ", ".join(map(str, seen))[:80])


def _in_order(rows: Iterable[_NamedRow]) -> list[_NamedRow]:
    """Sort rows by module, in order of first appearance."""
    ranks: dict[tuple[int, str], int] = {}

    def key(row: _NamedRow) -> list[int]:
        above, path = 0, []
        for part in row.parts:
            if (above, part) not in ranks:
                ranks[above, part] = len(ranks) + 1
            above = ranks[above, part]
            path.append(above)
        return path

    return sorted(rows, key=key)

"""The tree of blocks of a generated form: the parts of names are modules, the sizes are Dims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from auditor.analytic.blocks import (
    MAX_TENSORS,
    Block,
    Buffer,
    Experts,
    Layer,
    Legacy,
    Module,
    Param,
    Repeat,
    Tied,
    list_of_modules,
    sizes_of_shape,
)
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import Role
from auditor.analytic.generated.expressions import Outside, evaluator, keys_of
from auditor.analytic.generated.form import Form, Row
from auditor.analytic.generated.sizes import Sizes
from auditor.bounded.json_text import is_identical
from auditor.errors import CheckpointError

_BLOCKS = MappingProxyType({Role.PARAMETER: Param, Role.BUFFER: Buffer, Role.LEGACY: Legacy})

Index = tuple[int, ...]  # the numbers in a name, the first one first


def form_tree(  # noqa: PLR0913 - what a class and a nested config differ in
    form: Form,
    config: Mapping[str, Any],
    *,
    known_only: bool = False,
    path: str = "",
    left_out: str | None = None,
    letters: Mapping[str, str] = MappingProxyType({}),
) -> Module:
    """Return the tree of a form under a config; raise Outside for an uncovered config.

    If `known_only`, rows that do not cover the values are left out. `path` is that of a nested
    config, `letters` are those of keys that have unusual ones, and `left_out` begins the names of
    tensors that the class lacks.
    """
    reader = _TreeReader(Sizes(form, config, path, letters))
    rows = [row for row in form.rows if left_out is None or not row.template.startswith(left_out)]
    try:
        return reader.tree(rows)
    except Outside:
        if not known_only:
            raise
    return reader.tree([row for row in rows if reader.is_known(row)])


def memory_tree(form: Form, config: Mapping[str, Any]) -> Module | None:
    """Return the tree of the class in memory; None if it follows from the loading rules."""
    return _TreeReader(Sizes(form, config)).tree(form.memory_rows) if form.memory_rows else None


class _Branch(NamedTuple):
    """A row, and the numbers of the loops so far; its names begin with the same parts."""

    row: Row
    parts: tuple[str, ...]
    reads: tuple[bool, ...]  # for each loop: whether tensors differ by its index, not only in name
    numbers: Index = ()

    @property
    def kind(self) -> tuple[int, ...]:
        """A key that is equal for branches with equal tensors below."""
        return id(self.row), *(
            i for i, reads in zip(self.numbers, self.reads, strict=False) if reads
        )


def _branch(row: Row) -> _Branch:
    tied_by_number = any("*" in (to or "") for (_, to), _ in row.roles)
    own = f"{row.shape} {row.roles}"
    inner = (f"{own} {row.levels[level + 1 :]}" for level in range(len(row.levels)))
    reads = (tied_by_number or f"['i', {level}]" in text for level, text in enumerate(inner))
    return _Branch(row, tuple(row.template.split(".")), tuple(reads))


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
        return Module(tuple(self._children(_in_order(map(_branch, there)), 0)))

    def is_known(self, row: Row) -> bool:
        try:
            self.tree((row,))
        except Outside:
            return False
        return True

    def _children(self, branches: Iterable[_Branch], at: int) -> Iterator[tuple[str, Block]]:
        """Yield the children of the module that the first `at` parts of the names lead to."""
        branches_by_part: dict[str, list[_Branch]] = {}
        for one in branches:
            branches_by_part.setdefault(_kind_of_part(one.parts[at]), []).append(one)
        for part, below in branches_by_part.items():
            if part == "*":
                yield from self._numbered(below, at)
            elif block := self._block(below, at + 1):
                yield part, self._mixed(block) if part == "experts" else block

    def _block(self, branches: Sequence[_Branch], at: int) -> Block | None:
        """Return what the first `at` parts of the names lead to; None if there is nothing."""
        last = branches[-1]
        if at == len(last.parts):
            return self._leaf(last.row, last.numbers)
        if all(_kind_of_part(one.parts[at]) == "*" for one in branches):
            modules = dict(self._numbered(branches, at))
            loops = [one for one in branches if one.parts[at] == "*"]
            return list_of_modules(self._count(loops, len(modules)), modules) if modules else None
        children = tuple(self._children(branches, at))
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

    def _numbered(self, branches: Sequence[_Branch], at: int) -> Iterator[tuple[str, Block]]:
        """Yield the modules of a list by number; equal modules are one object."""
        branches_by_number: dict[int, list[_Branch]] = {}
        for one in branches:
            if one.parts[at] == "*":
                for number in self._indices(one.row, one.numbers):
                    below = one._replace(numbers=(*one.numbers, number))
                    branches_by_number.setdefault(number, []).append(below)
            else:
                branches_by_number.setdefault(int(one.parts[at]), []).append(one)
        blocks: dict[tuple[tuple[int, ...], ...], Block | None] = {}
        equal: dict[Block, Block] = {}
        for number, here in sorted(branches_by_number.items()):
            kind = tuple([one.kind for one in here])
            if kind not in blocks:
                block = self._block(here, at + 1)
                blocks[kind] = equal.setdefault(block, block) if block else None
            if block := blocks[kind]:
                yield str(number), block

    def _indices(self, row: Row, index: Index) -> Sequence[int]:
        """Return the indices of a row's next loop."""
        bound, test = row.levels[len(index)]
        key = str(row.levels[len(index)]), index
        if key not in self._turns:
            turns = evaluator(bound)(self._values, index)
            size = next(keys_of(bound), "config")
            if type(turns) is not int:
                raise Outside(size)
            if turns > MAX_TENSORS:
                detail = f"{size} is {turns:,}, expected at most {MAX_TENSORS:,} modules"
                raise CheckpointError(detail)
            is_there = evaluator(test)
            self._turns[key] = (
                range(turns)
                if test is True
                else [i for i in range(turns) if is_there(self._values, (*index, i))]
            )
        return self._turns[key]

    def _count(self, loops: Iterable[_Branch], number: int) -> Dim | int:
        """Return the number of modules of a list as a Dim of config keys, if one has the value."""
        bounds = (
            self._sizes.size(one.row.levels[len(one.numbers)][0], one.numbers) for one in loops
        )
        return next((one for one in bounds if isinstance(one, Dim) and one.value == number), number)

    def _leaf(self, row: Row, index: Index) -> Block:
        self._room -= 1
        if self._room < 0:
            raise Outside(next(keys_of(["+", *(bound for bound, _ in row.levels)]), "config"))
        if row.template not in self._covered:
            self._require_covered(row)
        shape = tuple(self._sizes.size(size, index) for size in row.shape)
        if any(size < 0 for size in sizes_of_shape(shape)):
            raise Outside(next(keys_of(["+", *row.shape]), "config"))
        tests = ((tag, evaluator(test)) for tag, test in row.roles)
        role, tied_to = next(tag for tag, test in tests if test(self._values, index))
        if tied_to:
            numbers = iter(index)
            parts = tied_to.split(".")
            return Tied(".".join(str(next(numbers)) if one == "*" else one for one in parts))
        if role == Role.PARAMETER and row.layer:
            return Param(shape, Layer[row.layer])
        block: Block = _BLOCKS[Role(role)](shape)
        return block

    def _require_covered(self, row: Row) -> None:
        for key, seen in row.seen.items():
            if not any(is_identical(one, self._values[key]) for one in seen):
                raise Outside(key, ", ".join(map(str, seen))[:80])


def _kind_of_part(part: str) -> str:
    """Return `*` for a number in a name."""
    return "*" if part.isdecimal() else part


def _in_order(branches: Iterable[_Branch]) -> list[_Branch]:
    """Sort rows by module, in order of first appearance."""
    ranks: dict[tuple[int, str], int] = {}

    def key(branch: _Branch) -> list[int]:
        path = [0]
        for part in map(_kind_of_part, branch.parts):
            path.append(ranks.setdefault((path[-1], part), len(ranks) + 1))
        return path

    return sorted(branches, key=key)

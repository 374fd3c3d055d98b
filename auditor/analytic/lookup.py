"""The lookup of tensors by name in a tree of blocks, without listing the complete tree."""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from msgspec import Struct

from auditor.analytic.blocks import (
    MAX_TENSORS,
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
    role_of,
    sizes_of_shape,
)
from auditor.analytic.dims import Dim
from auditor.analytic.expectation import ExpectedTensor, Role

_DEEPEST = 128  # the most parts of a name that is followed; names in trees have at most ten
_DIGITS = len(str(MAX_TENSORS))


class ModuleList(NamedTuple):
    """A list of modules on the way to a tensor."""

    name: str  # "encoder.layer"
    modules: Dim  # the number of its modules


class NamePath(NamedTuple):
    """The result of following a name into a tree."""

    block: Block | None  # None if nothing has the name
    lists: tuple[ModuleList, ...]  # lists on the path; the last may lack the module
    submodel: str = ""  # the submodel, with a final dot, to which the names of ties are relative
    is_extra: bool = False  # whether no class reads the block

    @property
    def role(self) -> Role | None:
        """The role of the tensor with the name; None if no tensor has it."""
        if isinstance(self.block, Param | Buffer | Legacy | Tied):
            return role_of(self.block, is_extra=self.is_extra)
        return None

    @property
    def shape(self) -> Shape | None:
        """The shape of the parameter with the name; None if no parameter has it."""
        return None if self.is_extra or not isinstance(self.block, Param) else self.block.shape

    @property
    def other(self) -> bool:
        """Whether something optional has the name: a buffer, an alias."""
        return self.role not in {None, Role.PARAMETER}


def follow(tree: Block, name: str) -> NamePath:
    """Follow a name into the tree; return the final block and the lists on the way."""
    return _followed(NamePath(tree, ()), "", name.split(".", _DEEPEST))


def _followed(start: NamePath, at: str, parts: list[str]) -> NamePath:
    """Follow the parts of a name from the block called `at`, to which `start` is the path."""
    block, passed, submodel, is_extra = start
    lists = list(passed)
    while True:
        while isinstance(block, Experts | Extra | Submodel):
            is_extra |= isinstance(block, Extra)
            submodel = f"{at}." if at and isinstance(block, Submodel) else submodel
            block = block.body
        if not parts:
            return NamePath(block, tuple(lists), submodel, is_extra)
        step, child = 1, None
        match block:
            case Module(children):
                step, child = _child(children, parts)
            case Repeat(count, body):
                lists.append(ModuleList(at, count))
                child = None if _index(parts[0], count.value) is None else body
            case Stack(count, layers):
                lists.append(ModuleList(at, count))
                index = _index(parts[0], count.value)
                child = None if index is None else layers[index]
        if child is None:
            return NamePath(None, tuple(lists))
        block, at = child, ".".join((at, *parts[:step]) if at else parts[:step])
        parts = parts[step:]


def _child(children: tuple[tuple[str, Block], ...], parts: list[str]) -> tuple[int, Block | None]:
    """Return the number of name parts that lead to a module's child, and the child.

    Layers that no class reads are numbered after the list's own: `layers.61` is then a child.
    """
    single_part = None
    for key, child in children:
        if key == parts[0]:
            single_part = child
        elif "." in key and key.split(".") == parts[: (step := key.count(".") + 1)]:
            return step, child
    if single_part is None:  # of `layers.61` alone, `layers` is a module, too
        start = f"{parts[0]}."
        inside = [
            (key.removeprefix(start), child) for key, child in children if key.startswith(start)
        ]
        single_part = Module(tuple(inside)) if inside else None
    return 1, single_part


def _index(key: str, count: int) -> int | None:
    """Return the key of an nn.ModuleList as an index below `count`; None for other keys."""
    if not (key.isascii() and key.isdecimal()) or len(key) > _DIGITS or str(int(key)) != key:
        return None
    return int(key) if int(key) < count else None


class NameLookup(Struct, frozen=True):
    """A lookup of single names among the tensors that `inventory` would list."""

    tree: Module

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str) -> ExpectedTensor | None:
        """Return the tensor with the name, a tied one with its source's shape, or None."""
        return self._tensor(name, follow(self.tree, name))

    def _tensor(self, name: str, path: NamePath) -> ExpectedTensor | None:
        match path.block:
            case Tied(to):
                to = f"{path.submodel}{to}"
                shape = source.shape if (source := self.get(to)) else ()
                return ExpectedTensor(name, shape, prod(shape), path.role or Role.TIED, to)
            case Param(sizes) | Buffer(sizes) | Legacy(sizes):
                shape = sizes_of_shape(sizes)
                return ExpectedTensor(name, shape, prod(shape), path.role or Role.PARAMETER)
        return None

    def tensors(self, names: Iterable[str]) -> dict[str, ExpectedTensor]:
        """Return the tensors with these names; names that the tree lacks are left out.

        The path to each module is followed once. Of 95,000 experts of another model only the list
        is looked up: it is not in the tree.
        """
        found: dict[str, ExpectedTensor] = {}
        paths = _Paths(self.tree)
        for name in names:
            module, *below = name.rsplit(".", 2)  # of `experts.0.w1.weight` the expert
            if below and paths[module.rpartition(".")[0]].block is None:
                continue
            path = paths[module]
            if isinstance(path.block, Repeat | Stack):
                path = follow(self.tree, name)  # the tree may have `layers.61` beside `layers`
            elif below:
                path = _followed(path, module, below)
            if tensor := self._tensor(name, path):
                found[name] = tensor
        return found


class _Paths(dict[str, NamePath]):
    """The paths to the modules of a tree, each followed when it is first asked for."""

    def __init__(self, tree: Module) -> None:
        super().__init__({"": NamePath(tree, ())})
        self._tree = tree

    def __missing__(self, module: str) -> NamePath:
        path = self[module] = follow(self._tree, module)
        return path

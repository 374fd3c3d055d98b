"""Which names some class of a family has: one look for all of them, and most looks are short."""

from collections.abc import Iterable, Mapping

from auditor.analytic.blocks import Block, Experts, Extra, Module, Repeat, Stack, Submodel
from auditor.analytic.lookup import NameLookup, index_in_list

_DEEPEST = 128  # parts of a name; those of a tree have ten


class Union:
    """The names of several classes; `in` says of a name whether any of them has it.

    A step from one part of a name to the next is taken once for all classes and then kept. Nothing
    is kept of parts that lead nowhere, so that unknown names, however many, take no room.
    """

    def __init__(self, classes: Iterable[NameLookup | Mapping[str, object]]) -> None:
        every = {id(names): names for names in classes}.values()
        self._listed = tuple(names for names in every if not isinstance(names, NameLookup))
        self._start = _State(names.tree for names in every if isinstance(names, NameLookup))

    def __contains__(self, name: str) -> bool:
        if any(name in listed for listed in self._listed):
            return True
        state = self._start
        for part in name.split(".", _DEEPEST):
            below = state.step(part)
            if below is None:
                return False
            state = below
        return state.leaf


class _State:
    """The blocks in which a name may go on, one or none of each class."""

    __slots__ = ("_blocks", "_children", "_counts", "_steps", "leaf")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = tuple({id(block): block for block in map(_body, blocks)}.values())
        self._children = frozenset(
            name
            for block in self._blocks
            if isinstance(block, Module)
            for name, _ in block.children
        )
        counts = [block.count.value for block in self._blocks if isinstance(block, Repeat | Stack)]
        self._counts = max(counts, default=0)
        self._steps: dict[str, _State] = {}
        self.leaf = any(not isinstance(one, Module | Repeat | Stack) for one in self._blocks)

    def step(self, part: str) -> "_State | None":
        """Where that part of a name leads; None: no class has such a name."""
        if part in self._steps:
            return self._steps[part]
        if part not in self._children and index_in_list(part, self._counts) is None:
            return None
        self._steps[part] = state = _State(_below(self._blocks, part))
        return state


def _body(block: Block) -> Block:
    while isinstance(block, Experts | Extra | Submodel):
        block = block.body
    return block


def _below(blocks: Iterable[Block], part: str) -> Iterable[Block]:
    for block in blocks:
        match block:
            case Module(children):
                yield from (child for name, child in children if name == part)
            case Repeat(count, body) if index_in_list(part, count.value) is not None:
                yield body
            case Stack(count, layers) if (place := index_in_list(part, count.value)) is not None:
                yield layers[place]

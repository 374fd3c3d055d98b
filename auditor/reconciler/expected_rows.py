"""The modules that a config implies, without any weights."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

from auditor.analytic import Expectation, ModuleFormula
from auditor.reconciler.module_rows import ModuleRow, depth_of
from auditor.tensors import natural_key

_UNKNOWN = (0, None, None, None, None, None)  # what is stored: tensors, elements, ..., share


class ExpectedRows(Sequence[ModuleRow]):
    """A row for every module down to `depth`, made when somebody asks for it.

    DeepSeek-V3 has 60,000, in 25 kinds: who folds them needs those alone.
    """

    def __init__(self, expectation: Expectation, *, depth: int | None) -> None:
        self._expectation = expectation
        self._depth = depth

    @property
    def folded(self) -> Sequence[ModuleRow] | None:
        """One row for modules that are alike in layers of one kind; its prefix is a folded name.

        None: nothing says which layers are alike.
        """
        outline = self._expectation.outline
        return None if outline is None else tuple(self._rows(outline.modules.items()))

    @cached_property
    def _every(self) -> tuple[ModuleRow, ...]:
        modules: Iterable[tuple[str, ModuleFormula]] = self._expectation.modules.items()
        if self._expectation.outline is None:  # else they are in that order: 0.1 s of 60,000
            modules = sorted(modules, key=lambda item: natural_key(item[0]))
        return tuple(self._rows(modules))

    def _rows(self, modules: Iterable[tuple[str, ModuleFormula]]) -> Iterator[ModuleRow]:
        for prefix, formula in modules:
            depth = depth_of(prefix)
            if self._depth is None or depth <= self._depth:
                parameters, text = formula
                yield ModuleRow(prefix, depth, *_UNKNOWN, parameters, None, text, "unchecked")

    @overload
    def __getitem__(self, at: int) -> ModuleRow: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ModuleRow, ...]: ...
    def __getitem__(self, at: int | slice) -> ModuleRow | tuple[ModuleRow, ...]:
        return self._every[at]

    def __len__(self) -> int:
        return len(self._every)

    def __iter__(self) -> Iterator[ModuleRow]:
        return iter(self._every)

    def __eq__(self, other: object) -> bool:
        return self._every == (other._every if isinstance(other, ExpectedRows) else other)

    def __hash__(self) -> int:
        return hash(self._every)

    def __repr__(self) -> str:
        return repr(self._every)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the rows themselves, and not what they are made of."""
        return tuple, (self._every,)

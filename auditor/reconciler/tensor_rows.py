"""A row a tensor, of what is stored and of what is not: made when somebody asks for it."""

from collections.abc import Iterator
from typing import NamedTuple

from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.status import ModuleStatus, status_of
from auditor.tensors import natural_key


class TensorRow(NamedTuple):
    """One tensor of the checkpoint, or one that is expected and not stored."""

    name: str
    file: str | None  # None: it is not stored
    dtype: str | None
    shape: tuple[int, ...] | None  # None: not stored, or no header was read
    elements: int | None
    parameters: int
    expected_shape: tuple[int, ...] | None  # None: not expected, or in several packed pieces
    status: ModuleStatus


class TensorTable:
    """The tensors of one audit; holds what the audit has made of them."""

    def __init__(self, reconciled: Reconciled) -> None:
        self._reconciled = reconciled

    def rows(self) -> tuple[TensorRow, ...]:
        """In natural order of names, then of files."""
        found = (*self._stored(), *self._absent())
        return tuple(sorted(found, key=lambda row: (natural_key(row.name), row.file or "")))

    def _stored(self) -> Iterator[TensorRow]:
        shapes = self._expected_shapes()
        for tensor, parameters, fate in self._reconciled.counted:
            yield TensorRow(
                name=tensor.name,
                file=tensor.file,
                dtype=tensor.dtype,
                shape=tensor.shape,
                elements=tensor.elements,
                parameters=parameters,
                expected_shape=shapes.get((tensor.name, tensor.file)),
                status=status_of(fate),
            )

    def _expected_shapes(self) -> dict[tuple[str, str], tuple[int, ...] | None]:
        """By name and file of the stored tensor; None where several pieces are in it."""
        plain = self._reconciled.plain.values()
        shapes = {(tensor.name, tensor.file): tensor.shape for tensor in plain}
        for hit in self._reconciled.answered:
            key = (hit.stored.name, hit.stored.file)
            shapes[key] = None if key in shapes else hit.expected.shape
        return shapes

    def _absent(self) -> Iterator[TensorRow]:
        for tensor, fate in self._reconciled.absent:
            yield TensorRow(
                name=tensor.name,
                file=None,
                dtype=None,
                shape=None,
                elements=None,
                parameters=0,
                expected_shape=tensor.shape,
                status=status_of(fate),
            )

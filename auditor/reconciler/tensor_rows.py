"""The tensors of a report under the checkpoint's names, with their expected shapes and statuses."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from operator import itemgetter
from typing import NamedTuple

from auditor.analytic import Expectation, ExpectedTensor
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.rows import ModuleStatus, status_of
from auditor.tensors import StoredTensor, learned, natural_key
from auditor.walker import Counted, counted_once


class TensorRow(NamedTuple):
    """One tensor of the checkpoint, or an expected tensor that is not stored."""

    name: str
    file: str | None  # None if the tensor is not stored
    dtype: str | None
    shape: tuple[int, ...] | None  # None if not stored, or if its header was not read
    elements: int | None
    parameters: int | None  # None if it is stored and its header was not read
    expected_shape: tuple[int, ...] | None  # None if unexpected, or if it packs several tensors
    status: ModuleStatus
    expected_name: str | None = None  # name in the model, if it differs


class TensorTable:
    """The tensors of one audit, with their expected shapes and statuses."""

    def __init__(self, rows: Callable[[], Iterator[TensorRow]]) -> None:
        self._rows = rows

    @classmethod
    def compared(cls, reconciled: Reconciled, expectation: Expectation) -> "TensorTable":
        return cls(partial(_compared, reconciled, expectation))

    @classmethod
    def of_stored(cls, tensors: Sequence[StoredTensor], shared: Mapping[str, str]) -> "TensorTable":
        """Return the table of stored tensors without expected ones; `shared` is Contents.shared."""
        return cls(partial(_stored_alone, tensors, shared))

    @classmethod
    def of_expected(cls, expectation: Expectation) -> "TensorTable":
        """Return the table of the expected tensors of a config without weights."""
        return cls(partial(_expected_alone, expectation))

    @classmethod
    def of_rows(cls, rows: tuple[TensorRow, ...]) -> "TensorTable":
        return cls(partial(iter, rows))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the rows themselves, instead of the objects from which they are computed."""
        return TensorTable.of_rows, (tuple(self.rows()),)

    def rows(self) -> Iterator[TensorRow]:
        """Yield the rows in the model's own order of tensors.

        An unexpected tensor follows the innermost module of its name that the model has; if there
        is none, it is at the end, in natural order of names, then of files. Without an expectation
        all rows have this order.
        """
        return self._rows()


class _Answer(NamedTuple):
    """The position of a stored tensor in the model's order, and the expected tensor there."""

    at: int
    name: str
    shape: tuple[int, ...] | None  # None if it packs several tensors


# The sort key of a row: a position in the model's order, whether the row comes after the tensor
# there, and the order of the rows that do.
_Place = tuple[float, bool, tuple[tuple[str, str], str]]
_NO_NAME = (("", ""), "")


def _compared(reconciled: Reconciled, expectation: Expectation) -> Iterator[TensorRow]:
    order = {tensor.name: at for at, tensor in enumerate(expectation.tensors)}
    answers = _answers(reconciled, order)
    ends: dict[str, int] = {}  # stored module -> position of its last tensor
    for (name, _), answer in answers.items():
        for module in _modules(name):
            ends[module] = max(answer.at, ends.get(module, 0))
    copies = {
        (hit.stored.name, hit.stored.file): order.get(hit.expected.name, inf)
        for hit in reconciled.copies
    }

    def place(tensor: StoredTensor) -> _Place:
        key = tensor.name, tensor.file
        if key in answers:
            return answers[key].at, False, _NO_NAME
        at = copies[key] if key in copies else _end(tensor.name, ends)
        return at, True, (natural_key(tensor.name), tensor.file)

    items: list[tuple[_Place, Counted | tuple[ExpectedTensor, int]]] = []
    items += ((place(item[0]), Counted(*item)) for item in reconciled.counted)
    for tensor, fate in reconciled.absent:
        at = order.get(tensor.name, inf)
        items.append(((at, False, (natural_key(tensor.name), "")), (tensor, fate)))
    items.sort(key=itemgetter(0))
    for _, item in items:
        if isinstance(item, Counted):
            yield _stored_row(item, answers.get((item.tensor.name, item.tensor.file)))
        else:
            yield _absent_row(*item)


def _modules(name: str) -> Iterator[str]:
    """Yield the modules that contain a tensor, the outermost first."""
    dot = name.find(".")
    while dot >= 0:
        yield name[:dot]
        dot = name.find(".", dot + 1)


def _end(name: str, ends: Mapping[str, int]) -> float:
    """Return the position of the last tensor in the innermost known module of a name."""
    at: float = inf
    for last_place in map(ends.get, _modules(name)):
        if last_place is None:
            break
        at = last_place
    return at


def _answers(reconciled: Reconciled, order: dict[str, int]) -> dict[tuple[str, str], _Answer]:
    """Map (name, file) of each matching stored tensor to its position in the model's order."""
    answer_by_key: dict[tuple[str, str], _Answer] = {}
    plain = ((name, tensor, tensor.shape) for name, tensor in reconciled.plain.items())
    others = ((hit.expected.name, hit.stored, hit.expected.shape) for hit in reconciled.answered)
    for name, stored, shape in chain(plain, others):
        key, at = (stored.name, stored.file), order.get(name, len(order))
        earlier = answer_by_key.get(key)
        answer = _Answer(at, name, shape)
        answer_by_key[key] = _Answer(min(at, earlier.at), "", None) if earlier else answer
    return answer_by_key


def _stored_row(counted: Counted, answer: _Answer | None) -> TensorRow:
    tensor = counted.tensor
    other = answer is not None and answer.name not in {"", tensor.name}
    return TensorRow(
        name=tensor.name,
        file=tensor.file,
        dtype=tensor.dtype,
        shape=tensor.shape,
        elements=tensor.elements,
        parameters=None if tensor.elements is None else counted.parameters,
        expected_shape=answer.shape if answer else None,
        status=status_of(counted.fate),
        expected_name=answer.name if answer and other else None,
    )


def _absent_row(tensor: ExpectedTensor, fate: int) -> TensorRow:
    return TensorRow(
        name=tensor.name,
        file=None,
        dtype=None,
        shape=None,
        elements=None,
        parameters=0,
        expected_shape=tensor.shape,
        status=status_of(fate),
    )


def _stored_alone(
    tensors: Iterable[StoredTensor], shared: Mapping[str, str]
) -> Iterator[TensorRow]:
    ordered = sorted(tensors, key=lambda tensor: (natural_key(tensor.name), tensor.file))
    unchecked = Fate.UNCHECKED.value
    items = tuple((tensor, learned(tensor), unchecked) for tensor in ordered)
    for item in counted_once(items, shared):
        yield _stored_row(Counted(*item), None)


def _expected_alone(expectation: Expectation) -> Iterator[TensorRow]:
    for tensor in expectation.tensors:
        if not tensor.role.optional:
            yield _absent_row(tensor, Fate.UNCHECKED.value)

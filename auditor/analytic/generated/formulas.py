"""The formulas of a generated form: its lengths and numbers of modules as Dims in config keys."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Role, Symbol
from auditor.analytic.generated.expressions import evaluator
from auditor.analytic.generated.form import Form, of_row, reads_index
from auditor.errors import CheckpointError

_STORED = frozenset({Role.PARAMETER, Role.BUFFER})
_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = MappingProxyType(
    {"+": Dim.__add__, "-": Dim.__sub__, "*": Dim.__mul__, "//": Dim.floor}
)


class Formulas(NamedTuple):
    """The sizes of one class under one config."""

    shapes: Mapping[str, tuple[Dim, ...]]  # by the names of the tensors that must be stored
    modules: Mapping[str, Dim]  # the number of modules of each list, by the list's name
    prefix: str


def formulas_of(form: Form, config: Mapping[str, Any]) -> Formulas:
    """Return the sizes of a form under a config; raise Outside for an uncovered config."""
    is_part = isinstance(config.get(form.base_key), Mapping)
    prefix = f"{form.base_key}." if form.base_key and is_part else ""
    reader = _Reader(form, form.values(config), prefix)
    shapes: dict[str, tuple[Dim, ...]] = {}
    modules: dict[str, Dim] = {}
    for row in form.rows:
        places = [at for at, part in enumerate(row.template.split(".")) if part == "*"]
        sizes: tuple[Dim, ...] | None = None
        varies = reads_index(row.shape)
        for name, tensor in of_row(row, reader.values):
            if tensor.role not in _STORED:
                continue
            parts = name.split(".")
            index = tuple(int(parts[at]) for at in places)
            if sizes is None or varies:
                sizes = tuple(reader.size(length, index) for length in row.shape)
            shapes[name] = sizes
            for place, (bound, _) in zip(places, row.levels, strict=True):
                before = ".".join(parts[:place])
                if before not in modules:
                    modules[before] = reader.size(bound, index)
    return Formulas(shapes, modules, form.prefix)


class _Reader:
    """The expressions of a form, read as Dims."""

    def __init__(self, form: Form, values: Mapping[str, Any], prefix: str) -> None:
        self.values = values
        self._prefix = prefix
        self._lengths = {key: length for key, length, _ in form.derived if length is not None}

    def size(self, expression: Any, index: tuple[int, ...]) -> Dim:
        """Return the expression as a Dim, without symbols if no polynomial has its value."""
        value: int = evaluator(expression)(self.values, index)
        try:
            size = self._size(expression, index)
        except CheckpointError:
            return dim(value)
        return size if size.value == value else dim(value)

    def _size(self, expression: Any, index: tuple[int, ...]) -> Dim:
        value = evaluator(expression)(self.values, index)
        match expression:
            case ["k", str(key)] if type(value) is int:
                return self._symbol(key, value)
            case ["at", ["k", str(key)], place] if type(value) is int:
                at = evaluator(place)(self.values, index)
                return self._symbol(f"{key}[{at % len(self.values[key])}]", value)
            case ["len", ["k", str(key)]] if key in self._lengths:
                return self._size(self._lengths[key], index)
            case ["if", test, then, otherwise]:
                is_true = evaluator(test)(self.values, index)
                return self._size(then if is_true else otherwise, index)
            case [str(name), left, right] if name in _OPERATORS:
                return _OPERATORS[name](self._size(left, index), self._size(right, index))
        return dim(value)

    def _symbol(self, key: str, value: int) -> Dim:
        letter = key.rpartition(".")[2]
        return dim(Symbol(letter=letter, key=f"{self._prefix}{key}", value=value, default=False))

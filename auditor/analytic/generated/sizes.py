"""The sizes of a generated form as Dims: its expressions, written in the config's keys."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from auditor.analytic.config import LETTERS, letter_of, subscript_of
from auditor.analytic.config_classes import of_model_type
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.analytic.generated.expressions import evaluator
from auditor.analytic.generated.form import Form
from auditor.errors import CheckpointError

_OPERATORS: Mapping[str, Callable[[Dim, Dim], Dim]] = MappingProxyType(
    {"+": Dim.__add__, "-": Dim.__sub__, "*": Dim.__mul__, "//": Dim.floor}
)
_ACTIVE = tuple(key for key, letter in LETTERS.items() if letter == "k")


class Sizes:
    """The values of a form's keys under a config, and its expressions as Dims."""

    def __init__(
        self,
        form: Form,
        config: Mapping[str, Any],
        path: str = "",
        letters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.values, self.stated = form.read(config)
        is_part = isinstance(config.get(form.base_key), Mapping)
        self._prefix = f"{form.base_key}." if form.base_key and is_part else ""
        self._form, self._config, self._path, self._own_letters = form, config, path, letters
        self._lengths = {key: length for key, length, _ in form.derived if length is not None}
        self._derived = {key: value for key, length, value in form.derived if length is None}
        self._known: dict[tuple[str, tuple[int, ...]], Dim | int] = {}
        self._letters: dict[str, str] = {}  # letter -> the key that has it

    def size(self, expression: Any, index: tuple[int, ...]) -> Dim | int:
        """Return an expression as a Dim; its value alone if no polynomial has the value."""
        if type(expression) is int:
            return expression
        text = str(expression)
        key = text, index if "['i'" in text else ()
        if key not in self._known:
            self._known[key] = self._sized(expression, index)
        return self._known[key]

    def _sized(self, expression: Any, index: tuple[int, ...]) -> Dim | int:
        value = evaluator(expression)(self.values, index)
        if type(value) is not int:
            return -1  # not a size
        try:
            size = self._size(expression, index)
        except CheckpointError:
            return value
        return size if size.value == value and size.symbols else value

    def _size(  # noqa: PLR0911 - one for each kind of expression
        self, expression: Any, index: tuple[int, ...]
    ) -> Dim:
        value = evaluator(expression)(self.values, index)
        match expression:
            case ["k", str(key)] if type(value) is int:
                if key in self._derived and key not in self.stated:
                    size = self.size(self._derived[key], index)
                    return dim(size)
                return self._symbol(key, value)
            case ["at", ["k", str(key)], place] if type(value) is int:
                at = evaluator(place)(self.values, index)
                return self._symbol(key, value, f"[{at % len(self.values[key])}]")
            case ["len", ["k", str(key)]] if key in self._lengths:
                return self._size(self._lengths[key], index)
            case ["if", test, then, otherwise]:
                is_true = evaluator(test)(self.values, index)
                return self._size(then if is_true else otherwise, index)
            case [str(name), left, right] if name in _OPERATORS:
                return _OPERATORS[name](self._size(left, index), self._size(right, index))
        return dim(value)

    def active(self, count: Dim) -> Dim | None:
        """Return how many of `count` experts a token uses; None if neither config nor class says.

        `count` has the number of experts as a symbol.
        """
        for path in {symbol.key for symbol in count.symbols if symbol.letter.startswith("E")}:
            values, *outer = self._config, *path.removeprefix(self._path).split(".")[:-1]
            for key in outer:
                values = values[key] if isinstance(values.get(key), Mapping) else {}
            within = ".".join(outer).removeprefix(self._prefix.rstrip(".")).lstrip(".")
            own = self._form.part_types.get(within, self._form.model_type)
            kind = of_model_type(own)
            for name in _ACTIVE:
                default = kind.fields[name].default if kind and name in kind.fields else None
                value = values.get(name, default)
                if type(value) is int and 0 < value <= count.value:
                    key = ".".join((*outer, name)).removeprefix(self._prefix)
                    return self._symbol(key, value, is_default=name not in values)
        return None

    def _symbol(self, key: str, value: int, place: str = "", *, is_default: bool = False) -> Dim:
        path = f"{self._path}{self._prefix}{key}"
        outer, _, name = path.rpartition(".")
        aliases = (alias for alias, own in self._form.aliases.items() if own == key)
        usual = letter_of(name, *(alias.rpartition(".")[2] for alias in aliases))
        letter = self._own_letters.get(name, usual)
        subscript = f"_{subscript_of(outer)}" if outer else ""
        spelt = (f"{letter}{subscript}", f"{name}{subscript}", path.replace(".", "_"))
        letter = next(one for one in spelt if self._letters.setdefault(one, key) == key)
        default = is_default or (key in self.values and key not in self.stated)
        return dim(Symbol(letter=letter + place, key=path + place, value=value, default=default))

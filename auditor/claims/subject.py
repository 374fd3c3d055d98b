"""The subject of a claim: a model, with its counts as another class or with another config."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Config, Expectation, ExpectedTensor, catalogue
from auditor.analytic.config_classes import VALUE_ERRORS
from auditor.claims.cells import FoldedTensor, cells_of_tensors, cells_of_tree, total_of
from auditor.errors import CheckpointError, SourceError
from auditor.tensors import DTYPE_BITS

Cells = tuple[FoldedTensor, ...]
_FAULTS = (CheckpointError, SourceError, *VALUE_ERRORS)


class Counterpart(Struct, frozen=True, kw_only=True):
    """A class and its cells: the audited class, or another class to compare with."""

    target: str
    cells: Cells
    prefix: str  # the base model's prefix in names; "" for the base model itself


class StoredNumbers(Struct, frozen=True, kw_only=True):
    """The stored elements: packed tensors have fewer elements than parameters."""

    elements: int  # with scales and zero points
    parameters: int | None = None
    packed: bool = False  # whether an element contains several parameters
    bytes: int | None = None


class Subject(Struct, frozen=True, kw_only=True, dict=True):
    """The model of a claim; its methods return other classes and other values of its config."""

    model: str
    own: Counterpart
    letters: Mapping[str, int] = MappingProxyType({})
    dtype: str | None = None  # "BF16"; None if the config declares none
    config: Config | None = None  # None without a closed form
    stored: StoredNumbers | None = None

    @property
    def bits(self) -> int:
        return DTYPE_BITS[self.dtype or "F32"]

    @cached_property
    def siblings(self) -> tuple[Counterpart, ...]:
        """The other classes of the model's family that can be built with this config."""
        if self.config is None:
            return ()
        family = _family(self.config, self.own.target)
        config, own = self.config, self.own.target
        names = (name for name in catalogue.siblings(family) if name != own)
        siblings = (counterpart(config, name) for name in names)
        return tuple(sibling for sibling in siblings if sibling is not None)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The config keys that the count depends on, and their values."""
        from auditor.analytic.blocks import symbols  # noqa: PLC0415 - beside its only use

        if self.config is None:
            return {}
        legend = symbols(catalogue.block_tree(self.config, self.own.target))
        path = self.config.path
        keys = {symbol.key.removeprefix(path): symbol.value for symbol in sorted(legend)}
        return {key: value for key, value in keys.items() if "[" not in key}

    @cached_property
    def class_defaults(self) -> Mapping[str, Any]:
        """The defaults that the config class has for the keys that shape tensors."""
        if self.config is None:
            return {}
        return catalogue.family(_family(self.config, self.own.target)).defaults

    def flags(self) -> Iterator[tuple[str, bool]]:
        """Yield the boolean config keys on which the count may depend, with their values."""
        for key, default in self.class_defaults.items():
            value = self._completed.attribute(key) if isinstance(default, bool) else None
            if isinstance(value, bool):
                yield key, value

    def defaults(self) -> Mapping[str, int]:
        """Return the integer defaults of the config class for keys that the config does not set."""
        numbers = {key: each for key, each in self.class_defaults.items() if type(each) is int}
        return {key: each for key, each in numbers.items() if not self._completed.states(key)}

    @cached_property
    def _completed(self) -> Config:
        """The config with its class's defaults, if it has a closed form."""
        config = self.config or Config(values={})
        return config.of(catalogue.family(_family(config, self.own.target)))

    def with_value(self, key: str, value: Any, target: str | None = None) -> Counterpart | None:
        """Return the class built with another value of a key; None if that fails."""
        if self.config is None:
            return None
        target = target or self.own.target
        return counterpart(changed_config(self.config, key, value, target), target)


def subject_of(
    model: str,
    expectation: Expectation,
    config: Config | None,
    stored: StoredNumbers | None = None,
) -> Subject:
    """Return the subject; its cells come from the closed form, or from tensors if counts differ."""
    own = counterpart(config, expectation.target) if config is not None else None
    if own is None or total_of(own.cells) != expectation.parameters:
        config, own = None, of_tensors(expectation.target, expectation.prefix, expectation.tensors)
    letters = {symbol.letter: symbol.value for symbol in expectation.legend}
    keys = {symbol.key: symbol.value for symbol in expectation.legend}
    dtype = None
    if config is not None:
        try:
            dtype = config.dtype
        except CheckpointError:
            dtype = None
    return Subject(
        model=model,
        own=own,
        letters=MappingProxyType({**keys, **letters}),
        dtype=dtype,
        config=config,
        stored=stored,
    )


def of_tensors(target: str, prefix: str, tensors: tuple[ExpectedTensor, ...]) -> Counterpart:
    cells = cells_of_tensors(tensors)
    return Counterpart(target=target, cells=cells, prefix=_prefix_in_names(prefix, cells))


def counterpart(config: Config, target: str) -> Counterpart | None:
    """Return the cells of a class; None if the config cannot build it."""
    try:
        family = catalogue.family(_family(config, target))
        tree = catalogue.block_tree(replace(config, checked=False), target)
        cells = cells_of_tree(tree, _heads(config.of(family)))
    except _FAULTS:
        return None
    return Counterpart(target=target, cells=cells, prefix=_prefix_in_names(family.prefix, cells))


def _prefix_in_names(prefix: str, cells: Cells) -> str:
    """Return the base model's prefix if names of cells begin with it, else ""."""
    return prefix if prefix and any(cell.name.startswith(f"{prefix}.") for cell in cells) else ""


def _family(config: Config, target: str) -> str:
    types = catalogue.types(target)
    declared = catalogue.current_type(config.model_type or "")
    return declared if declared in types else types[0]


def _heads(config: Config) -> dict[str, int]:
    """Return the number of attention heads of queries (q), and of keys and values (kv)."""
    heads = {}
    for name, key in (("q", "num_attention_heads"), ("kv", "num_key_value_heads")):
        value = config.attribute(key)
        if type(value) is int and value > 1:
            heads[name] = value
    if "q" in heads:
        heads.setdefault("kv", heads["q"])
    return heads


def changed_config(config: Config, key: str, value: Any, target: str = "") -> Config:
    """Return the config with another value of a key, which may be in a nested config."""
    *path, last = key.split(".")
    values = _changed(config.values, tuple(path), last, value, _aliases(config, last, target))
    return replace(config, values=MappingProxyType(values), completed=None, _defaulted=set())


def _aliases(config: Config, key: str, target: str) -> tuple[str, ...]:
    if not target or not catalogue.types(target):
        return ()
    return catalogue.family(_family(config, target)).aliases.get(key, ())


def _changed(
    values: Mapping[str, Any], path: tuple[str, ...], key: str, value: Any, others: tuple[str, ...]
) -> dict[str, Any]:
    if path:
        inner = values.get(path[0])
        inside = inner if isinstance(inner, Mapping) else {}
        return {**values, path[0]: _changed(inside, path[1:], key, value, others)}
    others_left_out = {name: each for name, each in values.items() if name not in others}
    return {**others_left_out, key: value}

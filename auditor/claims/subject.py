"""The subject of a claim: a model, with its counts as another class or with another config."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Config, Expectation, catalogue, generated
from auditor.analytic.config_classes import VALUE_ERRORS
from auditor.analytic.config_keys import parent_of, path_of, set_values
from auditor.analytic.family import Family
from auditor.claims.cells import FoldedTensor, cells_of_tensors, cells_of_tree, total_of
from auditor.errors import CheckpointError, SourceError
from auditor.tensors import DTYPE_BITS

Forms = ModuleType  # catalogue or generated
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
    packed: bool = False  # whether an element contains several parameters


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
        config, own = self.config, self.own.target
        every = _source(own).siblings(_family(config, own).model_type)
        names = (name for name in every if name != own)
        siblings = (counterpart(config, name) for name in names)
        return tuple(sibling for sibling in siblings if sibling is not None)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The config keys that the count depends on, and their values."""
        from auditor.analytic.blocks import symbols  # noqa: PLC0415 - beside its only use

        if self.config is None:
            return {}
        legend = symbols(_source(self.own.target).block_tree(self.config, self.own.target))
        path = self.config.path
        keys = {symbol.key.removeprefix(path): symbol.value for symbol in sorted(legend)}
        return {key: value for key, value in keys.items() if "[" not in key}

    @cached_property
    def class_defaults(self) -> Mapping[str, Any]:
        """The defaults that the config class has for the keys that shape tensors."""
        if self.config is None:
            return {}
        return _family(self.config, self.own.target).defaults

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
        return config.of(_family(config, self.own.target))

    def with_value(self, key: str, value: Any, target: str | None = None) -> Counterpart | None:
        """Return the class built with another value of a key; None if that fails."""
        config, target = self.config, target or self.own.target
        if config is None:
            return None
        aliases = _family(config, target).aliases.get(key.rpartition(".")[2], ())
        removed = {path_of(parent_of(key), alias): None for alias in aliases}
        values = set_values(deepcopy(dict(config.values)), {**removed, key: value})
        changed = replace(config, values=MappingProxyType(values), completed=None, _defaulted=set())
        return counterpart(changed, target)


def subject_of(
    model: str,
    expectation: Expectation,
    config: Config | None,
    stored: StoredNumbers | None = None,
) -> Subject:
    """Return the subject; its cells come from the closed form, or from tensors if counts differ."""
    own = counterpart(config, expectation.target) if config is not None else None
    if own is None or total_of(own.cells) != expectation.parameters:
        cells = cells_of_tensors(expectation.tensors)
        prefix = _prefix_in_names(expectation.prefix, cells)
        config, own = None, Counterpart(target=expectation.target, cells=cells, prefix=prefix)
    letters = {symbol.letter: symbol.value for symbol in expectation.legend}
    keys = {symbol.key: symbol.value for symbol in expectation.legend}
    dtype = None
    with suppress(CheckpointError):
        dtype = config.dtype if config is not None else None
    return Subject(
        model=model,
        own=own,
        letters=MappingProxyType({**keys, **letters}),
        dtype=dtype,
        config=config,
        stored=stored,
    )


def counterpart(config: Config, target: str) -> Counterpart | None:
    """Return the cells of a class; None if the config cannot build it."""
    try:
        family = _family(config, target)
        tree = _source(target).block_tree(replace(config, checked=False), target)
        cells = cells_of_tree(tree, _heads(config.of(family)))
    except _FAULTS:
        return None
    return Counterpart(target=target, cells=cells, prefix=_prefix_in_names(family.prefix, cells))


def _prefix_in_names(prefix: str, cells: Cells) -> str:
    """Return the base model's prefix if names of cells begin with it, else ""."""
    return prefix if prefix and any(cell.name.startswith(f"{prefix}.") for cell in cells) else ""


def _source(target: str) -> Forms:
    return catalogue if catalogue.types(target) else generated


def _family(config: Config, target: str) -> Family:
    source = _source(target)
    types = source.types(target)
    declared = source.current_type(config.model_type or "")
    family: Family = source.family(declared if declared in types else types[0])
    return family


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


# --- other values of one config key -------------------------------------------------------------

# Only values that published models have, and defaults of the config class, are considered: with any
# value, any number can be explained.

# Vocabularies of published models: BERT, GPT-2, RoBERTa, T5, Llama, Qwen, Gemma, DeepSeek, others.
_VOCABULARIES = frozenset(
    {
        *(21128, 28996, 30000, 30522, 31002, 31090, 32000, 32001, 32003, 32064, 32100, 32102),
        *(32128, 32256, 32768, 35000, 40478, 42384, 49152, 49408, 50005, 50257, 50264, 50265),
        *(50272, 50280, 50288, 50295, 50304, 50368, 50400, 50432, 51200, 51864, 51865, 51866),
        *(52000, 64000, 64001, 65024, 65536, 92544, 100277, 100352, 102400, 103168, 105879),
        *(119547, 119548, 125696, 128000, 128100, 128112, 128256, 128512, 129280, 130528),
        *(131072, 151552, 151643, 151936, 152064, 163840, 200019, 201088, 248320, 250002),
        *(250112, 250680, 250880, 251000, 255029, 256000, 256008, 256128, 256206, 257152),
        *(262144, 262208),
    }
)
_LENGTHS = frozenset({128, 256, 257, 512, 514, 577, 768, 1024, 1026, 2048, 2050, 4096, 4098, 8192})
_KNOWN: tuple[tuple[str, Container[int]], ...] = (
    (r"type_vocab", range(1, 17)),
    (r"vocab", _VOCABULARIES),
    (r"(^|_)layers?$|^n_layer|depth", range(1, 129)),
    (r"position|n_ctx|^n_positions|length", _LENGTHS),
    (r"labels", (2, 3, 5, 10, 77, 100, 1000, 1001, 21841, 21843)),
)


def values_with_total(
    subject: Subject, total_with: Callable[[str, Any], int | None], own: int, total: int
) -> Iterator[tuple[str, Any]]:
    """Yield the keys, each with a value, with which a count of `own` parameters is `total`.

    `total_with` counts with another value of one key; None if that cannot be built.
    """

    def guesses(key: str, value: int) -> Iterator[int]:
        """Yield the default, and the value if the count grows in proportion to it."""
        default = subject.class_defaults.get(key)
        if isinstance(default, int):
            yield default
        last = key.rpartition(".")[2]
        known = next((values for words, values in _KNOWN if re.search(words, last)), ())
        if known and value and (double := total_with(key, 2 * value)) is not None:
            solved, rest = divmod((total - own) * value, double - own or total + 1)
            if not rest and solved + value in known:
                yield solved + value

    changed = [
        *((key, other) for key, value in subject.sizes.items() for other in guesses(key, value)),
        *((key, not value) for key, value in subject.flags()),
    ]
    for key, value in dict.fromkeys(changed):
        if total_with(key, value) == total:
            yield key, value

"""A bounded reader of the configs of diffusers, in which one value may stand for a list.

The lists have an item for each block of the model.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from auditor.analytic.blocks import Module
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.family import Family
from auditor.analytic.loading import Loading
from auditor.bounded.json_text import is_identical
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described, quoted

_T = TypeVar("_T")

MOST_BLOCKS = 64  # published models have at most seven
MOST_LAYERS = 1024  # of one block; published models have at most 38


class LibraryForm(NamedTuple):
    """The closed form of a class: its config's defaults, its builder and its loading rules."""

    family: Family
    build: Callable[[Config], Module]
    loading: Loading = Loading(legacy=())


def stated_keys(values: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys that a config states, except library facts and values that turn a key off."""
    for key, value in values.items():
        if not key.startswith("_") and value is not None and value is not False:
            yield key


def outside(c: Config, key: str) -> SourceError:
    """Return the error for a key whose value no closed form covers."""
    value = described(c.attribute(key))
    detail = f"no closed form is known for a config with {quoted(key)} {value}"
    return SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)


def require(c: Config, key: str, *covered: object) -> None:
    """Raise SourceError if the key's value is not covered."""
    value = c.attribute(key)
    if not any(is_identical(value, one) for one in covered):
        raise outside(c, key)


def size(c: Config, key: str) -> Dim:
    """Return a size; raise CheckpointError if it is not positive."""
    return _positive(c.dim(key))


def widths(c: Config, key: str) -> tuple[Dim, ...]:
    """Return the sizes in a list, which must have 1 to MOST_BLOCKS items."""
    value = c.attribute(key)
    if isinstance(value, list | tuple) and not 1 <= len(value) <= MOST_BLOCKS:
        raise CheckpointError(f"{key} has {len(value)} items, expected 1 to {MOST_BLOCKS}", key)
    return tuple(map(_positive, c.dims(key)))


def widths_by_block(c: Config, key: str, blocks: int) -> tuple[Dim, ...]:
    """Return a size for each block, from a list or from one size for all blocks."""
    if not isinstance(c.attribute(key), list | tuple):
        return (size(c, key),) * blocks
    return _of_length(c, key, widths(c, key), blocks)


def counts_by_block(c: Config, key: str, blocks: int) -> tuple[int, ...]:
    """Return a number of layers for each block, from a list or from one number for all."""
    value = c.attribute(key)
    if isinstance(value, list | tuple) and any(isinstance(one, list) for one in value):
        raise outside(c, key)  # a number for each layer of a block
    is_list = isinstance(value, list | tuple)
    counts = c.integers(key) if is_list else (c.integer(key),) * blocks
    for count in counts:
        if not 0 <= count <= MOST_LAYERS:
            detail = f"{key} is {described(count)}, expected 0 to {MOST_LAYERS}"
            raise CheckpointError(detail, key)
    return _of_length(c, key, counts, blocks)


def flags_by_block(c: Config, key: str, blocks: int) -> tuple[bool, ...]:
    """Return a bool for each block, from a list or from one bool for all."""
    value = c.attribute(key)
    if isinstance(value, list | tuple) and all(type(one) is bool for one in value):
        return _of_length(c, key, tuple(value), blocks)
    return (c.flag(key),) * blocks


def kinds_by_block(c: Config, key: str, blocks: int, covered: frozenset[str]) -> tuple[str, ...]:
    """Return the class of each block; raise SourceError for a class that is not covered."""
    kinds = tuple(kind.removeprefix("UNetRes") for kind in c.texts(key))
    if not covered.issuperset(kinds):
        raise outside(c, key)
    return _of_length(c, key, kinds, blocks)


def _of_length(c: Config, key: str, values: tuple[_T, ...], blocks: int) -> tuple[_T, ...]:
    if len(values) != blocks:
        raise outside(c, key)
    return values


def _positive(width: Dim) -> Dim:
    if width.value < 1:
        raise CheckpointError(f"{width.named} is not positive")
    return width

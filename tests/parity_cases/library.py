"""The load report of transformers, and its own renames and conversions of names."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
import transformers
from transformers import conversion_mapping, core_model_loading

from parity_cases.spoiling import Stored
from parity_cases.words import Raised, Word


def theirs(target: str, values: dict[str, Any], stored: Stored) -> Word | Raised:
    """The report of a real load of zeros."""
    model_class = getattr(transformers, target)
    zero = torch.zeros(())
    with quiet():
        try:
            _, info = model_class.from_pretrained(
                None,
                config=_config(model_class, values),
                state_dict={name: zero.expand(shape) for name, shape in stored.items()},
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        except Exception as error:  # noqa: BLE001 - the library's own word on this checkpoint
            return Raised(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")
    if info.get("error_msgs") or info.get("conversion_errors"):
        return Raised(str(info)[:120])
    return Word(
        frozenset(info["missing_keys"]),
        frozenset(info["unexpected_keys"]),
        frozenset((key, (tuple(a), tuple(b))) for key, a, b in info["mismatched_keys"]),
    )


def _config(model_class: Any, values: dict[str, Any]) -> Any:
    return model_class.config_class.from_dict(dict(values))


def unexpected_patterns(target: str) -> tuple[str, ...]:
    """Patterns of the names of which the class itself says that loading ignores them."""
    name = "_keys_to_ignore_on_load_unexpected"
    return tuple(getattr(getattr(transformers, target), name) or ())


@dataclass(frozen=True)
class Names:
    """A class's names on disk -> those in memory, by the library's own conversions."""

    state: frozenset[str]  # in memory
    renamings: tuple[Any, ...]
    converters: tuple[Any, ...]

    def in_memory(self, name: str) -> tuple[str, ...]:
        renamed, pattern = core_model_loading.rename_source_key(
            name, list(self.renamings), list(self.converters)
        )
        if pattern is None:
            return (name if name in self.state and renamed not in self.state else renamed,)
        targets = next(c for c in self.converters if pattern in c.source_patterns).target_patterns
        return tuple(renamed.replace(targets[0], target) for target in targets)

    @cached_property
    def converts(self) -> bool:
        """Whether some tensors in memory are made of several on disk, or some of one."""
        return any(
            converter.rename_source_key(name)[1]
            for converter in (c.reverse_transform() for c in self.converters)
            for name in self.state
        )

    def of_old(self, stored: Stored) -> Stored:
        """The names that version 4 wrote: every rename and prefix undone."""
        return self._undone(stored, [r for r in self.renamings if not _general(r)])

    def as_in_memory(self, stored: Stored) -> Stored:
        """What torch.save of the state would write, but for what is converted."""
        return self._undone(stored, [])

    def as_in_memory_of_old(self, stored: Stored) -> Stored:
        """The same in version 4, whose towers were one module deeper."""
        prefixes = core_model_loading.PrefixChange
        return self._undone(stored, [r for r in self.renamings if isinstance(r, prefixes)])

    def _undone(self, stored: Stored, renamings: list[Any]) -> Stored:
        """The names in memory, and from there back through those renamings."""
        back = [each.reverse_transform() for each in reversed(renamings)]
        there = list(self.renamings)
        return {
            core_model_loading.apply_renamings(
                core_model_loading.apply_renamings(name, there), back
            ): shape
            for name, shape in stored.items()
        }


def _general(renaming: Any) -> bool:
    legacy = conversion_mapping.get_checkpoint_conversion_mapping("legacy")
    return any(renaming.source_patterns == each.source_patterns for each in legacy)


@lru_cache(maxsize=64)
def _names(target: str, frozen: str) -> Names:
    model_class = getattr(transformers, target)
    with quiet(), torch.device("meta"):
        model = model_class(_config(model_class, json.loads(frozen)))
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    converter = core_model_loading.WeightConverter
    return Names(
        frozenset(model.state_dict()),
        tuple(each for each in mapping if not isinstance(each, converter)),
        tuple(each for each in mapping if isinstance(each, converter)),
    )


def names(target: str, values: dict[str, Any]) -> Names:
    return _names(target, json.dumps(values))


@contextmanager
def quiet() -> Iterator[None]:
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

"""The same checkpoint as others would write it: as version 4 did, and as it is in memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import transformers
from support.bert_configs import config_of
from transformers import conversion_mapping, core_model_loading
from transformers.initialization import no_tie_weights

from parity_cases.library import config_from, quiet
from parity_cases.spoiling import Stored


def layouts(name: str, values: dict[str, Any], whole: Stored) -> Iterator[tuple[str, Stored]]:
    """Each layout that is another one, by the library's own renames, undone."""
    names = _names(name, json.dumps(values))
    seen = [whole]
    for layout, lay_out in (
        ("names of version 4", names.of_old),
        ("names in memory", names.as_in_memory),
        ("names in version 4's memory", names.as_in_memory_of_old),
        ("as it is in memory", names.in_memory),
    ):
        try:
            stored = lay_out(whole)
        except ValueError:  # a rename that the library cannot undo
            continue
        if stored not in seen:
            seen.append(stored)
            yield layout, stored


def unexpected_patterns(name: str) -> tuple[str, ...]:
    """Patterns of the names of which the class itself says that loading ignores them."""
    patterns = getattr(transformers, name)._keys_to_ignore_on_load_unexpected
    return tuple(patterns or ())


@dataclass(frozen=True)
class _Names:
    """A class's state, and the library's renames of it."""

    state: Stored
    renamings: tuple[Any, ...]

    def of_old(self, stored: Stored) -> Stored:
        """The names that version 4 wrote: every rename and prefix undone."""
        return self._undone(stored, [one for one in self.renamings if not _general(one)])

    def as_in_memory(self, stored: Stored) -> Stored:
        """What torch.save of the state would write, but for what is converted."""
        return self._undone(stored, [])

    def as_in_memory_of_old(self, stored: Stored) -> Stored:
        """The same in version 4, whose towers were one module deeper."""
        prefixes = core_model_loading.PrefixChange
        return self._undone(stored, [one for one in self.renamings if isinstance(one, prefixes)])

    def in_memory(self, _: Stored) -> Stored:
        """What torch.save of the state would write, with fused experts and ties."""
        return self.state

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
def _names(name: str, frozen: str) -> _Names:
    model_class = getattr(transformers, name)
    with quiet(), torch.device("meta"), no_tie_weights():
        model = model_class(config_from(model_class, config_of(**json.loads(frozen)).values))
    mapping = conversion_mapping.get_model_conversion_mapping(model)
    renaming = core_model_loading.WeightRenaming
    return _Names(
        {key: tuple(value.shape) for key, value in model.state_dict().items()},
        tuple(each for each in mapping if isinstance(each, renaming)),
    )

"""Family: what the classes of one model type share, and how their config is read."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

Default = bool | int | float | str | None | tuple[object, ...] | Mapping[str, object]


class Family(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What the classes of one model type share; there is one object of each, its own key."""

    model_type: str  # e.g. "bert"
    prefix: str  # base_model_prefix, e.g. "bert"; "" where the family has none
    base: str  # the class that the prefix stands for, e.g. "BertModel"
    defaults: Mapping[str, Default]  # the config class's own, of the keys that shape tensors
    # The config class's attribute_map: the name that other families use -> this one's own key.
    synonyms: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Older names of its keys, which the config class still takes: older name -> its own key.
    older: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Whether transformers took its classes over, with their names, from code of repositories.
    taken_over: bool = False
    # Letters for formulas, by key, where config.LETTERS has none or two keys would share one.
    letters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Patterns of names that loading leaves out without a word, where the config decides on them;
    # what all models of the type leave out, `loads(...)` in their file says.
    unread: Callable[[Any], tuple[str, ...]] = lambda _config: ()

    def aliases(self, key: str) -> tuple[str, ...]:
        """The other names of one of this config class's keys."""
        return self._aliases.get(key, ())

    @cached_property
    def _aliases(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for alias, own in (*self.older.items(), *self.synonyms.items()):
            found[own] = (*found.get(own, ()), alias)
        return found

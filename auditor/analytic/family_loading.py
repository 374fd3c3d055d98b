"""How transformers 5 loads a family: facts of its sources, each stated in the family's own file.

Renames and conversions are those of its conversion_mapping.py; what it says nothing about is in its
classes' `_keys_to_ignore_on_load_unexpected` and `_missing`, and in the buffers that they register.
The patterns are its own, with its unescaped dots.
"""

from msgspec import Struct

from auditor.analytic.renaming_rules import Rule

Renames = tuple[tuple[str, str], ...]  # (pattern, replacement), in their order
Conversions = tuple[Rule, ...]
Rules = tuple[tuple[str, str] | Rule, ...]  # both, in their order
_OF_FAMILY = "\0"


class LoadingFacts(Struct, frozen=True, kw_only=True):
    """Of one class, or of all classes of one model type; None: this key states nothing of it."""

    rules: Rules | None = None
    base_path: str | None = _OF_FAMILY  # of its base model, if not the prefix; None: it has none
    only: tuple[str, ...] | None = None  # the only models inside its base model that it has
    # The models inside the base model: path, key of their config, model type if it has none.
    inside: tuple[tuple[str, str, str], ...] = ()
    silent: tuple[str, ...] = ()  # names that are not reported as unexpected
    taken: tuple[str, ...] | None = None  # optional buffers that are loaded if they are stored
    unmissed: tuple[str, ...] = ()  # names in memory that are not reported as missing
    # Buffers that are no longer stored, and left out wherever older versions stored them:
    rotary: bool = False  # frequencies
    positions: bool = False  # the numbers of positions
    of_library: bool = True  # False: a paper's model, which transformers does not have

    def path_of_base(self, prefix: str) -> str | None:
        return prefix if self.base_path == _OF_FAMILY else self.base_path


_FACTS: dict[str, LoadingFacts] = {}
_NONE = LoadingFacts()


def loads(key: str, facts: LoadingFacts) -> None:
    """State the facts of a class, or of a model type."""
    _FACTS[key] = facts


def loading_facts(key: str) -> LoadingFacts:
    """What the files of families that are imported state of a class or a model type."""
    return _FACTS.get(key, _NONE)

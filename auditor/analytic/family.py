"""The Family class: facts about config and loading that the classes of a model type share.

Each family file states the facts of its model types. The loading facts come from the sources of
transformers 5: renames and conversions from conversion_mapping.py; names that are not reported from
the classes' `_keys_to_ignore_on_load_unexpected` and `_missing`, and from the buffers that they
register. The patterns are copied as they are, with unescaped dots.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.analytic.config_classes.declarations import ConfigClass, of_family
from auditor.analytic.loading import Loading, Rule, starts_of_rule

Default = bool | int | float | str | None | tuple[object, ...] | Mapping[str, object]


class Family(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The facts that the classes of one model type share; families are compared by identity."""

    model_type: str  # e.g. "bert"
    prefix: str  # base_model_prefix, e.g. "bert"; "" if the family has none
    base: str  # the class that the prefix stands for, e.g. "BertModel"
    # The keys that shape tensors. Their defaults are those of the model type's config class in
    # transformers, null if it declares none; `own` has the defaults that differ from these.
    keys: str = ""
    own: Mapping[str, Default] = MappingProxyType({})
    # Older names of keys that the config class still accepts: older name -> current key.
    older: Mapping[str, str] = MappingProxyType({})
    # Whether transformers adopted its classes, with their names, from code in model repositories.
    taken_over: bool = False
    # Letters for formulas, by key, if config.LETTERS has none or two keys would share one.
    letters: Mapping[str, str] = MappingProxyType({})
    # Patterns of names that loading skips without a report, as a function of the config; names
    # that all models of the type skip are declared by `loads(...)` in the family file.
    unread: Callable[[Any], tuple[str, ...]] = lambda _config: ()
    # The generated forms of its classes; empty if they are built by hand.
    forms: Mapping[str, Any] = MappingProxyType({})

    @cached_property
    def defaults(self) -> Mapping[str, Default]:
        """The defaults of the keys that shape tensors."""
        fields = self._declared.fields if self._declared else {}
        named = {key: fields[key].default if key in fields else None for key in self.keys.split()}
        return MappingProxyType({**named, **self.own})

    @cached_property
    def synonyms(self) -> Mapping[str, str]:
        """The config class's attribute_map: the usual name of a key -> the class's name."""
        return self._declared.attribute_map if self._declared else {}

    @property
    def _declared(self) -> ConfigClass | None:
        return of_family(self.model_type)

    @cached_property
    def aliases(self) -> Mapping[str, tuple[str, ...]]:
        """The synonyms of each key of the config class; keys without synonyms are absent."""
        aliases: dict[str, tuple[str, ...]] = {}
        for alias, own in (*self.older.items(), *self.synonyms.items()):
            aliases[own] = (*aliases.get(own, ()), alias)
        return aliases


# --- loading facts -----------------------------------------------------------------------

Renames = tuple[tuple[str, str], ...]  # (pattern, replacement), in order of application
Conversions = tuple[Rule, ...]
Rules = tuple[tuple[str, str] | Rule, ...]  # renames and conversions, in order of application
_OF_FAMILY = "\0"


class LoadingFacts(Struct, frozen=True, kw_only=True):
    """The loading facts of one class or one model type; None for a fact that is not stated."""

    rules: Rules | None = None
    base_path: str | None = _OF_FAMILY  # of the base model, if not the prefix; None: no base model
    only: tuple[str, ...] | None = None  # the models inside the base model that the class has
    # The models inside the base model: path, key of the config, model type if it states none.
    inside: tuple[tuple[str, str, str], ...] = ()
    silent: tuple[str, ...] = ()  # names that are not reported as unexpected
    optional_buffers: tuple[str, ...] | None = None  # patterns; loaded if stored
    unmissed: tuple[str, ...] = ()  # names in memory that are not reported as missing
    # Names of buffers that older versions stored and that loading now skips:
    rotary: bool = False  # frequencies
    positions: bool = False  # the numbers of positions
    of_library: bool = True  # False if transformers does not implement the model

    def path_of_base(self, prefix: str) -> str | None:
        return prefix if self.base_path == _OF_FAMILY else self.base_path


_FACTS: dict[str, LoadingFacts] = {}
_NONE = LoadingFacts()


def loads(key: str, facts: LoadingFacts) -> None:
    """Register the loading facts of a class or of a model type."""
    _FACTS[key] = facts


def loading_facts(key: str) -> LoadingFacts:
    """Return the loading facts that were registered for a class or a model type."""
    return _FACTS.get(key, _NONE)


class Inside(NamedTuple):
    """A model inside another: its path, its family, and patterns of names that it ignores."""

    path: str
    family: Family
    unread: tuple[str, ...] = ()


def loading_of_class(
    family: Family, target: str, inside: tuple[Inside, ...], unread: tuple[str, ...]
) -> Loading:
    """Return the loading rules of a class of the family and of the models inside it.

    `unread` are patterns of names that loading skips because of the config.
    """
    own, of_type = loading_facts(target), loading_facts(family.model_type)
    if own.only is not None:
        inside = tuple(each for each in inside if each.path in own.only)
    kinds = [(target, family), *((each.family.base, each.family) for each in inside)]
    rules = tuple(_rules(family, target, inside))
    silent = (
        pattern
        for name, each in kinds
        for key in (each.model_type, name)
        for pattern in loading_facts(key).silent
    )
    optional_buffers = (
        of_type.optional_buffers if own.optional_buffers is None else own.optional_buffers
    )
    return Loading(
        renames=tuple(rule for rule in rules if not rule.operations),
        converters=tuple(rule for rule in rules if rule.operations),
        silent=tuple(dict.fromkeys(chain(silent, unread, *(each.unread for each in inside)))),
        buffers=tuple(dict.fromkeys(p for _, each in kinds for p in _buffers(each.model_type))),
        unmissed=own.unmissed,
        optional_buffers=optional_buffers or (),
        reports=of_type.of_library,
    )


def _rules(family: Family, target: str, inside: tuple[Inside, ...]) -> Iterator[Rule]:
    """Yield the class's own rules, then those of its base model and of the models inside it."""
    own = loading_facts(target)
    by_class, by_type = own.rules, loading_facts(family.model_type).rules or ()
    yield from _scoped(by_type if by_class is None else by_class, ("",))
    path = own.path_of_base(family.prefix)
    if target != family.base and path is not None:
        rules_of_type = (
            by_type if by_class is not None else ()
        )  # otherwise yielded above as the class's own rules
        of_base = loading_facts(family.base).rules
        yield from _below(path, rules_of_type if of_base is None else of_base, family.prefix)
    for part in inside:
        yield from _below(part.path, _own(part.family), family.prefix)


def _own(family: Family) -> Rules:
    return loading_facts(family.base).rules or loading_facts(family.model_type).rules or ()


def _below(path: str, rules: Rules, prefix: str) -> Iterator[Rule]:
    scope = path.removeprefix(prefix).removeprefix(".")
    return _scoped(rules, starts_of_rule(scope, prefix))


def _scoped(rules: Rules, prefixes: tuple[str, ...]) -> Iterator[Rule]:
    for rule in rules:
        if isinstance(rule, Rule):
            yield rule._replace(prefixes=prefixes)
        else:
            pattern, replacement = rule
            yield Rule((pattern,), (replacement,), prefixes)


def _buffers(model_type: str) -> Iterator[str]:
    facts = loading_facts(model_type)
    if facts.rotary:
        yield r"rotary_emb\.inv_freq"
    if facts.positions:
        yield r"(^|\.)position_ids$"

"""The CompletedConfig class: a config with the defaults of its class in transformers.

Each field has the value that the config states, or the default of the class. A value of the wrong
type is a fault, and the default replaces it. Some defaults depend on other keys: a family
registers a function for them with `derived_defaults`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from auditor.analytic.config_classes.declarations import (
    ConfigClass,
    Field,
    SubConfig,
    of_model_type,
    of_name,
)
from auditor.analytic.config_classes.faults import MOST_FAULTS, ConfigFault, FaultOrigin
from auditor.analytic.config_classes.field_types import is_of_kind, kind_in_words
from auditor.analytic.families import FILES, load
from auditor.messages import described, named

# The exceptions that Python raises for a value of the wrong type or size.
VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# Keys that every class accepts without a field: num_labels is a property with a setter.
_SETTERS = {"num_labels": Field("int", None)}
PER_LAYER = "per_layer_config"


class CompletedConfig:
    """The attributes of transformers' config object, under its class's own keys."""

    def __init__(
        self, kind: ConfigClass, path: str, outer: "CompletedConfig | None" = None
    ) -> None:
        self.kind = kind
        self.path = path  # of a config inside a config: "text_config."
        self.values: dict[str, Any] = {}
        self.mistyped: set[str] = set()  # keys whose stated value has the wrong type
        # Shared with nested configs: the faults, and the configs with per_layer_config.
        self.faults: list[ConfigFault] = outer.faults if outer else []
        self.uneven: list[CompletedConfig] = outer.uneven if outer else []

    def own(self, key: str) -> str:
        """Return the class's own name of the key: n_embd for hidden_size in GPT-2."""
        return self.kind.attribute_map.get(key, key)

    def __getitem__(self, key: str) -> Any:
        return self.values[self.own(key)]

    def __contains__(self, key: str) -> bool:
        return self.own(key) in self.values

    def get(self, key: str) -> Any:
        return self.values.get(self.own(key))

    def part(self, key: str) -> "CompletedConfig | None":
        """Return the nested config under a key; None if its class is not known."""
        inner = self.values.get(key)
        return inner if isinstance(inner, CompletedConfig) else None

    def set(self, key: str, value: Any) -> None:
        """Set a key, or record a fault if the field's type forbids the value.

        transformers does not check a value under a name that is not the class's own.
        """
        if key in self.kind.read_only:
            return
        field = self.kind.fields.get(key) or _SETTERS.get(key)
        if field is None or is_of_kind(field.kind, value):
            self.values[self.own(key)] = value
            return
        self.mistyped.add(key)
        observed = f"{self.named(key)} is {described(value)}"
        self.add_fault(f"{observed}, expected {kind_in_words(field.kind)}", key)

    def named(self, key: str) -> str:
        """Return the key with the path of this config: "text_config.pad_token_id"."""
        return named(self.path + key)

    def add_fault(self, reason: str, *keys: str, origin: FaultOrigin = FaultOrigin.CLASS) -> None:
        if len(self.faults) < MOST_FAULTS:
            paths = tuple(self.path + key for key in keys)
            self.faults.append(ConfigFault(reason, paths, origin))


# --- defaults that depend on other keys ---------------------------------------------------------

# Called with the config, and with the stated keys that are not fields of its class.
Derivation = Callable[[CompletedConfig, dict[str, Any]], None]
_Registered = TypeVar("_Registered", bound=Derivation)
_DERIVATIONS: dict[str, Derivation] = {}
_NONE = frozenset[str]()


def derived_defaults(*class_names: str) -> Callable[[_Registered], _Registered]:
    """Return a decorator that registers a function to complete configs of these classes in place.

    The function sets only keys that shape tensors. If it fails, the key keeps its default, and the
    builder of the model reports the value that it cannot use.
    """

    def register(derive: _Registered) -> _Registered:
        for name in class_names:
            if name in _DERIVATIONS:
                raise ValueError(f"{name} has derived defaults already")
            _DERIVATIONS[name] = derive
        return derive

    return register


def _derivation(kind: ConfigClass) -> Derivation | None:
    if kind.model_type in FILES:
        load(kind.model_type)
    return _DERIVATIONS.get(kind.name)


@cache
def derived_keys(class_name: str) -> frozenset[str]:
    """Return the keys that a class derives from its fields, such as `is_gated_act` of T5."""
    kind = of_name(class_name)
    return frozenset(complete(kind, {}).values) - {*kind.fields, *kind.parts} if kind else _NONE


# --- completing ---------------------------------------------------------------------------------


def complete(
    kind: ConfigClass,
    values: Mapping[str, Any],
    path: str = "",
    outer: CompletedConfig | None = None,
) -> CompletedConfig:
    """Return the values with the class's defaults added; values of a wrong type become faults."""
    config = CompletedConfig(kind, path, outer)
    for key, field in kind.fields.items():
        config.values[key] = field.default
        if key in values:
            config.set(key, values[key])
    others = {key: value for key, value in values.items() if key not in kind.fields}
    if derive := _derivation(kind):
        with suppress(*VALUE_ERRORS):
            derive(config, others)
    for key, part in kind.parts.items():
        value = config.values.get(key)
        if not isinstance(value, CompletedConfig) and not (value is None and part.optional):
            config.values[key] = completed_part(config, key, part, value)
    overrides = others.pop(PER_LAYER, None)
    for key, value in others.items():
        config.set(key, value)
    if _has_uneven_layers(config, overrides):
        config.uneven.append(config)
    return config


def completed_part(
    outer: CompletedConfig, key: str, part: SubConfig, value: Any
) -> CompletedConfig | Any:
    """Return a nested config with its class's defaults; unchanged if its class is unknown."""
    if value is not None and not isinstance(value, Mapping):
        observed = f"{outer.named(key)} is {described(value)}"
        outer.add_fault(f"{observed}, expected an object", key)
        value = None
    kind = _class_of_part(part, value or {})
    stated = part.values if value is None else value
    return stated if kind is None else complete(kind, stated, f"{outer.path}{key}.", outer)


def completed_beside(
    outer: CompletedConfig, key: str, values: Mapping[str, Any]
) -> CompletedConfig | Any:
    """Complete a nested config whose `values` the file states among the keys of `outer`."""
    kind = _class_of_part(outer.kind.parts[key], values)
    return values if kind is None else complete(kind, values, outer.path, outer)


def _class_of_part(part: SubConfig, values: Mapping[str, Any]) -> ConfigClass | None:
    if part.class_name is not None:
        return of_name(part.class_name)
    model_type = values.get("model_type", part.model_type)
    return of_model_type(model_type) if isinstance(model_type, str) else None


def _has_uneven_layers(config: CompletedConfig, overrides: Any) -> bool:
    """Return whether per_layer_config changes any value of the config for any layer."""
    if not isinstance(overrides, Mapping):
        return overrides is not None
    return any(
        not isinstance(own, Mapping)
        or any(key not in config or config[key] != value for key, value in own.items())
        for own in overrides.values()
    )

"""The classes whose tensors are derived from a config, and the Expectation for such a class.

A closed form is a function that builds a class's tree of blocks from a config. Classes are
registered under their model type and name.
"""

import inspect
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial, wraps
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from msgspec.structs import replace

from auditor.analytic import auto_classes
from auditor.analytic.blocks import Module
from auditor.analytic.config import Config
from auditor.analytic.config_classes import (
    VALUE_ERRORS,
    CompletedConfig,
    ConfigFault,
    FaultOrigin,
    FaultyConfigError,
    complete,
    of_model_type,
    one_per_cause,
)
from auditor.analytic.config_classes.completion import PER_LAYER
from auditor.analytic.config_classes.rules import faults_by_rules
from auditor.analytic.expectation import Expectation
from auditor.analytic.families import FILES, OLD_CLASSES, OLD_TYPES, load
from auditor.analytic.family import Family, Inside, loading_facts, loading_of_class
from auditor.analytic.generated import loading_of_form, own_values
from auditor.analytic.loading import Loading
from auditor.analytic.tree_expectation import Sibling, tree_expectation, tree_sibling
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import meant, quoted

__all__ = [
    "Family",
    "architecture",  # with Family, for family files; the rest is an expecting.Source
    "auto_class",
    "base_class",
    "current",
    "current_type",
    "expect",
    "inside",
    "sibling",
    "siblings",
    "types",
    "unknown",
]


class Builder(Protocol):
    """A function that builds a model from a config; its other parameters have defaults."""

    def __call__(self, c: Config, /) -> Module: ...


class _Architecture(NamedTuple):
    family: Family
    build: Builder


_Builder = TypeVar("_Builder", bound=Builder)

_ARCHITECTURES: dict[tuple[str, str], _Architecture] = {}  # by model type and class name
_TYPES: dict[str, tuple[str, ...]] = {}  # class name -> the model types that have it
_CLASSES: dict[str, tuple[str, ...]] = {}  # model type -> its classes, the base class first
_PLACES = {model_type: place for place, model_type in enumerate(FILES)}
_LONGEST = 128  # characters of a class name; a longer one is hostile and must not fill a cache


def architecture(name: str, family: Family) -> Callable[[_Builder], _Builder]:
    """Return a decorator that registers a function as the closed form of the class `name`."""

    def register(build: _Builder) -> _Builder:
        build = _once(build)
        key = (family.model_type, name)
        if key in _ARCHITECTURES:
            raise ValueError(f"{name} of {family.model_type} has a closed form already")
        _ARCHITECTURES[key] = _Architecture(family, build)
        _TYPES[name] = (*_TYPES.get(name, ()), family.model_type)
        _CLASSES[family.model_type] = (*_CLASSES.get(family.model_type, ()), name)
        return build

    return register


def _once(build: _Builder) -> _Builder:
    """Return the builder with a cache by config: the classes of a family share a base model."""

    @wraps(build)
    def shared(c: Config, /, **options: Hashable) -> Module:
        key = (build, *options.items())
        if key not in c.known:
            c.known[key] = build(c, **options)
        tree: Module = c.known[key]
        return tree

    return cast("_Builder", shared)


# --- the known classes ----------------------------------------------------------------------------

unknown = "no closed form is known for"  # the beginning of a message about an unknown class


def model_types() -> tuple[str, ...]:
    """Return every model type that has closed forms, sorted."""
    return tuple(sorted(FILES))


def class_names() -> tuple[str, ...]:
    """Return every class that has a closed form, sorted; this imports all families."""
    return tuple(sorted({name for each in FILES for name in siblings(each)}))


def siblings(model_type: str) -> tuple[str, ...]:
    """Return the classes of a model type in the order of their file, the base class first."""
    return _CLASSES.get(_loaded(model_type), ())


def types(name: str) -> tuple[str, ...]:
    """Return the model types that have a class of that name, in the order of FILES."""
    name = current(name)
    if len(name) > _LONGEST:
        return ()
    for model_type in _begun_with(name):
        _loaded(model_type)
    having = _TYPES.get(name, ())
    return tuple(sorted(having, key=_PLACES.__getitem__))


def is_known(name: str) -> bool:
    return bool(types(name))


def current(name: str) -> str:
    """Return the current name of a class: LlamaForCausalLM for LLaMAForCausalLM."""
    return OLD_CLASSES.get(name, name)


def current_type(model_type: str) -> str:
    """Return the current model type for an older one with equal tensors: llama for internlm."""
    return OLD_TYPES.get(model_type, model_type)


def family(model_type: str) -> Family:
    """Return the Family of a known model type."""
    return _ARCHITECTURES[current_type(model_type), siblings(model_type)[0]].family


def base_class(model_type: str) -> str:
    """Return the base class of a model type, which its other classes contain."""
    return family(model_type).base


def auto_class(name: str, model_type: str) -> str | None:
    """Return the class that an auto class builds for a model type; None if unknown."""
    if not siblings(model_type):
        return None
    return auto_classes.resolve_auto_class(name, base_class(model_type), siblings(model_type))


def takes(target: str, argument: str) -> bool:
    """Return whether a known class's constructor takes this argument in addition to its config."""
    builders = (_ARCHITECTURES[each, current(target)].build for each in types(target))
    own = any(takes_option(build, argument) for build in builders)
    return own or (current(target), argument) in WITHOUT_TENSORS


def is_taken_over(name: str, model_type: str) -> bool:
    """Return whether transformers adopted the class from code in model repositories."""
    siblings_of_type = siblings(model_type)
    return (
        bool(siblings_of_type)
        and current(name) in siblings_of_type
        and family(model_type).taken_over
    )


def inside(model_type: str) -> Mapping[str, str]:
    """Return the nested configs of a model type: key -> the default model type."""
    return {key: otherwise for _, key, otherwise in loading_facts(_loaded(model_type)).inside}


def _loaded(model_type: str) -> str:
    """Register the model type's classes, if they are known; return its current name."""
    model_type = current_type(model_type)
    if model_type in FILES:
        load(model_type)
    return model_type


@lru_cache(maxsize=256)
def _begun_with(name: str) -> tuple[str, ...]:
    """Return the model types that a class name begins with, ignoring case and punctuation."""
    squeezed = _squeezed(name)
    return tuple(each for each in FILES if squeezed.startswith(_squeezed(each)))


@lru_cache(maxsize=1024)
def _squeezed(name: str) -> str:
    """Return a name without case and punctuation; deberta-v2 equals DebertaV2."""
    return re.sub(r"[\W_]", "", name).lower()


# --- the expectation -------------------------------------------------------------------------


def expect(config: Config, target: str) -> Expectation:
    """Return every tensor that the config implies for a known class.

    If several model types have a class of that name, the config's model type decides. Raise
    CheckpointError if the config does not imply tensors.
    """
    target = current(target)
    family, completed, tree, faults = _built(config, target)
    form = family.forms.get(target)
    with _with_faults(faults, target):
        return tree_expectation(
            tree,
            target,
            model_type=family.model_type,
            prefix=family.prefix,
            by="generated" if form else "closed-form",
            library=form.source if form else None,
            loading=_loading(family, completed, target),
            defaults=completed.defaulted,
            faults=faults,
        )


def sibling(config: Config, target: str) -> Sibling:
    """Return a class of the target's family with the names of its tensors under this config."""
    family, completed, tree, _ = _built(config, target, shared=True)
    return tree_sibling(tree, target, family.prefix, _loading(family, completed, target))


def block_tree(config: Config, target: str) -> Module:
    """Return the tree of blocks of a known class; `expect` lists its tensors."""
    return _built(config, current(target)).tree


def _loading(family: Family, completed: Config, target: str) -> Loading:
    if form := family.forms.get(target):
        return loading_of_form(form, own_values(form, completed))
    inside = (
        _inside(path, completed.nested(key), otherwise)
        for path, key, otherwise in loading_facts(family.model_type).inside
        if completed.states(key) or family.defaults.get(key, key) is not None
    )
    return loading_of_class(family, target, tuple(inside), family.unread(completed))


def _inside(path: str, config: Config, otherwise: str) -> Inside:
    own = _own_family(config, otherwise)
    return Inside(path, own, own.unread(config.of(own)))


class _Built(NamedTuple):
    """A class's tree of blocks, and the config that it was built from."""

    family: Family
    config: Config  # the config with the family's defaults
    tree: Module
    faults: tuple[ConfigFault, ...]  # why transformers cannot build the class


def _built(config: Config, target: str, *, shared: bool = False) -> _Built:
    """Build the tree of a class.

    If `shared`, the classes of a family use one completed config, which does not record the
    defaults that each class reads; faults are left out.
    """
    having = types(target)
    model_type = having[0]
    if len(having) > 1 and (declared := current_type(config.model_type or "")) in having:
        model_type = declared
    family, build = _ARCHITECTURES[model_type, target]
    if config.arguments:
        build = with_arguments(build, config.arguments)
    if shared:
        completed = config.once(family, lambda: _completed(config, family))
        return _Built(family, completed, build(completed), ())
    completed = _completed(config, family)
    faults = _faults(completed)
    with _with_faults(faults, target):
        _require_even_layers(completed)
        tree = build(completed)
    return _Built(family, completed, tree, faults)


def _completed(config: Config, family: Family) -> Config:
    return replace(config.of(family), completed=by_class(config, family))


def by_class(config: Config, family: Family) -> CompletedConfig | None:
    """Return the config with the defaults of its class in transformers; None for unknown classes.

    A type that builds the classes of another type has a config class of its own; an older model
    type, whose code is in the repository, has none.
    """
    declared = config.model_type or family.model_type
    today = current_type(declared) == declared
    kind = of_model_type(family.model_type if today else declared)
    if kind is None:
        return None
    return config.once((kind.name, complete), lambda: complete(kind, config.values, config.path))


def _faults(config: Config) -> tuple[ConfigFault, ...]:
    if config.completed is None or not config.checked:
        return ()
    return one_per_cause((*config.completed.faults, *faults_by_rules(config.completed)))


def _require_even_layers(config: Config) -> None:
    """Raise SourceError if `per_layer_config` changes layers and the family does not read it."""
    for part in config.completed.uneven if config.completed else ():
        model_type = part.kind.model_type
        if not siblings(model_type) or PER_LAYER not in family(model_type).defaults:
            detail = f"{unknown} {part.path}{PER_LAYER}, whose layers are of several shapes"
            raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)


@contextmanager
def _with_faults(faults: tuple[ConfigFault, ...], target: str) -> Iterator[None]:
    """Raise FaultyConfigError, with these faults, if the `with` block cannot build a tree."""
    try:
        yield
    except CheckpointError as error:
        last = ConfigFault(str(error), error.keys, FaultOrigin.SHAPES)  # more precise than `faults`
        keys = set(last.keys)
        others = (fault for fault in faults if not keys or not keys <= set(fault.keys))
        raise FaultyConfigError(one_per_cause((last, *others)), target) from None
    except (SourceError, *VALUE_ERRORS):
        if faults:  # the known faults explain the failure
            raise FaultyConfigError(faults, target) from None
        raise


def completed_config(config: Config, otherwise: str) -> Config:
    """Return a nested config with the defaults of its own model type's config class.

    `otherwise` is the model type of a config that does not state one.
    """
    return config.of(_own_family(config, otherwise))


def base_model(config: Config, otherwise: str = "") -> Module:
    """Return the tree that AutoModel builds for a nested config's own model type."""
    own = _own_family(config, otherwise)
    return _ARCHITECTURES[own.model_type, own.base].build(config.of(own))


def causal_model(config: Config) -> Module:
    """Return the tree that AutoModelForCausalLM builds for a nested config's model type."""
    return headed_model(config, ("ForCausalLM", "LMHeadModel"))


def headed_model(config: Config, endings: tuple[str, ...]) -> Module:
    """Return the tree of the first class of a nested config's type with one of the endings."""
    own = _own_family(config, "")
    for name in siblings(own.model_type):
        if name.endswith(endings):
            return _ARCHITECTURES[own.model_type, name].build(config.of(own))
    raise SourceError(
        Reason.UNKNOWN_ARCHITECTURE,
        f"no language model is known for {config.path}model_type {quoted(own.model_type)}",
    )


def _own_family(config: Config, otherwise: str) -> Family:
    if config.family is not None:
        return config.family
    model_type = config.model_type or otherwise
    if not siblings(model_type):
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"no closed form is known for {config.path}model_type {quoted(model_type)}"
            f"{meant(model_type, FILES)}",
        )
    return family(model_type)


# --- arguments beside the config -----------------------------------------------------------------
#
# A class may take arguments beside its config: BertModel(config, add_pooling_layer=False). They are
# passed to `from_pretrained` and are not in config.json. A closed form supports an argument if its
# builder has the matching option.

_AnyBuilder = TypeVar("_AnyBuilder", bound=Callable[..., Any])

# Argument of a constructor in transformers -> option of the builder.
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"add_pooling_layer": "pooler", "use_mask_token": "mask"}
)
# (class, argument) pairs that change no tensor: Swin's pooling is an average.
WITHOUT_TENSORS = frozenset({("SwinModel", "add_pooling_layer")})


def takes_option(build: Callable[..., Any], argument: str) -> bool:
    return OPTIONS[argument] in inspect.signature(build).parameters


def with_arguments(build: _AnyBuilder, arguments: Mapping[str, bool]) -> _AnyBuilder:
    """Return the builder with the constructor arguments applied, except unsupported ones."""
    taken = {OPTIONS[name]: value for name, value in arguments.items() if takes_option(build, name)}
    return cast("_AnyBuilder", partial(build, **taken)) if taken else build

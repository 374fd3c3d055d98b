"""The choice of the class that an audit is for, from the request, the loader and the config."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from auditor.analytic.auto_classes import AUTO_MODEL, is_auto
from auditor.analytic.config import Config
from auditor.analytic.families import FILES
from auditor.analytic.repository_loader import Loader
from auditor.errors import CheckpointError, Reason
from auditor.messages import meant, named, quoted

AUDITED_AS = "is not known here: audited as"  # in the note about a class that was replaced
_SHOWN = 5  # the most names that a note shows
_TASK = re.compile(r"For[A-Z]\w*$")  # finds the task in a class name: ForCausalLM


class Classes(Protocol):
    """An interface to the known classes; the module `catalogue` implements it."""

    unknown: str  # "no closed form is known for"

    def types(self, name: str, /) -> tuple[str, ...]: ...

    def siblings(self, model_type: str, /) -> tuple[str, ...]: ...

    def base_class(self, model_type: str, /) -> str: ...

    def auto_class(self, name: str, model_type: str, /) -> str | None: ...

    def current(self, name: str, /) -> str: ...

    def current_type(self, model_type: str, /) -> str: ...

    def inside(self, model_type: str, /) -> Mapping[str, str]: ...


class TypeAndConfig(NamedTuple):
    """A model type, and the config that its classes are built from."""

    model_type: str
    config: Config  # the complete config, or one inside it


class TargetChoice(NamedTuple):
    """The class that an audit is for, and the class that the config declares."""

    target: str
    declared: str
    kind: TypeAndConfig  # of the target
    of_declared: TypeAndConfig
    around: TypeAndConfig  # the type of the complete config, if it describes several models
    notes: tuple[str, ...]  # decisions that the report mentions
    contradiction: str | None = None  # two contradictory statements of the config
    namesake: str | None = None  # the class chosen instead of a declared one, and why
    unused_modules: tuple[str, ...] = ()  # modules of the base model that its loader does not use

    @property
    def model_type(self) -> str:
        """The target's model type."""
        return self.kind.model_type

    @property
    def related_types(self) -> tuple[TypeAndConfig, ...]:
        """The target's model type, followed by the complete config's if it is another one.

        Their classes may use tensors that the target ignores.
        """
        return (self.kind,) if self.kind == self.around else (self.kind, self.around)


class Refusal(NamedTuple):
    """The reason why no class can be chosen as the target."""

    reason: Reason
    detail: str


def choose(
    config: Config, target: str | None, classes: Classes, loader: Loader | None = None
) -> TargetChoice | Refusal:
    """Choose the class: `target` if it is given, else the loader's class, else architectures[0].

    A target may be an auto class. A config without architectures implies its family's base class.
    A class of a nested model is built from the nested config, as in transformers. Raise
    CheckpointError if the config contradicts itself.
    """
    first = next(iter(config.architectures), None)
    if first is None and config.model_type is None:
        first = target  # nothing else names a class
    named_first = _spelled(first, config, classes) if first is not None else None
    declared = _declared(config, named_first, classes)
    requested = _requested(target or (loader.requested_class if loader else None), config, classes)
    if isinstance(requested, Refusal):
        return requested
    wanted = requested or named_first
    if declared is None or (wanted is not None and not classes.types(wanted)):
        return Refusal(Reason.UNKNOWN_ARCHITECTURE, _unknown(config, wanted, classes))
    name, kind = declared
    stated = _stated(config, classes)
    around = TypeAndConfig(stated, config) if stated and classes.siblings(stated) else kind
    chosen = kind
    if requested is not None:
        of = classes.types(requested)
        kind_of_requested = next((one for one in (kind, around) if one.model_type in of), None)
        kind_of_requested = kind_of_requested or _within(config, of, classes)
        if kind_of_requested is None:
            family = around.model_type
            detail = f"{requested} is of the family {' and '.join(of)}, the checkpoint {family}"
            return Refusal(Reason.OTHER_FAMILY, detail)
        chosen = kind_of_requested
    built = classes.current(requested) if requested else name
    by_loader = loader if target is None else None
    return TargetChoice(
        target=built,
        declared=built if by_loader else name,
        kind=chosen,
        of_declared=chosen if by_loader else kind,
        around=around,
        notes=(
            *_notes(config, name, chosen, classes),
            *(_loader_notes(by_loader, built, name) if by_loader else ()),
        ),
        contradiction=_contradiction(config, name, classes),
        namesake=_as_namesake(config, name, classes),
        unused_modules=by_loader.unused_modules if by_loader else (),
    )


def _spelled(name: str, config: Config, classes: Classes) -> str:
    """Return the known class that equals `name` except in case (Phimoe for PhiMoE), else `name`.

    transformers builds the class of the model type, however the config spells it.
    """
    if classes.types(name):
        return name
    siblings = classes.siblings(_stated(config, classes) or "")
    return next((one for one in siblings if one.casefold() == name.casefold()), name)


def _requested(name: str | None, config: Config, classes: Classes) -> str | Refusal | None:
    """Return the requested class; an auto class is replaced by the class that it builds."""
    if name is None or not is_auto(name):
        return name
    model_type = _stated(config, classes)
    class_name = classes.auto_class(name, model_type) if model_type is not None else None
    if class_name is not None:
        return class_name
    family = f"model_type {quoted(model_type)}" if model_type else "a config without a model_type"
    detail = f"{classes.unknown} a class that {name} builds of {family}"
    return Refusal(Reason.UNKNOWN_ARCHITECTURE, detail)


def _loader_notes(loader: Loader, built: str, declared: str) -> Iterator[str]:
    if built != declared:
        how = f"with {loader.requested_class}, " if loader.requested_class != built else ""
        yield f"{loader.name} loads it {how}as {built}; the config declares {declared}"


def _stated(config: Config, classes: Classes) -> str | None:
    return None if config.model_type is None else classes.current_type(config.model_type)


def _declared(
    config: Config, named_first: str | None, classes: Classes
) -> tuple[str, TypeAndConfig] | None:
    """Return the declared class, else the base class of model_type; None if both are unknown."""
    stated = _stated(config, classes)
    having = classes.types(named_first) if named_first is not None else ()
    if named_first is None or not having:
        if stated is None or not classes.siblings(stated):
            return None
        return classes.current(classes.base_class(stated)), TypeAndConfig(stated, config)
    name = classes.current(named_first)
    if stated is None or stated in having:
        return name, TypeAndConfig(stated or having[0], config)
    within = _within(config, having, classes)
    if within is not None:
        return name, within
    if any(stated in classes.inside(each).values() for each in having):
        is_known = classes.siblings(stated)  # else the type is known only as a part of others
        return (
            (_language_model(stated, classes), TypeAndConfig(stated, config)) if is_known else None
        )
    if (namesake := _namesake(named_first, stated, classes)) is not None:
        return namesake, TypeAndConfig(stated, config)
    raise CheckpointError(
        f"architectures names {named_first}, which is {' or '.join(having)}, "
        f"but model_type says {quoted(config.model_type or '')}"
    )


def _within(config: Config, having: tuple[str, ...], classes: Classes) -> TypeAndConfig | None:
    """Return the last nested config whose model type is in `having`, else None."""
    default_types = classes.inside(_stated(config, classes) or "")
    last: TypeAndConfig | None = None
    for key, value in config.values.items():
        if isinstance(value, Mapping):
            model_type = value.get("model_type") or default_types.get(key)
            current = classes.current_type(model_type) if isinstance(model_type, str) else None
            if current in having:
                last = TypeAndConfig(current, config.nested(key))
    return last


def _language_model(model_type: str, classes: Classes) -> str:
    """Return the class that AutoModelForCausalLM builds for a model type, else the base class."""
    names = classes.siblings(model_type)
    return next((name for name in names if name.endswith("ForCausalLM")), names[0])


def _namesake(declared: str, model_type: str, classes: Classes) -> str | None:
    """Return the class of the model type for the same task as `declared`, else None."""
    task = _TASK.search(declared)
    names = classes.siblings(model_type) if task else ()
    return next((name for name in names if task and _TASK.findall(name) == [task[0]]), None)


def _notes(config: Config, known_class: str, chosen: TypeAndConfig, classes: Classes) -> list[str]:
    notes = []
    if chosen.config.path:
        part = chosen.config.path.removesuffix(".")
        notes.append(f"of the config only {part} counts, which is {chosen.model_type}")
    if not config.architectures:
        notes.append(f"the config names no architectures: taken as {known_class}")
    elif classes.current(config.architectures[0]) == known_class != config.architectures[0]:
        notes.append(f"{quoted(config.architectures[0])} is an older name of {known_class}")
    elif not classes.types(config.architectures[0]):
        declared = quoted(config.architectures[0])
        is_same = config.architectures[0].casefold() == known_class.casefold()
        what = "is another spelling of" if is_same else AUDITED_AS
        notes.append(f"{declared} {what} {known_class}")
    if len(config.architectures) > 1:
        names = ", ".join(map(named, config.architectures[:_SHOWN]))
        more = ", ..." if len(config.architectures) > _SHOWN else ""
        notes.append(f"of the architectures {names}{more} the first counts")
    return notes


def _contradiction(config: Config, known_class: str, classes: Classes) -> str | None:
    """Return a sentence if a multimodal class has its text model's model_type, else None."""
    declared = config.architectures[0] if config.architectures else known_class
    model_types = classes.types(declared)
    if not model_types or classes.current(declared) == known_class:
        return None
    stated = _stated(config, classes)
    if not any(stated in classes.inside(each).values() for each in model_types):
        return None
    return (
        f"architectures names {declared}, which is {' or '.join(model_types)}, but model_type "
        f"is that of the language model in one, {quoted(config.model_type or '')}: taken as a "
        f"checkpoint of {known_class}"
    )


def _as_namesake(config: Config, known_class: str, classes: Classes) -> str | None:
    """Return a sentence if the declared class was replaced by the model_type's class, else None."""
    declared = config.architectures[0] if config.architectures else known_class
    if declared == known_class or classes.current(declared) == known_class:
        return None
    stated, having = _stated(config, classes), classes.types(declared)
    if not (stated and having) or _namesake(declared, stated, classes) != known_class:
        return None
    of = " or ".join(having)
    return (
        f"architectures names {declared}, which is {of}, model_type is {quoted(stated)}: AutoModel "
        f"and its kin build {known_class}"
    )


AS_TAKES = "; --as takes "  # before the classes of the declared type


def _unknown(config: Config, wanted: str | None, classes: Classes) -> str:
    stated = config.model_type
    if not (wanted or stated):
        return "the config names neither architectures nor a model_type; --as names the class"
    what = [f"architecture {quoted(wanted)}"] if wanted else []
    siblings = classes.siblings(stated or "")
    if stated:
        similar = "" if siblings else meant(stated, FILES)
        what.append(f"model_type {quoted(stated)}{similar}")
    hint = f"{AS_TAKES}{', '.join(siblings)}" if siblings else ""
    return f"{classes.unknown} {', '.join(what)}{hint}"


_LONGEST = 256  # most characters of a reference: "org/name--modeling_file.ClassName"


def custom_class(config: Config, requested: str | None) -> str | None:
    """Return the class that trust_remote_code=True imports from the repository, else None.

    `requested` is the class or auto class that the loader requests. If auto_map lacks it,
    AutoModel's entry is used, else the first entry; architectures does not matter.
    """
    auto_map = config.values.get("auto_map")
    if not isinstance(auto_map, Mapping):
        return None
    models = dict(_models(auto_map))
    if requested is not None and is_auto(requested):
        return models.get(requested)
    named = (reference for reference in models.values() if reference.endswith(f".{requested}"))
    others = iter((*named, *filter(None, (models.get(AUTO_MODEL), *models.values()))))
    return next(others, None)


def _models(auto_map: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for auto, reference in auto_map.items():
        if is_auto(auto) and isinstance(reference, str) and 0 < len(reference) <= _LONGEST:
            yield auto, reference

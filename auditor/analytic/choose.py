"""Which class an audit is for, and which one the config declares."""

from typing import NamedTuple, Protocol

from auditor.analytic.config import Config
from auditor.containers.words import named, quoted
from auditor.errors import CheckpointError, Reason

_SHOWN = 5  # names that a note shows


class Classes(Protocol):
    """The classes that a source of expectations knows, as `catalogue` says which it knows."""

    unknown: str  # "no closed form is known for"

    def types(self, name: str, /) -> tuple[str, ...]: ...

    def siblings(self, model_type: str, /) -> tuple[str, ...]: ...

    def base_class(self, model_type: str, /) -> str: ...

    def current(self, name: str, /) -> str: ...

    def current_type(self, model_type: str, /) -> str: ...


class Choice(NamedTuple):
    """The target class, and the class whose checkpoint this claims to be."""

    target: str
    declared: str
    model_type: str  # the family of both
    notes: tuple[str, ...]  # decisions that the reader should know of


class Refusal(NamedTuple):
    """Why there is no class to audit for."""

    reason: Reason
    detail: str


def choose(config: Config, target: str | None, classes: Classes) -> Choice | Refusal:
    """The class is config.architectures[0], or `target` where the caller has one.

    A config without architectures stands for its family's base class. Raises CheckpointError
    where the config contradicts itself.
    """
    declared = config.architectures[0] if config.architectures else None
    model_type = _family(config, declared, classes)
    of = classes.types(target) if target is not None else ()
    wanted = declared if target is None else target
    if model_type is None or (wanted is not None and not classes.types(wanted)):
        return Refusal(Reason.UNKNOWN_ARCHITECTURE, _unknown(config, wanted, classes))
    if target is not None and model_type not in of:
        detail = f"{target} is of the family {' and '.join(of)}, the checkpoint {model_type}"
        return Refusal(Reason.OTHER_FAMILY, detail)
    known = declared is not None and classes.types(declared)
    own = classes.current(declared if declared and known else classes.base_class(model_type))
    return Choice(
        classes.current(target) if target else own,
        own,
        model_type,
        tuple(_notes(config, own, classes)),
    )


def _family(config: Config, declared: str | None, classes: Classes) -> str | None:
    """The family of the declared class, else of model_type; None if neither is known."""
    stated = None if config.model_type is None else classes.current_type(config.model_type)
    having = classes.types(declared) if declared is not None else ()
    if having:
        if stated is not None and stated not in having:
            raise CheckpointError(
                f"architectures names {declared}, which is {' or '.join(having)}, "
                f"but model_type says {quoted(config.model_type or '')}"
            )
        return stated or having[0]
    return stated if stated is not None and classes.siblings(stated) else None


def _notes(config: Config, known: str, classes: Classes) -> list[str]:
    notes = []
    if not config.architectures:
        notes.append(f"the config names no architectures: taken as {known}")
    elif config.architectures[0] != known:
        declared = config.architectures[0]
        old = classes.current(declared) == known
        what = "is an older name" if old else "is not known here: taken as a checkpoint"
        notes.append(f"{quoted(declared)} {what} of {known}")
    if len(config.architectures) > 1:
        names = ", ".join(map(named, config.architectures[:_SHOWN]))
        more = ", ..." if len(config.architectures) > _SHOWN else ""
        notes.append(f"of the architectures {names}{more} the first counts")
    return notes


def _unknown(config: Config, wanted: str | None, classes: Classes) -> str:
    what = f"architecture {quoted(wanted)}" if wanted else "no architectures"
    family = f"model_type {quoted(config.model_type)}" if config.model_type else "no model_type"
    siblings = classes.siblings(config.model_type or "")
    hint = f"; --as takes {', '.join(siblings)}" if siblings else ""
    return f"{classes.unknown} {what}, {family}{hint}"

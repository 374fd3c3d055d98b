"""An answer of the oracle as JSON, and back: what a file or another process wrote may be broken."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, Memory, Operation, Rule
from auditor.oracle.build import summed_expectation


def to_json(found: Expectation) -> dict[str, Any]:
    """What `from_json` makes the same expectation of."""
    loading, memory = found.loading, found.loading.memory or Memory({})
    return {
        "model_type": found.model_type,
        "prefix": found.prefix,
        "tensors": found.tensors,
        "rules": [loading.renames, loading.legacy, loading.converters],
        "patterns": [loading.silent, loading.buffers, loading.unmissed, loading.taken],
        "kept": sorted(loading.kept),
        "memory": [dict(memory.shapes), memory.ties, sorted(memory.unset)],
        "reports": loading.reports,
    }


def from_json(answer: object, target: str, library: str) -> Expectation | None:
    """The expectation that an answer is; None: it is not one."""
    if not isinstance(answer, Mapping):
        return None
    try:
        return summed_expectation(
            target,
            model_type=_text(answer["model_type"]),
            prefix=_text(answer["prefix"]),
            tensors=tuple(_tensor(*row) for row in answer["tensors"]),
            loading=_loading(answer),
            library=library,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(map(_text, values))


def _tensor(
    name: str, shape: list[int], elements: int, role: str, to: str | None
) -> ExpectedTensor:
    return ExpectedTensor(name, tuple(shape), elements, Role(role), to)


def _loading(answer: Mapping[str, Any]) -> Loading:
    renames, legacy, converters = (tuple(_rule(*row) for row in rows) for rows in answer["rules"])
    silent, buffers, unmissed, taken = map(_texts, answer["patterns"])
    shapes, ties, unset = answer["memory"]
    return Loading(
        renames=renames,
        legacy=legacy,
        converters=converters,
        silent=silent,
        buffers=buffers,
        unmissed=unmissed,
        taken=taken,
        kept=frozenset(_texts(answer["kept"])),
        memory=Memory(
            shapes=MappingProxyType({name: tuple(shape) for name, shape in shapes.items()}),
            ties=tuple((_text(name), _text(source)) for name, source in ties),
            unset=frozenset(_texts(unset)),
        ),
        reports=answer["reports"] is True,
    )


def _rule(  # noqa: PLR0913, PLR0917 - as a Rule has them
    sources: list[str],
    targets: list[str],
    prefixes: list[str],
    operations: list[list[Any]],
    paired: bool,  # noqa: FBT001 - likewise
    offset: int,
) -> Rule:
    steps = tuple(_operation(*each) for each in operations)
    return Rule(_texts(sources), _texts(targets), _texts(prefixes), steps, paired, offset)


def _operation(name: str, axes: list[int], number: int | None, only: list[str] | None) -> Operation:
    return Operation(_text(name), tuple(axes), number, None if only is None else _texts(only))

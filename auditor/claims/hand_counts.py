"""Tables that help to count parameters by hand: by tensor, kind, class, and config key."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from auditor.analytic import Config, Expectation, Role
from auditor.analytic.config_classes import of_model_type
from auditor.claims.cells import CellKind, FoldedTensor, total_of
from auditor.claims.parts import is_attention, is_embedding, is_feed_forward, is_head, is_pooler
from auditor.claims.subject import Subject

_OF_EVERY_CONFIG = frozenset({"architectures", "model_type", "transformers_version", "auto_map"})


class CountTable(Struct, frozen=True, kw_only=True):
    """A table of names and numbers; None is an empty cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]


def tensor_table(expectation: Expectation) -> CountTable:
    """Return a row for each tensor that the config implies, in the order of the model."""
    rows = []
    for tensor in expectation.tensors:
        if tensor.role.optional:
            continue
        counted = tensor.elements if tensor.role is Role.PARAMETER else 0
        rows.append(
            (tensor.name, " x ".join(map(str, tensor.shape)), counted, tensor.tied_to or "")
        )
    total = ("total", "", expectation.parameters, "")
    columns = ("tensor", "shape", "parameters", "tied to")
    return CountTable(title="tensors", columns=columns, rows=(*rows, total))


def kind_table(subject: Subject) -> CountTable:
    """Return the parameters of each kind of tensor, in one layer and in the model."""
    of_layer: dict[str, int] = {}
    every: dict[str, int] = {}
    for cell in subject.own.cells:
        kind = _kind(cell, subject.own.prefix)
        every[kind] = every.get(kind, 0) + cell.count()
        if cell.axes and cell.axes[0].kind == 0:
            of_layer[kind] = of_layer.get(kind, 0) + cell.count(1)
    rows = [(kind, of_layer.get(kind), every[kind]) for kind in _KINDS if every.get(kind)]
    total = total_of(subject.own.cells)
    last = ("total", sum(of_layer.values()) if of_layer else None, total)
    trained = total_of(cell for cell in subject.own.cells if not cell.is_frozen)
    trainable = ("trainable", None, trained)
    return CountTable(
        title="kinds",
        columns=("kind", "one layer", "all"),
        rows=(*rows, last, trainable),
    )


_KINDS = (
    "embeddings",
    "attention",
    "feed forward",
    "normalisation",
    "biases",
    "pooler",
    "head",
    "others",
)


def _kind(cell: FoldedTensor, prefix: str) -> str:
    """Return the kind of a tensor; all tensors of a head are "head", of a pooler "pooler"."""
    kinds = (
        ("pooler", is_pooler(cell)),
        ("head", is_head(cell, prefix)),
        ("normalisation", cell.kind is CellKind.NORM),
        ("biases", cell.kind is CellKind.BIAS),
        ("embeddings", is_embedding(cell)),
        ("attention", is_attention(cell)),
        ("feed forward", is_feed_forward(cell)),
    )
    return next((kind for kind, is_so in kinds if is_so), "others")


def class_table(subject: Subject) -> CountTable:
    """Return the parameters of each class of the family."""
    own = total_of(subject.own.cells)
    rows = [
        (each.target, total, total - own)
        for each in (subject.own, *subject.siblings)
        for total in (total_of(each.cells),)
    ]
    columns = ("class", "parameters", f"beside {subject.own.target}")
    return CountTable(title="classes", columns=columns, rows=tuple(rows))


def key_table(subject: Subject) -> CountTable:
    """Return the config keys, and whether a count depends on them."""
    config = subject.config
    rows = tuple(_keys(subject, config)) if config is not None else ()
    return CountTable(title="keys", columns=("key", "value", "effect"), rows=rows)


def _keys(subject: Subject, config: Config) -> Iterator[tuple[str, str, str]]:
    declaration = of_model_type(config.model_type or "")
    names: Mapping[str, Any] = declaration.fields if declaration else {}
    aliases = declaration.attribute_map if declaration else {}
    sizes = {**subject.sizes, **dict(subject.flags()), **subject.defaults()}
    for key, value in config.values.items():
        if key in _OF_EVERY_CONFIG or isinstance(value, Mapping):
            continue
        own = aliases.get(key, key)
        if own in sizes or type(value) is int:
            effect = "changes the count" if _changes(subject, own, value) else "changes no count"
            if names and own not in names and effect == "changes no count":
                effect = "is not read"
        else:
            effect = "is not read" if names and own not in names else "changes no count"
        yield key, str(value), effect
    for key, value in sizes.items():
        if key not in config.values and "." not in key and key not in aliases.values():
            effect = "changes the count" if _changes(subject, key, value) else "changes no count"
            yield key, f"{value} (default)", effect


def _changes(subject: Subject, key: str, value: object) -> bool:
    """Return whether another value of the key changes the count or cannot be built."""
    if isinstance(value, bool):
        changed = subject.with_value(key, not value)
    elif isinstance(value, int):
        changed = subject.with_value(key, value * 2)
    else:
        return False
    return changed is None or total_of(changed.cells) != total_of(subject.own.cells)

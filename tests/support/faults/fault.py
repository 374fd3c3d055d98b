"""One planted fault, and what a diagnosis has to say of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.tensors import StoredTensor


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planted fault, and what a diagnosis has to say of it."""

    name: str
    snapshot: Snapshot
    cause: str
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def tensors_of(snapshot: Snapshot) -> list[StoredTensor]:
    return [tensor for head in snapshot.headers for tensor in head.parsed.tensors]


def rewritten(
    snapshot: Snapshot, change: Callable[[StoredTensor], Iterable[StoredTensor]]
) -> Snapshot:
    """The files with other tensors in the place of each; written apart from what is tested."""
    heads = []
    for head in snapshot.headers:
        tensors = [one for tensor in head.parsed.tensors for one in change(tensor)]
        tensors.sort(key=lambda one: one.name)
        heads.append(replace(head, known=replace(head.parsed, tensors=tuple(tensors))))
    return replace(snapshot, headers=tuple(heads))


def of_shape(tensor: StoredTensor, *shape: int, name: str | None = None) -> StoredTensor:
    return tensor._replace(name=name or tensor.name, shape=shape, elements=prod(shape))

"""One planted fault, and what a diagnosis has to say of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.report import Diagnosis
from auditor.tensors import StoredTensor


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planted fault, and what a diagnosis has to say of it."""

    name: str
    snapshot: Snapshot
    cause: str
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def is_read(self, diagnoses: Iterable[Diagnosis]) -> bool:
        """Whether the fields are stated, or the choices that shapes leave have them among them."""
        stated, choices = {}, [{}]
        for one in diagnoses:
            stated |= {key: (declared, held) for key, declared, held in one.fields}
            said = dict(one.undetermined)
            choices = [
                {key: (said[key], held) for key, held in values.items() if held != said[key]}
                for values in one.alternatives
            ] or choices
        return not self.fields or any({**stated, **one} == self.fields for one in choices)


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

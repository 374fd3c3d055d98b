"""The names under which custom code stores the tensors of a class of transformers."""

import re
from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic import Expectation
from auditor.analytic.expectation import ExpectedTensor, summed_expectation
from auditor.analytic.loading import Loading


class OwnNames(NamedTuple):
    """The names of a class's tensors in the files of custom code."""

    pairs: tuple[
        tuple[str, str], ...
    ]  # (pattern in transformers' name, what replaces it), in order
    transposed: frozenset[str] = frozenset()
    buffers: tuple[str, ...] = ()  # patterns of tensors that are not learned
    batched: frozenset[str] = frozenset()  # names with a leading dimension of 1
    splits: Mapping[str, Mapping[str, int]] = MappingProxyType({})  # name -> parts of its rows
    adapters: tuple[int, int] | None = None  # number and rank of the LoRA of each matrix

    def of(self, expectation: Expectation) -> Expectation:
        """Return the tensors as the code stores them; those that lead to one name are joined."""
        tensors: dict[str, ExpectedTensor] = {}
        for one in expectation.tensors:
            name = self._name(one.name)
            shape = one.shape[::-1] if name in self.transposed else one.shape
            if name in tensors:
                shape = (tensors[name].shape[0] + shape[0], *shape[1:])
            elif name in self.batched:
                shape = (1, *shape)
            source = self._name(one.tied_to) if one.tied_to else None
            tensors[name] = ExpectedTensor(name, shape, prod(shape), one.role, source)
        return summed_expectation(
            expectation.target,
            model_type=expectation.model_type,
            prefix="",
            tensors=tuple(part for one in tensors.values() for part in self._parts(one)),
            loading=Loading(buffers=self.buffers),
            library=expectation.library,
            by=expectation.by,
        )

    def _parts(self, whole: ExpectedTensor) -> Iterator[ExpectedTensor]:
        """Yield the tensors in which the code stores a tensor of transformers."""
        name, (rows, *rest) = whole.name, whole.shape
        shapes: dict[str, tuple[int, ...]] = {name: whole.shape}
        if name in self.splits:
            unit = rows // sum(self.splits[name].values())
            shapes = {part: (unit * share, *rest) for part, share in self.splits[name].items()}
        elif self.adapters is not None and rest:  # torch's parametrizations, and jina's LoRA
            count, rank = self.adapters
            before, after = (rows, rank), (rank, rest[0])
            if ".embeddings." not in name:
                before, after = after, before
            module = f"{name.removesuffix('.weight')}.parametrizations.weight"
            shapes = {
                f"{module}.original": whole.shape,
                f"{module}.0.lora_A": (count, *before),
                f"{module}.0.lora_B": (count, *after),
            }
        for part, shape in shapes.items():
            yield whole._replace(name=part, shape=shape, elements=prod(shape))

    def _name(self, name: str) -> str:
        for pattern, replacement in self.pairs:
            name = re.sub(pattern, replacement, name)
        return name

"""The base model of an adapter: its modules by in-memory name, with their layer types."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from auditor.analytic.blocks import Layer, Module, Param, walk
from auditor.analytic.conversions import converted_groups, tensors_before_conversion
from auditor.analytic.expectation import Expectation, ExpectedTensor, Role

# A tensor that transformers 5 fuses in memory -> an expert's tensors on disk, in order.
_FUSED = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
_PLACES = re.compile("position|relative|wpe")  # in names of position embeddings
_CONVOLUTION = 3  # the fewest axes of a convolution's weight


class Size(NamedTuple):
    """The numbers of inputs and outputs of a layer and, for a convolution, its kernel."""

    inputs: int
    outputs: int
    kernel: tuple[int, ...] = ()


class AdaptedModule(NamedTuple):
    """A module that has tensors of its own."""

    path: str
    tensors: Mapping[str, ExpectedTensor]  # by the last segment of the name
    layer: Layer | None  # the layer type that owns the `weight`

    @property
    def bias(self) -> ExpectedTensor | None:
        return self.tensors.get("bias")

    @property
    def last(self) -> str:
        return self.path.rpartition(".")[2]

    def size(self) -> Size | None:
        """Return the size of an embedding, linear or convolution; None for other layers."""
        weight = self.tensors.get("weight")
        if weight is None or self.layer is Layer.ODD or weight.role is Role.BUFFER:
            return None
        match weight.shape:
            case (first, second) if self.layer in {Layer.EMBEDDING, Layer.CONV1D}:
                return Size(first, second)
            case (outputs, inputs):
                return Size(inputs, outputs)
            case (outputs, inputs, *kernel) if len(kernel) >= _CONVOLUTION - 2:
                # One input for each filter: probably a convolution in groups.
                grouped = inputs == 1 and outputs > 1
                return None if grouped else Size(inputs, outputs, tuple(kernel))
        return None

    @property
    def is_linear(self) -> bool:
        size = self.size()
        return size is not None and not size.kernel and self.layer is not Layer.EMBEDDING


class AdaptedModel(Struct, frozen=True, dict=True):
    """A base model, with the in-memory names that some versions of transformers use."""

    expectation: Expectation
    parts: Mapping[str, AdaptedModule]  # by path, in the model's order
    certain: bool  # whether layer types are known, not guessed from names
    in_memory: bool = True  # whether the names are those in memory, not those on disk

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of all modules, including modules without tensors of their own."""
        paths_in_order: dict[str, None] = {}
        for path in self.parts:
            steps = path.split(".")
            paths_in_order.update(
                dict.fromkeys(".".join(steps[: n + 1]) for n in range(len(steps)))
            )
        return tuple(path for path in paths_in_order if path)

    def under(self, path: str) -> Iterator[AdaptedModule]:
        """Yield the module at the path and the modules below it."""
        below = f"{path}."
        return (part for name, part in self.parts.items() if name == path or name.startswith(below))

    def tied_to(self, part: AdaptedModule) -> tuple[AdaptedModule, ...]:
        """Return the modules whose weight is tied to the weight of `part`."""
        source = part.tensors["weight"].name
        return tuple(
            other
            for other in self.parts.values()
            if "weight" in other.tensors and other.tensors["weight"].tied_to == source
        )

    @cached_property
    def embeddings(self) -> tuple[AdaptedModule, ...]:
        """The word embedding and the modules with the same number of rows: resized together."""
        tables = (
            part.tensors["weight"].shape[0]
            for part in self.parts.values()
            if part.layer is Layer.EMBEDDING and not _PLACES.search(part.last)
        )
        words = next(tables, 0)  # the first table; token types come after it
        return tuple(
            part
            for part in self.parts.values()
            if (weight := part.tensors.get("weight")) is not None
            and len(weight.shape) == 2  # noqa: PLR2004 - (words, width)
            and weight.shape[0] == words
        )


def base_model_forms(expectation: Expectation, tree: Module | None) -> tuple[AdaptedModel, ...]:
    """Return the base with its names in memory, once with fused experts and once without.

    `tree` is the closed form. If it is None, layer types are guessed from names, and the base with
    its names on disk is returned too, because it is not known which names PEFT translates.
    """
    layers = None if tree is None else _layers(tree)
    models: dict[tuple[str, ...], AdaptedModel] = {}
    for renamed in (True,) if tree is not None else (True, False):
        parts = _parts(expectation, layers, renamed=renamed)
        for form in (parts, with_fused_experts(parts)):
            by_path = {part.path: part for part in form}
            base = AdaptedModel(expectation, by_path, tree is not None, in_memory=renamed)
            models.setdefault(tuple(base.parts), base)
    return tuple(models.values())


def _parts(
    expectation: Expectation, layers: Mapping[str, Layer] | None, *, renamed: bool
) -> tuple[AdaptedModule, ...]:
    by_path: dict[str, dict[str, ExpectedTensor]] = {}
    kinds: dict[str, Layer | None] = {}
    tensors = [tensor for tensor in expectation.tensors if tensor.role is not Role.EXTRA]
    names = [tensor.name for tensor in tensors]
    names = expectation.loading.renamed(names) if renamed else names
    parts_by_name = _parts_by_name(expectation) if renamed else {}
    for tensor, name in zip(tensors, names, strict=True):
        parts = {one.name: one for one in parts_by_name.get(tensor.name, ())} or {name: tensor}
        for part_name, part in parts.items():
            path, _, last = part_name.rpartition(".")
            by_path.setdefault(path, {})[last] = part
            if last == "weight":
                kinds[path] = _layer(tensor, layers)
    return tuple(AdaptedModule(path, tensors, kinds.get(path)) for path, tensors in by_path.items())


def _parts_by_name(expectation: Expectation) -> dict[str, tuple[ExpectedTensor, ...]]:
    """Return the tensors in memory of each stored tensor that loading splits, by name on disk."""
    rules = expectation.loading.converters
    if not any(len(rule.sources) == 1 < len(rule.targets) for rule in rules):
        return {}
    groups = converted_groups(tensors_before_conversion(expectation), expectation.loading)
    return {
        group.on_disk[0].name: group.tensors
        for group in groups.values()
        if len(group.on_disk) == 1 < len(group.in_memory)
    }


def _layers(tree: Module) -> dict[str, Layer]:
    """Return the layer type of each weight whose shape does not show the type."""
    typed = ((one, one.block.layer) for one in walk(tree) if isinstance(one.block, Param))
    return {name: layer for tensor, layer in typed if layer is not None for name in tensor.names}


def _layer(weight: ExpectedTensor, layers: Mapping[str, Layer] | None) -> Layer | None:
    """Return the layer type of a weight; None if neither tree nor name shows the type."""
    layer = None if layers is None else layers.get(weight.name)
    by_name = layers is None or weight.role is Role.TIED
    return Layer.EMBEDDING if by_name and _named_as_table(weight) else layer


def _named_as_table(weight: ExpectedTensor) -> bool:
    last = weight.name.split(".")[-2:][0].lower()
    words = last.startswith("embed") and last != "embed_out"
    return words or last.endswith(("embedding", "embeddings")) or last in {"wte", "wpe", "shared"}


def with_fused_experts(parts: tuple[AdaptedModule, ...]) -> tuple[AdaptedModule, ...]:
    """Return the modules, with the experts of each layer fused into tensors (E, out, in)."""
    fused_parts: list[AdaptedModule] = []
    for path, group in groupby(parts, lambda part: part.path.partition(".experts.")[0]):
        members = tuple(group)
        experts = [part for part in members if part.path.startswith(f"{path}.experts.")]
        merged = dict(_merged(path, experts)) if experts else {}
        if not merged:
            fused_parts.extend(members)
            continue
        fused_parts.extend(part for part in members if part not in experts)
        fused_parts.append(AdaptedModule(f"{path}.experts", merged, None))
    return tuple(fused_parts)


def _merged(path: str, experts: Iterable[AdaptedModule]) -> Iterator[tuple[str, ExpectedTensor]]:
    by_last: dict[str, list[ExpectedTensor]] = {}
    for part in experts:
        if "weight" in part.tensors and part.path.count(".") == path.count(".") + 3:
            by_last.setdefault(part.last, []).append(part.tensors["weight"])
    for name, styles in _FUSED.items():
        for style in styles:
            parts = [by_last[last] for last in style if last in by_last]
            if len(parts) == len(style):
                (outputs, inputs), count = parts[0][0].shape, len(parts[0])
                shape = (count, outputs * len(style), inputs)
                elements = sum(tensor.elements for tensors in parts for tensor in tensors)
                yield name, ExpectedTensor(f"{path}.experts.{name}", shape, elements)


def name_ends_in(path: str, ends: frozenset[str]) -> bool:
    """Return whether `ends` contains one of the path's `suffixes`."""
    return not ends.isdisjoint(suffixes(path))


def suffixes(name: str) -> tuple[str, ...]:
    """Return `a.b.c`, `b.c` and `c` for `a.b.c`; settings choose a module by any of these."""
    parts = name.split(".")
    return tuple(".".join(parts[first:]) for first in range(len(parts)))

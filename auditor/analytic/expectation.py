"""The Expectation class: the tensors that a config implies for one class, and their source."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import repeat
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from auditor.analytic.config_classes.faults import ConfigFault
from auditor.analytic.loading import PLAIN, Loading
from auditor.names.parts import modules_above
from auditor.tensors import Depth


class Role(StrEnum):
    """The role of an expected tensor in the model."""

    PARAMETER = "parameter"  # learned, and stored by save_pretrained
    BUFFER = "buffer"  # not learned, but stored by save_pretrained: running_mean
    LEGACY = "legacy"  # not learned, stored by some versions, never required: position_ids
    EXTRA = "extra"  # learned, not read by any class, never required: layers for drafting
    TIED = "tied"  # shares the values of `tied_to`; save_pretrained does not store it

    @property
    def learned(self) -> bool:
        return self not in _NOT_LEARNED

    @property
    def optional(self) -> bool:
        """Whether a checkpoint may lack the tensor without a finding."""
        return self in _OPTIONAL


_NOT_LEARNED = frozenset({Role.BUFFER, Role.LEGACY})
_OPTIONAL = frozenset({Role.LEGACY, Role.EXTRA})


class ExpectedTensor(NamedTuple):
    """A tensor that the config implies, named and shaped as on disk."""

    name: str
    shape: tuple[int, ...]
    elements: int  # the product of the shape
    role: Role = Role.PARAMETER
    tied_to: str | None = None  # only for Role.TIED


def _is_parameter(tensor: ExpectedTensor) -> bool:
    return tensor.role is Role.PARAMETER


def shapes_of_parameters(tensors: Iterable[ExpectedTensor]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters, by name."""
    return {tensor.name: tensor.shape for tensor in tensors if _is_parameter(tensor)}


class ModuleFormula(NamedTuple):
    """The number of parameters of one module, without tied tensors, and its formula."""

    parameters: int
    formula: str


class Outline(NamedTuple):
    """The expected tensors and modules, with equal layers listed once under a folded name.

    A folded name stands for several layers: `layers.{0-2}`.
    """

    tensors: tuple[ExpectedTensor, ...]  # a tied tensor has no shape here
    modules: Mapping[str, ModuleFormula]  # the parameters of a single one of the folded modules


class Lookup(Protocol):
    """A lookup of tensors by name."""

    def get(self, name: str, /) -> ExpectedTensor | None: ...
    def tensors(self, names: Iterable[str], /) -> dict[str, ExpectedTensor]:
        """Return the tensors with these names; a name without a tensor is left out."""


Names = Lookup | Mapping[str, ExpectedTensor]


class Listed(Protocol):
    """A listing of the expected tensors and modules of a model, expanded on use."""

    @property
    def tensors(self) -> tuple[ExpectedTensor, ...]: ...
    @property
    def names(self) -> Names: ...
    @property
    def modules(self) -> Mapping[str, ModuleFormula]: ...
    def modules_to(self, depth: Depth | None, /) -> Mapping[str, ModuleFormula]:
        """Return the modules that `depth` selects; all modules if `depth` is None."""

    @property
    def learned(self) -> int:
        """The number of tensors that are parameters."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the parameters, by name; computed on each access."""

    def shapes_of(
        self, names: Iterable[str], otherwise: tuple[int, ...], /
    ) -> Iterator[tuple[int, ...]]:
        """Yield the shape of each named parameter; `otherwise` if no parameter has the name."""

    @property
    def others(self) -> tuple[ExpectedTensor, ...]:
        """The tensors that are not parameters, in the model's order."""

    @property
    def in_order(self) -> bool:
        """Whether the modules are in natural order of their names."""

    @property
    def outline(self) -> Outline | None:
        """The tensors and modules with equal layers folded; None if equal layers are unknown."""


class Written(Struct, frozen=True, kw_only=True, dict=True):
    """A listing as plain lists of tensors and modules; equal layers are not grouped."""

    tensors: tuple[ExpectedTensor, ...]
    modules: Mapping[str, ModuleFormula]

    @property
    def names(self) -> Mapping[str, ExpectedTensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    def modules_to(self, depth: Depth | None) -> Mapping[str, ModuleFormula]:
        if depth is None:
            return self.modules
        return {name: of for name, of in self.modules.items() if depth.lists(name)}

    @property
    def learned(self) -> int:
        return len(self.tensors) - len(self.others)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return shapes_of_parameters(self.tensors)

    def shapes_of(
        self, names: Iterable[str], otherwise: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        return map(self.shapes.get, names, repeat(otherwise))

    @cached_property
    def others(self) -> tuple[ExpectedTensor, ...]:
        return tuple(tensor for tensor in self.tensors if not _is_parameter(tensor))

    @property
    def in_order(self) -> bool:
        return False

    @property
    def outline(self) -> None:
        return None


class Symbol(NamedTuple):
    """A letter of a formula. It is a NamedTuple because formulas hash letters often."""

    letter: str  # V, D, L, T, N, F, H, K, E, C, k, or D_text; the key if it has no usual letter
    key: str  # the config key that it stands for, e.g. "hidden_size", "text_config.hidden_size"
    value: int
    default: bool  # the config leaves the key out: the value is the config class's default
    formula: str | None = None  # e.g. "4*D" if formulas print F as a multiple of D


class Expectation(Struct, frozen=True, kw_only=True, dict=True):
    """The tensors, modules and formula that a config implies for one target class.

    `parameters` is the value of the formula, not the sum over `tensors`. Law 1 tests that both are
    equal, and the reconciler reports their difference as an error.
    """

    target: str  # e.g. "BertForMaskedLM"
    model_type: str  # e.g. "bert"
    prefix: str  # base_model_prefix, e.g. "bert"; "" if the family has none
    by: Literal["closed-form", "generated", "oracle"]
    # of the oracle, or of a generated form with how it was held: "transformers 5.23.0"
    library: str | None = None
    listed: Listed
    parameters: int  # tied parameters counted once
    formula: str
    legend: tuple[Symbol, ...]  # the formula's letters in its order, then those it replaces
    active: ModuleFormula | None = None  # the parameters that one token uses, if experts are mixed
    loading: Loading = PLAIN  # the loading rules of the class
    defaults: tuple[str, ...] = ()  # keys that the config leaves to the class's defaults
    faults: tuple[ConfigFault, ...] = ()  # why transformers cannot build it, with known shapes

    @property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """The tensors of every role, in the model's order."""
        return self.listed.tensors

    @property
    def modules(self) -> Mapping[str, ModuleFormula]:
        """The modules by prefix; "" is the complete model."""
        return self.listed.modules

    def modules_to(self, depth: Depth | None) -> Mapping[str, ModuleFormula]:
        """Return the modules that `depth` lists, all modules if it is None."""
        return self.listed.modules_to(depth)

    @property
    def outline(self) -> Outline | None:
        """The tensors and modules with equal layers folded; None if equal layers are unknown."""
        return self.listed.outline

    @cached_property
    def renamed(self) -> Names:
        """The tensors, keyed by their names after the class's own renames."""
        if not self.loading.renames:
            return self.listed.names
        names = {tensor.name: tensor for tensor in self.tensors}
        return dict(zip(self.loading.renamed(names), names.values(), strict=True))

    @property
    def needed(self) -> tuple[ExpectedTensor, ...]:
        """The tensors that are not optional."""
        return tuple(tensor for tensor in self.tensors if tensor.role not in _OPTIONAL)

    def loaded_of(self, tensors: Iterable[ExpectedTensor]) -> tuple[ExpectedTensor, ...]:
        """Return the given tensors that the class loads, including its legacy buffers."""
        takes = self.loading.takes
        return tuple(
            one
            for one in tensors
            if one.role not in _OPTIONAL or (one.role is Role.LEGACY and takes(one.name))
        )


def summed_expectation(  # noqa: PLR0913 - the parts of an answer, and whose it is
    target: str,
    *,
    model_type: str,
    prefix: str,
    tensors: tuple[ExpectedTensor, ...],
    loading: Loading,
    library: str | None = None,
    by: Literal["closed-form", "generated", "oracle"] = "oracle",
) -> Expectation:
    """Return an expectation of these tensors, with the number of parameters of each module."""
    counts = parameters_by_module(tensors)
    modules = {prefix: ModuleFormula(count, str(count)) for prefix, count in counts.items()}
    return Expectation(
        target=target,
        model_type=model_type,
        prefix=prefix,
        by=by,
        library=library,
        listed=Written(tensors=tensors, modules=MappingProxyType(modules)),
        parameters=counts[""],
        formula=str(counts[""]),
        legend=(),
        loading=loading,
    )


def parameters_by_module(tensors: Iterable[ExpectedTensor]) -> dict[str, int]:
    """Count the parameters below each prefix with required tensors; "" is the complete model."""
    own: defaultdict[str, int] = defaultdict(int)  # of tensors directly in a module
    for tensor in tensors:
        if not tensor.role.optional:
            count = tensor.elements if tensor.role is Role.PARAMETER else 0
            own[tensor.name.rpartition(".")[0]] += count
    counts: defaultdict[str, int] = defaultdict(int, {"": 0})
    for module, count in own.items():
        counts[module] += count
        for prefix in modules_above(module) if module else ():
            counts[prefix] += count
    return dict(counts)

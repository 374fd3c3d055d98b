"""Layers that are listed once, to be written out under their numbers or under one name for all."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.expectation import ExpectedTensor, ModuleFormula, Role
from auditor.folded_names import escaped_name, numbered
from auditor.tensors import Depth, naturally_sorted

_MOST_REPEATED = 2048  # tensors and modules of all layers that are kept; Llama-2-70B has 1,760

# The constructor without its frame of Python: 12 instead of 19 ms for 90,000.
_expected: Callable[[tuple[object, ...]], ExpectedTensor] = partial(tuple.__new__, ExpectedTensor)


class Layers(NamedTuple):
    """The tensors and modules of one list of layers."""

    name: str
    each: tuple["LayerKind", ...]  # by number; those of one kind are one object

    @property
    def few(self) -> bool:
        return sum(map(len, self.each)) <= _MOST_REPEATED

    def kinds(self) -> Iterator[tuple[str, "LayerKind"]]:
        """One name for all layers of a kind: `layers.{0-2}`."""
        places: dict[LayerKind, list[int]] = {}
        for number, kind in enumerate(self.each):
            places.setdefault(kind, []).append(number)
        for kind, numbers in places.items():
            yield f"{escaped_name(self.name)}.{numbered(numbers)}", kind


class ListedModule(NamedTuple):
    """A module of a block."""

    name: str
    formula: ModuleFormula


ListedTensors = Iterable[ExpectedTensor | Layers]
ListedModules = Iterable[ListedModule | Layers]


class LayerKind:
    """The tensors and modules of one layer, to be listed under several names."""

    def __init__(self, tensors: ListedTensors, modules: ListedModules) -> None:
        self._listed = tuple(tensors), tuple(modules)
        self._modules: dict[Depth | None, Mapping[str, ModuleFormula]] = {}

    def __len__(self) -> int:
        """Tensors and modules: a layer without tensors lists itself."""
        return len(self._columns[0]) + len(self._below(None))

    @cached_property
    def roles(self) -> frozenset[Role]:
        return roles_in(self._listed[0])

    @cached_property
    def learned(self) -> int:
        return count_learned(self._listed[0])

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return every_shape(self._listed[0])

    @cached_property
    def others(self) -> tuple[ExpectedTensor, ...]:
        return tuple(every_other(self._listed[0]))

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        """The tensors' names, and what else there is of each."""
        names, *rest = tuple(zip(*every_tensor(self._listed[0]), strict=True)) or ((),)
        return tuple(map(".".__add__, names)), rest

    def tensors(self, here: str) -> Iterator[ExpectedTensor]:
        names, rest = self._columns
        return map(_expected, zip(map(here.__add__, names), *rest, strict=True))

    def _below(self, depth: Depth | None) -> Mapping[str, ModuleFormula]:
        if depth not in self._modules:
            found = every_module(self._listed[1], depth)
            self._modules[depth] = {f".{name}" if name else "": of for name, of in found.items()}
        return self._modules[depth]

    def modules(self, here: str, depth: Depth | None) -> Iterator[tuple[str, ModuleFormula]]:
        """The modules that `depth` lists, the layer itself at depth 0; None: all of them."""
        below = self._below(depth)
        return zip(map(here.__add__, below), below.values(), strict=True)

    @cached_property
    def folded_tensors(self) -> tuple[ExpectedTensor, ...]:
        return tuple(folded_tensors(self._listed[0]))

    @cached_property
    def folded_modules(self) -> Mapping[str, ModuleFormula]:
        return folded_modules(self._listed[1])


def roles_in(listed: ListedTensors) -> frozenset[Role]:
    """The roles of the tensors, those in layers among them."""
    found: set[Role] = set()
    for one in listed:
        if isinstance(one, Layers):
            found = found.union(*(kind.roles for kind in {*one.each}))
        else:
            found.add(one.role)
    return frozenset(found)


def count_learned(listed: ListedTensors) -> int:
    """Count the learned tensors, those in layers included."""
    return sum(
        sum(kind.learned for kind in one.each)
        if isinstance(one, Layers)
        else one.role is Role.PARAMETER
        for one in listed
    )


# --- each layer under its number ----------------------------------------------------------------


def every_tensor(listed: ListedTensors) -> list[ExpectedTensor]:
    """Every tensor, in the order of the model."""
    found: list[ExpectedTensor] = []
    for one in listed:
        if isinstance(one, Layers):
            found += (_tensors if one.few else _tensors.__wrapped__)(one)
        else:
            found.append(one)
    return found


def every_shape(listed: ListedTensors) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by its name."""
    found: dict[str, tuple[int, ...]] = {}
    for one in listed:
        if isinstance(one, Layers):
            found.update((_shapes if one.few else _shapes.__wrapped__)(one))
        elif one.role is Role.PARAMETER:
            found[one.name] = one.shape
    return found


_Shape = tuple[int, ...]


def shapes_under(
    listed: ListedTensors, names: Iterable[str], otherwise: _Shape
) -> Iterator[_Shape]:
    """Yield the expected shape of each name, in order; `otherwise` where no parameter has it.

    Most names are of the same layer as the one before. So each is looked up in that layer, and no
    table of all expected names is made.
    """
    own: dict[str, _Shape] = {}
    layers: dict[str, LayerKind] = {}
    for one in listed:
        if isinstance(one, Layers):
            layers.update((f"{one.name}.{place}.", kind) for place, kind in enumerate(one.each))
        elif one.role is Role.PARAMETER:
            own[one.name] = one.shape
    deepest = max((layer.count(".") for layer in layers), default=0)
    layer, inside = _OF_NO_LAYER
    for name in names:
        rest = name.removeprefix(layer)
        if rest == name:  # the name is of another layer
            if name in own:
                yield own[name]
                continue
            layer, inside = _layer_of(name, layers, deepest)
            rest = name.removeprefix(layer)
        yield inside.get(rest, otherwise)


_OF_NO_LAYER: tuple[str, Mapping[str, _Shape]] = ("\0", MappingProxyType({}))


def _layer_of(
    name: str, layers: Mapping[str, LayerKind], deepest: int
) -> tuple[str, Mapping[str, _Shape]]:
    """The name's layer, with a dot at its end, and the shapes of its parameters."""
    end = 0
    for _ in range(deepest):
        end = name.find(".", end) + 1
        if not end:
            break
        if (layer := name[:end]) in layers:
            return layer, layers[layer].shapes
    return _OF_NO_LAYER


def every_other(listed: ListedTensors) -> Iterator[ExpectedTensor]:
    """Every tensor that is not a parameter, in the order of the model."""
    for one in listed:
        if isinstance(one, Layers):
            for number, kind in enumerate(one.each):
                for tensor in kind.others:
                    yield tensor._replace(name=f"{one.name}.{number}.{tensor.name}")
        elif one.role is not Role.PARAMETER:
            yield one


def every_module(listed: ListedModules, depth: Depth | None = None) -> dict[str, ModuleFormula]:
    """Every module that `depth` lists (None: all), in natural order of their names."""
    found: dict[str, ModuleFormula] = {}
    layers_last = sorted(listed, key=lambda one: isinstance(one, Layers))  # behind their module
    for one in naturally_sorted(layers_last, attrgetter("name")):
        if depth is not None and not depth.lists(one.name):
            continue
        if isinstance(one, Layers):
            inside = None if depth is None else depth.inside(one.name.count(".") + 2)
            if depth is None or inside is not None:
                found.update((_modules if one.few else _modules.__wrapped__)(one, inside))
        else:
            found[one.name] = one.formula
    return found


@lru_cache(maxsize=64)
def _tensors(layers: Layers) -> tuple[ExpectedTensor, ...]:
    """Models of one size have the same layers, whatever their vocabularies."""
    found: list[ExpectedTensor] = []
    for number, kind in enumerate(layers.each):
        found += kind.tensors(f"{layers.name}.{number}")
    return tuple(found)


@lru_cache(maxsize=64)
def _shapes(layers: Layers) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for number, kind in enumerate(layers.each):
        here = f"{layers.name}.{number}."
        for name, shape in kind.shapes.items():
            found[here + name] = shape
    return found


@lru_cache(maxsize=64)
def _modules(layers: Layers, depth: Depth | None) -> Mapping[str, ModuleFormula]:
    found: dict[str, ModuleFormula] = {}
    for number, kind in enumerate(layers.each):
        found.update(kind.modules(f"{layers.name}.{number}", depth))
    return found


# --- layers of one kind under one name ----------------------------------------------------------


def folded_tensors(listed: ListedTensors) -> Iterator[ExpectedTensor]:
    """Yield the tensors under folded names, with layers of one kind once."""
    for one in listed:
        if isinstance(one, Layers):
            for here, kind in one.kinds():
                for tensor in kind.folded_tensors:
                    yield tensor._replace(name=f"{here}.{tensor.name}")
        else:
            yield one._replace(name=escaped_name(one.name))


def folded_modules(listed: ListedModules) -> dict[str, ModuleFormula]:
    """Return the modules under folded names, with layers of one kind once."""
    found: dict[str, ModuleFormula] = {}
    for one in listed:
        if isinstance(one, Layers):
            for here, kind in one.kinds():
                below = kind.folded_modules.items()
                found.update((f"{here}.{name}" if name else here, of) for name, of in below)
        else:
            found[escaped_name(one.name)] = one.formula
    return found

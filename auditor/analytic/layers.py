"""Lists of equal layers, stored once and expanded to one name per layer or to a folded name.

Layers are of one kind if their tensors are equal. A folded name such as `layers.{0-2}` stands for
several layers of one kind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.expectation import ExpectedTensor, ModuleFormula, Role
from auditor.names.folding import escaped_name, number_pattern
from auditor.tensors import Depth, naturally_sorted

_MOST_REPEATED = 2048  # most tensors and modules of a list that is cached; Llama-2-70B has 1,760

# The constructor without a Python frame: 12 instead of 19 ms for 90,000 tensors.
_expected: Callable[[tuple[object, ...]], ExpectedTensor] = partial(tuple.__new__, ExpectedTensor)


class Layers(NamedTuple):
    """The tensors and modules of one list of layers."""

    name: str
    layers: tuple["LayerKind", ...]  # by number; equal layers are one object

    @property
    def few(self) -> bool:
        return sum(map(len, self.layers)) <= _MOST_REPEATED

    def kinds(self) -> Iterator[tuple[str, "LayerKind"]]:
        """Yield each kind of layer with the folded name that stands for all layers of the kind."""
        places: dict[LayerKind, list[int]] = {}
        for number, kind in enumerate(self.layers):
            places.setdefault(kind, []).append(number)
        for kind, numbers in places.items():
            yield f"{escaped_name(self.name)}.{number_pattern(numbers)}", kind


class ListedModule(NamedTuple):
    """A module of a block."""

    name: str
    formula: ModuleFormula


ListedTensors = Iterable[ExpectedTensor | Layers]
ListedModules = Iterable[ListedModule | Layers]


class LayerKind:
    """The tensors and modules that all layers of one kind have."""

    def __init__(self, tensors: ListedTensors, modules: ListedModules) -> None:
        self._listed = tuple(tensors), tuple(modules)
        self._modules: dict[Depth | None, Mapping[str, ModuleFormula]] = {}

    def __len__(self) -> int:
        """The number of tensors and modules; a layer without tensors counts as one module."""
        return len(self._columns[0]) + len(self._below(None))

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return every_shape(self._listed[0])

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        """The tensors' names, and one column (a tuple) for each other field of the tensors."""
        names, *columns = tuple(zip(*every_tensor(self._listed[0]), strict=True)) or ((),)
        return tuple(map(".".__add__, names)), columns

    def tensors(self, here: str) -> Iterator[ExpectedTensor]:
        names, columns = self._columns
        return map(_expected, zip(map(here.__add__, names), *columns, strict=True))

    def _below(self, depth: Depth | None) -> Mapping[str, ModuleFormula]:
        if depth not in self._modules:
            modules = every_module(self._listed[1], depth)
            self._modules[depth] = {f".{name}" if name else "": of for name, of in modules.items()}
        return self._modules[depth]

    def modules(self, here: str, depth: Depth | None) -> Iterator[tuple[str, ModuleFormula]]:
        """Yield the modules that `depth` selects (all if it is None), with `here` before each name.

        The layer itself is at depth 0.
        """
        below = self._below(depth)
        return zip(map(here.__add__, below), below.values(), strict=True)

    @cached_property
    def folded_modules(self) -> Mapping[str, ModuleFormula]:
        return folded_modules(self._listed[1])


# --- each layer under its number ----------------------------------------------------------------


def every_tensor(listed: ListedTensors) -> list[ExpectedTensor]:
    """Return every tensor, in the model's order."""
    tensors: list[ExpectedTensor] = []
    for item in listed:
        if isinstance(item, Layers):
            tensors += (_tensors if item.few else _tensors.__wrapped__)(item)
        else:
            tensors.append(item)
    return tensors


def every_shape(listed: ListedTensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for item in listed:
        if isinstance(item, Layers):
            shapes.update((_shapes if item.few else _shapes.__wrapped__)(item))
        elif item.role is Role.PARAMETER:
            shapes[item.name] = item.shape
    return shapes


_Shape = tuple[int, ...]


def shapes_under(
    listed: ListedTensors, names: Iterable[str], otherwise: _Shape
) -> Iterator[_Shape]:
    """Yield the expected shape of each name, in order; `otherwise` if no parameter has the name.

    Most names are in the same layer as the name before: each is looked up in that layer first,
    and no table of all expected names is built.
    """
    own: dict[str, _Shape] = {}
    layers: dict[str, LayerKind] = {}
    for item in listed:
        if isinstance(item, Layers):
            layers.update((f"{item.name}.{place}.", kind) for place, kind in enumerate(item.layers))
        elif item.role is Role.PARAMETER:
            own[item.name] = item.shape
    deepest = max((layer.count(".") for layer in layers), default=0)
    layer, inside = _NO_LAYER
    for name in names:
        inner_name = name.removeprefix(layer)
        if inner_name == name:  # the name is not in that layer
            if name in own:
                yield own[name]
                continue
            layer, inside = _layer_of(name, layers, deepest)
            inner_name = name.removeprefix(layer)
        yield inside.get(inner_name, otherwise)


_NO_LAYER: tuple[str, Mapping[str, _Shape]] = ("\0", MappingProxyType({}))


def _layer_of(
    name: str, layers: Mapping[str, LayerKind], deepest: int
) -> tuple[str, Mapping[str, _Shape]]:
    """Return the prefix of a tensor's layer, such as "layers.3.", and the layer's shapes."""
    end = 0
    for _ in range(deepest):
        end = name.find(".", end) + 1
        if not end:
            break
        if (layer := name[:end]) in layers:
            return layer, layers[layer].shapes
    return _NO_LAYER


def every_module(listed: ListedModules, depth: Depth | None = None) -> dict[str, ModuleFormula]:
    """Return the modules that `depth` selects, all if it is None, in natural order of names."""
    modules: dict[str, ModuleFormula] = {}
    layers_last = sorted(listed, key=lambda item: isinstance(item, Layers))  # behind their module
    for item in naturally_sorted(layers_last, attrgetter("name")):
        if depth is not None and not depth.lists(item.name):
            continue
        if isinstance(item, Layers):
            inside = None if depth is None else depth.inside(item.name.count(".") + 2)
            if depth is None or inside is not None:
                modules.update((_modules if item.few else _modules.__wrapped__)(item, inside))
        else:
            modules[item.name] = item.formula
    return modules


@lru_cache(maxsize=64)
def _tensors(layers: Layers) -> tuple[ExpectedTensor, ...]:
    """Return all tensors of a list of layers; cached, because many models have equal layers."""
    tensors: list[ExpectedTensor] = []
    for number, kind in enumerate(layers.layers):
        tensors += kind.tensors(f"{layers.name}.{number}")
    return tuple(tensors)


@lru_cache(maxsize=64)
def _shapes(layers: Layers) -> Mapping[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for number, kind in enumerate(layers.layers):
        here = f"{layers.name}.{number}."
        for name, shape in kind.shapes.items():
            shapes[here + name] = shape
    return shapes


@lru_cache(maxsize=64)
def _modules(layers: Layers, depth: Depth | None) -> Mapping[str, ModuleFormula]:
    modules: dict[str, ModuleFormula] = {}
    for number, kind in enumerate(layers.layers):
        modules.update(kind.modules(f"{layers.name}.{number}", depth))
    return modules


# --- layers of one kind under one name ----------------------------------------------------------


def folded_modules(listed: ListedModules) -> dict[str, ModuleFormula]:
    """Return the modules, each kind of layer only once, under folded names."""
    modules: dict[str, ModuleFormula] = {}
    for item in listed:
        if isinstance(item, Layers):
            for here, kind in item.kinds():
                below = kind.folded_modules.items()
                modules.update((f"{here}.{name}" if name else here, of) for name, of in below)
        else:
            modules[escaped_name(item.name)] = item.formula
    return modules

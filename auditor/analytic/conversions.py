"""The tensors that transformers' conversions make of stored ones: their names and shapes.

Mixtures of experts are stored a tensor an expert and held in memory as one; fused projections are
cut, some weights turned. An operation takes the shapes that were collected for each source of a
rule and gives those of its targets, as the class of its name in core_model_loading.py does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, prod
from typing import NamedTuple, Protocol

from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, Memory, Operation, Rule

Shape = tuple[int, ...]
Collected = dict[str, list[Shape] | Shape]  # a list: one for each stored tensor

ONE = 1


class ConversionError(Exception):
    """Tensors that cannot be converted: loading them raises, whatever the flags."""


class UnknownOperationError(Exception):
    """An operation that a later transformers has and this module does not."""


class Shapes(Protocol):
    """The shapes of a model's tensors, by in-memory name."""

    def __contains__(self, name: str, /) -> bool: ...

    def __getitem__(self, name: str, /) -> Shape: ...


class Conversion(NamedTuple):
    """A rule, the parameter that it is for, and the shapes that the model has."""

    rule: Rule
    name: str  # of the first target, in memory
    model: Shapes


def converted_tensors(
    conversion: Conversion, collected: Mapping[str, list[Shape]]
) -> Iterator[tuple[str, Shape]]:
    """The tensors in memory that the collected ones become; ConversionError where they cannot."""
    shapes: Collected = dict(collected)
    for operation in conversion.rule.operations:
        if operation.name not in _OPERATIONS:
            raise UnknownOperationError(operation.name)
        try:
            shapes = _OPERATIONS[operation.name](operation, shapes, conversion)
        except ConversionError as error:
            raise ConversionError(f"{operation.name}: {error}") from None
    full = conversion.name.replace("*.", "0.")
    within = next((target for target in shapes if target in full), None)
    before, _, after = full.partition(within) if within is not None else ("", "", "")
    for target, found in shapes.items():
        yield f"{before}{target}{after}", _first(found)


# --- the operations ---------------------------------------------------------------------------


def _chunk(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape, axis = _lone(shapes), operation.axes[0]
    targets = conversion.rule.targets
    if operation.number is not None and len(targets) > ONE:
        raise ConversionError("several targets for any number of parts")
    if operation.number is not None:
        targets = tuple(targets[0].replace("*", str(i)) for i in range(operation.number))
    if not targets:
        raise ConversionError("it is to be cut into no parts")
    length = _length(shape, axis)
    size = ceil(length / len(targets))
    cuts = [min(size, length - at) for at in range(0, length, size)] if size else [0] * len(targets)
    return {target: _with(shape, axis, cut) for target, cut in zip(targets, cuts, strict=False)}


def _split(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape, axis = _lone(shapes), operation.axes[0]
    first, *_ = targets = conversion.rule.targets
    wanted = [_of_model(conversion, conversion.name.replace(first, target)) for target in targets]
    sizes = [_length(each, axis) for each in wanted]
    if sum(sizes) != _length(shape, axis):
        parts = " + ".join(map(str, sizes))
        raise ConversionError(f"{shape} cannot be cut into {parts} = {sum(sizes)} at axis {axis}")
    return {target: _with(shape, axis, size) for target, size in zip(targets, sizes, strict=True)}


def _concatenate(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    if len(conversion.rule.targets) > ONE:
        raise ConversionError("several targets for one tensor")
    every: list[Shape] = []
    for source in dict.fromkeys(conversion.rule.sources):
        found = shapes.get(source, [])
        every += found if isinstance(found, list) else [found]
    return {conversion.rule.targets[0]: _joined(every, operation.axes[0])}


def _interleave(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape = _first(next(iter(shapes.values())))
    if _length(shape, operation.axes[0]) % 2 and prod(shape):
        raise ConversionError(f"{shape} is not even at axis {operation.axes[0]}")
    return {conversion.rule.targets[0]: shape}


def _merge(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    targets = conversion.rule.targets
    if len(shapes) == ONE and len(targets) > ONE:
        raise ConversionError("several targets for one list of tensors")
    merged: Collected = {}
    for source, found in shapes.items():
        shape = _stacked(found, operation.axes[0]) if isinstance(found, list) else found
        merged[targets[0] if len(shapes) == ONE else source] = shape
    return merged


def _transpose(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    rule, shape = conversion.rule, _lone(shapes)
    if len(rule.targets) > ONE and len(rule.sources) > ONE:
        raise ConversionError("several targets for several tensors")
    target = rule.sources[0] if len(rule.targets) > ONE else rule.targets[0]
    if operation.number and shape == _of_model(conversion, conversion.name):
        return {target: shape}  # it looks whether it has to
    one, other = operation.axes
    turned = list(shape or (1,))  # torch takes a number for a tensor of one axis
    _ = _length(tuple(turned), one), _length(tuple(turned), other)
    turned[one], turned[other] = turned[other], turned[one]
    return {target: tuple(turned) if shape else shape}


def _permute(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    sources, targets = conversion.rule.sources, conversion.rule.targets
    if len(sources) > ONE and len(targets) > ONE:
        raise ConversionError("several targets for several tensors")
    alone = len(sources) == len(targets) == ONE
    permuted: Collected = {}
    for source, found in shapes.items():
        if operation.only is None or any(part in source for part in operation.only):
            if isinstance(found, list) and len(found) > ONE:
                raise ConversionError(f"{len(found)} tensors for one")
            _check_heads(_first(found), operation.number)
            found = _first(found)  # noqa: PLW2901 - as it goes on
        permuted[targets[0] if alone else source] = found
    return permuted


def _check_heads(shape: Shape, heads: int | None) -> None:
    """Rows are pairs of numbers of each head; of more than two axes it turns none."""
    rows = _length(shape, 0)
    pairs = not heads or rows // heads // 2 * heads * 2 == rows or not prod(shape)
    if not heads or (len(shape) in {1, 2} and not pairs):
        raise ConversionError(f"{rows} rows are not pairs of {heads} heads")


def _fuse_experts(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    """Each list is cut into as many parts as there are targets: experts of text, of vision."""
    targets = conversion.rule.targets
    parts: dict[str, list[Shape]] = {target: [] for target in targets}
    for source in conversion.rule.sources:
        if source not in shapes:
            raise ConversionError(f"no tensor for {source}")
        found = shapes[source]
        every = found if isinstance(found, list) else [found]
        size = ceil(len(every) / len(targets))
        for place, target in enumerate(targets):
            some = every[place * size : (place + 1) * size]
            parts[target].append(_stacked(some, operation.axes[0]))
    return {target: _joined(found, operation.axes[1]) for target, found in parts.items()}


def _dequantized(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    """Weights (experts, rows, columns) beside their scales; where a maximum is, two in a byte."""
    del operation
    target, sources = conversion.rule.targets[0], conversion.rule.sources
    if len(shapes) == ONE:
        return {target: _first(next(iter(shapes.values())))}
    weight, _, amax, _ = (_first(shapes[one]) if one in shapes else None for one in sources)
    if weight is None:
        raise ConversionError(f"no tensor for {sources[0]}")
    columns = _length(weight, 2)
    return {target: (*weight[:2], columns if amax is None else 2 * columns)}


def _merged_queries(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    """Two tensors (2 * layers, width) become one (layers, 4, width)."""
    del operation
    first, *others = (_first(shapes[one]) for one in conversion.rule.sources if one in shapes)
    if others != [first]:
        raise ConversionError(f"{first} is not beside one of the same shape")
    layers, odd = divmod(_length(first, 0), 2)
    if odd:
        raise ConversionError(f"{first} is not even at axis 0")
    return {conversion.rule.targets[0]: (layers, 4, *first[1:])}


def _unpadded(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape = _first(next(iter(shapes.values())))
    rows = _length(shape, 0)
    kept = rows if operation.number is None else min(rows, operation.number)
    return {conversion.rule.targets[0]: _with(shape, 0, kept)}


_OPERATIONS: Mapping[str, Callable[[Operation, Collected, Conversion], Collected]] = {
    "Chunk": _chunk,
    "Split": _split,
    "Concatenate": _concatenate,
    "Interleave": _interleave,
    "MergeModulelist": _merge,
    "Transpose": _transpose,
    "PermuteForRope": _permute,
    "ErnieFuseAndSplitTextVisionExperts": _fuse_experts,
    "Inkling2LoopDequantizeExperts": _dequantized,
    "Inkling2LoopMergeMessageQueries": _merged_queries,
    "Inkling2UnpadVocab": _unpadded,
}
KNOWN = frozenset(_OPERATIONS)


# --- shapes, as torch has them ----------------------------------------------------------------


def _first(found: list[Shape] | Shape) -> Shape:
    return found[0] if isinstance(found, list) else found


def _lone(shapes: Collected) -> Shape:
    if len(shapes) != ONE:
        raise ConversionError(f"tensors of {len(shapes)} names, where it takes those of one")
    return _first(next(iter(shapes.values())))


def _of_model(conversion: Conversion, name: str) -> Shape:
    if name not in conversion.model:
        raise ConversionError(f"the model has no {name}")
    return conversion.model[name]


def _length(shape: Shape, axis: int) -> int:
    if not -len(shape) <= axis < len(shape):
        raise ConversionError(f"{shape} has no axis {axis}")
    return shape[axis]


def _with(shape: Shape, axis: int, length: int) -> Shape:
    changed = list(shape)
    changed[axis] = length
    return tuple(changed)


def _stacked(shapes: Sequence[Shape], axis: int) -> Shape:
    """torch.stack: as many as there are, on an axis of their own."""
    first = _alike(shapes)
    if not -len(first) - 1 <= axis <= len(first):
        raise ConversionError(f"{first} has no place for axis {axis}")
    at = axis if axis >= 0 else axis + len(first) + 1
    return (*first[:at], len(shapes), *first[at:])


def _joined(shapes: Iterable[Shape], axis: int) -> Shape:
    """torch.cat: one behind the other; an empty tensor of one axis, (0,), counts for nothing."""
    every = list(shapes)
    some = [shape for shape in every if shape != (0,)]
    if every and not some:
        return (0,)
    lengths = [_length(shape, axis) for shape in some]
    first = _alike(some, but=axis)
    return _with(first, axis, sum(lengths))


def _alike(shapes: Sequence[Shape], *, but: int | None = None) -> Shape:
    """The first; ConversionError where another differs from it, on any axis `but` that one."""
    if not shapes:
        raise ConversionError("no tensor is stored to make it of")
    first = shapes[0]
    for other in shapes:
        if other != first and (but is None or _with(other, but, 0) != _with(first, but, 0)):
            raise ConversionError(f"one has the shape {first}, another {other}")
    return first


# --- what a class has in memory -------------------------------------------------------------------


class ConvertedGroup(NamedTuple):
    """Tensors on disk that one conversion takes together, and what it makes of them."""

    on_disk: tuple[ExpectedTensor, ...]
    in_memory: Mapping[str, Shape]

    @property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """Return the tensors in memory as expected tensors."""
        role = self.on_disk[0].role
        return tuple(
            ExpectedTensor(name, shape, prod(shape), role) for name, shape in self.in_memory.items()
        )


def class_memory(expectation: Expectation) -> Memory:
    """Return a class's Memory: from the oracle if it answered, else from the loading rules."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory
    names = tensors_before_conversion(expectation)
    taken = loading.conversions(names)
    shapes = {name: one.shape for name, one in names.items() if name not in taken}
    for group in converted_groups(names, loading).values():
        shapes.update(group.in_memory)
    return Memory(shapes=shapes, ties=tied_pairs(expectation))


def tied_pairs(expectation: Expectation) -> tuple[tuple[str, str], ...]:
    """Each tied name in memory, and the one whose values it shares."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory.ties
    tied = [tensor for tensor in expectation.tensors if tensor.role is Role.TIED]
    names = loading.looked_for([tensor.name for tensor in tied])
    sources = loading.looked_for([tensor.tied_to or "" for tensor in tied])
    return tuple(zip(names, sources, strict=True))


def tensors_before_conversion(expectation: Expectation) -> dict[str, ExpectedTensor]:
    """Return the model's tensors under the names that they have before conversion."""
    tensors = expectation.loaded_of(expectation.tensors)
    names = expectation.loading.looked_for([tensor.name for tensor in tensors])
    return dict(zip(names, tensors, strict=True))


def converted_groups(
    names: Mapping[str, ExpectedTensor], loading: Loading
) -> dict[str, ConvertedGroup]:
    """The groups of these tensors, by the first name that is made of them.

    Names have to be whole groups', for the shapes in memory follow from all of a group.
    """
    taken: dict[str, tuple[Rule, list[tuple[ExpectedTensor, str]]]] = {}
    for name, found in loading.conversions(names).items():
        _, tensors = taken.setdefault(found.name, (found.rule, []))
        tensors.append((names[name], found.pattern))
    return {
        first: ConvertedGroup(
            tuple(tensor for tensor, _ in tensors), dict(_made(first, rule, tensors, loading))
        )
        for first, (rule, tensors) in taken.items()
    }


def _made(
    first: str, rule: Rule, tensors: Iterable[tuple[ExpectedTensor, str]], loading: Loading
) -> Iterator[tuple[str, Shape]]:
    """Return the tensors made of a group; empty if no checkpoint of this config can be loaded."""
    model = loading.memory.shapes if loading.memory else {}
    collected: dict[str, list[Shape]] = {}
    for tensor, source in tensors:
        collected.setdefault(source, []).append(tensor.shape)
    try:
        made = tuple(converted_tensors(Conversion(rule, first, model), collected))
    except ConversionError:
        return
    yield from (one for one in made if not model or one[0] in model)

"""The names and shapes of the tensors that transformers' conversions make of stored tensors.

On loading, experts that are stored one by one are fused, fused projections are split, and some
weights are transposed. An operation maps the shapes collected for each source of a rule to the
shapes of its targets, as the class of the same name in core_model_loading.py does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, prod
from typing import NamedTuple, Protocol

from auditor.analytic.expectation import Expectation, ExpectedTensor, Role
from auditor.analytic.loading import Loading, Memory, Operation, Rule

Shape = tuple[int, ...]
Collected = dict[str, list[Shape] | Shape]  # a list has a shape for each stored tensor

ONE = 1


class ConversionError(Exception):
    """The error for tensors that cannot be converted: from_pretrained raises for them."""


class UnknownOperationError(Exception):
    """The error for a conversion whose result is not known, as of a later transformers."""


class Shapes(Protocol):
    """A mapping from in-memory names to the shapes of a model's tensors."""

    def __contains__(self, name: str, /) -> bool: ...

    def __getitem__(self, name: str, /) -> Shape: ...


class Conversion(NamedTuple):
    """A rule, the parameter that it applies to, and the model's shapes."""

    rule: Rule
    name: str  # the in-memory name of the first target
    model: Shapes


def converted_tensors(
    conversion: Conversion, collected: Mapping[str, list[Shape]]
) -> Iterator[tuple[str, Shape]]:
    """Yield the converted tensors in memory; raise ConversionError if they cannot be converted."""
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
    for target, result in shapes.items():
        yield f"{before}{target}{after}", _first(result)


# --- the operations ---------------------------------------------------------------------------


def _chunk(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape, axis = _lone(shapes), operation.axes[0]
    targets = conversion.rule.targets
    if operation.number is not None and len(targets) > ONE:
        raise ConversionError("has several targets, expected one for a variable number of parts")
    if operation.number is not None:
        targets = tuple(targets[0].replace("*", str(i)) for i in range(operation.number))
    if not targets:
        raise ConversionError("is divided into 0 parts, expected at least 1")
    length = _length(shape, axis)
    size = ceil(length / len(targets))
    cuts = [min(size, length - at) for at in range(0, length, size)] if size else [0] * len(targets)
    return {target: _with(shape, axis, cut) for target, cut in zip(targets, cuts, strict=False)}


def _split(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape, axis = _lone(shapes), operation.axes[0]
    first, *_ = targets = conversion.rule.targets
    model_shapes = [
        _of_model(conversion, conversion.name.replace(first, target)) for target in targets
    ]
    sizes = [_length(model_shape, axis) for model_shape in model_shapes]
    if sum(sizes) != _length(shape, axis):
        parts = " + ".join(map(str, sizes))
        raise ConversionError(f"{shape} cannot be cut into {parts} = {sum(sizes)} at axis {axis}")
    return {target: _with(shape, axis, size) for target, size in zip(targets, sizes, strict=True)}


def _concatenate(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    if len(conversion.rule.targets) > ONE:
        raise ConversionError("several targets for one tensor")
    all_shapes: list[Shape] = []
    for source in dict.fromkeys(conversion.rule.sources):
        source_shapes = shapes.get(source, [])
        all_shapes += source_shapes if isinstance(source_shapes, list) else [source_shapes]
    return {conversion.rule.targets[0]: _joined(all_shapes, operation.axes[0])}


def _interleave(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape = _first(next(iter(shapes.values())))
    if _length(shape, operation.axes[0]) % 2 and prod(shape):
        raise ConversionError(
            f"has the shape {shape}, expected an even length of axis {operation.axes[0]}"
        )
    return {conversion.rule.targets[0]: shape}


def _merge(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    targets = conversion.rule.targets
    if len(shapes) == ONE and len(targets) > ONE:
        raise ConversionError("several targets for one list of tensors")
    merged: Collected = {}
    for source, source_shapes in shapes.items():
        shape = (
            _stacked(source_shapes, operation.axes[0])
            if isinstance(source_shapes, list)
            else source_shapes
        )
        merged[targets[0] if len(shapes) == ONE else source] = shape
    return merged


def _transpose(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    rule, shape = conversion.rule, _lone(shapes)
    if len(rule.targets) > ONE and len(rule.sources) > ONE:
        raise ConversionError("several targets for several tensors")
    target = rule.sources[0] if len(rule.targets) > ONE else rule.targets[0]
    if operation.number and shape == _of_model(conversion, conversion.name):
        return {target: shape}  # the stored shape is already the parameter's
    first, second = operation.axes
    turned = list(shape or (1,))  # torch treats a scalar as a tensor of one axis
    _ = _length(tuple(turned), first), _length(tuple(turned), second)
    turned[first], turned[second] = turned[second], turned[first]
    return {target: tuple(turned) if shape else shape}


def _permute(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    sources, targets = conversion.rule.sources, conversion.rule.targets
    if len(sources) > ONE and len(targets) > ONE:
        raise ConversionError("several targets for several tensors")
    alone = len(sources) == len(targets) == ONE
    permuted: Collected = {}
    for source, source_shapes in shapes.items():
        if operation.only is None or any(part in source for part in operation.only):
            if isinstance(source_shapes, list) and len(source_shapes) > ONE:
                raise ConversionError(f"{len(source_shapes)} tensors for one")
            _check_heads(_first(source_shapes), operation.number)
            source_shapes = _first(source_shapes)  # noqa: PLW2901 - passed on
        permuted[targets[0] if alone else source] = source_shapes
    return permuted


def _check_heads(shape: Shape, heads: int | None) -> None:
    """Raise ConversionError unless a matrix has an even number of rows for each head."""
    rows = _length(shape, 0)
    pairs = not heads or rows // heads // 2 * heads * 2 == rows or not prod(shape)
    if not heads or (len(shape) in {1, 2} and not pairs):
        raise ConversionError(f"{rows} rows are not pairs of {heads} heads")


def _fuse_experts(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    """Fuse experts by target: of two targets, text has the first half, vision the rest."""
    targets = conversion.rule.targets
    parts: dict[str, list[Shape]] = {target: [] for target in targets}
    for source in conversion.rule.sources:
        if source not in shapes:
            raise ConversionError(f"no tensor for {source}")
        source_shapes = shapes[source]
        all_shapes = source_shapes if isinstance(source_shapes, list) else [source_shapes]
        size = ceil(len(all_shapes) / len(targets))
        for place, target in enumerate(targets):
            part = all_shapes[place * size : (place + 1) * size]
            parts[target].append(_stacked(part, operation.axes[0]))
    return {
        target: _joined(part_shapes, operation.axes[1]) for target, part_shapes in parts.items()
    }


def _dequantized(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    """Return the dequantized shape (experts, rows, columns); with an amax, 2 numbers per byte."""
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
    """Merge two tensors of shape (2 * layers, width) into one of (layers, 4, width)."""
    del operation
    first, *others = (_first(shapes[one]) for one in conversion.rule.sources if one in shapes)
    if others != [first]:
        raise ConversionError(f"merges the shapes {[first, *others]}, expected two equal shapes")
    layers, odd = divmod(_length(first, 0), 2)
    if odd:
        raise ConversionError(f"has the shape {first}, expected an even length of axis 0")
    return {conversion.rule.targets[0]: (layers, 4, *first[1:])}


def _unpadded(operation: Operation, shapes: Collected, conversion: Conversion) -> Collected:
    shape = _first(next(iter(shapes.values())))
    rows = _length(shape, 0)
    unpadded_rows = rows if operation.number is None else min(rows, operation.number)
    return {conversion.rule.targets[0]: _with(shape, 0, unpadded_rows)}


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


# --- arithmetic of shapes, as in torch --------------------------------------------------------


def _first(shapes: list[Shape] | Shape) -> Shape:
    return shapes[0] if isinstance(shapes, list) else shapes


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
    """Return the shape of torch.stack's result, which has a new axis `axis`."""
    first = _alike(shapes)
    if not -len(first) - 1 <= axis <= len(first):
        raise ConversionError(f"{first} has no place for axis {axis}")
    position = axis if axis >= 0 else axis + len(first) + 1
    return (*first[:position], len(shapes), *first[position:])


def _joined(shapes: Iterable[Shape], axis: int) -> Shape:
    """Return the shape of torch.cat's result; it ignores tensors of shape (0,)."""
    all_shapes = list(shapes)
    nonempty = [shape for shape in all_shapes if shape != (0,)]
    if all_shapes and not nonempty:
        return (0,)
    lengths = [_length(shape, axis) for shape in nonempty]
    first = _alike(nonempty, but=axis)
    return _with(first, axis, sum(lengths))


def _alike(shapes: Sequence[Shape], *, but: int | None = None) -> Shape:
    """Return the first shape; raise ConversionError if any axis except `but` differs."""
    if not shapes:
        raise ConversionError("has no stored source")
    first = shapes[0]
    for other in shapes:
        if other != first and (but is None or _with(other, but, 0) != _with(first, but, 0)):
            raise ConversionError(f"one has the shape {first}, another {other}")
    return first


# --- the tensors of a class in memory ---------------------------------------------------------


class ConvertedGroup(NamedTuple):
    """The stored tensors that one conversion combines, and the resulting tensors in memory."""

    on_disk: tuple[ExpectedTensor, ...]
    in_memory: Mapping[str, Shape]

    @property
    def tensors(self) -> tuple[ExpectedTensor, ...]:
        """The resulting tensors, with the role of the stored ones."""
        role = self.on_disk[0].role
        return tuple(
            ExpectedTensor(name, shape, prod(shape), role) for name, shape in self.in_memory.items()
        )


def class_memory(expectation: Expectation) -> Memory:
    """Return a class's tensors in memory: the oracle's answer, else computed by loading rules."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory
    names = tensors_before_conversion(expectation)
    taken = loading.conversions(names)
    shapes = {name: one.shape for name, one in names.items() if name not in taken}
    for group in converted_groups(names, loading).values():
        shapes.update(group.in_memory)
    unset = None if expectation.by == "generated" else frozenset[str]()
    return Memory(shapes=shapes, ties=tied_pairs(expectation), unset=unset)


def tied_pairs(expectation: Expectation) -> tuple[tuple[str, str], ...]:
    """Return pairs of names in memory: a tied tensor, and the tensor whose values it shares."""
    loading = expectation.loading
    if loading.memory is not None:
        return loading.memory.ties
    tied = [tensor for tensor in expectation.tensors if tensor.role is Role.TIED]
    names = loading.looked_for([tensor.name for tensor in tied])
    sources = loading.looked_for([tensor.tied_to or "" for tensor in tied])
    return tuple(zip(names, sources, strict=True))


def tensors_before_conversion(expectation: Expectation) -> dict[str, ExpectedTensor]:
    """Return the model's tensors by their names before conversion."""
    tensors = expectation.loaded_of(expectation.tensors)
    names = expectation.loading.looked_for([tensor.name for tensor in tensors])
    return dict(zip(names, tensors, strict=True))


def converted_groups(
    names: Mapping[str, ExpectedTensor], loading: Loading
) -> dict[str, ConvertedGroup]:
    """Return the groups of tensors that conversions combine, by the first resulting name.

    `names` must contain complete groups: the shapes in memory depend on all tensors of a group.
    """
    taken: dict[str, tuple[Rule, list[tuple[ExpectedTensor, str]]]] = {}
    for name, rewritten in loading.conversions(names).items():
        _, tensors = taken.setdefault(rewritten.name, (rewritten.rule, []))
        tensors.append((names[name], rewritten.pattern))
    return {
        first: ConvertedGroup(
            tuple(tensor for tensor, _ in tensors),
            dict(_group_in_memory(first, rule, tensors, loading)),
        )
        for first, (rule, tensors) in taken.items()
    }


def _group_in_memory(
    first: str, rule: Rule, tensors: Iterable[tuple[ExpectedTensor, str]], loading: Loading
) -> Iterator[tuple[str, Shape]]:
    """Yield names and shapes of the tensors made of a group; none if the conversion fails."""
    model = loading.memory.shapes if loading.memory else {}
    collected: dict[str, list[Shape]] = {}
    for tensor, source in tensors:
        collected.setdefault(source, []).append(tensor.shape)
    try:
        results = tuple(converted_tensors(Conversion(rule, first, model), collected))
    except ConversionError:
        return
    yield from (one for one in results if not model or one[0] in model)

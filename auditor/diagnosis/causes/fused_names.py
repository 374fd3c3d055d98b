"""fused-names: projections in one tensor where the class has them apart, or the reverse.

To do: Split or concatenate the tensors when the weights are converted: a new name is not
enough.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import shaped, with_tensors
from auditor.diagnosis.name_kinds import NameKind, outermost
from auditor.tensors import StoredTensor

CAUSE = "fused-names"

# Modules that libraries fuse, in this order; by the last part of their names.
_APART = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("query_proj", "key_proj", "value_proj"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
    ("k_proj", "v_proj"),
    ("key", "value"),
    ("k", "v"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("wi_0", "wi_1"),
)
_JOINED = ("_weight", "_bias")  # of in_proj_weight

_Shape = tuple[int, ...] | None


class _Place(NamedTuple):
    """A layer and a kind of tensor; modules of one place may be fused with each other."""

    layer: str  # its name, up to its number
    kind: str  # weight, bias


class _Tensor(NamedTuple):
    """A stored or an expected tensor, with its name taken apart."""

    name: str
    module: str  # the path to the module that contains `leaf`
    leaf: str  # the last part of the module's name
    shape: _Shape


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield fused tensors split and separate tensors joined, where the sizes add up."""
    if not (case.unexpected and case.missing):
        return
    stored = case.strange_named
    places = _places(case.strange_kinds) & _places(case.missing_kinds)
    have = _by_place(places, case.strange_kinds, stored)
    lack = _by_place(places, case.missing_kinds, case.lacking_named)
    instead: dict[str, tuple[StoredTensor, ...]] = {}
    for place in have.keys() & lack.keys():
        for whole, parts in _pairs(have[place], lack[place]):
            pieces = [shaped(stored[whole.name], one.shape or (), one.name) for one in parts]
            instead[whole.name] = tuple(pieces)
    cut = len(instead)
    for place in have.keys() & lack.keys():
        for whole, parts in _pairs(lack[place], have[place]):
            first, *rest = parts
            instead[first.name] = (shaped(stored[first.name], whole.shape or (), whole.name),)
            instead.update(dict.fromkeys((one.name for one in rest), ()))
    if not instead:
        return
    name, replacements = next(pair for pair in instead.items() if pair[1])
    goal = ", ".join(one.name.rpartition(".")[0].rpartition(".")[2] for one in replacements)
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, instead),
        renames={old: new[0].name for old, new in instead.items() if len(new) == 1},
        summary=f"{cut:,} tensors are fused that the class has apart ({name} for {goal})"
        if cut
        else f"{len(instead):,} tensors are apart that the class has fused (in {goal})",
        fix="split them along their rows when the weights are converted"
        if cut
        else "concatenate their rows when the weights are converted",
        evidence=("the rows add up",),
    )


def _places(kinds: Iterable[NameKind]) -> set[_Place]:
    """Return the places of names of these kinds, with 0 for the layer's number."""
    return {_taken_apart(kind.pattern)[0] for kind in kinds}


def _by_place(
    places: Collection[_Place],
    kinds: Iterable[NameKind],
    tensors: Mapping[str, StoredTensor] | Mapping[str, ExpectedTensor],
) -> Mapping[_Place, list[_Tensor]]:
    """Return the tensors whose kind is in one of the places, by place."""
    inside = [kind for kind in kinds if _taken_apart(kind.pattern)[0] in places]
    tensors_by_place: dict[_Place, list[_Tensor]] = {}
    for name in (name for kind in inside for name in kind.names):
        place, module, leaf = _taken_apart(name)
        tensor = _Tensor(name, module, leaf, tensors[name].shape)
        tensors_by_place.setdefault(place, []).append(tensor)
    return tensors_by_place


def _taken_apart(name: str) -> tuple[_Place, str, str]:
    """Split a name into its place, its module's path, and the last part of the module's name."""
    path, _, kind = name.rpartition(".")
    for joined in _JOINED:
        if kind.endswith(joined):
            path, kind = f"{name.removesuffix(joined)}", joined[1:]
    module, _, leaf = path.rpartition(".")
    return _Place(outermost(name), kind), module, leaf


def _pairs(
    whole: list[_Tensor], apart: list[_Tensor]
) -> Iterator[tuple[_Tensor, tuple[_Tensor, ...]]]:
    """Yield each fused tensor with its parts: of the same module, or the only fit in its place."""
    used: set[str] = set()
    left = _Wholes(whole)
    by_module: dict[str, dict[str, _Tensor]] = {}
    for one in apart:
        by_module.setdefault(one.module, {})[one.leaf] = one
    for module, leaves in by_module.items():
        for names in _APART:
            parts = tuple(leaves[name] for name in names if name in leaves)
            if len(parts) < len(names) or used & {one.name for one in parts}:
                continue
            fitting = left.fitting(module, parts) or left.fitting(None, parts)
            if len(fitting) == 1:
                used.update(one.name for one in parts)
                left.take(fitting[0])
                yield fitting[0], parts
        rest = [one for one in leaves.values() if one.name not in used and one.shape is not None]
        own = left.of_module(module)
        if len(rest) > 1 and len(own) == 1 and _is_sum(own[0], rest):
            used.update(one.name for one in rest)
            left.take(own[0])
            yield own[0], tuple(rest)


class _Wholes:
    """The fused tensors without parts so far, by module and shape: there may be many experts."""

    def __init__(self, whole: Iterable[_Tensor]) -> None:
        self._left: dict[str | None, dict[_Shape, dict[str, _Tensor]]] = {}
        for one in whole:
            for module in (one.module, None):
                by_shape = self._left.setdefault(module, {})
                by_shape.setdefault(one.shape, {})[one.name] = one

    def of_module(self, module: str) -> list[_Tensor]:
        return [one for several in self._left.get(module, {}).values() for one in several.values()]

    def fitting(self, module: str | None, parts: Iterable[_Tensor]) -> list[_Tensor]:
        """Return fused tensors of the module, or of any, that fit the parts; two per shape."""
        return [
            one
            for several in self._left.get(module, {}).values()
            if several and _is_sum(next(iter(several.values())), parts)
            for one in islice(several.values(), 2)
        ]

    def take(self, one: _Tensor) -> None:
        for module in (one.module, None):
            del self._left[module][one.shape][one.name]


def _is_sum(whole: _Tensor, parts: Iterable[_Tensor]) -> bool:
    """Whether rows or columns add up, or some shape is unknown."""
    shapes = [one.shape for one in parts]
    if whole.shape is None or None in shapes:
        return True
    known = [shape for shape in shapes if shape]
    if len(known) != len(shapes) or len({len(one) for one in (*known, whole.shape)}) != 1:
        return False
    rows = {one[1:] for one in (*known, whole.shape)}
    columns = {one[:-1] for one in (*known, whole.shape)}
    return (len(rows) == 1 and sum(one[0] for one in known) == whole.shape[0]) or (
        len(columns) == 1 and sum(one[-1] for one in known) == whole.shape[-1]
    )

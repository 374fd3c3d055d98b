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

# Modules that are fused in this order; by the last part of their names.
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
    """Where modules stand that may be fused with each other."""

    layer: str  # up to its number
    kind: str  # weight, bias


class _Found(NamedTuple):
    """A tensor of one side."""

    name: str
    module: str  # the path to what holds it
    leaf: str
    shape: _Shape


def undoings(case: Case) -> Iterator[Undoing]:
    """What is fused cut up, and what is apart put together, wherever the sizes add up."""
    if not (case.unexpected and case.missing):
        return
    stored = case.strange_named
    places = _places(case.strange_kinds) & _places(case.missing_kinds)
    have = _by_place(places, case.strange_kinds, stored)
    lack = _by_place(places, case.missing_kinds, case.lacking_named)
    instead: dict[str, tuple[StoredTensor, ...]] = {}
    for place in have.keys() & lack.keys():
        for whole, parts in _pairs(have[place], lack[place]):
            made = [shaped(stored[whole.name], one.shape or (), one.name) for one in parts]
            instead[whole.name] = tuple(made)
    cut = len(instead)
    for place in have.keys() & lack.keys():
        for whole, parts in _pairs(lack[place], have[place]):
            first, *rest = parts
            made = [shaped(stored[first.name], whole.shape or (), whole.name)]
            instead[first.name] = tuple(made)
            instead.update(dict.fromkeys((one.name for one in rest), ()))
    if not instead:
        return
    name, made_of = next(pair for pair in instead.items() if pair[1])
    goal = ", ".join(one.name.rpartition(".")[0].rpartition(".")[2] for one in made_of)
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, instead),
        renames={one: made[0].name for one, made in instead.items() if len(made) == 1},
        summary=f"{cut:,} tensors are fused that the class has apart ({name} for {goal})"
        if cut
        else f"{len(instead):,} tensors are apart that the class has fused (in {goal})",
        fix="split them along their rows when the weights are converted"
        if cut
        else "concatenate their rows when the weights are converted",
        evidence=("the rows add up",),
    )


def _places(kinds: Iterable[NameKind]) -> set[_Place]:
    """The places of names of these kinds, with 0 for the number of the layer."""
    return {_taken_apart(kind.pattern)[0] for kind in kinds}


def _by_place(
    places: Collection[_Place],
    kinds: Iterable[NameKind],
    tensors: Mapping[str, StoredTensor] | Mapping[str, ExpectedTensor],
) -> Mapping[_Place, list[_Found]]:
    """The tensors whose kind is in one of the places, by the place of their own name."""
    inside = [kind for kind in kinds if _taken_apart(kind.pattern)[0] in places]
    found: dict[_Place, list[_Found]] = {}
    for name in (name for kind in inside for name in kind.names):
        place, module, leaf = _taken_apart(name)
        found.setdefault(place, []).append(_Found(name, module, leaf, tensors[name].shape))
    return found


def _taken_apart(name: str) -> tuple[_Place, str, str]:
    """The place of a name, the path to its module, and the last part of the module's name."""
    path, _, kind = name.rpartition(".")
    for joined in _JOINED:
        if kind.endswith(joined):
            path, kind = f"{name.removesuffix(joined)}", joined[1:]
    module, _, leaf = path.rpartition(".")
    return _Place(outermost(name), kind), module, leaf


def _pairs(whole: list[_Found], apart: list[_Found]) -> Iterator[tuple[_Found, tuple[_Found, ...]]]:
    """Each fused tensor with those that it stands for; of the same module, or the only ones."""
    used: set[str] = set()
    left = _Wholes(whole)
    by_module: dict[str, dict[str, _Found]] = {}
    for one in apart:
        by_module.setdefault(one.module, {})[one.leaf] = one
    for module, leaves in by_module.items():
        for names in _APART:
            parts = tuple(leaves[name] for name in names if name in leaves)
            if len(parts) < len(names) or used & {one.name for one in parts}:
                continue
            fit = left.fitting(module, parts) or left.fitting(None, parts)
            if len(fit) == 1:
                used.update(one.name for one in parts)
                left.take(fit[0])
                yield fit[0], parts
        rest = [one for one in leaves.values() if one.name not in used and one.shape is not None]
        own = left.of_module(module)
        if len(rest) > 1 and len(own) == 1 and _is_sum(own[0], rest):
            used.update(one.name for one in rest)
            left.take(own[0])
            yield own[0], tuple(rest)


class _Wholes:
    """Fused tensors that no parts have claimed yet, by module and by shape: experts are many."""

    def __init__(self, whole: Iterable[_Found]) -> None:
        self._left: dict[str | None, dict[_Shape, dict[str, _Found]]] = {}
        for one in whole:
            for module in (one.module, None):
                by_shape = self._left.setdefault(module, {})
                by_shape.setdefault(one.shape, {})[one.name] = one

    def of_module(self, module: str) -> list[_Found]:
        return [one for several in self._left.get(module, {}).values() for one in several.values()]

    def fitting(self, module: str | None, parts: Iterable[_Found]) -> list[_Found]:
        """The fused tensors, of the module or of any, as long as the parts; two a shape."""
        return [
            one
            for several in self._left.get(module, {}).values()
            if several and _is_sum(next(iter(several.values())), parts)
            for one in islice(several.values(), 2)
        ]

    def take(self, one: _Found) -> None:
        for module in (one.module, None):
            del self._left[module][one.shape][one.name]


def _is_sum(whole: _Found, parts: Iterable[_Found]) -> bool:
    """Whether rows, or columns, add up; names of an index alone have no shape to tell."""
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

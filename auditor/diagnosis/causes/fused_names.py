"""fused-names: projections are in one tensor where the class has several, or the reverse.

Experts that are stored one by one, of a class that stacks them, are of this kind too.

To do: Split, concatenate or stack the tensors when the weights are converted: a new name is not
enough.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import shaped, with_tensors
from auditor.diagnosis.name_kinds import NameKind, Numbers, outermost
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
_Instead = dict[str, tuple[StoredTensor, ...]]


class _Module(NamedTuple):
    """A kind of tensor, with its pattern split."""

    kind: NameKind
    place: tuple[str, str]  # the layer, and weight or bias: tensors of one place may be fused
    path: str  # to the module that contains `leaf`
    leaf: str


class _Side(NamedTuple):
    """The stored or the missing tensors."""

    modules: list[_Module]
    tensors: Mapping[str, StoredTensor] | Mapping[str, ExpectedTensor]

    def has(self, names: Iterable[str]) -> bool:
        return all(name in self.tensors for name in names)

    def shape(self, name: str) -> _Shape:
        return self.tensors[name].shape


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield fused tensors split and separate tensors joined, where the sizes add up."""
    if not (case.unexpected and case.missing):
        return
    have = _Side(_modules(case.strange_kinds), case.strange_named)
    lack = _Side(_modules(case.missing_kinds), case.lacking_named)
    stored, expected = case.strange_named, case.lacking_named
    instead: _Instead = {}
    for whole, parts in _fused(have, lack):
        tensor = stored[whole]
        instead[whole] = tuple(shaped(tensor, expected[one].shape, one) for one in parts)
    cut = len(instead)
    for whole, parts in (*_fused(lack, have), *_stacked(lack, have)):
        instead[parts[0]] = (shaped(stored[parts[0]], expected[whole].shape, whole),)
        instead.update(dict.fromkeys(parts[1:], ()))
    if not instead:
        return
    name, replacements = next(pair for pair in instead.items() if pair[1])
    goal = ", ".join(_leaf(one.name) for one in replacements)
    wholes = dict.fromkeys(_leaf(one.name) for several in instead.values() for one in several)
    joined = ", ".join(wholes)
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, instead),
        renames={old: new[0].name for old, new in instead.items() if len(new) == 1},
        summary=f"{cut:,} tensors are fused that the class has separately ({name} for {goal})"
        if cut
        else f"{len(instead):,} tensors are separate that the class has fused (in {joined})",
        fix="split them along their rows when the weights are converted"
        if cut
        else "join them when the weights are converted: rows one after the other, experts stacked",
        evidence=("the rows add up",),
    )


def _leaf(name: str) -> str:
    """Return the last part of the name's module: `q_proj` of `q_proj.weight`, else the last."""
    path, _, last = name.rpartition(".")
    return path.rpartition(".")[2] if last in {"weight", "bias"} else last


def _modules(kinds: Iterable[NameKind]) -> list[_Module]:
    return [_module(kind) for kind in kinds]


def _module(kind: NameKind) -> _Module:
    path, _, last = kind.pattern.rpartition(".")
    for joined in _JOINED:
        if last.endswith(joined):
            path, last = kind.pattern.removesuffix(joined), joined[1:]
    module, _, leaf = path.rpartition(".")
    return _Module(kind, (outermost(kind.pattern), last), module, leaf)


_Names = tuple[str, tuple[str, ...]]  # a fused tensor and its parts


def _fused(wholes: _Side, apart: _Side) -> Iterator[_Names]:
    """Yield each fused tensor with its parts: of the same module, or the only fit in its place."""
    used: set[str] = set()  # patterns of parts and wholes
    by_module: dict[tuple[str, str], dict[str, _Module]] = {}
    for one in apart.modules:
        by_module.setdefault((one.path, one.place[1]), {})[one.leaf] = one
    for (path, _), leaves in by_module.items():
        known = [[leaves[leaf] for leaf in leaf_names if leaf in leaves] for leaf_names in _APART]
        known = [one for one, names in zip(known, _APART, strict=True) if len(one) == len(names)]
        for parts in (*known, list(leaves.values())):
            left = [one for one in parts if one.kind.pattern not in used]
            if len(left) < 2 or (len(left) < len(parts) and parts in known):  # noqa: PLR2004
                continue
            near = [one for one in wholes.modules if one.place == left[0].place]
            near = [one for one in near if one.kind.pattern not in used]
            own = [one for one in near if one.path == path]
            for choice in (own, near) if parts in known else (own,):
                fits = [(one, list(_sums(wholes, one, apart, left))) for one in choice]
                fits = [(one, names) for one, names in fits if names]
                if len(fits) == 1:
                    ((whole, names),) = fits
                    used.update(one.kind.pattern for one in (whole, *left))
                    yield from names
                    break


def _sums(
    wholes: _Side, whole: _Module, apart: _Side, parts: Collection[_Module]
) -> Iterator[_Names]:
    """Yield the tensors of a kind whose rows or columns are those of the parts together."""
    for name, numbers in zip(whole.kind.names, whole.kind.numbers, strict=True):
        names = tuple(part.kind.filled(numbers) for part in parts)
        if apart.has(names) and _is_sum(wholes.shape(name), [apart.shape(one) for one in names]):
            yield name, names


def _is_sum(whole: _Shape, parts: list[_Shape]) -> bool:
    """Whether rows or columns add up, or some shape is unknown."""
    known = [shape for shape in parts if shape]
    if whole is None or None in parts:
        return True
    if len(known) != len(parts) or len({len(one) for one in (*known, whole)}) != 1:
        return False
    rows = {one[1:] for one in (*known, whole)}
    columns = {one[:-1] for one in (*known, whole)}
    return (len(rows) == 1 and sum(one[0] for one in known) == whole[0]) or (
        len(columns) == 1 and sum(one[-1] for one in known) == whole[-1]
    )


def _stacked(wholes: _Side, apart: _Side) -> Iterator[_Names]:
    """Yield each tensor of all experts with the experts' own: `experts.0.up_proj` in `up_proj`."""
    for whole in wholes.modules:
        before, _, leaf = whole.kind.pattern.removesuffix(".weight").rpartition(".")
        parts = [
            one
            for one in apart.modules
            if one.path == f"{before}.0" and {*one.leaf.split("_")} <= {*leaf.split("_")}
        ]
        by_layer: dict[Numbers, list[str]] = {}
        for part in parts:
            for name, numbers in zip(part.kind.names, part.kind.numbers, strict=True):
                by_layer.setdefault(numbers[:-1], []).append(name)
        for name, numbers in zip(whole.kind.names, whole.kind.numbers, strict=True):
            names = by_layer.get(numbers, [])
            sizes = [shape for one in names if (shape := apart.shape(one)) is not None]
            is_known = len(sizes) == len(names)
            if names and (not is_known or prod(wholes.shape(name) or ()) == sum(map(prod, sizes))):
                yield name, tuple(names)

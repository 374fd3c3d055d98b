"""fused-names: projections are in one tensor where the class has several, or the reverse.

The same cause covers experts that are stored one by one although the class stacks them.

To do: Split, concatenate or stack the tensors when the weights are converted: a new name is not
enough.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.change import Replacements, shaped
from auditor.diagnosis.case import Case, Proposal
from auditor.names.kinds import NameKind, Numbers, outermost
from auditor.tensors import StoredTensor

CAUSE = "fused-names"

_PROJECTION = re.compile(r"(?:to_|w)?([qkv])")  # libraries fuse these in the order q, k, v
_JOINED = re.compile(r"_(weight|bias)$")  # ends of names such as in_proj_weight
_EXAMPLES = 64  # names of a kind that are tried before the others

_Replacements = dict[str, tuple[StoredTensor, ...]]  # replaced name -> the tensors instead
_Shape = tuple[int, ...] | None
_Tensors = Mapping[str, StoredTensor] | Mapping[str, ExpectedTensor]
_WholeAndParts = tuple[str, tuple[str, ...]]


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with fused tensors split and separate tensors joined, if the sizes add up."""
    if not (case.unexpected and case.missing):
        return
    stored, expected = case.unmatched.by_name, case.missing.by_name
    have = [_module(kind) for kind in case.unmatched.kinds]
    lack = [_module(kind) for kind in case.missing.kinds]
    replacements: _Replacements = {}
    for whole, parts in _fused(have, lack, stored, expected):
        replacements |= exchanged([stored[whole]], [expected[one] for one in parts])
    wholes = len(replacements)
    joins = [*_fused(lack, have, expected, stored)]
    for whole, parts in (*joins, *_stacked(lack, have, expected, stored)):
        replacements |= exchanged([stored[one] for one in parts], [expected[whole]])
    if not replacements:
        return
    leaves = dict.fromkeys(_leaf(one.name) for new in replacements.values() for one in new)
    summary, fix = _words(replacements, wholes, len(joins), ", ".join(leaves))
    yield Proposal(
        cause=CAUSE,
        change=case.replacing(replacements),
        summary=summary,
        fix=fix,
        evidence=("the rows add up",),
    )


def exchanged(stored: Sequence[StoredTensor], expected: Sequence[ExpectedTensor]) -> _Replacements:
    """Return replacements: the expected tensors for the first stored one, nothing for the others.

    One of both sides has only one tensor, which is split into the others or joined from them.
    """
    new = tuple(shaped(stored[0], one.shape, one.name) for one in expected)
    return {**dict.fromkeys((one.name for one in stored), ()), stored[0].name: new}


def adds_up(stored: Sequence[StoredTensor], expected: Sequence[ExpectedTensor]) -> bool:
    """Whether both sides have equally many elements, or some stored size is unknown."""
    held = [one.elements for one in stored]
    return None in held or sum(one or 0 for one in held) == sum(one.elements for one in expected)


def _words(replacements: Replacements, wholes: int, joins: int, leaves: str) -> tuple[str, str]:
    """Return summary and remedy; `wholes` counts split tensors, `joins` joined ones but stacks."""
    if wholes:
        name, parts = next(iter(replacements.items()))
        goal = ", ".join(_leaf(one.name) for one in parts)
        return (
            f"{wholes:,} tensors are fused; the class has separate ones ({name} for {goal})",
            "split them along their rows when the weights are converted",
        )
    count = f"{len(replacements):,} tensors"
    if joins:
        fix = "join them when the weights are converted: rows one after the other, experts stacked"
        return f"{count} are apart that the class has fused (in {leaves})", fix
    summary = f"{count} belong to one expert each, and the class stacks a layer's (in {leaves})"
    fix = "stack them when the weights are converted, in the order in which the class computes; "
    return summary, f"{fix}from_pretrained does not do it for this class"


def _leaf(name: str) -> str:
    """Return the module's last part, `q_proj` of `q_proj.weight`; else the name's last part."""
    path, _, last = name.rpartition(".")
    return path.rpartition(".")[2] if last in {"weight", "bias"} else last


class _Module(NamedTuple):
    """A kind of tensors (their names differ only in numbers), with its pattern split."""

    kind: NameKind
    place: tuple[str, str]  # the layer, and weight or bias; tensors that share both may be fused
    path: str  # the path from the layer to the module that contains `leaf`
    leaf: str


def _module(kind: NameKind) -> _Module:
    path, _, last = _JOINED.sub(r".\1", kind.pattern).rpartition(".")
    module, _, leaf = path.rpartition(".")
    return _Module(kind, (outermost(kind.pattern), last), module, leaf)


def _fused(
    wholes: Sequence[_Module], apart: Sequence[_Module], whole_of: _Tensors, part_of: _Tensors
) -> Iterator[_WholeAndParts]:
    """Yield (fused name, names of parts), if only one tensor of the module or layer fits.

    The parts are all separate tensors of the module.
    """
    by_place: defaultdict[tuple[str, str], list[_Module]] = defaultdict(list)
    for whole in wholes:
        by_place[whole.place].append(whole)
    by_module: defaultdict[tuple[str, tuple[str, str]], list[_Module]] = defaultdict(list)
    for part in sorted(apart, key=_order):
        by_module[part.path, part.place].append(part)
    for (path, place), parts in by_module.items():
        near = by_place[place] if len(parts) > 1 else []
        own = [whole for whole in near if whole.path == path]
        sums = (list(_sums(whole, parts, whole_of, part_of)) for whole in own or near)
        fits = [one for one in sums if one]
        if len(fits) == 1:  # else several fused tensors would fit the same parts
            yield from fits[0]


def _order(part: _Module) -> int:
    match = _PROJECTION.match(part.leaf)
    return "qkv".index(match[1]) if match else len("qkv")


def _sums(
    whole: _Module, parts: Sequence[_Module], whole_of: _Tensors, part_of: _Tensors
) -> Iterator[_WholeAndParts]:
    """Yield (fused name, names of parts) if the parts' rows or columns add up to the tensor's.

    Experts may have 100,000 names of one kind: none fits if none of some examples does.
    """

    def parts_of(name: str, numbers: Numbers) -> tuple[str, ...]:
        names = tuple(part.kind.filled(numbers) for part in parts)
        is_stored = all(one in part_of for one in names)
        shapes = [part_of[one].shape for one in names] if is_stored else []
        return names if shapes and _is_sum(whole_of[name].shape, shapes) else ()

    items = list(zip(whole.kind.names, whole.kind.numbers, strict=True))
    examples = items[:: max(1, len(items) // _EXAMPLES)]
    if any(parts_of(*item) for item in examples):
        found = ((name, parts_of(name, numbers)) for name, numbers in items)
        yield from (item for item in found if item[1])


def _is_sum(whole: _Shape, parts: Sequence[_Shape]) -> bool:
    """Whether the rows or the columns add up, or some shape is unknown."""
    if whole is None or None in parts:
        return True
    shapes = [shape for shape in parts if shape]
    if len(shapes) < len(parts):
        return False
    rows = {(sum(one[0] for one in shapes), *shape[1:]) for shape in shapes}
    columns = {(*shape[:-1], sum(one[-1] for one in shapes)) for shape in shapes}
    return {whole} in (rows, columns)


def _stacked(
    wholes: Iterable[_Module],
    apart: Iterable[_Module],
    expected: Mapping[str, ExpectedTensor],
    stored: Mapping[str, StoredTensor],
) -> Iterator[_WholeAndParts]:
    """Yield (stacked name, names of parts): `up_proj`, (`experts.0.up_proj`, ...)."""
    for whole in wholes:
        before, _, leaf = whole.kind.pattern.removesuffix(".weight").rpartition(".")
        by_layer: defaultdict[Numbers, list[str]] = defaultdict(list)
        for part in apart:
            if part.path == f"{before}.0" and {*part.leaf.split("_")} <= {*leaf.split("_")}:
                for name, numbers in zip(part.kind.names, part.kind.numbers, strict=True):
                    by_layer[numbers[:-1]].append(name)
        for name, numbers in zip(whole.kind.names, whole.kind.numbers, strict=True):
            names = tuple(by_layer[numbers])
            if names and adds_up([stored[one] for one in names], [expected[name]]):
                yield name, names

"""parallel-rank: what one rank of tensor, pipeline or expert parallelism holds was saved.

To do: Merge the parts of all ranks with the script of the software that trained the model.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic import ExpectedTensor
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_shapes, with_tensors
from auditor.diagnosis.name_kinds import members, numbers, runs
from auditor.reconciler.findings import MatchedPair
from auditor.reconciler.findings.evidence import OfStored
from auditor.tensors import Span, StoredTensor

CAUSE = "parallel-rank"
_MOST_RANKS = 256
_PADDED = 128  # rows up to which Megatron fills each rank's part of a vocabulary
_MATRIX = 2  # axes
_LEAST_PART = 8  # a rank's file divides at least one matrix in eight
_KINDS = 2  # of modules that one value of a config shapes: what goes in, what comes out
_NUMBER = re.compile(r"(?<=\.)\d{1,6}(?=\.)")
_OF_HEADS = re.compile(r"[qk]_(?:layer)?norm\.weight$")
_ROUTERS = (".gate.weight", ".router.weight", ".router.layer.weight", "expert_gate.weight")
_FIX = (
    "gather the parts of all ranks and save them together, with the merging or conversion script "
    "of the software that trained it"
)


def undoings(case: Case) -> Iterator[Undoing]:
    """Divided axes as long as they were; the layers, or experts, that other ranks have."""
    yield from _divided(case)
    if case.lacking and not case.unexpected and case.stored:
        yield from _other_stages(case)
        yield from _other_experts(case)


# --- tensors are divided -----------------------------------------------------------------------


def _divided(case: Case) -> Iterator[Undoing]:
    ratios = Counter(filter(None, map(_ratio, case.mismatched)))
    for ranks, count in ratios.most_common(1):
        whole = {
            pair.stored.name: pair.expected.shape
            for pair in case.mismatched
            if _ratio(pair) == ranks or _is_vocabulary(pair, ranks)
        }
        if any(map(_is_norm, whole.items())) or not _is_everywhere(case, whole):
            return
        yield Undoing(
            cause=CAUSE,
            snapshot=with_shapes(case.snapshot, whole | _scales(case, whole, ranks)),
            summary=f"{count:,} tensors are divided by {ranks}: one rank of {ranks} saved its part "
            "of a model in tensor parallelism",
            fix=_FIX,
            evidence=(f"one axis of each is exactly 1/{ranks} of the expected one",),
        )


def _ratio(pair: MatchedPair) -> int | None:
    """By how much one axis of it is too short; None: it is not that."""
    stored, expected = pair.stored.shape, pair.expected.shape
    if stored is None or len(stored) != len(expected):
        return None
    axes = [(a, b) for a, b in zip(stored, expected, strict=True) if a != b]
    if len(axes) != 1 or not axes[0][0] or axes[0][1] % axes[0][0]:
        return None
    ranks = axes[0][1] // axes[0][0]
    return ranks if 1 < ranks <= _MOST_RANKS else None


def _is_norm(tensor: tuple[str, tuple[int, ...]]) -> bool:
    """Whether it is as wide as the model: every rank has it whole, unlike norms of heads."""
    name, shape = tensor
    return len(shape) == 1 and name.endswith(".weight") and not _OF_HEADS.search(name)


def _scales(case: Case, whole: Mapping[str, tuple[int, ...]], ranks: int) -> dict[str, Any]:
    """The scales of divided weights, divided along the same axis."""
    found = {}
    for name, shape in whole.items():
        for scale in (f"{name}_scale_inv", f"{name}_scale"):
            part, weight = case.shapes.get(scale), case.shapes[name]
            if part and weight and len(part) == len(shape):
                axes = zip(part, weight, shape, strict=True)
                found[scale] = tuple(at if held == due else at * ranks for at, held, due in axes)
    return found


def _is_vocabulary(pair: MatchedPair, ranks: int) -> bool:
    """A part of a vocabulary that is filled up to a round number of rows."""
    stored, expected = pair.stored.shape, pair.expected.shape
    if not stored or not expected or stored[1:] != expected[1:]:
        return False
    if _NUMBER.search(pair.expected.name):
        return False
    return 0 < stored[0] * ranks - expected[0] < _PADDED * ranks


def _is_everywhere(case: Case, divided: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether some matrix is divided in each kind of module of the layers: attention and MLP.

    Where only one kind is, or a small part of the model, a value of the config says other than the
    files; routers are whole.
    """
    matrices = sum(shape is not None and len(shape) >= _MATRIX for shape in case.shapes.values())
    if len(divided) * _LEAST_PART < matrices:
        return False
    lists = {inside.before for name in divided if (inside := next(members(name), None))}
    aside = {
        name for one in case.report.findings if isinstance(one, OfStored) for name in one.names
    }
    places: dict[str, bool] = {}
    for name, shape in case.shapes.items():
        inside = next(members(name), None) if name not in aside else None
        if inside is None or inside.before not in lists or name.endswith(_ROUTERS):
            continue
        if shape is not None and (len(shape) == _MATRIX or case.is_stack(name)):
            place = _NUMBER.sub("#", name.rpartition(".")[0].rpartition(".")[0])
            places[place] = places.get(place, False) or name in divided
    leaves = {name.rpartition(".")[0].rpartition(".")[2] for name in divided}
    return bool(places) and all(places.values()) and len(leaves) > _KINDS


# --- layers, or experts, are elsewhere ---------------------------------------------------------


def _other_stages(case: Case) -> Iterator[Undoing]:
    """One run of layers is there, and what comes before or after them only if it reaches there."""
    stored, missing = numbers(case.stored_kinds), numbers(case.missing_kinds)
    partial = {before for before in missing if before in stored}
    outside = [one for one in case.missing if next(members(one), None) is None]
    for before in partial:
        here, away = stored[before], missing[before]
        if here & away or max(here) - min(here) + 1 != len(here):
            return
    if not partial or not (outside or any(0 not in stored[one] for one in partial)):
        return
    if not outside and any(max(missing[one]) < min(stored[one]) for one in partial):
        return  # all that is not a layer is there, and the first ones are not
    said = " and ".join(
        f"layers {runs(stored[one])} of {len(stored[one] | missing[one])} in "
        f"{one.removesuffix('.')}"
        for one in sorted(partial)
    )
    without = f", without {', '.join(outside[:3])}" if outside else ""
    yield _with_others(
        case, f"{said} are there{without}: one stage of pipeline parallelism was saved", said
    )


def _other_experts(case: Case) -> Iterator[Undoing]:
    """The same run of experts is there in every layer."""
    stored, missing = numbers(case.stored_kinds, 1), numbers(case.missing_kinds, 1)
    shares = {(frozenset(stored.get(one, ())), frozenset(missing[one])) for one in missing}
    if len(shares) != 1 or not all("expert" in one for one in missing):
        return
    ((here, away),) = shares
    inside = all(len(list(members(name))) > 1 for name in case.missing)
    if not here or here & away or not inside or max(here) - min(here) + 1 != len(here):
        return
    if len(here | away) % len(here) or min(here) % len(here):
        return  # no rank's share: each has as many
    said = f"experts {runs(here)} of {len(here | away)}"
    yield _with_others(
        case, f"{said} are there in each layer: one rank of expert parallelism was saved", said
    )


def _with_others(case: Case, summary: str, evidence: str) -> Undoing:
    """What is missing, as another rank's file would have it."""
    first = case.stored[0]
    others = tuple(_as_stored(tensor, first) for tensor in case.lacking)
    return Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, {first.name: (first, *others)}),
        summary=summary,
        fix=_FIX,
        evidence=(evidence, f"the other {len(others):,} tensors are all that is missing"),
    )


def _as_stored(tensor: ExpectedTensor, like: StoredTensor) -> StoredTensor:
    name, shape, elements = tensor[:3]
    return StoredTensor(name, like.dtype, shape, elements, like.file, Span(0, 0))

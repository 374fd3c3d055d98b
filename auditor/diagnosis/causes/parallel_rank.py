"""parallel-rank: the files hold the share of one rank in tensor, pipeline or expert parallelism.

To do: Merge the shares of all ranks with the script of the software that trained the model.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.checkpoint.changes import with_shapes
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import other_size
from auditor.diagnosis.weight_files import with_missing
from auditor.findings import MatchedPair
from auditor.findings.evidence import OfStored
from auditor.name_kinds import members, name_pattern, numbered, numbers

CAUSE = "parallel-rank"
_MOST_RANKS = 256
_PADDED = 128  # Megatron pads each rank's rows of a vocabulary to a multiple of this
_MATRIX = 2  # number of axes
_LEAST_PART = 8  # in one rank's file, at least one matrix in this many is divided
_KINDS = 2  # kinds of modules that one config value shapes: as its inputs, as its outputs
_NUMBER = re.compile(r"(?<=\.)\d{1,6}(?=\.)")
_OUTPUT = re.compile(r"(?:^|\.)(?:lm_head|embed_out|proj_out|output|head)\.(?:weight|bias)$")
_OF_HEADS = re.compile(r"[qk]_(?:layer)?norm\.weight$")
_ROUTERS = (".gate.weight", ".router.weight", ".router.layer.weight", "expert_gate.weight")
_FIX = (
    "gather the parts of all ranks and save them together, with the merging or conversion script "
    "of the software that trained it"
)


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model with divided axes at full length, or with the tensors of other ranks."""
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
        if other_size.fits(case):
            return  # other values of the config explain it, and ranks divide the vocabulary too
        yield Undoing(
            cause=CAUSE,
            snapshot=with_shapes(case.snapshot, whole | _scales(case, whole, ranks)),
            summary=f"{count:,} tensors are divided by {ranks}: one rank of {ranks} saved its part "
            "of a model in tensor parallelism",
            fix=_FIX,
            evidence=(f"one axis of each is exactly 1/{ranks} of the expected one",),
        )


def _ratio(pair: MatchedPair) -> int | None:
    """Return the factor by which exactly one axis is too short; None if there is no such factor."""
    stored, expected = pair.stored.shape, pair.expected.shape
    if stored is None or len(stored) != len(expected):
        return None
    axes = [(a, b) for a, b in zip(stored, expected, strict=True) if a != b]
    if len(axes) != 1 or not axes[0][0] or axes[0][1] % axes[0][0]:
        return None
    ranks = axes[0][1] // axes[0][0]
    return ranks if 1 < ranks <= _MOST_RANKS else None


def _is_norm(tensor: tuple[str, tuple[int, ...]]) -> bool:
    """Whether the tensor is a norm over the hidden size, which ranks do not divide."""
    name, shape = tensor
    return len(shape) == 1 and name.endswith(".weight") and not _OF_HEADS.search(name)


def _scales(case: Case, whole: Mapping[str, tuple[int, ...]], ranks: int) -> dict[str, Any]:
    """Return {name: undivided shape} for the quantization scales of divided weights."""
    full_shapes = {}
    for name, shape in whole.items():
        for scale in (f"{name}_scale_inv", f"{name}_scale"):
            part, weight = case.shapes.get(scale), case.shapes[name]
            if part and weight and len(part) == len(shape):
                axes = zip(part, weight, shape, strict=True)
                full_shapes[scale] = tuple(
                    length if held == expected else length * ranks
                    for length, held, expected in axes
                )
    return full_shapes


def _is_vocabulary(pair: MatchedPair, ranks: int) -> bool:
    """Whether the tensor is one rank's rows of a vocabulary, padded to a round number of rows."""
    stored, expected = pair.stored.shape, pair.expected.shape
    if not stored or not expected or stored[1:] != expected[1:]:
        return False
    if _NUMBER.search(pair.expected.name):
        return False
    return 0 < stored[0] * ranks - expected[0] < _PADDED * ranks


def _is_everywhere(case: Case, divided: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether every kind of module in the layers (attention, MLP) has a divided matrix.

    If only one kind has a divided matrix, or only a small part of the model, a config value is
    wrong instead. Routers are not counted, because ranks do not divide them.
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


# --- other ranks have the other layers or experts -----------------------------------------------


def _other_stages(case: Case) -> Iterator[Undoing]:
    """Yield an undoing that adds the other stages, if the stored layers are one unbroken run."""
    stored, missing = numbers(case.stored_kinds), numbers(case.missing_kinds)
    partial = {before for before in missing if before in stored}
    outside = [one for one in case.missing if next(members(one), None) is None]
    for before in partial:
        here, away = stored[before], missing[before]
        if here & away or max(here) - min(here) + 1 != len(here):
            return
    if not partial or case.mismatched:
        return
    # A first stage lacks the final norm too; if only the head is missing, it may be tied.
    if all(map(_OUTPUT.search, outside)) and any(0 in stored[one] for one in partial):
        return
    kinds_stored = {kind.pattern for kind in case.stored_kinds}
    if any(name_pattern(name) in kinds_stored for name in outside):
        return  # modules outside of the layers are numbered as the layers are
    if not outside and any(max(missing[one]) < min(stored[one]) for one in partial):
        return  # only the first layers are missing: this is not a stage
    layers = " and ".join(
        f"{numbered('layer', stored[one], len(stored[one] | missing[one]))} in "
        f"{one.removesuffix('.')}"
        for one in sorted(partial)
    )
    without = f", without {', '.join(outside[:3])}" if outside else ""
    yield _with_others(
        case,
        f"the files hold {layers}{without}: one stage of pipeline parallelism was saved",
        layers,
    )


def _other_experts(case: Case) -> Iterator[Undoing]:
    """Yield an undoing that adds other ranks' experts, if all layers store the same run of them."""
    stored, missing = numbers(case.stored_kinds, 1), numbers(case.missing_kinds, 1)
    shares = {(frozenset(stored.get(one, ())), frozenset(missing[one])) for one in missing}
    if len(shares) != 1 or not all("expert" in one for one in missing):
        return
    ((here, away),) = shares
    inside = all(len(list(members(name))) > 1 for name in case.missing)
    if not here or here & away or not inside or max(here) - min(here) + 1 != len(here):
        return
    if len(here | away) % len(here) or min(here) % len(here):
        return  # all ranks have equal numbers of experts, so this is not one rank's share
    experts = numbered("expert", here, len(here | away))
    yield _with_others(
        case,
        f"the files hold {experts} in each layer: one rank of expert parallelism was saved",
        experts,
    )


def _with_others(case: Case, summary: str, evidence: str) -> Undoing:
    return Undoing(
        cause=CAUSE,
        snapshot=with_missing(case),
        summary=summary,
        fix=_FIX,
        evidence=(evidence, f"the other {len(case.missing):,} tensors are all that is missing"),
    )

"""parallel-rank: the files hold the share of one rank in tensor, pipeline or expert parallelism.

To do: Merge the shares of all ranks with the script of the software that trained the model.
"""

import re
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from auditor.diagnosis.case import Case, Proposal, Shapes, differing_axes
from auditor.diagnosis.causes import other_size
from auditor.diagnosis.causes.lost_part import named_layers, partial_lists
from auditor.findings import MatchedPair
from auditor.findings.evidence import OfStored
from auditor.names.kinds import members, name_pattern, numbered, numbers, outermost

CAUSE = "parallel-rank"
_MOST_RANKS = 256
_PADDED = 128  # Megatron pads each rank's rows of a vocabulary to a multiple of this
_MATRIX = 2  # number of axes
_LEAST_PART = 8  # in one rank's file, at least one matrix in this many is divided
_KINDS = 2  # kinds of modules that one config value shapes: as its inputs, as its outputs
_OUTPUT = re.compile(r"(?:^|\.)(?:lm_head|embed_out|proj_out|output|head)\.(?:weight|bias)$")
_OF_HEADS = re.compile(r"[qk]_(?:layer)?norm\.weight$")
_ROUTERS = (".gate.weight", ".router.weight", ".router.layer.weight", "expert_gate.weight")
_FIX = (
    "gather the parts of all ranks and save them together, with the merging or conversion script "
    "of the software that trained it"
)


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with divided axes at full length, or with the tensors of other ranks."""
    yield from _divided(case)
    if case.missing and not case.unexpected and case.stored:
        yield from _other_stages(case)
        yield from _other_experts(case)


# --- tensors are divided -----------------------------------------------------------------------


def _divided(case: Case) -> Iterator[Proposal]:
    ratios = Counter(filter(None, map(_ratio, case.mismatched)))
    for ranks, count in ratios.most_common(1):
        whole = {
            pair.stored.name: pair.expected.shape
            for pair in case.mismatched
            if _ratio(pair) == ranks or _is_vocabulary(pair, ranks)
        }
        # Other values of the config may explain it as well, and ranks divide the vocabulary too.
        if _has_norm(whole) or not _is_everywhere(case, whole) or other_size.fits(case):
            return
        yield Proposal(
            cause=CAUSE,
            change=case.reshaping(whole | _scales(case, whole, ranks)),
            summary=f"{count:,} tensors are divided by {ranks}: one rank of {ranks} saved its part "
            "of a model in tensor parallelism",
            fix=_FIX,
            evidence=(f"one axis of each is exactly 1/{ranks} of the expected one",),
        )


def _ratio(pair: MatchedPair) -> int | None:
    """Return the factor by which exactly one axis is too short; None if there is no such factor."""
    if len(pair.stored.shape or ()) != len(pair.expected.shape):
        return None
    match list(differing_axes(pair).values()):
        case [(part, full)] if part and not full % part and 1 < full // part <= _MOST_RANKS:
            return full // part
    return None


def _has_norm(divided: Shapes) -> bool:
    """Whether one of the tensors is a norm over the hidden size, which ranks do not divide."""
    norms = (name for name, shape in divided.items() if len(shape) == 1)
    return any(name.endswith(".weight") and not _OF_HEADS.search(name) for name in norms)


def _scales(case: Case, whole: Shapes, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return {name: undivided shape} for the quantization scales of divided weights."""
    return {
        scale: tuple(
            length if held == full else length * ranks
            for length, held, full in zip(part, case.shapes[name] or (), shape, strict=True)
        )
        for name, shape in whole.items()
        for scale in (f"{name}_scale_inv", f"{name}_scale")
        if (part := case.shapes.get(scale)) and len(part) == len(shape)
    }


def _is_vocabulary(pair: MatchedPair, ranks: int) -> bool:
    """Whether the tensor is one rank's rows of a vocabulary, padded to a round number of rows."""
    (rows, *width), (all_rows, *full_width) = pair.stored.shape or (0,), pair.expected.shape or (0,)
    if outermost(pair.expected.name) or width != full_width:
        return False
    return 0 < rows * ranks - all_rows < _PADDED * ranks


def _is_everywhere(case: Case, divided: Shapes) -> bool:
    """Whether every kind of module in the layers (attention, MLP) has a divided matrix.

    If only one kind has a divided matrix, or only a small part of the model, a config value is
    wrong instead. Routers are not counted, because ranks do not divide them.
    """
    matrices = sum(shape is not None and len(shape) >= _MATRIX for shape in case.shapes.values())
    if len(divided) * _LEAST_PART < matrices:
        return False
    lists = set(map(_list_of, divided)) - {""}
    found = (one for one in case.report.findings if isinstance(one, OfStored))
    aside = {name for one in found for name in one.names}
    is_divided: dict[str, bool] = {}  # by module, with 0 for each number
    for name, shape in case.shapes.items():
        if name in aside or name.endswith(_ROUTERS) or _list_of(name) not in lists:
            continue
        if shape is not None and (len(shape) == _MATRIX or _is_stack(case, name)):
            module = name_pattern(name).rsplit(".", 2)[0]
            is_divided[module] = is_divided.get(module, False) or name in divided
    leaves = {name.rpartition(".")[0].rpartition(".")[2] for name in divided}
    return bool(is_divided) and all(is_divided.values()) and len(leaves) > _KINDS


def _is_stack(case: Case, name: str) -> bool:
    """Whether save_pretrained writes several tensors for this tensor in memory."""
    pattern = name_pattern(name)
    return case.patterns_on_disk(pattern) != (case.on_disk(pattern),)


def _list_of(name: str) -> str:
    """Return the outermost list that contains the tensor; "" if none does."""
    return outermost(name).rpartition(".")[0]


# --- other ranks have the other layers or experts -----------------------------------------------


def _other_stages(case: Case) -> Iterator[Proposal]:
    """Yield a proposal that adds the other stages, if the stored layers are one unbroken run."""
    lists = partial_lists(case)
    if not lists or case.mismatched or not all(_is_run(here) for here, _ in lists.values()):
        return
    outside = [name for name in case.missing.names if not outermost(name)]
    # A first stage lacks the final norm too; if only the head is missing, it may be tied.
    if all(map(_OUTPUT.search, outside)) and any(0 in here for here, _ in lists.values()):
        return
    kinds_stored = {kind.pattern for kind in case.stored.kinds}
    if any(name_pattern(name) in kinds_stored for name in outside):
        return  # modules outside of the layers are numbered as the layers are
    if not outside and any(max(away) < min(here) for here, away in lists.values()):
        return  # only the first layers are missing: this is not a stage
    layers = " and ".join(named_layers(one, *lists[one]) for one in lists)
    without = f", without {', '.join(outside[:3])}" if outside else ""
    yield _with_others(case, f"{layers}{without}: one stage of pipeline", layers)


def _other_experts(case: Case) -> Iterator[Proposal]:
    """Yield a proposal that adds other ranks' experts, if all layers store the same run of them."""
    stored, missing = numbers(case.stored.kinds, 1), numbers(case.missing.kinds, 1)
    shares = {(frozenset(stored.get(one, ())), frozenset(missing[one])) for one in missing}
    if len(shares) != 1 or not all("expert" in one for one in missing):
        return
    ((here, away),) = shares
    inside = all(len(list(members(name))) > 1 for name in case.missing.names)
    if not here or here & away or not inside or not _is_run(here):
        return
    if len(here | away) % len(here) or min(here) % len(here):
        return  # all ranks have equal numbers of experts, so this is not one rank's share
    experts = numbered("expert", here, len(here | away))
    yield _with_others(case, f"{experts} in each layer: one rank of expert", experts)


def _is_run(numbers: AbstractSet[int]) -> bool:
    return max(numbers) - min(numbers) + 1 == len(numbers)


def _with_others(case: Case, share: str, evidence: str) -> Proposal:
    return Proposal(
        cause=CAUSE,
        change=case.adding_missing(),
        summary=f"the files hold {share} parallelism was saved",
        fix=_FIX,
        evidence=(evidence, f"the other {len(case.missing):,} tensors are all that is missing"),
    )

"""unsharded-save: only one rank's share of ZeRO-3 or FSDP was saved: empty or flattened tensors.

To do: Gather the weights before they are saved. The software that saved the shares can merge them
(`zero_to_fp32.py`, `torch.distributed.checkpoint`), but it unpickles them, which may run code: do
that only with shares that you saved yourself.
"""

import re
from collections.abc import Iterator
from math import prod

from auditor.checkpoint.change import shaped
from auditor.diagnosis.case import Case, Proposal
from auditor.findings import MatchedPair

CAUSE = "unsharded-save"
_FLAT = re.compile(r"(.*\.)?_?flat_param(_\d+)?")
_MOST_RANKS = 4096
_FIX = (
    "gather the weights before they are saved: accelerator.save_model, "
    "stage3_gather_16bit_weights_on_model_save of DeepSpeed, or FULL_STATE_DICT of FSDP; "
    "zero_to_fp32.py or torch.distributed.checkpoint merges the shares, but unpickles them, "
    "which may run code: do it only with shares that you saved yourself"
)


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with full shapes for tensors that are empty or one rank's share."""
    if parts := [pair for pair in case.mismatched if _is_part(pair)]:
        yield _of_parts(case, parts)
    yield from _of_flat_parameters(case)


def _is_part(pair: MatchedPair) -> bool:
    """Whether a tensor is empty, or a vector where a larger tensor of more axes is expected."""
    shape, expected = pair.stored.shape, pair.expected.shape
    if shape is None or 0 in shape:
        return shape is not None and 0 not in expected
    return len(shape) == 1 < len(expected) and shape[0] <= prod(expected)


def _of_parts(case: Case, parts: list[MatchedPair]) -> Proposal:
    empty = sum(pair.stored.elements == 0 for pair in parts)
    shorter = [
        one
        for one in case.mismatched
        if len(one.stored.shape or ()) == len(one.expected.shape) == 1
        and 0 < (one.stored.elements or 0) < one.expected.elements
    ]
    counts = {
        f"{empty:,} {'tensor has' if empty == 1 else 'tensors have'} no elements": empty,
        f"{len(parts) - empty:,} are flattened, whole or in part": len(parts) - empty,
        f"{len(shorter):,} shorter than expected": len(shorter),
    }
    return Proposal(
        cause=CAUSE,
        change=case.as_expected((*parts, *shorter)),
        summary=f"{' and '.join(text for text, count in counts.items() if count)}: one rank saved "
        "its own part of a sharded model",
        fix=_FIX,
        evidence=(f"{len(parts):,} of {len(case.stored):,} tensors",),
    )


def _of_flat_parameters(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing tensors, if flat parameters contain a rank's share."""
    flat = [one for one in case.stored if one.elements and _FLAT.fullmatch(one.name)]
    if not flat:
        return
    held = sum(one.elements or 0 for one in flat)
    expected = sum(one.elements for one in case.missing)
    ranks = -(-expected // held)
    padding = held * ranks - expected
    if not 0 < ranks <= _MOST_RANKS or padding >= ranks * (len(flat) + 1):
        return
    whole = tuple(shaped(flat[0], one.shape, one.name) for one in case.missing)
    yield Proposal(
        cause=CAUSE,
        change=case.replacing({**{one.name: () for one in flat}, flat[0].name: whole}),
        summary=f"the weights are in {len(flat):,} flat parameters of FSDP, of {held:,} elements: "
        f"{'all' if ranks == 1 else f'one rank of {ranks}'} of {expected:,}",
        fix=_FIX,
        evidence=(f"{held:,} x {ranks} elements are those of the {len(whole):,} missing tensors",),
    )

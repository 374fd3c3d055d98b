"""unsharded-save: only one rank's share of ZeRO-3 or FSDP was saved: empty or flattened tensors.

To do: Gather the weights before they are saved, or merge the shares with the script of the software
that saved them (`zero_to_fp32.py`, `torch.distributed.checkpoint`).
"""

import re
from collections.abc import Iterator
from math import prod

from auditor.checkpoint.changes import with_shapes, with_tensors
from auditor.diagnosis.case import Case, Undoing
from auditor.findings import MatchedPair, Missing
from auditor.tensors import StoredTensor

CAUSE = "unsharded-save"
_FLAT = re.compile(r"(.*\.)?_?flat_param(_\d+)?")
_MOST_RANKS = 4096
_FIX = (
    "gather the weights before they are saved: accelerator.save_model, "
    "stage3_gather_16bit_weights_on_model_save of DeepSpeed, or FULL_STATE_DICT of FSDP; "
    "zero_to_fp32.py or torch.distributed.checkpoint merges what the ranks saved"
)


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model with full shapes for tensors that are empty or one rank's share."""
    if parts := [pair for pair in case.mismatched if _is_part(pair)]:
        yield _of_parts(case, parts)
    yield from _of_flat_parameters(case)


def _is_part(pair: MatchedPair) -> bool:
    """Whether a tensor is empty, or a vector where a larger tensor of more axes is expected."""
    shape, expected = pair.stored.shape, pair.expected.shape
    if shape is None:
        return False
    if 0 in shape:
        return 0 not in expected
    return len(shape) == 1 and len(expected) > 1 and shape[0] <= prod(expected)


def _of_parts(case: Case, parts: list[MatchedPair]) -> Undoing:
    empty = sum(0 in (pair.stored.shape or ()) for pair in parts)
    flat = len(parts) - empty
    vectors = [one for one in case.mismatched if not _is_part(one) and _is_stretch(one)]
    have = "tensor has" if empty == 1 else "tensors have"
    counts = [f"{empty:,} {have} no elements"] if empty else []
    counts += [f"{flat:,} are flattened, whole or in part"] if flat else []
    counts += [f"{len(vectors):,} shorter than expected"] if vectors else []
    return Undoing(
        cause=CAUSE,
        snapshot=with_shapes(
            case.snapshot, {pair.stored.name: pair.expected.shape for pair in (*parts, *vectors)}
        ),
        summary=f"{' and '.join(counts)}: one rank saved its own part of a sharded model",
        fix=_FIX,
        evidence=(f"{len(parts):,} of {len(case.stored):,} tensors",),
    )


def _is_stretch(pair: MatchedPair) -> bool:
    """Whether stored and expected tensor are vectors, and the stored vector is shorter."""
    shape, expected = pair.stored.shape, pair.expected.shape
    return shape is not None and len(shape) == len(expected) == 1 and shape < expected


def _of_flat_parameters(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with the missing tensors, if flat parameters contain a rank's share."""
    flat = [one for one in case.stored if one.elements and _FLAT.fullmatch(one.name)]
    missing = [
        one for item in case.report.findings if isinstance(item, Missing) for one in item.tensors
    ]
    held = sum(one.elements or 0 for one in flat)
    expected = sum(one.elements for one in missing)
    ranks = -(-expected // held) if held else 0
    padding = held * ranks - expected
    if not flat or not 0 < ranks <= _MOST_RANKS or padding >= ranks * (len(flat) + 1):
        return
    whole = tuple(
        StoredTensor(one.name, flat[0].dtype, one.shape, one.elements, "", flat[0].span)
        for one in missing
    )
    instead: dict[str, tuple[StoredTensor, ...]] = {one.name: () for one in flat}
    instead[flat[0].name] = whole
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, instead),
        summary=f"the weights are in {len(flat):,} flat parameters of FSDP, of {held:,} elements: "
        f"{'all' if ranks == 1 else f'one rank of {ranks}'} of {expected:,}",
        fix=_FIX,
        evidence=(
            f"{held:,} x {ranks} elements are those of the {len(missing):,} missing tensors",
        ),
    )

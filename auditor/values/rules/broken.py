"""Numbers that no sound checkpoint has: NaN, Inf and matrices of zeros; and padded floats."""

import re
from collections.abc import Iterator

import numpy as np

from auditor.findings import AllZero, NotFinite, PaddedDtype, by_name
from auditor.reconciler.tensor_values import TensorValues
from auditor.tensors import learned
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import EMBEDDING, HEAD, MASK, MAY_BE_ZERO, NORM, NUMBER
from auditor.values.rules import limits

_LAYER = re.compile(r".*?\d+\.")
_TOKENS = re.compile(r"(?:^|\.)(?:lm_head|embed_out|embed_tokens|word_embeddings|wte|shared)\.")

# `X.scales` of X.qweight (GPTQ, AWQ), `X.weight_scale` of X.weight or X.weight_packed (fp8,
# compressed-tensors), `X.weight.absmax` and `X.SCB` of X.weight (bitsandbytes).
_SCALE = re.compile(
    r"(.*?)[._](?:weight[._])?(?:scales?|scale_inv|scale_2|global_scale|(?:nested_)?absmax|SCB)"
)
_PACKED = (".qweight", ".weight", ".weight_packed", "_blocks", ".B")
_PACKED_DTYPES = frozenset(
    ("I8", "U8", "I32", "U32", "I16", "I64", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
)

# Types whose norms multiply by 1 + weight and begin at zero: `1.0 + self.weight` in transformers
# 5.24. Their untrained norms are zero.
_ADD_ONE = (
    "gemma",
    "minimax_m3",
    "muse_",
    "nemotron",
    "paligemma",
    "qwen3_5",
    "qwen3_next",
    "qwen4",
    "recurrent_gemma",
    "step3",
    "t5gemma",
    "vaultgemma",
    "videoprism",
)


def not_finite(evidence: Evidence) -> Iterator[NotFinite]:
    counts: dict[str, tuple[int, int]] = {}
    for name, read in evidence.values.items():
        buffer = name in evidence.buffers or MASK.search(name)
        if read.nan or (read.inf and not buffer):
            counts[name] = (read.nan, read.inf)
    if counts:
        tensors = by_name(evidence.tensor(name) for name in counts)
        nan, inf = (sum(one[at] for one in counts.values()) for at in (0, 1))
        numbers = sum(evidence.values[name].read for name in counts)
        both = f"NaN ({nan:,}) or infinite ({inf:,})"
        kinds = both if nan and inf else "NaN" if nan else "infinite"
        yield NotFinite(
            tensors=tensors,
            counts=tuple(counts[one.name] for one in tensors),
            reason=f"{nan + inf:,} of {numbers:,} numbers that {evidence.were_read} are {kinds}",
        )


def all_zero(evidence: Evidence) -> Iterator[AllZero]:
    """Yield matrices that must not be zero, and scales of packed tensors; see AllZero."""
    zero: dict[str, list[str]] = {}  # names by kind: the name without its numbers
    alive: set[str] = set()
    scales: list[str] = []
    for name in evidence.values:
        tensor, kind = evidence.tensor(name), NUMBER.sub("#", name)
        if is_scale(evidence, name):
            if evidence.seems_zero(name, limits.LEAST_ZEROS):
                scales.append(name)
            continue
        if not is_matrix(tensor) or name in evidence.buffers:
            continue
        is_packed = name.endswith((".qweight", ".weight_packed", "_blocks", ".weight"))
        if not (holds_floats(tensor) or learned(tensor) or is_packed):
            continue
        if is_all_zero(evidence, name):
            zero.setdefault(kind, []).append(name)
        else:
            alive.add(kind)
    zero_names = [
        *scales,
        *_zero_norms(evidence),
        *(
            name
            for kind, names in zero.items()
            if not MAY_BE_ZERO.search(kind) or _TOKENS.search(kind) or _is_exception(kind, alive)
            for name in names
            if not evidence.is_adapter
        ),
    ]
    if zero_names:
        tensors = by_name(map(evidence.tensor, zero_names))
        numbers = sum(evidence.values[name].read for name in zero_names)
        reason = f"all {numbers:,} numbers that {evidence.were_read} are zero"
        yield AllZero(tensors=tensors, reason=reason)


def _zero_norms(evidence: Evidence) -> Iterator[str]:
    """Yield norms that are zero, although they multiply what they norm.

    If the class may add 1 to them, or is not known, another norm of the same layer must have been
    trained.
    """
    norms = [
        name
        for name in evidence.values
        if NORM.search(name) and not is_matrix(evidence.tensor(name)) and not evidence.is_adapter
    ]
    zero = [name for name in norms if evidence.seems_zero(name, limits.LEAST_ZEROS)]
    may_begin_at_zero = norms_may_begin_at_zero(evidence)
    for name in zero:
        layer = match[0] if (match := _LAYER.match(name)) else ""
        near = [one for one in norms if one != name and one.startswith(layer)] or norms
        moved = (one for one in near if one not in zero and evidence.constant(one) != 1)
        if not may_begin_at_zero or any(moved):
            yield name


def norms_may_begin_at_zero(evidence: Evidence) -> bool:
    """Return whether the class adds 1 to the weights of its norms, or is not known."""
    types = [str(one.get("model_type") or "") for one in evidence.configs]
    return not any(types) or any(one.startswith(_ADD_ONE) for one in types)


def is_all_zero(evidence: Evidence, name: str) -> bool:
    """Return whether all numbers read are zero; False for a sample of fewer than 1,024 numbers.

    A sample of only the last rows of an embedding or head does not count: they may be padding.
    """
    if not evidence.seems_zero(name, limits.LEAST_ZEROS):
        return False
    if evidence.values[name].is_complete or not (EMBEDDING.search(name) or HEAD.search(name)):
        return True
    start = next((run.start for run in evidence.runs(name, 1)), 0)
    return 2 * start < evidence.placed[name].span.length


def is_scale(evidence: Evidence, name: str) -> bool:
    """Return whether a tensor has the scales of a packed tensor, whose numbers they multiply."""
    match = _SCALE.fullmatch(name)
    if match is None or not holds_floats(evidence.tensor(name)):
        return False
    packed = (evidence.placed.get(f"{match[1]}{end}") for end in ("", *_PACKED))
    dtypes = (placed.tensor.dtype for placed in packed if placed)
    return any(dtype in _PACKED_DTYPES for dtype in dtypes)


def _is_exception(kind: str, alive: set[str]) -> bool:
    """Return whether another layer's matrix is not zero; False for biases and adapters."""
    return kind in alive and "bias" not in kind and "lora_" not in kind


def padded_dtype(evidence: Evidence) -> Iterator[PaddedDtype]:
    """Yield a finding if bfloat16 could hold a tenth of all bytes, which are F32 numbers.

    A tensor counts if all of its numbers fit, or a quarter. Tensors with few different numbers do
    not count: ones and masks end in zeros in any dtype.
    """
    wide = [one for one in evidence.values.values() if one.dtype == "F32" and one.nonzero]
    shares = {
        one.name: share
        for one in wide
        if (share := _padded_share(evidence, one)) >= limits.PADDED_SHARE
    }
    varied = [
        name
        for name in shares
        if evidence.values[name].read >= limits.LEAST_VARIED and _is_varied(evidence, name)
    ]
    numbers = sum(round(shares[name] * evidence.values[name].read) for name in varied)
    size = 4 * sum(round(shares[name] * evidence.values[name].numbers) for name in varied)
    if evidence.sampled:  # the unread ones are assumed to be like the read ones
        if 2 * numbers <= sum(one.read for one in wide):
            return
        size = sum(one.span.length for one in evidence.placed.values() if one.tensor.dtype == "F32")
    all_bytes = sum(one.span.length for one in evidence.placed.values())
    if numbers < limits.LEAST_PADDED or size < limits.PADDED_BYTES * all_bytes:
        return
    whole = [name for name in shares if shares[name] == 1]
    saved = 2 * sum(evidence.values[name].numbers for name in whole)
    part = [name for name in varied if shares[name] < 1]
    least = f"{limits.PADDED_SHARE:.0%}"
    clause = f"the lower 16 bits of {'all ' if not part else 'about '}{numbers:,} numbers that "
    yield PaddedDtype(
        tensors=by_name(map(evidence.tensor, [*whole, *part])),
        reason=f"{clause}{evidence.were_read} are zero"
        + (f": BF16 would hold these tensors in {saved:,} bytes less" if whole else "")
        + (f"; {len(part):,} tensors have {least} or more such numbers" if part else ""),
    )


def _padded_share(evidence: Evidence, read: TensorValues) -> float:
    """Return the share of a tensor's F32 numbers that fit BF16; it is 1 only if all of them do.

    Otherwise it is estimated from the nonzero numbers of a sample, and is 0 if these are too few.
    """
    if read.fits_bf16:
        return 1.0
    profile = evidence.profile(read.name)
    if profile is None or profile.nonzero < limits.LEAST_VARIED:
        return 0.0
    return min(profile.padded / profile.nonzero, 0.99)


def _is_varied(evidence: Evidence, name: str) -> bool:
    numbers = evidence.sample(name)
    return numbers is not None and len(np.unique(numbers)) >= min(
        limits.LEAST_VARIED, len(numbers) // 4
    )

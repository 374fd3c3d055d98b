"""Numbers that no sound checkpoint has: NaN, Inf and matrices of zeros; and padded floats."""

import re
from collections.abc import Iterator

import numpy as np

from auditor.findings import AllZero, NotFinite, PaddedDtype, by_name
from auditor.tensors import learned
from auditor.values.evidence import Evidence, holds_floats, is_matrix
from auditor.values.name_patterns import EMBEDDING, HEAD, NUMBER

# Masks of attention are made of -Inf, whether or not the architecture is known to store them.
_MASK = re.compile(r"(?:^|[._])(?:masked_bias|attn\.bias|mask|attention_bias)$")
# Tensors that transformers initializes to zero, or that are zero in real checkpoints without harm:
# tables of biases and of positions, sampling offsets and box heads of DETR and its like, routers,
# projections that join an image tower, the token types that RoBERTa ignores. Source: `init.zeros_`
# in transformers 5.23.
_MAY_BE_ZERO = re.compile(
    r"bias|position|pos_emb|token_type|type_embed|relative|bbox|sampling_offsets|attention_weights"
    r"|(?:^|\.)(?:gate|router)\.weight$|mm_input|entity|(?:^|[._])(?:cls|mask|query|register)_"
    r"|gamma|alpha|static|running|mask|lora_|hada_|lokr_|vera_|ia3_|oft_|adaLN|modulation|zero"
)
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

_LEAST = 1024  # numbers whose lower halves are checked
_VARIED = 64  # different numbers of a sample: masks and norms have fewer
_SHARE = 0.1  # of all bytes: float32 norms of a bfloat16 model are far less


def not_finite(evidence: Evidence) -> Iterator[NotFinite]:
    counts: dict[str, tuple[int, int]] = {}
    for name, read in evidence.values.items():
        buffer = name in evidence.buffers or _MASK.search(name)
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
            if evidence.seems_zero(name, _LEAST):
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
    zero_names = scales + [
        name
        for kind, names in zero.items()
        if not _MAY_BE_ZERO.search(kind) or _TOKENS.search(kind) or _is_exception(kind, alive)
        for name in names
        if not evidence.is_adapter
    ]
    if zero_names:
        tensors = by_name(map(evidence.tensor, zero_names))
        numbers = sum(evidence.values[name].read for name in zero_names)
        reason = f"all {numbers:,} numbers that {evidence.were_read} are zero"
        yield AllZero(tensors=tensors, reason=reason)


def is_all_zero(evidence: Evidence, name: str) -> bool:
    """Return whether all numbers read are zero; False for a sample of fewer than 1,024 numbers.

    A sample of only the last rows of an embedding or head does not count: they may be padding.
    """
    if not evidence.seems_zero(name, _LEAST):
        return False
    if evidence.values[name].is_complete or not (EMBEDDING.search(name) or HEAD.search(name)):
        return True
    start = next((run.start for run in evidence.bytes.runs(evidence.placed[name])), 0)
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
    """Yield a finding if bfloat16 could hold most F32 numbers, a tenth of all bytes or more.

    Tensors with few different numbers do not count: ones and masks end in zeros in any dtype.
    """
    wide = [one for one in evidence.values.values() if one.dtype == "F32" and one.nonzero]
    if any(one.fits_bf16 is None for one in wide):
        return
    padded = [one for one in wide if one.fits_bf16]
    varied = [one.name for one in padded if one.read >= _VARIED and _is_varied(evidence, one.name)]
    numbers = sum(evidence.values[name].read for name in varied)
    others = sum(one.read for one in wide if not one.fits_bf16)
    size = 4 * sum(evidence.values[name].numbers for name in varied)
    if evidence.sampled:  # the unread ones are assumed to be like the read ones
        size = sum(one.span.length for one in evidence.placed.values() if one.tensor.dtype == "F32")
    all_bytes = sum(one.span.length for one in evidence.placed.values())
    if numbers < _LEAST or numbers <= others or size < _SHARE * all_bytes:
        return
    tensors = by_name(evidence.tensor(one.name) for one in padded)
    saved = 2 * sum(one.numbers for one in padded)
    yield PaddedDtype(
        tensors=tensors,
        reason=f"the lower 16 bits of all {numbers:,} numbers that {evidence.were_read} are zero: "
        f"BF16 would hold these tensors in {saved:,} bytes less",
    )


def _is_varied(evidence: Evidence, name: str) -> bool:
    numbers = evidence.sample(name)
    return numbers is not None and len(np.unique(numbers)) >= min(_VARIED, len(numbers) // 4)

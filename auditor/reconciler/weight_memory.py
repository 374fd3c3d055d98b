"""The memory of the weights by the dtype of a parameter: a 4-bit weight is not an I32."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.status import Fate
from auditor.tensors import DTYPE_BITS
from auditor.walker import Walk

QUANTIZATION_DATA = "quantization-data"  # scales and their kin, of whatever dtype


@dataclass(frozen=True, kw_only=True)
class Weights:
    """All stored tensors of one dtype: of the file, or of the layout where they are packed."""

    dtype: str  # "BF16", "INT4"; "quantization-data" for what serves packed tensors
    tensors: int
    parameters: int
    bytes: int

    @property
    def bits_per_parameter(self) -> float | None:
        return 8 * self.bytes / self.parameters if self.parameters else None


def weights_by_dtype(reconciled: Reconciled, walked: Walk) -> tuple[Weights, ...]:
    """Sorted by dtype; `walked` is the walk over the reconciled tensors.

    Tensors without a header are in no row.
    """
    if reconciled.packed:
        return tuple(_of_packed(reconciled))
    return tuple(
        Weights(dtype=dtype, tensors=tally.tensors, parameters=tally.parameters, bytes=tally.bytes)
        for dtype, tally in walked.by_dtype().items()
    )


def _of_packed(reconciled: Reconciled) -> Iterator[Weights]:
    """By the dtypes of what is packed; it and what serves it takes all the bytes that it spans."""
    packed, serves = reconciled.packed, Fate.QUANTIZATION_DATA.value
    sums: dict[str, list[int]] = {}  # tensors, parameters, bits
    for tensor, parameters, fate in reconciled.counted:
        name, dtype, _, elements, file, span = tensor
        dtype = QUANTIZATION_DATA if fate == serves else packed.get((name, file), dtype)
        if dtype is None:
            continue
        each = sums.get(dtype)
        if each is None:
            each = sums[dtype] = [0, 0, 0]
        each[0] += 1
        each[1] += parameters
        if dtype in DTYPE_BITS:
            each[2] += (elements or 0) * DTYPE_BITS[dtype]
        elif span is not None:
            each[2] += 8 * span.length
    for dtype, (tensors, parameters, bits) in sorted(sums.items()):
        yield Weights(dtype=dtype, tensors=tensors, parameters=parameters, bytes=bits // 8)

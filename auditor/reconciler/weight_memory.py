"""The memory of the weights by the dtype of a parameter: a 4-bit weight is not an I32."""

from msgspec import Struct

from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.status import Fate
from auditor.tensors import DTYPE_BITS, StoredTensor
from auditor.walker import Walk

QUANTIZATION_DATA = "quantization-data"  # scales and their kin, of whatever dtype


class Weights(Struct, frozen=True, kw_only=True):
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
    rows: dict[str, list[int]] = {}
    for dtype, tally in walked.by_dtype().items():
        _add(rows, dtype, tally.tensors, tally.parameters, tally.bytes)
    for dtype, tally in walked.by_dtype(Fate.QUANTIZATION_DATA.value).items():
        _add(rows, dtype, -tally.tensors, -tally.parameters, -tally.bytes)
        _add(rows, QUANTIZATION_DATA, tally.tensors, tally.parameters, tally.bytes)
    packed = reconciled.packed
    for tensor, parameters, _ in reconciled.counted if packed else ():
        inside, outside = packed.get((tensor.name, tensor.file)), tensor.dtype or ""
        if inside is not None:
            _add(rows, outside, -1, -parameters, -_bytes(tensor, outside))
            _add(rows, inside, 1, parameters, _bytes(tensor, inside))
    return tuple(
        Weights(dtype=dtype, tensors=tensors, parameters=parameters, bytes=size)
        for dtype, (tensors, parameters, size) in sorted(rows.items())
        if dtype and tensors
    )


def _add(rows: dict[str, list[int]], dtype: str, *counts: int) -> None:
    row = rows.get(dtype, (0, 0, 0))
    rows[dtype] = [before + more for before, more in zip(row, counts, strict=True)]


def _bytes(tensor: StoredTensor, dtype: str) -> int:
    if dtype in DTYPE_BITS:
        return (tensor.elements or 0) * DTYPE_BITS[dtype] // 8
    return tensor.span.length if tensor.span else 0

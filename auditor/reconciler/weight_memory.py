"""The memory of the weights by the dtype of a parameter: a 4-bit weight is not an I32."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.status import Fate
from auditor.walker import Counted, Walk, walk

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
        walked = walk(_relabelled(reconciled), depth=0)
    return tuple(
        Weights(dtype=dtype, tensors=tally.tensors, parameters=tally.parameters, bytes=tally.bytes)
        for dtype, tally in walked.by_dtype().items()
    )


def _relabelled(reconciled: Reconciled) -> Iterator[Counted]:
    for tensor, parameters, fate in reconciled.counted:
        dtype = reconciled.packed.get((tensor.name, tensor.file), tensor.dtype)
        if fate == Fate.QUANTIZATION_DATA:
            dtype = QUANTIZATION_DATA
        yield Counted(tensor._replace(dtype=dtype), parameters, fate)

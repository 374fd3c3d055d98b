"""The comparison of two models: their tensors, the bytes or files, and the sampled numbers."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from auditor.audit.declaration import is_gguf
from auditor.audit.gguf_declaration import declared_by_gguf, first_header
from auditor.checkpoint.snapshot import Snapshot
from auditor.comparing import Comparison, Side, compare, renaming, side_of, stored_pairs
from auditor.errors import CheckpointError, SourceError
from auditor.layouts.packing import Implied
from auditor.values.examination import require_numpy
from auditor.values.same_bytes import compare_bytes

# Keys of a GGUF file's metadata below its architecture, and the keys of a config.
_NUMBERS = {
    "rope.freq_base": "rope_theta",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
}


def compare_models(
    before: Snapshot, after: Snapshot, *, values: bool, say: Callable[[str], None]
) -> Comparison:
    """Compare two checkpoints; raise SourceError if one of them cannot be compared."""
    if values:
        require_numpy()
    first, second = _sides(before, after)
    pairs = tuple(stored_pairs(first, second, renaming(first, second)))
    stored = compare_bytes(before, after, pairs, say)
    if not values:
        return compare(first, second, stored)
    from auditor.values.distances import sample_distances  # noqa: PLC0415 - imports numpy

    numbers, unread = sample_distances(before, after, first, second, stored)
    return compare(first, second, stored, numbers, unread)


def _sides(before: Snapshot, after: Snapshot) -> tuple[Side, Side]:
    """Return both sides; the shapes of a plain one show those that the other's packing hides."""
    first, second = _side(before), _side(after)
    if first.layout is None and second.layout is not None:
        return first, _side(after, _shapes(first))
    if second.layout is None and first.layout is not None:
        return _side(before, _shapes(second)), second
    return first, second


def _shapes(side: Side) -> Implied:
    shapes = {name: tensor.shape for name, tensor in side.tensors.items()}
    return shapes.get


def _side(snapshot: Snapshot, implied: Implied = lambda _name: None) -> Side:
    if not is_gguf(snapshot):
        return side_of(snapshot, implied=implied)
    declared = None
    with suppress(CheckpointError, SourceError):  # of an architecture without a table of names
        declared = declared_by_gguf(snapshot)
    if declared is None:
        return side_of(snapshot, implied=implied)
    config = {**declared.config.values, **_metadata(snapshot)}
    return side_of(snapshot, config=config, declared=declared.quantization, implied=implied)


def _metadata(snapshot: Snapshot) -> Mapping[str, Any]:
    """Return the values that tensors do not depend on, under the keys of a config."""
    header = first_header(snapshot)
    if header is None:
        return {}
    arch = header.text("general.architecture") or ""
    values = {
        key: value
        for own, key in _NUMBERS.items()
        if isinstance(value := header.metadata.get(f"{arch}.{own}"), float)
    }
    end = header.integer("tokenizer.ggml.eos_token_id")
    return values if end is None else {**values, "eos_token_id": end}

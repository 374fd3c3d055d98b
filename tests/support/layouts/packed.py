"""Packed checkpoints for the tests of layouts: tables of tensors, their pieces, their files."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from random import Random

from support.layouts.indexed import hides_what_it_cannot_show
from support.sharding import on_disk

from auditor.audit.pipeline import audit
from auditor.layouts.packing import Declared, Layout, Stored, Unpacked
from auditor.tensors import DTYPE_BITS, Span, StoredTensor

Shape = tuple[int, ...]
Table = Mapping[str, tuple[str, Shape] | None]  # name: (dtype, shape); None: an index names it


# The config of a small decoder.
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 32,
}


def stored(table: Table) -> tuple[StoredTensor, ...]:
    return tuple(_stored(name, described) for name, described in table.items())


def _stored(name: str, described: tuple[str, Shape] | None) -> StoredTensor:
    if described is None:
        return StoredTensor(name, None, None, None, "model.safetensors", None)
    dtype, shape = described
    size = prod(shape) * DTYPE_BITS[dtype] // 8
    return StoredTensor(name, dtype, shape, prod(shape), "model.safetensors", Span(0, size))


def says(method: str, **settings: object) -> Declared:
    return Declared(method=method, settings=settings, where="quantization_config")


def opened(
    layout: Layout,
    table: Table,
    declared: Declared | None = None,
    implied: Mapping[str, Shape] | None = None,
    *,
    large: bool = False,
) -> Unpacked:
    """What the layout makes of the table; every stored tensor is accounted for once.

    It makes the same of it where some tensors, or all of them, are behind unread files; of a large
    table a smaller one of the same kind has to show that.
    """
    unpacked = _opened(layout, table, declared, implied)
    if large:
        return unpacked
    asks = layout.name not in {"fp8", "mxfp4"}  # whose shapes say it all
    known = unpacked.tensors and (not asks or pieces(unpacked).items() <= (implied or {}).items())
    if known and declared and not unpacked.faults and layout.recognises(Stored(stored(table))):
        _tells_the_same_by_names(layout, table, declared, implied, unpacked)
    return unpacked


def _opened(
    layout: Layout, table: Table, declared: Declared | None, implied: Mapping[str, Shape] | None
) -> Unpacked:
    tensors = stored(table)
    unpacked = layout.unpack(Stored(tensors), declared, (implied or {}).get)
    packed = {piece.stored.name for piece in unpacked.tensors}
    notes = [tensor.name for one in unpacked.quantization_data for tensor in one.tensors]
    assert len(notes) == len(set(notes)), "a tensor is quantization_data once"
    assert packed.isdisjoint(notes), "a tensor is a piece or quantization_data"
    assert packed.union(notes) <= set(table)
    names = [piece.name for piece in unpacked.tensors]
    assert len(names) == len(set(names)), "a name is of one piece"
    return unpacked


def _tells_the_same_by_names(
    layout: Layout,
    table: Table,
    declared: Declared | None,
    implied: Mapping[str, Shape] | None,
    whole: Unpacked,
) -> None:
    draw = Random(0)  # noqa: S311 - no secret
    for share in (1.0, *(draw.random() for _ in range(7))):
        seen = {name: None if draw.random() < share else one for name, one in table.items()}
        unpacked = _opened(layout, seen, declared, implied)
        unseen = [name for name, one in seen.items() if one is None]
        assert layout.recognises(Stored(stored(seen))), unseen
        assert faults(unpacked) == {}, (unseen, faults(unpacked))
        assert _names(unpacked, table) == _names(whole, table), unseen
        assert quantization_data(unpacked) == quantization_data(whole), unseen


def tells_what_is_written(
    layout: Layout, table: Table, declared: Declared, implied: Mapping[str, Shape]
) -> None:
    """From names, the config and the architecture's shapes alone: just what the writer stored."""
    whole = _opened(layout, table, declared, implied)
    if layout.name != "mlx":  # whose axes and experts the architecture names
        alone = _opened(layout, dict.fromkeys(table), declared, None)
        assert (faults(alone), pieces(alone)) == ({}, dict.fromkeys(pieces(whole)))
        assert quantization_data(alone) == quantization_data(whole)
    told = layout.writes(Stored(stored(dict.fromkeys(table))), declared, implied.get)
    for name, one in told.items():
        dtype, shape = table[name] or ("", ())
        assert dtype in one.dtypes, (name, dtype, one)
        assert 0 <= prod(one.shape) - prod(shape) <= one.fewer, (name, shape, one)
    packed = {piece.stored.name for piece in whole.tensors} | quantization_data(whole)
    moved = {piece.stored.name for piece in whole.tensors if piece.dtype in {"F32", "BF16", "F16"}}
    assert set(told) == packed - moved
    again = {name: (one.dtypes[0], one.shape) for name, one in told.items()}
    unpacked = _opened(layout, {**table, **again}, declared, implied)
    assert (faults(unpacked), pieces(unpacked)) == ({}, pieces(whole))


def _names(unpacked: Unpacked, table: Table) -> set[str]:
    """What the unpacked checkpoint holds: pieces, and what is plain."""
    packed = {piece.stored.name for piece in unpacked.tensors} | quantization_data(unpacked)
    return set(pieces(unpacked)) | table.keys() - packed


def pieces(unpacked: Unpacked) -> dict[str, Shape | None]:
    return {piece.name: piece.shape for piece in unpacked.tensors}


def quantization_data(unpacked: Unpacked) -> set[str]:
    return {tensor.name for one in unpacked.quantization_data for tensor in one.tensors}


def faults(unpacked: Unpacked) -> dict[str, set[str]]:
    """By reason, the tensors that it is about."""
    return {fault.reason: {tensor.name for tensor in fault.tensors} for fault in unpacked.faults}


def spoiled(table: Table) -> Iterator[tuple[str, Table]]:
    """The table with one tensor longer, flatter or thinner, and the tensor's name."""
    for name, described in table.items():
        if described is not None:
            dtype, shape = described
            for other in {(*shape[:-1], shape[-1] + 1) if shape else (2,), (prod(shape), 3, 1)}:
                yield name, {**table, name: (dtype, other)}


def shapes(table: Mapping[str, tuple[str, Shape]]) -> dict[str, Shape]:
    return {name: shape for name, (_, shape) in table.items()}


def holds_the_plain_checkpoint(
    layout: Layout, folder: Path, plain: Path, declared: Declared | None = None
) -> None:
    """What a library packed is the checkpoint that it was made of, and audits clean."""
    expected, found = shapes(on_disk(plain)), on_disk(folder)
    unpacked = opened(layout, found, declared, expected)
    assert unpacked.faults == ()
    inside = {piece.stored.name for piece in unpacked.tensors} | quantization_data(unpacked)
    left = {name: shape for name, (_, shape) in found.items() if name not in inside}
    assert {**left, **pieces(unpacked)} == expected
    assert pieces(unpacked) or quantization_data(unpacked)
    report = audit(str(folder))
    assert (report.residual, report.verdict) == (0, "clean")
    hides_what_it_cannot_show(folder)

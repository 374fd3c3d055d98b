"""Packed checkpoints for the tests of layouts: tables of tensors, their pieces, their files."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from auditor.audit import audit
from auditor.containers.safetensors import parse_header
from auditor.layouts.packing import Declared, Layout, Stored, Unpacked
from auditor.tensors import DTYPE_BITS, Span, StoredTensor

Shape = tuple[int, ...]
Table = Mapping[str, tuple[str, Shape] | None]  # name: (dtype, shape); None: an index names it


# Linears (out, in) of a layer of Llama-3.1-8B, and of Mistral-7B.
LINEARS_OF_8B: Mapping[str, Shape] = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (1024, 4096),
    "self_attn.v_proj": (1024, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096),
    "mlp.down_proj": (4096, 14336),
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
) -> Unpacked:
    """What the layout makes of the table; every stored tensor is accounted for once."""
    tensors = stored(table)
    unpacked = layout.unpack(Stored(tensors), declared, (implied or {}).get)
    packed = {piece.stored.name for piece in unpacked.pieces}
    notes = [tensor.name for one in unpacked.bookkeeping for tensor in one.tensors]
    assert len(notes) == len(set(notes)), "a tensor is bookkeeping once"
    assert packed.isdisjoint(notes), "a tensor is a piece or bookkeeping"
    assert packed.union(notes) <= set(table)
    names = [piece.name for piece in unpacked.pieces]
    assert len(names) == len(set(names)), "a name is of one piece"
    return unpacked


def pieces(unpacked: Unpacked) -> dict[str, Shape | None]:
    return {piece.name: piece.shape for piece in unpacked.pieces}


def bookkeeping(unpacked: Unpacked) -> set[str]:
    return {tensor.name for one in unpacked.bookkeeping for tensor in one.tensors}


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


def on_disk(folder: Path) -> dict[str, tuple[str, Shape]]:
    """The tensors in the headers of all safetensors files of a folder."""
    table: dict[str, tuple[str, Shape]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for tensor in parse_header(path.name, path.read_bytes()).tensors:
            assert tensor.dtype is not None
            assert tensor.shape is not None
            table[tensor.name] = (tensor.dtype, tensor.shape)
    return table


def shapes(table: Mapping[str, tuple[str, Shape]]) -> dict[str, Shape]:
    return {name: shape for name, (_, shape) in table.items()}


def holds_the_plain_checkpoint(
    layout: Layout, folder: Path, plain: Path, declared: Declared | None = None
) -> None:
    """What a library packed is the checkpoint that it was made of, and audits clean."""
    expected, found = shapes(on_disk(plain)), on_disk(folder)
    unpacked = opened(layout, found, declared, expected)
    assert unpacked.faults == ()
    inside = {piece.stored.name for piece in unpacked.pieces} | bookkeeping(unpacked)
    left = {name: shape for name, (_, shape) in found.items() if name not in inside}
    assert {**left, **pieces(unpacked)} == expected
    assert pieces(unpacked)
    report = audit(str(folder))
    assert (report.residual, report.verdict) == (0, "clean")

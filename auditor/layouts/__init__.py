"""Stored tensors -> parameters, one file for each layout, or a folder where it takes several.

What layouts share begins with an underscore, and no layout reads another. `packing` is what a
layout is, `declared` what a config says; `fused` is about stacked experts, and comes after all.

`unpack_tensors` looks for a layout where a checkpoint declares one, or holds dtypes that one uses.
All other checkpoints are plain, and cost nothing here.
"""

from collections.abc import Mapping
from importlib import import_module
from itertools import chain
from types import MappingProxyType

from msgspec.structs import replace

from auditor.layouts.packing import (
    PLAIN,
    Declared,
    Implied,
    Layout,
    PackingFault,
    Stored,
    Unpacked,
    WrittenTensor,
)
from auditor.messages import named
from auditor.tensors import StoredTensor

__all__ = ["unknown_quantization", "unpack_tensors", "written_tensors"]

# The value of quant_method -> the module of its layout, which is imported when it is needed.
METHODS: Mapping[str, str] = MappingProxyType(
    {
        "gptq": "gptq",
        "marlin": "gptq",
        "awq": "awq",
        "auto-round": "auto_round",  # behind those whose marks it has: undeclared, it is theirs
        "intel/auto-round": "auto_round",
        "bitsandbytes": "bitsandbytes",
        "bitsandbytes_4bit": "bitsandbytes",
        "bitsandbytes_8bit": "bitsandbytes",
        "compressed-tensors": "compressed_tensors",
        "fp8": "fp8",
        "fbgemm_fp8": "fp8",
        "mxfp4": "mxfp4",
        "modelopt": "modelopt",
        "torchao": "torchao",
        "hqq": "hqq",
        "quanto": "quanto",
        "eetq": "eetq",
        "aqlm": "aqlm",
        "vptq": "vptq",
        "bitnet": "bitnet",
        "mlx": "mlx",
        "metal": "mlx",
        "gguf": "gguf",
    }
)

# Dtypes that no plain checkpoint of floats stores; I64 is of position_ids, BOOL of masks.
_PACKED = frozenset({"U8", "I8", "U16", "I16", "U32", "I32", "F4", "F8_E4M3", "F8_E5M2"})
_NOTHING: Mapping[str, WrittenTensor] = MappingProxyType({})

# How names end that no plain checkpoint has.
_MARKS = (
    *(".qweight", ".weight_packed", ".W_q", ".SCB", ".quant_map", ".weight_scale_inv", "._data"),
    *("_qdata", ":qdata", "_proj_blocks", ".codebooks"),
)


def unknown_quantization(declared: Declared) -> str | None:
    """What a config says that no layout here unpacks: a quant_method, or a mode of one."""
    if declared.method not in METHODS:
        return named(declared.method)
    return _layout(METHODS[declared.method]).unread(declared)


def unpack_tensors(
    tensors: tuple[StoredTensor, ...], declared: Declared | None, implied: Implied
) -> Unpacked:
    """What the packed tensors are; PLAIN where neither a config nor the tensors show any packing.

    The layout is the declared one, whose method has to be known; where its marks are not to be
    found, or none is declared, the one whose marks are there. Then the two disagree: a fault.
    """
    if declared is None and not _looks_packed(tensors):
        return PLAIN
    stored = Stored(tensors)
    layout = _layout(METHODS[declared.method]) if declared else None
    if layout is not None and declared is not None and layout.stores_plain(declared):
        return PLAIN
    if layout is not None and (layout.recognises(stored) or not tensors):
        return layout.unpack(stored, declared, implied)
    # Of two that share a mark the first in the table is asked first.
    every = map(_layout, dict.fromkeys(METHODS.values()))
    found = next((other for other in every if other.recognises(stored)), None)
    if found is None:
        return PLAIN if layout is None else _undone(layout, declared)
    unpacked = found.unpack(stored, None, implied)
    if declared is None and not found.declares:
        return unpacked
    return replace(unpacked, faults=(_contradiction(found, declared, unpacked), *unpacked.faults))


def written_tensors(
    tensors: tuple[StoredTensor, ...], declared: Declared | None, implied: Implied
) -> Mapping[str, WrittenTensor]:
    """What the declared layout stores under the names that it packs, and those that serve them.

    For tensors that only an index names. A name that is not in it is plain, or its size is not
    known: `unpack_tensors` says which.
    """
    if declared is None or all(tensor.dtype is not None for tensor in tensors):
        return _NOTHING
    layout = _layout(METHODS[declared.method])
    return (
        _NOTHING
        if layout.stores_plain(declared)
        else layout.writes(Stored(tensors), declared, implied)
    )


def _looks_packed(tensors: tuple[StoredTensor, ...]) -> bool:
    """By dtypes; by names, where only an index has them."""
    dtypes = {tensor.dtype for tensor in tensors}
    if not _PACKED.isdisjoint(dtypes):
        return True
    unseen = (tensor for tensor in tensors if tensor.dtype is None) if None in dtypes else ()
    return any(tensor.name.endswith(_MARKS) for tensor in unseen)


def _layout(file: str) -> Layout:
    layout: Layout = import_module(f"auditor.layouts.{file}").LAYOUT
    return layout


def _undone(layout: Layout, declared: Declared | None) -> Unpacked:
    where = declared.where if declared else ""
    reason = f"{where} declares {layout.name}, and no stored tensor is packed in any way"
    return Unpacked(layout="plain", faults=(PackingFault((), reason, lacks=True),))


def _contradiction(found: Layout, declared: Declared | None, unpacked: Unpacked) -> PackingFault:
    if declared is None:
        says = "the config declares no quantization"
    else:
        says = f"{declared.where} declares {declared.method}"
    packed = tuple(piece.stored for piece in unpacked.tensors)
    tensors = packed or tuple(
        chain.from_iterable(note.tensors for note in unpacked.quantization_data)
    )
    return PackingFault(tensors, f"packed as {found.name}, but {says}")

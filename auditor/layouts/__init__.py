"""Packed layouts: each module or folder maps one quantization format to the model's tensors.

A packed layout is the way in which a format such as GPTQ stores a weight: its packed tensor and
that tensor's companions (scales, zero points). Modules that layouts share begin with an underscore;
no layout imports another. `engine` reads the table of a layout, `packing` defines the results,
`declared` reads the config, and `fused` splits stacked experts after all layouts.

`unpack_tensors` looks for a layout if a checkpoint declares one or stores dtypes that a layout
uses. All other checkpoints are plain, and no layout is imported for them.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import chain
from types import MappingProxyType

from msgspec.structs import replace

from auditor.layouts.packing import (
    PLAIN,
    UNDECLARED_AS,
    Declared,
    Implied,
    Layout,
    PackingFault,
    StatedSettings,
    Stored,
    Unpacked,
    WrittenTensor,
)
from auditor.messages import named
from auditor.tensors import StoredTensor

__all__ = [
    "OF_MLX",
    "settings_of_files",
    "unknown_quantization",
    "unpack_tensors",
    "written_tensors",
]

# The value of quant_method -> the module of its layout, which is imported on use.
METHODS: Mapping[str, str] = MappingProxyType(
    {
        "gptq": "gptq",
        "marlin": "gptq",
        "awq": "awq",
        # After GPTQ and AWQ, which therefore unpack undeclared modules with the marks of both.
        "auto-round": "auto_round",
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

# Dtypes that no checkpoint of plain floats stores (its position_ids are I64, its masks BOOL).
_PACKED = frozenset({"U8", "I8", "U16", "I16", "U32", "I32", "F4", "F8_E4M3", "F8_E5M2"})
_NOTHING: Mapping[str, WrittenTensor] = MappingProxyType({})
OF_MLX = "plain, with names and axes of MLX"

# Layouts whose settings follow from the stored tensors and the architecture.
_STATED = ("gptq", "awq", "fp8", "bitsandbytes", "mxfp4", "compressed_tensors", "mlx")

# Endings of names that no plain checkpoint has.
_MARKS = (
    *(".qweight", ".weight_packed", ".W_q", ".SCB", ".quant_map", ".weight_scale_inv", "._data"),
    *("_qdata", ":qdata", "_proj_blocks", ".codebooks"),
)


def unknown_quantization(declared: Declared) -> str | None:
    """Return the declared quant_method, or its mode, if no layout unpacks it; None otherwise."""
    if declared.method not in METHODS:
        return named(declared.method)
    return _layout(METHODS[declared.method]).unread(declared)


def unpack_tensors(
    tensors: tuple[StoredTensor, ...],
    declared: Declared | None,
    implied: Implied,
    *,
    of_mlx: Implied | None = None,
) -> Unpacked:
    """Unpack the packed tensors; return PLAIN if neither the config nor the tensors show packing.

    The declared layout unpacks them; its method must be known. If no layout is declared, or the
    tensors lack the declared layout's marks (dtypes, endings of names), the layout whose marks they
    have unpacks them and reports the contradiction. If MLX wrote the files, `of_mlx` returns
    the shape for a name on disk: MLX renames and transposes plain tensors too.
    """
    if declared is None and not _looks_packed(tensors):
        return PLAIN if of_mlx is None else _renamed_by_mlx(tensors, of_mlx)
    stored = Stored(tensors)
    layout = _layout(METHODS[declared.method]) if declared else None
    if layout is not None and declared is not None and layout.stores_plain(declared):
        return PLAIN
    if layout is not None and (layout.recognises(stored) or not tensors):
        return layout.unpack(stored, declared, implied)
    # If tensors have marks of two layouts, the first layout in the table unpacks them.
    every = map(_layout, dict.fromkeys(METHODS.values()))
    recognised = next((other for other in every if other.recognises(stored)), None)
    if recognised is None:
        return PLAIN if layout is None else _undone(layout, declared)
    unpacked = recognised.unpack(stored, None, implied)
    if declared is None and not recognised.declares:
        return unpacked
    return replace(
        unpacked, faults=(_contradiction(recognised, declared, unpacked), *unpacked.faults)
    )


def settings_of_files(stored: Stored, implied: Implied) -> Iterator[StatedSettings]:
    """Yield the config settings that declare the packed tensors, for each method that they fit."""
    for layout in map(_layout, _STATED):
        if layout.recognises(stored):
            yield from layout.stated(stored, implied)


def _renamed_by_mlx(tensors: tuple[StoredTensor, ...], of_mlx: Implied) -> Unpacked:
    renamed = _layout("mlx").unpack(Stored(tensors), None, of_mlx)
    return replace(renamed, layout=OF_MLX) if renamed.pieces else PLAIN


def written_tensors(
    tensors: tuple[StoredTensor, ...], declared: Declared | None, implied: Implied
) -> Mapping[str, WrittenTensor]:
    """Return the dtypes and shapes that the declared layout gives packed tensors and their scales.

    Callers need them for tensors that only an index names. A name that is absent from the result is
    plain or of unknown size; `unpack_tensors` distinguishes the two.
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
    """Whether the dtypes, or the names of tensors without headers, are those of packed tensors."""
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
    reason = f"{where} declares {layout.name}, but no stored tensor is packed"
    return Unpacked(layout="plain", faults=(PackingFault((), reason, lacks=True),))


def _contradiction(layout: Layout, declared: Declared | None, unpacked: Unpacked) -> PackingFault:
    if declared is None:
        declaration = "the config declares no quantization"
    else:
        declaration = f"{declared.where} declares {declared.method}"
    packed = tuple(piece.stored for piece in unpacked.tensors)
    tensors = packed or tuple(
        chain.from_iterable(note.tensors for note in unpacked.quantization_data)
    )
    return PackingFault(tensors, f"{UNDECLARED_AS}{layout.name}, but {declaration}")

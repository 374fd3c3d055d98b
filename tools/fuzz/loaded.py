"""Compares the table of a file with what torch.load(weights_only=True) loads."""

import io
import re
import warnings
from collections.abc import Iterable

import torch

from auditor.containers.weight_formats import Table

_PLACE = re.compile(r"\(key [0-9]+\)")
_NAMED = {
    torch.float4_e2m1fn_x2: "F4",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.int32: "I32",
    torch.int64: "I64",
}


def table_fault(table: Table, content: bytes) -> str | None:
    """Compare a table without faults with what torch.load(weights_only=True) loads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # noqa: BLE001 - whatever hostile bytes make of torch
        reason = str(error).partition("\n")[0]
        return f"is called sound, and torch refuses it: {type(error).__name__}: {reason}"
    theirs = _by_name(_tensors(_wrapped(loaded, table)))
    ours = _by_name((one.name, (one.dtype, one.shape)) for one in table.tensors)
    if any(found - theirs.get(name, set()) for name, found in ours.items()):
        return f"has the tensors {ours}, and torch loads {theirs}"
    return None


def _by_name(found: Iterable[tuple[str, object]]) -> dict[str, set[object]]:
    """Group by name; a key that is neither text nor a number is named `(key 3)`, by its place."""
    named: dict[str, set[object]] = {}
    for name, one in found:
        named.setdefault(_PLACE.sub("(key)", name), set()).add(one)
    return named


def _wrapped(loaded: object, table: Table) -> object:
    """Return the part of the value that the audit reads, which a note names."""
    for note in table.notes:
        for key in note.split("under '")[1].split("'")[0].split("."):
            loaded = loaded[key]  # type: ignore[index] # a dict, by the note
    return loaded


def _tensors(value: object, name: str = "", depth: int = 0) -> list[tuple[str, object]]:
    """Every tensor in a value that torch loaded, by its dotted name."""
    if isinstance(value, torch.Tensor):
        shape = tuple(value.shape)
        if value.dtype == torch.float4_e2m1fn_x2 and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        return [(name, (_NAMED.get(value.dtype, str(value.dtype)), shape))]
    if depth > 70:
        return []
    pairs = _items(value) if isinstance(value, dict) else _placed(value)
    found = []
    for key, one in pairs:
        last = str(key) if isinstance(key, str | int) else "(key)"
        found += _tensors(one, f"{name}.{last}" if name else last, depth + 1)
    return found


def _placed(value: object) -> list[tuple[object, object]]:
    return list(enumerate(value)) if isinstance(value, list | tuple) else []


def _items(value: dict[object, object]) -> list[tuple[object, object]]:
    """Return the items as transformers reads a state dict: its attributes may hide its methods."""
    return [(key, value[key]) for key in value.keys()]  # noqa: SIM118 - as just said

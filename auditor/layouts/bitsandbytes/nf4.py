"""Numbers of 4 bits, nf4 and fp4, in one column of bytes; see layout.py."""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from auditor.layouts.packing import Implied, LogicalTensor, Members, PackingLedger, Shape, Stored
from auditor.tensors import DTYPE_BITS, StoredTensor

_BLOCKSIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_NESTED_BLOCKSIZE = 256
_STATE = {
    "absmax": "absmax, the scale of each block of numbers",
    "quant_map": "quant_map, the values of the 16 codes",
    "nested_absmax": "absmax of the absmax, one for each 256 of them",
    "nested_quant_map": "quant_map of the absmax, the values of its 256 codes",
}
_STATE_SUFFIX = ".quant_state"
_TYPE = "bitsandbytes__"
_KINDS = ("nf4", "fp4")  # these follow it


def is_4bit(module: str, members: Members) -> bool:
    """Whether a module stores an absmax with its map, or a quant_state."""
    if "absmax" in members and "quant_map" in members:
        return True
    return module.endswith(_STATE_SUFFIX) and _quant_type(members) is not None


class QuantState(NamedTuple):
    """The tensors that unpack one packed tensor."""

    weight: StoredTensor | None
    parts: Members  # absmax, quant_map, ...
    settings: Members  # bitsandbytes__nf4: JSON

    @property
    def kind(self) -> str:
        return _quant_type(self.settings) or "4 bits"

    @property
    def beside(self) -> tuple[StoredTensor, ...]:
        return (*self.parts.values(), *self.settings.values())


def _quant_type(members: Members) -> str | None:
    return next((kind for kind in _KINDS if _TYPE + kind in members), None)


def quant_states(stored: Stored) -> Iterator[QuantState]:
    """Yield the state of every packed tensor that has any part of one."""
    names: dict[str, None] = {}
    for module, members in stored.modules.items():
        if not _STATE.keys().isdisjoint(members):
            names[module] = None
        elif module.endswith(_STATE_SUFFIX) and _quant_type(members):
            names[module.removesuffix(_STATE_SUFFIX)] = None
    for name in names:
        yield _state(stored, name)


def _state(stored: Stored, name: str) -> QuantState:
    module, _, last = name.rpartition(".")
    beside, settings = stored.members(name), stored.members(name + _STATE_SUFFIX)
    return QuantState(
        weight=stored.members(module).get(last),
        parts={part: beside[part] for part in _STATE if part in beside},
        settings={last: tensor for last, tensor in settings.items() if last.startswith(_TYPE)},
    )


def unpack_4bit(state: QuantState, implied: Implied, ledger: PackingLedger) -> None:
    """Unpack one tensor with its state."""
    weight = state.weight
    if weight is None:
        ledger.note("absmax and the like of no stored weight", *state.beside)
        ledger.lack("the packed weight that these belong to is not stored", *state.beside)
        return
    _note(state, ledger)
    lacking = [part for part in ("absmax", "quant_map") if part not in state.parts]
    if not state.settings:
        lacking.append("quant_state")
    if lacking:
        ledger.lack(f"packed in 4 bits without its {' and '.join(lacking)}", weight)
    dtype = "NF4" if state.kind == "nf4" else "FP4"
    if weight.shape is None or weight.dtype is None or weight.elements is None:
        ledger.tensors.append(LogicalTensor(weight, weight.name, None, dtype))
        return
    expected = implied(weight.name)
    if weight.shape == expected and weight.dtype.startswith(("F", "BF")):
        ledger.fault("stored plain, and yet with an absmax or a quant_state of 4 bits", weight)
        return
    shape = _shape(weight, expected, ledger)
    ledger.tensors.append(LogicalTensor(weight, weight.name, shape, dtype))
    _check_parts(state.parts, prod(shape), ledger)
    for tensor in state.settings.values():
        if tensor.shape is not None and (len(tensor.shape) != 1 or not tensor.elements):
            ledger.fault(f"quant_state is {shape_and_dtype(tensor)}, JSON is U8 (bytes,)", tensor)


def unpack_bare_4bit(weight: StoredTensor, implied: Implied, ledger: PackingLedger) -> None:
    """Unpack a column of bytes whose state is missing, and report it."""
    ledger.lack("packed in 4 bits without its absmax, quant_map and quant_state", weight)
    shape = _shape(weight, implied(weight.name), ledger)
    ledger.tensors.append(LogicalTensor(weight, weight.name, shape, "FP4"))


def shape_and_dtype(tensor: StoredTensor) -> str:
    return f"{tensor.dtype} {tensor.shape}"


def _note(state: QuantState, ledger: PackingLedger) -> None:
    for part, tensor in state.parts.items():
        ledger.note(_STATE[part], tensor)
    for tensor in state.settings.values():
        ledger.note("quant_state: the shape, the type and the blocksize, as JSON", tensor)


def _shape(weight: StoredTensor, expected: Shape | None, ledger: PackingLedger) -> Shape:
    """Return the architecture's shape if it has as many numbers, else (numbers,) with a fault."""
    elements, width = weight.elements or 0, DTYPE_BITS.get(weight.dtype or "", 0)
    numbers = elements * width // 4
    shape = weight.shape or ()
    if not width or width % 8 or len(shape) != 2 or shape[1] != 1:  # noqa: PLR2004 - one column
        ledger.fault(
            f"stored as {shape_and_dtype(weight)}; 4-bit numbers are one column of bytes", weight
        )
        return (numbers,)
    if expected is None:
        return (numbers,)
    needed = prod(expected)
    if (needed + 1) // (2 * (width // 8)) == elements:
        return expected
    holds = (
        f"{shape_and_dtype(weight)} holds {elements:,} * {width}/4 = {numbers:,} numbers of 4 bits"
    )
    ledger.fault(f"{holds}, the architecture has {expected} = {needed:,}", weight)
    return (numbers,)


def _check_parts(parts: Members, numbers: int, ledger: PackingLedger) -> None:
    """Compare each part with the 4-bit numbers of the weight, and with the other parts."""
    absmax = parts.get("absmax")
    sizes = {"quant_map": 16, "nested_quant_map": 256}
    if absmax is not None and absmax.shape is not None:
        blocks = absmax.elements or 0
        fitting = any(-(-numbers // size) == blocks for size in _BLOCKSIZES)
        if len(absmax.shape) != 1 or not fitting:
            observed = f"absmax {absmax.shape} fits no blocksize of 32 to 4096"
            ledger.fault(
                f"{observed} for {numbers:,} numbers: 64 makes {-(-numbers // 64):,}", absmax
            )
        sizes["nested_absmax"] = -(-blocks // _NESTED_BLOCKSIZE)
        _check_nested(absmax, parts, ledger)
    for part, tensor in parts.items():
        if tensor.shape is not None and part in sizes and tensor.shape != (sizes[part],):
            ledger.fault(f"{part} is {tensor.shape}, ({sizes[part]:,},) is needed", tensor)


def _check_nested(absmax: StoredTensor, parts: Members, ledger: PackingLedger) -> None:
    nested = {"nested_absmax", "nested_quant_map"}
    if absmax.dtype == "U8" and not nested.issubset(parts):
        lacking = " and ".join(sorted(nested.difference(parts)))
        ledger.lack(f"absmax is U8, quantized itself, without {lacking}", absmax)
    if absmax.dtype != "U8" and not nested.isdisjoint(parts):
        there = " and ".join(sorted(nested.intersection(parts)))
        ledger.fault(f"absmax is {absmax.dtype}, which is not quantized itself: {there}", absmax)

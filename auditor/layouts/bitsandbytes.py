"""bitsandbytes: LLM.int8(), and the 4-bit types nf4 and fp4.

int8, as `Linear8bitLt` saves it: `X.weight` I8 (out, in), `X.SCB` F32 (out,), the largest absolute
value of each output, and `X.weight_format` U8 (), which says that rows come first.

4 bits, as `functional.quantize_4bit` packs n = out * in numbers and `QuantState.as_dict` saves
them; `m` is usually `X.weight`:

    m                                U8 ((n + 1) // 2, 1); of a storage dtype of s bytes,
                                     ((n + 1) // (2 * s), 1)
    m.absmax                         F32 (blocks,), blocks = ceil(n / blocksize)
    m.quant_map                      F32 (16,), the values of the 16 codes
    m.quant_state.bitsandbytes__nf4  U8 (bytes,), JSON: shape, blocksize and the like; or __fp4

Nested ("double quantisation"): absmax is U8, and m.nested_absmax F32 (ceil(blocks / 256),) and
m.nested_quant_map F32 (256,) stand beside it. One column of bytes does not say (out, in): the
architecture does. A Conv1D of GPT-2, (in, out) on disk, is stored as (out, in) here.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.layouts.packing import Declared, Implied, Layout, Ledger, Piece, Stored, Unpacked
from auditor.layouts.settings import texts
from auditor.layouts.skipped import odd_ones, within
from auditor.tensors import DTYPE_BITS, StoredTensor

Shape = tuple[int, ...]

_BLOCKSIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_NESTED_BLOCKSIZE = 256
_STATE = {
    "absmax": "absmax, the scale of each block of numbers",
    "quant_map": "quant_map, the values of the 16 codes",
    "nested_absmax": "absmax of the absmax, one for each 256 of them",
    "nested_quant_map": "quant_map of the absmax, the values of its 256 codes",
}
_STATE_SUFFIX = ".quant_state"
_TYPE = "bitsandbytes__"  # nf4 or fp4 follows
_INT8 = frozenset({"SCB", "weight_format"})


def recognises(stored: Stored) -> bool:
    """A quant_state, an absmax with its map, or an SCB beside a weight."""
    return any(
        ("SCB" in members and "weight" in members)
        or ("absmax" in members and "quant_map" in members)
        or (module.endswith(_STATE_SUFFIX) and _quant_type(members) is not None)
        for module, members in stored.modules.items()
    )


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Pieces are named as they are stored: `X.weight`."""
    ledger, kinds = Ledger(), set()
    for name in _states(stored):
        state = _state(stored, name)
        kinds.add(state.kind)
        _unpack_4bit(state, implied, ledger)
    for members in stored.modules.values():
        if not _INT8.isdisjoint(members):
            kinds.add("int8")
            _unpack_int8(members, implied, ledger)
    _bare(stored, declared, implied, ledger)
    _contradictions(stored, declared, ledger)
    return ledger.close(", ".join(("bitsandbytes", *sorted(kinds))))


def _shown(tensor: StoredTensor) -> str:
    return f"{tensor.dtype} {tensor.shape}"


# --- 4 bits -----------------------------------------------------------------------------------


class _State(NamedTuple):
    """What stands beside one packed tensor."""

    weight: StoredTensor | None
    parts: Mapping[str, StoredTensor]  # absmax, quant_map, ...
    settings: Mapping[str, StoredTensor]  # bitsandbytes__nf4: JSON

    @property
    def kind(self) -> str:
        return _quant_type(self.settings) or "4 bits"

    @property
    def all(self) -> tuple[StoredTensor, ...]:
        return (*self.parts.values(), *self.settings.values())


def _quant_type(members: Mapping[str, StoredTensor]) -> str | None:
    for last in members:
        if last in {f"{_TYPE}nf4", f"{_TYPE}fp4"}:
            return last.removeprefix(_TYPE)
    return None


def _states(stored: Stored) -> Iterator[str]:
    """The names of the packed tensors that something stands beside, each once."""
    names: dict[str, None] = {}
    for module, members in stored.modules.items():
        if not _STATE.keys().isdisjoint(members):
            names[module] = None
        elif module.endswith(_STATE_SUFFIX) and _quant_type(members):
            names[module.removesuffix(_STATE_SUFFIX)] = None
    yield from names


def _state(stored: Stored, name: str) -> _State:
    module, _, last = name.rpartition(".")
    nothing: Mapping[str, StoredTensor] = {}
    beside = stored.modules.get(name, nothing)
    settings = stored.modules.get(name + _STATE_SUFFIX, nothing)
    return _State(
        weight=stored.modules.get(module, nothing).get(last),
        parts={part: beside[part] for part in _STATE if part in beside},
        settings={last: tensor for last, tensor in settings.items() if last.startswith(_TYPE)},
    )


def _unpack_4bit(state: _State, implied: Implied, ledger: Ledger) -> None:
    weight = state.weight
    if weight is None:
        ledger.note("absmax and the like of no stored weight", *state.all)
        ledger.fault("the packed weight that these belong to is not stored", *state.all)
        return
    _note_4bit(state, ledger)
    lacking = [part for part in ("absmax", "quant_map") if part not in state.parts]
    if not state.settings:
        lacking.append("quant_state")
    if lacking:
        ledger.fault(f"packed in 4 bits without its {' and '.join(lacking)}", weight)
    dtype = "NF4" if state.kind == "nf4" else "FP4"
    if weight.shape is None or weight.dtype is None or weight.elements is None:
        ledger.pieces.append(Piece(weight, weight.name, None, dtype))
        return
    expected = implied(weight.name)
    if weight.shape == expected and weight.dtype.startswith(("F", "BF")):
        ledger.fault("stored plain, and yet with an absmax or a quant_state of 4 bits", weight)
        return
    shape = _shape_4bit(weight, expected, ledger)
    ledger.pieces.append(Piece(weight, weight.name, shape, dtype))
    _check_parts(state.parts, prod(shape), ledger)
    for tensor in state.settings.values():
        if tensor.shape is not None and (len(tensor.shape) != 1 or not tensor.elements):
            ledger.fault(f"quant_state is {_shown(tensor)}, JSON is U8 (bytes,)", tensor)


def _note_4bit(state: _State, ledger: Ledger) -> None:
    for part, tensor in state.parts.items():
        ledger.note(_STATE[part], tensor)
    for tensor in state.settings.values():
        ledger.note("quant_state: the shape, the type and the blocksize, as JSON", tensor)


def _shape_4bit(weight: StoredTensor, expected: Shape | None, ledger: Ledger) -> Shape:
    """The architecture's shape where as many numbers are stored, else (numbers,): a fault."""
    elements, width = weight.elements or 0, DTYPE_BITS.get(weight.dtype or "", 0)
    numbers = elements * width // 4
    shape = weight.shape or ()
    if width % 8 or len(shape) != 2 or shape[1] != 1:  # noqa: PLR2004 - one column
        ledger.fault(f"stored as {_shown(weight)}; 4-bit numbers are one column of bytes", weight)
        return (numbers,)
    if expected is None:
        return (numbers,)
    needed = prod(expected)
    if (needed + 1) // (2 * (width // 8)) == elements:
        return expected
    holds = f"{_shown(weight)} holds {elements:,} * {width}/4 = {numbers:,} numbers of 4 bits"
    ledger.fault(f"{holds}, the architecture has {expected} = {needed:,}", weight)
    return (numbers,)


def _check_parts(parts: Mapping[str, StoredTensor], numbers: int, ledger: Ledger) -> None:
    """Each against the 4-bit numbers of the weight, and against each other."""
    absmax = parts.get("absmax")
    sizes = {"quant_map": 16, "nested_quant_map": 256}
    if absmax is not None and absmax.shape is not None:
        blocks = absmax.elements or 0
        fitting = any(-(-numbers // size) == blocks for size in _BLOCKSIZES)
        if len(absmax.shape) != 1 or not fitting:
            said = f"absmax {absmax.shape} fits no blocksize of 32 to 4096"
            ledger.fault(f"{said} for {numbers:,} numbers: 64 makes {-(-numbers // 64):,}", absmax)
        sizes["nested_absmax"] = -(-blocks // _NESTED_BLOCKSIZE)
        _check_nested(absmax, parts, ledger)
    for part, tensor in parts.items():
        if tensor.shape is not None and part in sizes and tensor.shape != (sizes[part],):
            ledger.fault(f"{part} is {tensor.shape}, ({sizes[part]:,},) is needed", tensor)


def _check_nested(absmax: StoredTensor, parts: Mapping[str, StoredTensor], ledger: Ledger) -> None:
    nested = {"nested_absmax", "nested_quant_map"}
    if absmax.dtype == "U8" and not nested.issubset(parts):
        lacking = " and ".join(sorted(nested.difference(parts)))
        ledger.fault(f"absmax is U8, quantised itself, without {lacking}", absmax)
    if absmax.dtype != "U8" and not nested.isdisjoint(parts):
        there = " and ".join(sorted(nested.intersection(parts)))
        ledger.fault(f"absmax is {absmax.dtype}, which is not quantised itself: {there}", absmax)


# --- int8 -------------------------------------------------------------------------------------


def _unpack_int8(members: Mapping[str, StoredTensor], implied: Implied, ledger: Ledger) -> None:
    weight, scales = members.get("weight"), members.get("SCB")
    layout = members.get("weight_format")
    if scales is not None:
        ledger.note("SCB, the largest absolute value of each output", scales)
    if layout is not None:
        ledger.note("weight_format, which says that rows come first", layout)
        if layout.elements not in {None, 1}:
            ledger.fault(f"weight_format is {layout.shape}, one number is needed", layout)
    beside = tuple(tensor for tensor in (scales, layout) if tensor is not None)
    if weight is None:
        ledger.fault("the int8 weight that these belong to is not stored", *beside)
        return
    if scales is None:
        ledger.fault("weight_format without the SCB of an int8 weight", *beside)
    if weight.dtype not in {None, "I8"}:
        ledger.fault(f"stored as {weight.dtype} beside the SCB of an int8 weight", weight)
        return
    _piece_int8(weight, implied, ledger)
    rows = weight.shape[0] if weight.shape else None
    if scales is not None and scales.shape is not None and rows is not None:  # noqa: SIM102
        if scales.shape != (rows,):
            said = f"SCB is {scales.shape}, a weight of {weight.shape} needs ({rows:,},)"
            ledger.fault(said, scales)


def _piece_int8(weight: StoredTensor, implied: Implied, ledger: Ledger) -> None:
    shape = weight.shape
    if shape is not None and len(shape) == 2:  # noqa: PLR2004 - (out, in)
        expected = implied(weight.name)
        if expected is not None and expected != shape and expected == shape[::-1]:
            shape = expected  # a Conv1D
    elif shape is not None:
        ledger.fault(f"int8 is stored as {_shown(weight)}, (out, in) is needed", weight)
    ledger.pieces.append(Piece(weight, weight.name, shape, "INT8"))


# --- what contradicts -------------------------------------------------------------------------


def _bare(stored: Stored, declared: Declared | None, implied: Implied, ledger: Ledger) -> None:
    """Weights that are packed by their dtype, with nothing beside them to unpack them by."""
    if declared is None:
        return
    done = {piece.stored.name for piece in ledger.pieces}
    for members in stored.modules.values():
        weight = members.get("weight")
        if weight is None or weight.name in done or not weight.shape:
            continue
        if weight.dtype == "I8" and "SCB" not in members and not _INT8.intersection(members):
            ledger.fault("int8 without its SCB: nothing says the scale of its outputs", weight)
            _piece_int8(weight, implied, ledger)
        elif weight.dtype == "U8" and weight.shape[1:] == (1,):
            ledger.fault("packed in 4 bits without its absmax, quant_map and quant_state", weight)
            shape = _shape_4bit(weight, implied(weight.name), ledger)
            ledger.pieces.append(Piece(weight, weight.name, shape, "FP4"))


def _contradictions(stored: Stored, declared: Declared | None, ledger: Ledger) -> None:
    """Loading makes int8 or 4-bit modules as the config says, of all but those it says to skip.

    Tried with transformers 5.23: a packed weight in a skipped module is refused, or stays integers;
    all else loads, and fails in their first forward pass.
    """
    if declared is None:
        return
    bits = _declared_bits(declared)
    skipped = texts(declared, "llm_int8_skip_modules")
    for piece in ledger.pieces:
        packed = 8 if piece.dtype == "INT8" else 4
        if bits is not None and packed != bits:
            said = f"{declared.where} says load_in_{bits}bit"
            ledger.fault(f"{said}, and these are packed in {packed} bits", piece.stored)
        if skipped and within(piece.name, skipped):
            said = f"llm_int8_skip_modules of {declared.where} says that these are plain"
            ledger.fault(f"{said}, and they are packed", piece.stored)
    odd = odd_ones(stored, (piece.name for piece in ledger.pieces), skipped)
    if odd and declared.settings.get("llm_int8_has_fp16_weight") is not True:
        said = "stored plain, packed in other layers, and not in llm_int8_skip_modules"
        ledger.fault(said, *odd)


def _declared_bits(declared: Declared) -> int | None:
    for bits in (4, 8):
        if declared.settings.get(f"load_in_{bits}bit") is True:
            return bits
    return None


LAYOUT = Layout(
    name="bitsandbytes",
    methods=("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"),
    recognises=recognises,
    unpack=unpack,
    stores_plain=lambda declared: declared.settings.get("llm_int8_has_fp16_weight") is True,
)

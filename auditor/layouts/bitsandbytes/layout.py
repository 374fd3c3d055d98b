"""bitsandbytes: LLM.int8(), and the 4-bit types nf4 and fp4.

int8, saved by `Linear8bitLt`: `X.weight` I8 (out, in), `X.SCB` F32 (out,), the largest absolute
value of each output, and `X.weight_format` U8 (), which means that rows come first.

4 bits: `functional.quantize_4bit` packs n = out * in numbers and `QuantState.as_dict` saves them;
`m` is usually `X.weight`:

    m                                U8 ((n + 1) // 2, 1); for a storage dtype of s bytes,
                                     ((n + 1) // (2 * s), 1)
    m.absmax                         F32 (blocks,), blocks = ceil(n / blocksize)
    m.quant_map                      F32 (16,), the values of the 16 codes
    m.quant_state.bitsandbytes__nf4  U8 (bytes,), JSON: shape, blocksize and others; or __fp4

Nested ("double quantization"): absmax is U8, with m.nested_absmax F32 (ceil(blocks / 256),) and
m.nested_quant_map F32 (256,). One column of bytes does not show (out, in); the architecture does.
A Conv1D of GPT-2, (in, out) on disk, is stored as (out, in) here.
"""

from collections.abc import Mapping
from math import prod

from auditor.layouts._left_plain import plain_among_packed, unlisted
from auditor.layouts._patterns import at_or_below
from auditor.layouts._qweight import CONV1D
from auditor.layouts.bitsandbytes import int8, nf4
from auditor.layouts.declared import string_list
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)


def recognises(stored: Stored) -> bool:
    """Whether a module stores a quant_state, an absmax with its map, or an SCB with a weight."""
    return any(
        nf4.is_4bit(module, members) or {"SCB", "weight"} <= members.keys()
        for module, members in stored.modules.items()
    )


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `X.weight` under its stored name."""
    ledger, kinds = PackingLedger(), set()
    for state in nf4.quant_states(stored):
        kinds.add(state.kind)
        nf4.unpack_4bit(state, implied, ledger)
    done = {piece.stored for piece in ledger.tensors}
    for members in stored.modules.values():
        if int8.is_int8(members):
            kinds.add("int8")
            int8.unpack_int8(members, done, implied, ledger)
    if declared is not None:
        _bare(stored, implied, ledger)
        _contradictions(stored, declared, ledger)
    return ledger.close(", ".join(("bitsandbytes", *sorted(kinds))))


def _bare(stored: Stored, implied: Implied, ledger: PackingLedger) -> None:
    """Report weights that are packed by their dtype and lack the tensors to unpack them."""
    done = {piece.stored.name for piece in ledger.tensors}
    for members in stored.modules.values():
        weight = members.get("weight")
        if weight is None or weight.name in done or not weight.shape:
            continue
        if weight.dtype == "I8" and not int8.is_int8(members):
            int8.unpack_bare_int8(weight, implied, ledger)
        elif weight.dtype == "U8" and weight.shape[1:] == (1,):
            nf4.unpack_bare_4bit(weight, implied, ledger)


def _contradictions(stored: Stored, declared: Declared, ledger: PackingLedger) -> None:
    """Report modules that contradict the config, by which loading builds int8 or 4-bit modules.

    Tried with transformers 5.23: a packed weight in a skipped module is refused, or stays integers;
    all others load and fail in their first forward pass.
    """
    bits = _declared_bits(declared)
    skipped = string_list(declared, "llm_int8_skip_modules")
    for piece in ledger.tensors:
        packed = 8 if piece.dtype == "INT8" else 4
        if bits is not None and packed != bits:
            reason = f"{declared.where} says load_in_{bits}bit"
            ledger.fault(f"{reason}, and these are packed in {packed} bits", piece.stored)
        if at_or_below(piece.name.rpartition(".")[0], skipped):
            reason = f"llm_int8_skip_modules of {declared.where} says that these are plain"
            ledger.fault(f"{reason}, and they are packed", piece.stored)
    modules = {piece.name.rpartition(".")[0] for piece in ledger.tensors}
    odd = unlisted(plain_among_packed(stored, modules, whole_layers=True), skipped)
    if odd and declared.settings.get("llm_int8_has_fp16_weight") is not True:
        reason = "stored plain, packed in other layers, and not in llm_int8_skip_modules"
        ledger.fault(reason, *odd)


def _declared_bits(declared: Declared) -> int | None:
    for bits in (4, 8):
        if declared.settings.get(f"load_in_{bits}bit") is True:
            return bits
    return None


# --- what is stored under each name ------------------------------------------------------------

_BLOCK = 64  # numbers that share an absmax: the default of quantize_4bit
_NESTED = 256
_CODES = 16
_STORAGE = {
    "uint8": ("U8", 1),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
}
# Bytes of the JSON of a quant_state: its keys alone take 62, and 165 if it is nested.
_LEAST, _MOST = 62, 320
_STATE = ".quant_state"


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the tensors of int8 and of 4 bits; only the length of the JSON is within bounds."""
    written: dict[str, WrittenTensor] = {}
    storage = declared.settings.get("bnb_4bit_quant_storage") if declared else None
    for module, members in stored.modules.items():
        if {"SCB", "weight"} <= members.keys() and (shape := implied(tensor_name(module))):
            parts = _eight(shape[::-1] if module.rpartition(".")[2] in CONV1D else shape)
            written |= {members[last].name: parts[last] for last in parts if last in members}
        holder, _, last = module.rpartition(".")
        weight = stored.members(holder).get(last)
        if weight is not None and "absmax" in members and (shape := implied(module)):
            parts = _four(shape, nested="nested_absmax" in members)
            written |= {members[key].name: parts[key] for key in parts if key in members}
            written |= {weight.name: _column(shape, storage)}
            for tensor in stored.members(module + _STATE).values():
                written[tensor.name] = WrittenTensor((_MOST,), ("U8",), fewer=_MOST - _LEAST)
    return written


def _eight(shape: Shape) -> Mapping[str, WrittenTensor]:
    return {
        "weight": WrittenTensor(shape, ("I8",)),
        "SCB": WrittenTensor(shape[:1], ("F32",)),
        "weight_format": WrittenTensor((), ("U8",)),
    }


def _four(shape: Shape, *, nested: bool) -> Mapping[str, WrittenTensor]:
    blocks = -(-prod(shape) // _BLOCK)
    return {
        "absmax": WrittenTensor((blocks,), ("U8",) if nested else ("F32",)),
        "quant_map": WrittenTensor((_CODES,), ("F32",)),
        "nested_absmax": WrittenTensor((-(-blocks // _NESTED),), ("F32",)),
        "nested_quant_map": WrittenTensor((256,), ("F32",)),
    }


def _column(shape: Shape, storage: object) -> WrittenTensor:
    """The column of a weight: two numbers in a byte, in the storage's dtype."""
    dtype, width = _STORAGE.get(str(storage or "uint8"), _STORAGE["uint8"])
    return WrittenTensor(((prod(shape) + 1) // (2 * width), 1), (dtype,))


LAYOUT = Layout(
    name="bitsandbytes",
    methods=("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"),
    recognises=recognises,
    unpack=unpack,
    writes=writes,
    stores_plain=lambda declared: declared.settings.get("llm_int8_has_fp16_weight") is True,
)

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
bitsandbytes stores a Conv1D of GPT-2, whose plain weight is (in, out), as (out, in).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.layouts._scheme import Scheme, skip_list_scheme
from auditor.layouts.engine import (
    Bundle,
    LayoutTable,
    Packing,
    constant_settings,
    shape_of_numbers,
)
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS

_BLOCK = 64  # numbers that share an absmax: the default of quantize_4bit
_BLOCKSIZES = (64, 32, 128, 256, 512, 1024, 2048, 4096)
_NESTED = 256  # numbers that share a nested absmax
_STORAGE = {"uint8": "U8", "float16": "F16", "bfloat16": "BF16", "float32": "F32"}
# Bytes of the JSON of a quant_state: its keys alone take 62, and 165 if it is nested.
_LEAST, _MOST = 62, 320
_STATE_SUFFIX = ".quant_state"
_STATES = ("bitsandbytes__nf4", "bitsandbytes__fp4")
_INT8 = ("SCB", "weight_format")
_FOUR = {
    "absmax": "absmax, the scale of each block of numbers",
    "quant_map": "quant_map, the values of the 16 codes",
    "nested_absmax": "absmax of the absmax, one for each 256 of them",
    "nested_quant_map": "quant_map of the absmax, the values of its 256 codes",
    **dict.fromkeys(_STATES, "quant_state: the shape, the type and the blocksize, as JSON"),
}
_COMPANIONS = {
    "SCB": "SCB, the largest absolute value of each output",
    "weight_format": "weight_format, which says that rows come first",
    **_FOUR,
}
_MODULES = "llm_int8_skip_modules"


class _Settings(NamedTuple):
    bits: int | None = None
    storage: str = "U8"  # dtype of the column of 4-bit numbers
    where: str = ""


def _settings(declared: Declared | None, _ledger: PackingLedger) -> _Settings:
    if declared is None:
        return _Settings()
    values = declared.settings
    bits = next((bits for bits in (4, 8) if values.get(f"load_in_{bits}bit") is True), None)
    storage = str(values.get("bnb_4bit_quant_storage") or "uint8")
    return _Settings(bits, _STORAGE.get(storage, "U8"), declared.where)


def _recognises(stored: Stored) -> bool:
    """Whether a module stores a quant_state, an absmax with its map, or an SCB with a weight."""
    return any(
        {"absmax", "quant_map"} <= members.keys()
        or {"SCB", "weight"} <= members.keys()
        or (module.endswith(_STATE_SUFFIX) and not members.keys().isdisjoint(_STATES))
        for module, members in stored.modules.items()
    )


def _bundles(
    stored: Stored, settings: Callable[[str], _Settings], *_context: object
) -> Iterator[Bundle]:
    """Yield weights with companions, and weights of packed dtypes if a config declares packing."""
    names: dict[str, None] = {}
    is_declared = settings("").where != ""
    for module, members in stored.modules.items():
        weight = members.get("weight")
        if not members.keys().isdisjoint(_FOUR):
            names[module.removesuffix(_STATE_SUFFIX)] = None
        if not members.keys().isdisjoint(_INT8) or (
            is_declared
            and weight is not None
            and (
                weight.dtype == "I8" or (weight.dtype == "U8" and (weight.shape or ())[1:] == (1,))
            )
        ):
            names[tensor_name(module)] = None
    for name in names:
        module, _, last = name.rpartition(".")
        members = stored.members(module)
        parts = {part: members[part] for part in _INT8 if part in members and last == "weight"}
        below = {**stored.members(name), **stored.members(name + _STATE_SUFFIX)}
        parts |= {part: below[part] for part in _FOUR if part in below}
        if last in members:
            parts["weight"] = members[last]
        yield Bundle(module, name, parts)


def _is_four(parts: Members) -> bool:
    return not parts.keys().isdisjoint(_FOUR) or parts["weight"].dtype == "U8"


def _needed(parts: Members, _settings: _Settings, _packing: Packing | None) -> list[str]:
    if not _is_four(parts):
        return ["SCB"]
    has_state = not parts.keys().isdisjoint(_STATES)
    absmax = parts.get("absmax")
    is_nested = absmax is not None and absmax.dtype == "U8"
    nested = ["nested_absmax", "nested_quant_map"] if is_nested else []
    return ["absmax", "quant_map", *([] if has_state else ["quant_state"]), *nested]


# --- the tensors of a weight ----------------------------------------------------------------------


def _int8(shape: Shape, doubts: tuple[str, ...] = ()) -> Packing:
    tensors = {
        "weight": WrittenTensor(shape, ("I8",)),
        "SCB": WrittenTensor(shape[:1], ("F32",)),
        "weight_format": WrittenTensor((), ("U8",), others=((1,),)),
    }
    return Packing(shape=shape, dtype="INT8", tensors=tensors, doubts=doubts)


def _four_bits(
    numbers: int, storage: str, *, nested: bool, blocks: int | None = None
) -> Mapping[str, WrittenTensor]:
    """Return the tensors that store `numbers` values in 4 bits; absmax has `blocks` values."""
    blocks = -(-numbers // _BLOCK) if blocks is None else blocks
    state = WrittenTensor((_MOST,), ("U8",), fewer=_MOST - _LEAST)
    column = (numbers + 1) // (2 * DTYPE_BITS[storage] // 8)
    return {
        "weight": WrittenTensor((column, 1), (storage,)),
        "absmax": WrittenTensor((blocks,), ("U8",) if nested else ("F32",)),
        "quant_map": WrittenTensor((16,), ("F32",)),
        "nested_absmax": WrittenTensor((-(-blocks // _NESTED),), ("F32",)),
        "nested_quant_map": WrittenTensor((256,), ("F32",)),
        **dict.fromkeys(_STATES, state),
    }


def _by_config(parts: Members, settings: _Settings, shape: Shape) -> Packing | None:
    if "absmax" not in parts:
        return _int8(shape) if "SCB" in parts else None
    tensors = _four_bits(prod(shape), settings.storage, nested="nested_absmax" in parts)
    return Packing(shape=shape, dtype="NF4", tensors=tensors)


def _by_shapes(parts: Members, settings: _Settings, expected: Shape | None) -> list[Packing] | str:
    weight = parts["weight"]
    is_four = _is_four(parts)
    doubts: list[str] = []
    if settings.bits not in {None, 4 if is_four else 8}:
        observed = f"load_in_{settings.bits}bit of {settings.where} is true"
        doubts.append(f"{observed}, stored are {4 if is_four else 8} bits")
    shape, dtype = weight.shape or (), weight.dtype or ""
    if not is_four:
        is_matrix = len(shape) == 2 and dtype == "I8"  # noqa: PLR2004 - (out, in)
        return [_int8(shape, tuple(doubts))] if is_matrix else "I8 (out, in)"
    if not parts.keys().isdisjoint(_INT8):
        doubts.append("is packed in 4 bits, and has an SCB or a weight_format of int8")
    if len(shape) != 2 or shape[1] != 1:  # noqa: PLR2004 - one column
        return "one column of bytes for numbers of 4 bits"
    return [_numbers(parts, dtype, expected, doubts)]


def _numbers(parts: Members, dtype: str, expected: Shape | None, doubts: list[str]) -> Packing:
    """Return the packing of one column of bytes, in the architecture's shape if the sizes agree."""
    rows = (parts["weight"].shape or (0,))[0]
    numbers = rows * DTYPE_BITS[dtype] // 4
    if expected is not None and (prod(expected) + 1) // (2 * DTYPE_BITS[dtype] // 8) == rows:
        numbers = prod(expected)
    what = f"{dtype} {parts['weight'].shape} in 4 bits"
    shape, own_doubts = shape_of_numbers(numbers, what, expected)
    absmax = parts["absmax"].shape if "absmax" in parts else None
    fitting = absmax is not None and absmax in {(-(-numbers // size),) for size in _BLOCKSIZES}
    blocks = absmax[0] if fitting and absmax else None
    nested = not parts.keys().isdisjoint({"nested_absmax", "nested_quant_map"})
    nested = nested or ("absmax" in parts and parts["absmax"].dtype == "U8")
    tensors = dict(_four_bits(numbers, dtype, nested=nested, blocks=blocks))
    for state in _STATES:
        stored = parts[state].shape if state in parts else None
        if stored and len(stored) == 1:
            tensors[state] = WrittenTensor(stored, ("U8",))
    kind = "NF4" if _STATES[0] in parts else "FP4"
    return Packing(shape=shape, dtype=kind, tensors=tensors, doubts=(*doubts, *own_doubts))


def _stated(parts: Members, packing: Packing) -> StatedSettings | None:
    settings: StatedSettings = {"quant_method": "bitsandbytes"}
    if packing.dtype == "INT8":
        return settings | {"load_in_8bit": True}
    if parts.keys().isdisjoint(_STATES):
        return None
    return settings | {"load_in_4bit": True, "bnb_4bit_quant_type": packing.dtype.lower()}


def _scheme(declared: Declared, names: Collection[str], *_: object) -> Scheme:
    """Return the scheme (the packed and the plain modules) that the config declares.

    Observed with transformers 5.24: a packed weight in a skipped module is refused, or stays
    integers; plain weights in all other modules, even an unlisted output layer, load and fail in
    their first forward pass.
    """
    has_plain = declared.settings.get("llm_int8_has_fp16_weight") is True
    return skip_list_scheme(
        _MODULES,
        declared,
        names,
        packs_others=not has_plain,
        whole_layers=True,
        has_defaults=False,
    )


LAYOUT = LayoutTable[_Settings](
    name="bitsandbytes",
    methods=("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit"),
    recognises=_recognises,
    packed="weight",
    dtypes=frozenset({"I8", "U8", *FLOATS}),
    dtype="INT8",
    companions=_COMPANIONS,
    needed=_needed,
    settings=constant_settings(_settings),
    by_shapes=_by_shapes,
    by_config=_by_config,
    stated=_stated,
    scheme=_scheme,
    bundles=_bundles,
    conv1d=True,
    loads="packed numbers",
    stores_plain=lambda declared: declared.settings.get("llm_int8_has_fp16_weight") is True,
).layout()

"""HQQ, https://mobiusml.github.io/hqq_blog/, as hqq and transformers save it to safetensors.

The n = out * in numbers of a linear are reshaped into groups of g, (n/g, g) for axis 1 and
(g, n/g) for axis 0. This matrix (R, C) is packed along its first side R:

    X.W_q    8 bits U8 (R, C), 4 bits U8 (R/2, C), 2 bits U8 (R/4, C), 1 bit U8 (R/8, C),
             3 bits I32 (ceil(R/10), C): ten numbers in a word
    X.scale  float (n/g, 1) or (1, n/g), X.zero likewise; or both in X.zero_scale (2, ...)
    X.shape  I64 (2,), and more settings of the module, each in a separate tensor

With view_as_float the bytes are viewed as the compute dtype: BF16 (R, C/2) for U8, (R, 2C) for I32.
5 and 6 bits take a byte, 1.58 bits two bits. X.shape is a value, so no header shows it; the
architecture does. Sources: hqq/core/quantize.py and bitpack.py of hqq 0.2.8.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.layouts.declared import object_or_empty
from auditor.layouts.engine import Bundle, LayoutTable, Packing, any_module, shape_of_numbers
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    Stored,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS

# Bits of a number -> bits of a word, numbers in a word.
_PACKINGS: Mapping[int, tuple[int, int]] = {8: (8, 1), 4: (8, 2), 2: (8, 4), 1: (8, 8), 3: (32, 10)}
_ORDER = {"U8": (4, 8, 2, 1), "I32": (3,)}  # only words of 32 bits pack 3 bits
_STORED_AS = {6: 8, 5: 8, 1.58: 2}
_NEEDED = ("nbits", "group_size", "axis", "shape", "packing")
_SETTINGS = """
    nbits group_size axis shape packing unpack_view_dtype view_as_float quant_scale quant_zero
    compute_dtype offload_meta encoded_state_dict stores_quant_config channel_wise optimize
    round_zero
""".split()  # noqa: SIM905 - a long list of names
_COMPANIONS = {
    **dict.fromkeys(
        ("scale", "zero", "zero_scale"), "scales and zero points, one for each group of numbers"
    ),
    **dict.fromkeys(_SETTINGS, "settings of a module: bits, group size, shape and the like"),
}
_TAGLESS = frozenset({"model", "layers"})


class _Settings(NamedTuple):
    """The declared settings of one linear in all layers, such as k_proj."""

    bits: int | None
    group: int | None


def _settings(
    declared: Declared | None, _stored: Stored, _ledger: PackingLedger
) -> Callable[[str], _Settings]:
    settings = object_or_empty(declared.settings.get("quant_config") if declared else None)

    def of(module: str) -> _Settings:
        """Return a module's settings: its linear's (`self_attn.k_proj`), else the common ones."""
        kinds = (part for part in module.split(".") if part not in _TAGLESS and not part.isdigit())
        own = object_or_empty(settings.get(".".join(kinds), settings))
        values = object_or_empty(own.get("weight_quant_params"))
        group = values.get("group_size")
        return _Settings(_stored_bits(values.get("nbits")), group if type(group) is int else None)

    return of


def _stored_bits(nbits: object) -> int | None:
    if not isinstance(nbits, (int, float)) or isinstance(nbits, bool):
        return None
    stored = _STORED_AS.get(nbits, nbits)
    return int(stored) if stored in _PACKINGS else None


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    for module, members in stored.modules.items():
        if "W_q" in members or ("scale" in members and not members.keys().isdisjoint(_SETTINGS)):
            yield Bundle(module, tensor_name(module), members)


def _needed(parts: Members, _settings: _Settings, _packing: Packing | None) -> list[str]:
    scales = ["zero_scale"] if "zero_scale" in parts else ["scale", "zero"]
    return [*_NEEDED, *scales]


def _by_shapes(parts: Members, settings: _Settings, expected: Shape | None) -> list[Packing] | str:
    packed = parts["W_q"]
    if len(packed.shape or ()) != 2 or not packed.elements:  # noqa: PLR2004 - (rows, columns)
        return "a matrix of words"
    scales = _scales(parts)
    order = _ORDER.get(packed.dtype or "", (4, 8, 2, 1, 3))
    readings = [
        _packing(parts, bits, scales, group_and_numbers, settings, expected)
        for bits in sorted(order, key=lambda bits: bits != settings.bits)
        if (group_and_numbers := _groups(parts, bits, scales, settings, expected)) is not None
    ]
    return readings or f"words that fit scales {scales}"


def _scales(parts: Members) -> Shape | None:
    """Return the shape of the scales: (n/g, 1), (1, n/g) or (); None if no header shows it."""
    both = parts.get("zero_scale")
    if both is not None:
        return both.shape[1:] if both.shape else None
    shapes = [parts[last].shape for last in ("scale", "zero") if last in parts]
    return next((shape for shape in shapes if shape is not None), None)


def _packing(  # noqa: PLR0913, PLR0917 - the sizes of one weight
    parts: Members,
    bits: int,
    scales: Shape | None,
    group_and_numbers: tuple[int, int],
    settings: _Settings,
    expected: Shape | None,
) -> Packing:
    group, numbers = group_and_numbers
    what = f"W_q {parts['W_q'].shape} in {bits} bits"
    shape, doubts = shape_of_numbers(numbers, what, expected)
    if settings.bits not in {None, bits}:
        doubts = (*doubts, f"nbits of the config is {settings.bits}, stored are {bits}")
    tensors = (
        {} if scales is None else dict.fromkeys(("scale", "zero"), WrittenTensor(scales, FLOATS))
    )
    words = f"{bits} bits in groups of {group:,}"
    return Packing(
        shape=shape, dtype=f"INT{bits}", tensors=tensors, words=words, bits=bits, doubts=doubts
    )


def _groups(
    parts: Members, bits: int, scales: Shape | None, settings: _Settings, expected: Shape | None
) -> tuple[int, int] | None:
    """Return the group size and the number of values in W_q; None if the scales do not fit."""
    word, many = _PACKINGS[bits]
    rows, columns = parts["W_q"].shape or (0, 0)
    columns, remainder = divmod(columns * DTYPE_BITS[parts["W_q"].dtype or ""], word)
    needed = 0 if expected is None else prod(expected)
    capacity = rows * many * columns
    if scales is None:  # the last word of a column may be incomplete
        numbers = needed if 0 < capacity - needed < many * columns else capacity
        return numbers, numbers
    groups = prod(scales)
    if remainder or groups < 1:
        return None
    match scales:
        case ():
            return capacity, capacity
        case (_, 1) if -(-groups // many) == rows:
            return columns, groups * columns
        case (1, _) if groups == columns:
            # With 3 bits the last word may be incomplete, so that a group is smaller.
            sizes = [needed // groups, settings.group or 0]
            fitting = (size for size in sizes if size > 0 and -(-size // many) == rows)
            group = next(fitting, rows * many)
            return group, groups * group
    return None


LAYOUT = LayoutTable[_Settings](
    name="hqq",
    recognises=any_module(lambda parts: "W_q" in parts),
    packed="W_q",
    dtypes=frozenset({"U8", "I32", *FLOATS}),
    dtype="INT4",
    companions=_COMPANIONS,
    needed=_needed,
    settings=_settings,
    by_shapes=_by_shapes,
    title=lambda _, packings: ", ".join(("hqq", *sorted({one.words for one in packings}))),
    bundles=_bundles,
).layout()

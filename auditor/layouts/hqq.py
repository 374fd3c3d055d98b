"""HQQ, https://mobiusml.github.io/hqq_blog/, as hqq and transformers save it to safetensors.

The n = out * in numbers of a linear are reshaped into groups of g, (n/g, g) for axis 1 and
(g, n/g) for axis 0. This matrix (R, C) is packed along its first side R:

    X.W_q    8 bits U8 (R, C), 4 bits U8 (R/2, C), 2 bits U8 (R/4, C), 1 bit U8 (R/8, C),
             3 bits I32 (ceil(R/10), C): ten numbers in a word
    X.scale  float (n/g, 1) or (1, n/g), X.zero likewise; or both in X.zero_scale (2, ...)
    X.shape  I64 (2,), and more settings of the module, each in a separate tensor

With view_as_float the bytes are viewed as the compute dtype: BF16 (R, C/2) for U8, (R, 2C) for I32.
5 and 6 bits take a byte, 1.58 bits two bits. The shape is a value, so no header shows it; the
architecture does. Sources: hqq/core/quantize.py and bitpack.py of hqq 0.2.8.
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from auditor.layouts.declared import object_or_empty
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS, StoredTensor

# Bits of a number -> bits of a word, numbers in a word.
_PACKINGS: Mapping[int, tuple[int, int]] = {8: (8, 1), 4: (8, 2), 2: (8, 4), 1: (8, 8), 3: (32, 10)}
_STORED_AS = {6: 8, 5: 8, 1.58: 2}
_NEEDED = ("nbits", "group_size", "axis", "shape", "packing")
_SETTINGS = frozenset(
    {
        *_NEEDED,
        "unpack_view_dtype",
        "view_as_float",
        "quant_scale",
        "quant_zero",
        "compute_dtype",
        "offload_meta",
        "encoded_state_dict",
        "stores_quant_config",
        "channel_wise",
        "optimize",
        "round_zero",
    }
)
_TENSORS = frozenset({"scale", "zero", "zero_scale"})
_TAGLESS = frozenset({"model", "layers"})


def recognises(stored: Stored) -> bool:
    """Whether a module stores a W_q, a name of HQQ alone."""
    return any("W_q" in members for members in stored.modules.values())


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `W_q` as `weight`, in the architecture's shape if it has as many numbers."""
    ledger, kinds = PackingLedger(), set()
    reader = _Reader(declared, implied, ledger)
    for module, members in stored.modules.items():
        if "W_q" in members:
            kinds.add(reader.unpack(module, members))
        elif "scale" in members and not _SETTINGS.isdisjoint(members):
            _orphans(members, ledger)
    return ledger.close(", ".join(("hqq", *sorted(kind for kind in kinds if kind))))


def _orphans(members: Members, ledger: PackingLedger) -> None:
    orphans = [members[last] for last in sorted(members.keys() & (_TENSORS | _SETTINGS))]
    ledger.note("scales and settings of no stored W_q", *orphans)
    ledger.lack("the W_q that these belong to is not stored", *orphans)


class _Matrix(NamedTuple):
    """The content of W_q if it is packed in `bits`."""

    bits: int
    numbers: int
    group: int


class _Reader:
    """Reads modules, each with the settings that the config declares for its kind."""

    def __init__(self, declared: Declared | None, implied: Implied, ledger: PackingLedger) -> None:
        self._settings = object_or_empty(
            declared.settings.get("quant_config") if declared else None
        )
        self._implied = implied
        self._ledger = ledger

    def unpack(self, module: str, members: Members) -> str:
        """Record the module's packed tensors; return a description of its packing."""
        ledger, packed = self._ledger, members["W_q"]
        _note(members, ledger)
        has_scales = "zero_scale" in members or {"scale", "zero"} <= members.keys()
        lacking = [last for last in _NEEDED if last not in members]
        if not has_scales:
            lacking.append("scale and zero")
        if lacking:
            ledger.lack(f"W_q without its {', '.join(lacking)}", packed)
        declared = self._declared(module)
        bits = _stored_bits(declared.get("nbits"))
        name = tensor_name(module)
        if packed.shape is None:
            ledger.tensors.append(LogicalTensor(packed, name, None, f"INT{bits or 4}"))
            return ""
        expected = self._implied(name)
        matrix = _matrix(members, bits, declared.get("group_size"), expected, ledger)
        if matrix is None:
            return ""
        if bits is not None and bits != matrix.bits:
            contradiction = (
                f"the config declares nbits {bits}, W_q and its scales are those of {matrix.bits}"
            )
            ledger.fault(contradiction, packed)
        shape = _shape(packed, matrix, expected, ledger)
        ledger.tensors.append(LogicalTensor(packed, name, shape, f"INT{matrix.bits}"))
        return f"{matrix.bits} bits in groups of {matrix.group:,}"

    def _declared(self, module: str) -> Mapping[str, Any]:
        """The settings of a module: those of all, or of its kind of linear: `self_attn.k_proj`."""
        kinds = (part for part in module.split(".") if part not in _TAGLESS and not part.isdigit())
        kind_settings = self._settings.get(".".join(kinds), self._settings)
        return object_or_empty(object_or_empty(kind_settings).get("weight_quant_params"))


def _stored_bits(nbits: object) -> int | None:
    if not isinstance(nbits, (int, float)) or isinstance(nbits, bool):
        return None
    stored = _STORED_AS.get(nbits, nbits)
    return int(stored) if stored in _PACKINGS else None


def _note(members: Members, ledger: PackingLedger) -> None:
    scales = [members[last] for last in sorted(_TENSORS & members.keys())]
    settings = [members[last] for last in sorted(_SETTINGS & members.keys())]
    if scales:
        ledger.note("scales and zero points, one for each group of numbers", *scales)
    if settings:
        ledger.note("settings of a module: bits, group size, shape and the like", *settings)


def _matrix(
    members: Members, bits: int | None, group: object, expected: Shape | None, ledger: PackingLedger
) -> _Matrix | None:
    """Return the matrix in W_q, from its shape and its scales' shape; None if neither fits."""
    packed = members["W_q"]
    width = DTYPE_BITS.get(packed.dtype or "", 0)
    shape = packed.shape or ()
    if len(shape) != 2 or not packed.elements or width not in {8, 16, 32}:  # noqa: PLR2004
        ledger.fault(f"W_q is {packed.dtype} {shape}; a matrix of words is needed", packed)
        return None
    scales = _scales(members, ledger)
    if scales is None:
        return _unscaled(packed, bits, expected)
    matrices = [_held(packed, scales, one, group, expected) for one in _order(packed, bits)]
    fitting = [matrix for matrix in matrices if matrix is not None]
    if not fitting:
        observed = f"W_q {packed.dtype} {shape} and scales {scales} fit no number of bits"
        ledger.fault(observed, packed)
        return None
    wanted = None if expected is None else prod(expected)
    return next((matrix for matrix in fitting if matrix.numbers == wanted), fitting[0])


def _unscaled(packed: StoredTensor, bits: int | None, expected: Shape | None) -> _Matrix:
    """The matrix with the architecture's numbers; the last word of a column may be incomplete."""
    word, many = _PACKINGS[bits or 4]
    words = (packed.elements or 0) * DTYPE_BITS[packed.dtype or ""] // word
    columns = (packed.shape or (0, 0))[1] * DTYPE_BITS[packed.dtype or ""] // word
    numbers, needed = words * many, 0 if expected is None else prod(expected)
    if 0 < numbers - needed < many * columns:
        numbers = needed
    return _Matrix(bits or 4, numbers, numbers)


def _order(packed: StoredTensor, bits: int | None) -> Iterable[int]:
    """The numbers of bits to try, the declared one first; only words of 32 bits pack 3 bits."""
    whole = {"U8": (4, 8, 2, 1), "I32": (3,)}.get(packed.dtype or "", (4, 8, 2, 1, 3))
    return sorted(whole, key=lambda one: one != bits)


def _scales(members: Members, ledger: PackingLedger) -> Shape | None:
    """The shape of the scales: (n/g, 1), (1, n/g) or (); report a zero of another shape."""
    both = members.get("zero_scale")
    if both is not None:
        return both.shape[1:] if both.shape else None
    parts = (members.get(last) for last in ("scale", "zero"))
    with_shapes = [part for part in parts if part is not None and part.shape is not None]
    if len({part.shape for part in with_shapes}) > 1:
        ledger.fault(
            f"scale is {with_shapes[0].shape} and zero is {with_shapes[1].shape}", *with_shapes
        )
    return with_shapes[0].shape if with_shapes else None


def _held(
    packed: StoredTensor, scales: Shape, bits: int, group: object, expected: Shape | None
) -> _Matrix | None:
    """Return the matrix in W_q (rows, columns) for `bits`; None if the scales do not fit it."""
    word, many = _PACKINGS[bits]
    rows, columns = packed.shape or (0, 0)
    width = DTYPE_BITS[packed.dtype or ""]
    columns, rest = divmod(columns * width, word)  # of the packing's own words
    groups = prod(scales)
    if rest or groups < 1:
        return None
    if len(scales) == 2 and scales[1] == 1 and -(-groups // many) == rows:  # noqa: PLR2004
        return _Matrix(bits, groups * columns, columns)
    if len(scales) == 2 and scales[0] == 1 and groups == columns:  # noqa: PLR2004
        return _along_rows(bits, many, rows, groups, group, expected)
    if not scales:
        return _Matrix(bits, rows * many * columns, rows * many * columns)
    return None


def _along_rows(  # noqa: PLR0913, PLR0917 - the six sizes of one matrix
    bits: int, many: int, rows: int, groups: int, group: object, expected: Shape | None
) -> _Matrix:
    """Read axis 0, (g, n/g); with 3 bits the last word may be incomplete, so g is smaller."""
    sizes = [group] if type(group) is int else []
    if expected is not None:
        sizes.insert(0, prod(expected) // groups)
    size = next((one for one in sizes if one > 0 and -(-one // many) == rows), rows * many)
    return _Matrix(bits, groups * size, size)


def _shape(
    packed: StoredTensor, matrix: _Matrix, expected: Shape | None, ledger: PackingLedger
) -> Shape:
    if expected is not None and prod(expected) == matrix.numbers:
        return expected
    if expected is not None:
        holds = f"W_q {packed.dtype} {packed.shape} holds {matrix.numbers:,} of {matrix.bits} bits"
        ledger.fault(f"{holds}, the architecture has {expected} = {prod(expected):,}", packed)
    return (matrix.numbers,)


LAYOUT = Layout(name="hqq", methods=("hqq",), recognises=recognises, unpack=unpack)

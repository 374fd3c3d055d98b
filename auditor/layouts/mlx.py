"""MLX: `mlx.core.quantize` packs each row of a weight into words of 32 bits, in groups.

mlx.nn.QuantizedLinear and QuantizedEmbedding save (..., out, in) at b bits in groups of g as
follows; mlx_lm's QuantizedSwitchLinear adds an axis of experts in front:

    X.weight        U32 (..., out, in * b / 32)
    X.scales        (..., out, in / g), float; U8 in the modes mxfp4, mxfp8 and nvfp4
    X.biases        in the scales' shape, only in the mode affine; X.bias is the model's bias
    X.global_scale  F32 () or (experts,), optional in the mode nvfp4

The config contains `bits`, `group_size` and `mode`; a module that differs has its own, by name.
mlx_lm and mlx-vlm rename some tensors; see _mlx_names.py. Files without packed tensors are read by
this layout if their metadata say `format: mlx`. The method "metal" of transformers is the mode
affine, with biases named qbiases.

The modes, from the documentation of mlx.core.quantize: affine, 1 to 6 or 8 bits in groups of 32, 64
or 128; mxfp4 and mxfp8, 4 and 8 bits in groups of 32; nvfp4, 4 bits in groups of 16.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.layouts._mlx_names import (
    MlxName,
    add_plain,
    add_unpacked,
    is_renamed_or_transposed,
    mlx_name,
)
from auditor.layouts.declared import integer_setting
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Layout,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    WrittenTensor,
)
from auditor.messages import described, quoted
from auditor.tensors import StoredTensor

AFFINE = "affine"
_AFFINE_BITS = frozenset({1, 2, 3, 4, 5, 6, 8})
_AFFINE_GROUPS = frozenset({32, 64, 128})
_AFFINE_USUAL = (4, 64)
_FIXED = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # mode: (bits, group)


class MlxPacking(NamedTuple):
    """The bits, group size and mode in which one weight is packed."""

    mode: str
    bits: int
    group: int

    @property
    def dtype(self) -> str:
        return {AFFINE: f"INT{self.bits}", "mxfp8": "F8_E4M3"}.get(self.mode, "F4")

    def __str__(self) -> str:
        return f"{self.mode}, {self.bits} bits in groups of {self.group}"


class MlxSettings(Struct, frozen=True, kw_only=True):
    """The quantization settings of a config; None for a setting that is absent or unusable."""

    top: MlxPacking | None
    own: Mapping[str, MlxPacking | None]  # by module, for modules that differ from the rest
    plain: frozenset[str]  # modules that are not packed

    def of(self, module: str) -> MlxPacking | None:
        return self.own.get(module, self.top)


def read_mlx_settings(declared: Declared | None, ledger: PackingLedger) -> MlxSettings:
    """Read the common settings, and the settings of each module that has its own."""
    if declared is None:
        return MlxSettings(top=None, own={}, plain=frozenset())
    own: dict[str, MlxPacking | None] = {}
    plain: set[str] = set()
    for module, value in declared.settings.items():
        if isinstance(value, Mapping):
            where = f"{quoted(module)} in {declared.where}"
            own[module] = _packing(replace(declared, settings=value, where=where), ledger)
        elif value is False:
            plain.add(module)
    return MlxSettings(top=_packing(declared, ledger), own=own, plain=frozenset(plain))


def _packing(declared: Declared, ledger: PackingLedger) -> MlxPacking | None:
    """Read a packing, with the defaults of `mlx.core.quantize`; None if a value is impossible."""
    mode = declared.settings.get("mode", AFFINE)
    if mode == AFFINE:
        bits, groups, usual = _AFFINE_BITS, _AFFINE_GROUPS, _AFFINE_USUAL
    elif isinstance(mode, str) and mode in _FIXED:
        usual = _FIXED[mode]
        bits, groups = frozenset(usual[:1]), frozenset(usual[1:])
    else:
        known = ", ".join((AFFINE, *_FIXED))
        ledger.fault(f"mode of {declared.where} is {described(mode)}; one of {known} is needed")
        return None
    width = integer_setting(declared, "bits", bits, ledger, default=usual[0])
    group = integer_setting(declared, "group_size", groups, ledger, default=usual[1])
    return None if width is None or group is None else MlxPacking(mode, width, group)


def guessed_packing(words: int, groups: int, inputs: int, *, affine: bool) -> MlxPacking | None:
    """Return the packing of `inputs` numbers in these 32-bit words and groups; None if none fits.

    mlx_lm.utils.infer_quant_config guesses in this way for modules that the config does not name.
    """
    if inputs < 1 or groups < 1 or words * 32 % inputs or inputs % groups:
        return None
    bits, group = words * 32 // inputs, inputs // groups
    if affine:
        known = bits in _AFFINE_BITS and group in _AFFINE_GROUPS
        return MlxPacking(AFFINE, bits, group) if known else None
    return next(
        (MlxPacking(mode, *pair) for mode, pair in _FIXED.items() if pair == (bits, group)), None
    )


_BIASES = "biases that serve the scales: what code 0 stands for in a group"
_BESIDE = {
    "scales": "scales, one for each group of inputs of an output",
    "biases": _BIASES,
    "qbiases": _BIASES,
    "global_scale": "global_scale, the scale of the scales",
}
_PACKED = frozenset({None, "U32"})


def recognises(stored: Stored) -> bool:
    """Whether a module stores a weight of 32-bit words with its scales."""
    return any(
        "scales" in members and "weight" in members and members["weight"].dtype in _PACKED
        for members in stored.modules.values()
    )


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack weights under the names of the unpacked model."""
    ledger = PackingLedger()
    settings = read_mlx_settings(declared, ledger)
    for module, members in stored.modules.items():
        weight = members.get("weight")
        beside = {part: members[part] for part in _BESIDE if part in members}
        if beside and _of_mlx(weight, beside.values(), implied):
            _unpack(weight, beside, settings.of(module), implied, ledger)
            _check_plain(module, settings, beside.values(), ledger)
        elif weight is not None and weight.dtype == "U32":
            ledger.lack("packed in words of 32 bits, and has no scales", weight)
        elif weight is not None and module in settings.own:
            ledger.fault("the config declares its packing, but it is stored plain", weight)
        for last, tensor in members.items():
            is_packed = last in beside or (last == "weight" and beside)
            if not is_packed and is_renamed_or_transposed(tensor):
                add_plain(tensor, implied, ledger)
    return ledger.close(f"mlx, {settings.top}" if settings.top else "mlx")


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return the tensors that `mlx.core.quantize` writes for the weights that the config packs."""
    settings, written = read_mlx_settings(declared, PackingLedger()), dict[str, WrittenTensor]()
    for module, members in stored.modules.items():
        weight, packing = members.get("weight"), settings.of(module)
        beside = [last for last in _BESIDE if last in members]
        if weight is None or packing is None or module in settings.plain or not beside:
            continue
        where = mlx_name(weight, implied)
        if where.expected is None:
            continue
        shape = (len(where.names), *where.expected) if where.stacked else where.expected
        parts = _parts(shape, packing)
        written |= {members[last].name: parts[last] for last in ("weight", *beside)}
    return written


def _parts(shape: Shape, packing: MlxPacking) -> dict[str, WrittenTensor]:
    *rows, inputs = shape
    group = WrittenTensor(
        (*rows, inputs // packing.group), FLOATS if packing.mode == AFFINE else ("U8",)
    )
    return {
        "weight": WrittenTensor((*rows, inputs * packing.bits // 32), ("U32",)),
        "scales": group,
        "biases": group,
        "qbiases": group,
        "global_scale": WrittenTensor(tuple(rows[:-1]), ("F32",)),
    }


def _of_mlx(weight: StoredTensor | None, beside: Iterable[StoredTensor], implied: Implied) -> bool:
    """Whether scales and biases beside a weight are MLX's, not the architecture's own tensors."""
    if weight is not None and weight.dtype in _PACKED:
        return True
    return all(implied(tensor.name) is None for tensor in beside)


def _check_plain(
    module: str, settings: MlxSettings, beside: Iterable[StoredTensor], ledger: PackingLedger
) -> None:
    if module in settings.plain:
        ledger.fault("the config declares that it is not packed, but it has scales", *beside)


def _unpack(
    weight: StoredTensor | None,
    beside: Members,
    packing: MlxPacking | None,
    implied: Implied,
    ledger: PackingLedger,
) -> None:
    for part, tensor in beside.items():
        ledger.note(_BESIDE[part], tensor)
    if weight is None:
        ledger.lack("the packed weight of these scales is not stored", *beside.values())
        return
    if weight.dtype not in _PACKED:
        reason = f"stored plain, as {weight.dtype}, but with {' and '.join(beside)}"
        ledger.fault(reason, weight)
        return
    where = mlx_name(weight, implied)
    if weight.shape is None:
        add_unpacked(weight, where, None, packing.dtype if packing else "INT4", ledger)
        return
    packing, shape = _unpacked(weight, beside, packing, where, ledger)
    if packing is not None and shape is not None:
        add_unpacked(weight, where, shape, packing.dtype, ledger)
        _check(packing, beside, weight.shape, ledger)


def _unpacked(
    weight: StoredTensor,
    beside: Members,
    packing: MlxPacking | None,
    where: MlxName,
    ledger: PackingLedger,
) -> tuple[MlxPacking | None, Shape | None]:
    """Return the packing that the shapes confirm, and the unpacked shape.

    The packing is the declared one if weight and scales fit it; else the packing that gives the
    architecture's shape, else the packing that the weight alone shows.
    """
    words, scales = weight.shape or (), beside.get("scales")
    if len(words) < 2:  # noqa: PLR2004 - (out, in * b / 32)
        ledger.fault(f"stored as {words}, (out, words of 32 bits) is needed", weight)
        return None, None
    groups = scales.shape if scales is not None else None
    if groups is None or groups[:-1] != words[:-1] or len(groups) != len(words):
        if scales is None:
            ledger.lack("packed in words of 32 bits, and has no scales", weight)
        elif groups is not None:
            reason = f"scales are {groups}, expected a row for each row of the words {words}"
            ledger.fault(reason, scales)
        return packing, _shape(words, packing)
    if packing is not None:
        inputs = groups[-1] * packing.group
        if inputs * packing.bits == words[-1] * 32:
            return packing, (*words[:-1], inputs)
        ledger.fault(_contradiction(words, groups, packing), weight)
    affine = "biases" in beside or "qbiases" in beside
    expected = where.expected
    guess = (
        guessed_packing(words[-1], groups[-1], expected[-1], affine=affine) if expected else None
    )
    if guess is not None and expected is not None:
        return guess, (*words[:-1], expected[-1])
    if packing is None:
        reason = f"words {words} and scales {groups} fit no number of bits"
        ledger.fault(reason, weight)
    return packing, _shape(words, packing)


def _shape(words: Shape, packing: MlxPacking | None) -> Shape | None:
    return (*words[:-1], words[-1] * 32 // packing.bits) if packing else None


def _contradiction(words: Shape, groups: Shape, packing: MlxPacking) -> str:
    bits, group = packing.bits, packing.group
    return (
        f"words {words} hold {words[-1]:,} * 32/{bits} = {words[-1] * 32 / bits:,g} inputs, "
        f"scales {groups} are of {groups[-1]:,} * {group} = {groups[-1] * group:,}"
    )


def _check(packing: MlxPacking, beside: Members, words: Shape, ledger: PackingLedger) -> None:
    """Check the weight's companions (scales, biases, global_scale) against its mode."""
    affine, scales = packing.mode == AFFINE, beside.get("scales")
    for part in ("biases", "qbiases"):
        tensor = beside.get(part)
        if tensor is not None and not affine:
            ledger.fault(f"{part} in the mode {packing.mode}, which has none", tensor)
        elif tensor is not None and scales is not None and _differ(tensor, scales):
            ledger.fault(f"{part} {tensor.shape} beside scales {scales.shape}", tensor)
    if "global_scale" in beside:
        _check_global(packing, beside["global_scale"], words, ledger)
    if scales is not None and affine and "biases" not in beside and "qbiases" not in beside:
        ledger.lack("biases are not stored, expected with the mode affine", scales)
    if scales is not None and scales.dtype is not None and (scales.dtype == "U8") == affine:
        ledger.fault(f"scales of {scales.dtype} in the mode {packing.mode}", scales)


def _differ(one: StoredTensor, other: StoredTensor) -> bool:
    return None not in {one.shape, other.shape} and one.shape != other.shape


def _check_global(
    packing: MlxPacking, tensor: StoredTensor, words: Shape, ledger: PackingLedger
) -> None:
    needed = words[:-2]
    if packing.mode != "nvfp4":
        ledger.fault(f"global_scale in the mode {packing.mode}, which has none", tensor)
    elif tensor.shape not in {None, needed}:
        ledger.fault(f"global_scale is {tensor.shape}, {needed} is needed", tensor)


LAYOUT = Layout(
    name="mlx", methods=("mlx", "metal"), recognises=recognises, unpack=unpack, writes=writes
)

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

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.layouts._mlx_names import is_renamed_or_transposed, mlx_name, model_shape
from auditor.layouts._scheme import Scheme
from auditor.layouts.declared import integer_setting
from auditor.layouts.engine import Bundle, LayoutTable, Packing, any_module
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    WrittenTensor,
)
from auditor.messages import described, quoted

_AFFINE = "affine"
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
        return {_AFFINE: f"INT{self.bits}", "mxfp8": "F8_E4M3"}.get(self.mode, "F4")

    def __str__(self) -> str:
        return f"{self.mode}, {self.bits} bits in groups of {self.group}"


class MlxSettings(Struct, frozen=True, kw_only=True):
    """The quantization settings of a config; None for a setting that is absent or unusable."""

    top: MlxPacking | None
    own: Mapping[str, MlxPacking | None]  # by module, for modules that differ from the rest
    plain: frozenset[str]  # modules that are not packed

    def of(self, module: str) -> MlxPacking | None:
        return None if module in self.plain else self.own.get(module, self.top)


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
    mode = declared.settings.get("mode", _AFFINE)
    if mode == _AFFINE:
        bits, groups, usual = _AFFINE_BITS, _AFFINE_GROUPS, _AFFINE_USUAL
    elif isinstance(mode, str) and mode in _FIXED:
        usual = _FIXED[mode]
        bits, groups = frozenset(usual[:1]), frozenset(usual[1:])
    else:
        known = ", ".join((_AFFINE, *_FIXED))
        ledger.fault(f"mode of {declared.where} is {described(mode)}; one of {known} is needed")
        return None
    width = integer_setting(declared, "bits", bits, ledger, default=usual[0])
    group = integer_setting(declared, "group_size", groups, ledger, default=usual[1])
    return None if width is None or group is None else MlxPacking(mode, width, group)


# --- bundles --------------------------------------------------------------------------------------

_BIASES = "biases that serve the scales: what code 0 stands for in a group"
_COMPANIONS = {
    "scales": "scales, one for each group of inputs of an output",
    "biases": _BIASES,
    "qbiases": _BIASES,
    "global_scale": "global_scale, the scale of the scales",
}
_PACKED = frozenset({None, "U32"})


def _bundles(stored: Stored, _settings: object, implied: Implied) -> Iterator[Bundle]:
    """Yield packed weights, and plain tensors that MLX renames or whose axes it reorders."""
    for module, members in stored.modules.items():
        weight = members.get("weight")
        parts = {part: members[part] for part in _COMPANIONS if part in members}
        if weight is None or weight.dtype not in _PACKED:
            # The architecture's own tensors may have these names.
            parts = parts if all(implied(one.name) is None for one in parts.values()) else {}
        if weight is not None and (parts or weight.dtype == "U32"):
            where = mlx_name(weight, implied)
            yield Bundle(module, where.names[0], {**parts, "weight": weight}, experts=where.experts)
            parts["weight"] = weight
        elif parts:
            yield Bundle(module, module, parts)
        for last, tensor in members.items():
            if last not in parts and is_renamed_or_transposed(tensor):
                where = mlx_name(tensor, implied)
                shape = model_shape(tensor, where)
                if where.names != (tensor.name,) or shape != tensor.shape:
                    name, own = where.names[0], tensor._replace(shape=shape)
                    yield Bundle(module, name, {"weight": tensor}, experts=where.experts, plain=own)


def _needed(parts: Members, _settings: object, packing: Packing | None) -> Iterator[str]:
    yield "scales"
    if packing is not None and packing.form == _AFFINE and "qbiases" not in parts:
        yield "biases"


# --- one weight -----------------------------------------------------------------------------------


def _by_shapes(
    parts: Members, declared: MlxPacking | None, expected: Shape | None
) -> list[Packing] | str:
    """Return the declared packing, and the one in which the weight has the architecture's shape."""
    words, scales = parts["weight"].shape or (), parts.get("scales")
    if len(words) < 2:  # noqa: PLR2004 - (out, in * b / 32)
        return "(out, words of 32 bits)"
    *rows, width = words
    packings = []
    if declared is not None:
        packings = [_written(parts, (*rows, width * 32 // declared.bits), declared)]
    groups = scales.shape if scales is not None else None
    is_affine = "biases" in parts or "qbiases" in parts
    guess = None
    if expected and groups:
        guess = _guessed_packing(width, groups[-1], expected[-1], is_affine=is_affine)
    if guess is not None and expected and guess != declared:
        doubts = () if declared is None else (f"{declared} is declared, stored is {guess}",)
        packings.append(replace(_written(parts, (*rows, expected[-1]), guess), doubts=doubts))
    return packings or f"words of a known number of bits with scales {groups}"


def _guessed_packing(words: int, groups: int, inputs: int, *, is_affine: bool) -> MlxPacking | None:
    """Return the packing of `inputs` numbers in these 32-bit words and groups; None if none fits.

    mlx_lm.utils.infer_quant_config guesses in this way for modules that the config does not name.
    """
    if inputs < 1 or groups < 1 or words * 32 % inputs or inputs % groups:
        return None
    pair = words * 32 // inputs, inputs // groups
    if is_affine:
        is_known = pair[0] in _AFFINE_BITS and pair[1] in _AFFINE_GROUPS
        return MlxPacking(_AFFINE, *pair) if is_known else None
    return next((MlxPacking(mode, *pair) for mode, fixed in _FIXED.items() if fixed == pair), None)


def _written(parts: Members, shape: Shape, packing: MlxPacking) -> Packing:
    """Return what `mlx.core.quantize` writes for a weight of this shape."""
    *rows, inputs = shape
    mode, bits, size = packing
    group = WrittenTensor((*rows, -(-inputs // size)), FLOATS if mode == _AFFINE else ("U8",))
    others = [part for part in ("biases", "qbiases") if mode != _AFFINE and part in parts]
    others += ["global_scale"] if mode != "nvfp4" and "global_scale" in parts else []
    return Packing(
        shape=shape,
        dtype=packing.dtype,
        tensors={
            "weight": WrittenTensor((*rows, inputs * bits // 32), ("U32",)),
            "scales": group,
            "biases": group._replace(dtypes=FLOATS),
            "qbiases": group._replace(dtypes=FLOATS),
            "global_scale": WrittenTensor(tuple(rows[:-1]), ("F32",)),
        },
        words=str(packing),
        form=mode,
        bits=bits,
        group=size,
        doubts=tuple(f"has {part}, expected none in the mode {mode}" for part in others),
    )


def _by_config(parts: Members, packing: MlxPacking | None, shape: Shape) -> Packing | None:
    is_packed = not _COMPANIONS.keys().isdisjoint(parts)
    return _written({}, shape, packing) if packing is not None and is_packed else None


def _stated(_parts: Members, packing: Packing) -> StatedSettings:
    mode = {} if packing.form == _AFFINE else {"mode": packing.form}
    return {"bits": packing.bits, "group_size": packing.group, **mode}


def _scheme(declared: Declared, _names: Collection[str], *_: object) -> Scheme:
    settings = read_mlx_settings(declared, PackingLedger())
    return Scheme(
        plain=settings.plain, packs=lambda _names: (), source=declared.where, named=settings.own
    )


def _title(declared: Declared | None, _packings: Collection[Packing]) -> str:
    settings = read_mlx_settings(declared, PackingLedger())
    return f"mlx, {settings.top}" if settings.top else "mlx"


LAYOUT = LayoutTable[MlxPacking | None](
    name="mlx",
    methods=("mlx", "metal"),
    recognises=any_module(
        lambda parts: "scales" in parts and "weight" in parts and parts["weight"].dtype in _PACKED
    ),
    packed="weight",
    dtypes=frozenset({"U32"}),
    dtype="INT4",
    unseen_dtype=lambda _parts, packing: packing.dtype if packing else "INT4",
    companions=_COMPANIONS,
    needed=_needed,
    settings=lambda declared, _stored, ledger: read_mlx_settings(declared, ledger).of,
    by_shapes=_by_shapes,
    by_config=_by_config,
    stated=_stated,
    title=_title,
    scheme=_scheme,
    bundles=_bundles,
    loads="its scales",
).layout()

"""MLX: `mlx.core.quantize` packs each row of a weight into words of 32 bits, in groups.

mlx.nn.QuantizedLinear and QuantizedEmbedding save (..., out, in) at b bits in groups of g as
follows; mlx_lm's QuantizedSwitchLinear adds an axis of experts in front:

    X.weight        U32 (..., out, in * b / 32)
    X.scales        (..., out, in / g), float; U8 in the modes mxfp4, mxfp8 and nvfp4
    X.biases        like the scales, only in the mode affine; X.bias is the model's own
    X.global_scale  F32 () or (experts,), optional in the mode nvfp4

The config contains `bits`, `group_size` and `mode`, also under the name of a module that differs.
The method "metal" of transformers is the mode affine, with biases named qbiases.

mlx_lm's `sanitize` functions rename tensors, which keep their own name if the architecture has none
of the original names:

- Experts are stacked (models/qwen3_moe.py, mixtral.py, lfm2_moe.py, nemotron_h.py and others):
  `P.switch_mlp.gate_proj.weight` (E, out, in) is `P.experts.{0..E-1}.gate_proj.weight` (out, in),
  or w1, w2 and w3 in Mixtral; fc1 and fc2 are up_proj and down_proj.
- The gated mlp of LFM2 is w1, w2 and w3 on the Hub.
- Convolutions have their inputs last: (out, ..., in) is (out, in, ...) of PyTorch.

The modes, from the documentation of mlx.core.quantize: affine, 1 to 6 or 8 bits in groups of 32, 64
or 128; mxfp4 and mxfp8, 4 and 8 bits in groups of 32; nvfp4, 4 bits in groups of 16.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.layouts.declared import integer_setting
from auditor.layouts.fused import count_experts, too_many_experts
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
    WrittenTensor,
)
from auditor.messages import described, quoted
from auditor.tensors import StoredTensor

_CONVOLUTION = 3  # the least number of its axes: (out, in, size)

_SWITCH = ".switch_mlp"
_OLDER = {
    "gate_proj": ("gate_proj", "w1"),
    "up_proj": ("up_proj", "w3"),
    "down_proj": ("down_proj", "w2"),
    "fc1": ("up_proj",),
    "fc2": ("down_proj",),
}


class MlxName(NamedTuple):
    """The place of a stored tensor's numbers in the unpacked model."""

    names: tuple[str, ...]  # one, or one for each expert of a stack
    expected: Shape | None  # the architecture's shape under the first name
    stacked: bool


def mlx_name(tensor: StoredTensor, implied: Implied) -> MlxName:
    """Return the architecture's names for a tensor, else its own name."""
    own, expected = tensor.name, implied(tensor.name)
    module, _, last = own.rpartition(".")
    parent, _, projection = module.rpartition(".")
    older = _OLDER.get(projection, ()) if expected is None else ()
    if older and parent.endswith(_SWITCH):
        experts = f"{parent.removesuffix(_SWITCH)}.experts"
        for name in older:
            first = implied(f"{experts}.0.{name}.{last}")
            if first is not None:
                stored = tensor.shape[0] if tensor.shape else None
                count = count_experts(f"{experts}.", f".{name}.{last}", implied, stored=stored)
                expert_names = tuple(f"{experts}.{number}.{name}.{last}" for number in range(count))
                return MlxName(expert_names or (own,), first, stacked=True)
    for name in older:
        other = f"{parent}.{name}.{last}"
        expected = implied(other)
        if expected is not None:
            return MlxName((other,), expected, stacked=False)
    return MlxName((own,), expected, stacked=False)


def add_unpacked(
    tensor: StoredTensor, where: MlxName, shape: Shape | None, dtype: str, ledger: PackingLedger
) -> None:
    """Add the pieces of a tensor with the unpacked shape `shape`: one, or one for each expert."""
    names = where.names
    if not where.stacked or shape is None:
        ledger.tensors.extend(LogicalTensor(tensor, name, shape, dtype) for name in names)
    elif len(shape) > 1 and 0 < shape[0] == len(names):
        ledger.tensors.extend(LogicalTensor(tensor, name, shape[1:], dtype) for name in names)
    else:
        higher = len(shape) > 1 and shape[0] > len(names)
        none = f"{shape} cannot be stacked experts of {where.expected}"
        ledger.fault(too_many_experts(shape[0], len(names)) if higher else none, tensor)
        ledger.tensors.append(LogicalTensor(tensor, tensor.name, shape, dtype))


def is_renamed_or_transposed(tensor: StoredTensor) -> bool:
    """Whether `add_plain` may apply to a tensor: a quick no for most tensors."""
    if tensor.shape is not None and len(tensor.shape) >= _CONVOLUTION:
        return True
    return tensor.name.rpartition(".")[0].rpartition(".")[2] in _OLDER


def add_plain(tensor: StoredTensor, implied: Implied, ledger: PackingLedger) -> None:
    """Add the pieces of a plain tensor whose name or order of axes mlx_lm has changed."""
    where = mlx_name(tensor, implied)
    shape, expected = tensor.shape, where.expected
    turned = shape is not None and expected is not None and _inputs_last(shape, expected)
    if where.names == (tensor.name,) and not turned:
        return
    dtype = tensor.dtype or "F32"
    add_unpacked(tensor, where, expected if turned else shape, dtype, ledger)


def _inputs_last(stored: Shape, expected: Shape) -> bool:
    """Whether `stored` is a convolution's (out, in, ...) with the inputs moved last."""
    if len(expected) < _CONVOLUTION or stored == expected:
        return False
    return stored == (expected[0], *expected[2:], expected[1])


# --- packed tensors ------------------------------------------------------------------------------


AFFINE = "affine"
_AFFINE_BITS = frozenset({1, 2, 3, 4, 5, 6, 8})
_AFFINE_GROUPS = frozenset({32, 64, 128})
_AFFINE_USUAL = (4, 64)
_FIXED = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # mode: (bits, group)


class MlxPacking(NamedTuple):
    """The packing of the numbers of one weight."""

    mode: str
    bits: int
    group: int

    @property
    def dtype(self) -> str:
        return {AFFINE: f"INT{self.bits}", "mxfp8": "F8_E4M3"}.get(self.mode, "F4")

    def __str__(self) -> str:
        return f"{self.mode}, {self.bits} bits in groups of {self.group}"


class MlxSettings(Struct, frozen=True, kw_only=True):
    """The settings of a config; None if one is absent or unusable."""

    top: MlxPacking | None
    own: Mapping[str, MlxPacking | None]  # by module, if it differs from the rest
    plain: frozenset[str]  # modules that are not packed

    def of(self, module: str) -> MlxPacking | None:
        return self.own.get(module, self.top)


def read_mlx_settings(declared: Declared | None, ledger: PackingLedger) -> MlxSettings:
    """Read the settings of all modules, and of each module that has its own."""
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
    """Read a packing; an absent value is the default of `mlx.core.quantize`."""
    mode = declared.settings.get("mode", AFFINE)
    if mode == AFFINE:
        bits, groups, usual = _AFFINE_BITS, _AFFINE_GROUPS, _AFFINE_USUAL
    elif isinstance(mode, str) and mode in _FIXED:
        usual = _FIXED[mode]
        bits, groups = frozenset(usual[:1]), frozenset(usual[1:])
    else:
        modes = ", ".join((AFFINE, *_FIXED))
        ledger.fault(f"mode of {declared.where} is {described(mode)}; one of {modes} is needed")
        return None
    width = integer_setting(declared, "bits", bits, ledger, default=usual[0])
    group = integer_setting(declared, "group_size", groups, ledger, default=usual[1])
    return None if width is None or group is None else MlxPacking(mode, width, group)


def guessed_packing(words: int, groups: int, inputs: int, *, affine: bool) -> MlxPacking | None:
    """Return the packing of a row of `inputs` with these 32-bit words and groups, or None.

    mlx_lm.utils.infer_quant_config guesses likewise for modules that the config does not name.
    """
    if inputs < 1 or groups < 1 or words * 32 % inputs or inputs % groups:
        return None
    bits, group = words * 32 // inputs, inputs // groups
    if affine:
        is_valid = bits in _AFFINE_BITS and group in _AFFINE_GROUPS
        return MlxPacking(AFFINE, bits, group) if is_valid else None
    return next(
        (MlxPacking(mode, *pair) for mode, pair in _FIXED.items() if pair == (bits, group)), None
    )


_BIASES = "biases that serve the scales: what code 0 stands for in a group"
_COMPANIONS = {
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
        companions = {part: members[part] for part in _COMPANIONS if part in members}
        if companions and _serve(weight, companions.values(), implied):
            _unpack(weight, companions, settings.of(module), implied, ledger)
            _check_plain(module, settings, companions.values(), ledger)
        elif weight is not None and weight.dtype == "U32":
            ledger.lack("packed in words of 32 bits, and has no scales", weight)
        elif weight is not None and module in settings.own:
            ledger.fault("the config says how this is packed, and it is stored plain", weight)
        for last in ("weight", "bias"):
            tensor = members.get(last)
            if (
                tensor is not None
                and is_renamed_or_transposed(tensor)
                and (last == "bias" or not companions)
            ):
                add_plain(tensor, implied, ledger)
    return ledger.close(f"mlx, {settings.top}" if settings.top else "mlx")


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return what `mlx.core.quantize` makes of the weights that the config declares packed."""
    settings, written = read_mlx_settings(declared, PackingLedger()), dict[str, WrittenTensor]()
    for module, members in stored.modules.items():
        weight, packing = members.get("weight"), settings.of(module)
        companion_parts = [last for last in _COMPANIONS if last in members]
        if weight is None or packing is None or module in settings.plain or not companion_parts:
            continue
        where = mlx_name(weight, implied)
        if where.expected is None:
            continue
        shape = (len(where.names), *where.expected) if where.stacked else where.expected
        parts = _parts(shape, packing)
        written |= {members[last].name: parts[last] for last in ("weight", *companion_parts)}
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


def _serve(
    weight: StoredTensor | None, companions: Iterable[StoredTensor], implied: Implied
) -> bool:
    """Whether these tensors are MLX's, and not the architecture's under such names."""
    if weight is not None and weight.dtype in _PACKED:
        return True
    return all(implied(tensor.name) is None for tensor in companions)


def _check_plain(
    module: str, settings: MlxSettings, companions: Iterable[StoredTensor], ledger: PackingLedger
) -> None:
    if module in settings.plain:
        ledger.fault("the config says that this is not packed, and it has scales", *companions)


def _unpack(
    weight: StoredTensor | None,
    companions: Members,
    packing: MlxPacking | None,
    implied: Implied,
    ledger: PackingLedger,
) -> None:
    for part, tensor in companions.items():
        ledger.note(_COMPANIONS[part], tensor)
    if weight is None:
        ledger.lack("the packed weight that these serve is not stored", *companions.values())
        return
    if weight.dtype not in _PACKED:
        reason = f"stored plain, as {weight.dtype}, and yet beside {' and '.join(companions)}"
        ledger.fault(reason, weight)
        return
    where = mlx_name(weight, implied)
    if weight.shape is None:
        add_unpacked(weight, where, None, packing.dtype if packing else "INT4", ledger)
        return
    packing, shape = _unpacked(weight, companions, packing, where, ledger)
    if packing is not None and shape is not None:
        add_unpacked(weight, where, shape, packing.dtype, ledger)
        _check(packing, companions, weight.shape, ledger)


def _unpacked(
    weight: StoredTensor,
    companions: Members,
    packing: MlxPacking | None,
    where: MlxName,
    ledger: PackingLedger,
) -> tuple[MlxPacking | None, Shape | None]:
    """Return the packing that the shapes confirm, and the unpacked shape.

    This is the declared packing if weight and scales fit it; else the packing that gives the
    architecture's shape, else the one that the weight alone shows.
    """
    words, scales = weight.shape or (), companions.get("scales")
    if len(words) < 2:  # noqa: PLR2004 - (out, in * b / 32)
        ledger.fault(f"stored as {words}, (out, words of 32 bits) is needed", weight)
        return None, None
    groups = scales.shape if scales is not None else None
    if groups is None or groups[:-1] != words[:-1] or len(groups) != len(words):
        if scales is None:
            ledger.lack("packed in words of 32 bits, and has no scales", weight)
        elif groups is not None:
            ledger.fault(f"scales {groups} beside words {words}: one row each is needed", scales)
        return packing, _shape(words, packing)
    if packing is not None:
        inputs = groups[-1] * packing.group
        if inputs * packing.bits == words[-1] * 32:
            return packing, (*words[:-1], inputs)
        ledger.fault(_contradiction(words, groups, packing), weight)
    affine = "biases" in companions or "qbiases" in companions
    expected = where.expected
    guess = (
        guessed_packing(words[-1], groups[-1], expected[-1], affine=affine) if expected else None
    )
    if guess is not None and expected is not None:
        return guess, (*words[:-1], expected[-1])
    if packing is None:
        reason = f"nothing says how many bits a number of {words} has, with scales {groups}"
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


def _check(packing: MlxPacking, companions: Members, words: Shape, ledger: PackingLedger) -> None:
    """Check the tensors beside the weight against its mode."""
    affine, scales = packing.mode == AFFINE, companions.get("scales")
    for part in ("biases", "qbiases"):
        tensor = companions.get(part)
        if tensor is not None and not affine:
            ledger.fault(f"{part} in the mode {packing.mode}, which has none", tensor)
        elif tensor is not None and scales is not None and _differ(tensor, scales):
            ledger.fault(f"{part} {tensor.shape} beside scales {scales.shape}", tensor)
    if "global_scale" in companions:
        _check_global(packing, companions["global_scale"], words, ledger)
    if scales is not None and affine and "biases" not in companions and "qbiases" not in companions:
        ledger.lack("the mode affine needs biases, and none are stored", scales)
    if scales is not None and scales.dtype is not None and (scales.dtype == "U8") == affine:
        ledger.fault(f"scales of {scales.dtype} in the mode {packing.mode}", scales)


def _differ(first: StoredTensor, second: StoredTensor) -> bool:
    return None not in {first.shape, second.shape} and first.shape != second.shape


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

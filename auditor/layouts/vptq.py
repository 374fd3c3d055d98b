"""VPTQ, https://arxiv.org/abs/2409.17066: vectors along the outputs, as indices into centroids.

`vptq.VQuantLinear` saves, for vectors of v outputs, C centroids, R residual centroids, N groups of
g inputs each and o outlier inputs, with i = ceil(out / v) rows:

    X.indices                   I32 (N, i, ceil(g * (log2 C + log2 R) / 32)); unpacked, 16 bits
                                wide: (N, i, g), with res_indices of this shape
    X.centroids.weight          float (N, C * v);  X.res_centroids.weight (N, R * v)
    X.outlier_indices           16 bits (1, ceil(out / w), o), of vectors of w outputs
    X.outlier_centroids.weight  float (1, their number * w)
    X.perm                      I16 or I64 (in,);  X.weight_scale, X.weight_bias  float (in,)

in = N * g + o. The rows show `out` only up to a multiple of v; the architecture shows it exactly.
Only the config contains v, C, R and g: in `config_for_layers`, by module, else in
`shared_layer_config`, by the last part of the module's name.
"""

from collections.abc import Mapping
from typing import NamedTuple

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

_OWN = {
    "res_indices": "indices of residual centroids",
    "outlier_indices": "indices of outlier centroids",
    "perm": "perm, the order of the inputs",
    "weight_scale": "weight_scale, one for each input",
    "weight_bias": "weight_bias, one for each input",
}
_CENTROIDS = {
    "centroids": "centroids, the vectors that indices stand for",
    "res_centroids": "residual centroids, which are added to the others",
    "outlier_centroids": "centroids of outlier inputs",
}
_LIMIT = 2**31  # no layer has a larger size


class _Sizes(NamedTuple):
    """The settings of one module; None if one is absent or impossible."""

    vector: int | None
    centroids: int | None
    residual: int  # 0: none
    groups: int | None
    group: int | None
    outliers: int
    outlier_vector: int | None
    outlier_centroids: int | None


def recognises(stored: Stored) -> bool:
    """Whether a module stores indices and centroids."""
    return any(
        "indices" in members and "weight" in stored.members(tensor_name(module, "centroids"))
        for module, members in stored.modules.items()
    )


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack each `X.indices` as `X.weight`."""
    ledger = PackingLedger()
    sizes = _Config(declared)
    modules = dict.fromkeys(module for module, own in stored.modules.items() if "indices" in own)
    for module in stored.modules:
        head, _, last = module.rpartition(".")
        if last in _CENTROIDS and head not in modules and "weight" in stored.modules[module]:
            reason = "the indices that these centroids belong to are not stored"
            ledger.note(_CENTROIDS[last], stored.modules[module]["weight"])
            ledger.lack(reason, stored.modules[module]["weight"])
    for module in modules:
        _unpack(module, _parts(stored, module), sizes.of(module), implied, ledger)
    return ledger.close("vptq")


def _parts(stored: Stored, module: str) -> Members:
    own = stored.modules[module]
    parts = {part: own[part] for part in ("indices", *_OWN) if part in own}
    for part in _CENTROIDS:
        table = stored.members(tensor_name(module, part)).get("weight")
        if table is not None:
            parts[part] = table
    return parts


# --- settings ---------------------------------------------------------------------------------


class _Config:
    """The settings of the modules in the config."""

    def __init__(self, declared: Declared | None) -> None:
        settings = declared.settings if declared else {}
        self._own = object_or_empty(settings.get("config_for_layers"))
        self._shared = object_or_empty(settings.get("shared_layer_config"))

    def of(self, module: str) -> _Sizes:
        module_settings = self._own.get(module) or self._shared.get(module.rpartition(".")[2])
        settings = object_or_empty(module_settings)
        outlier_vector, vector = _pair(settings.get("vector_lens"))
        outlier_centroids, centroids = _pair(settings.get("num_centroids"))
        return _Sizes(
            vector=vector,
            centroids=centroids,
            residual=_pair(settings.get("num_res_centroids"))[1] or 0,
            groups=_size(settings.get("group_num")),
            group=_size(settings.get("group_size")),
            outliers=_size(settings.get("outlier_size")) or 0,
            outlier_vector=outlier_vector,
            outlier_centroids=outlier_centroids,
        )


def _pair(value: object) -> tuple[int | None, int | None]:
    """Read a pair: the value for outliers and the value for all others."""
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a pair
        return None, None
    return _size(value[0]), _size(value[1])


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _LIMIT else None


# --- shapes -----------------------------------------------------------------------------------


def _unpack(
    module: str, parts: Members, sizes: _Sizes, implied: Implied, ledger: PackingLedger
) -> None:
    for part, reason in (_OWN | _CENTROIDS).items():
        if part in parts:
            ledger.note(reason, parts[part])
    indices, name = parts["indices"], tensor_name(module)
    if "centroids" not in parts:
        ledger.lack("the centroids of these indices are not stored", indices)
    if indices.shape is None:
        ledger.tensors.append(LogicalTensor(indices, name, None, "VPTQ"))
        return
    if len(indices.shape) != 3:  # noqa: PLR2004 - (groups, rows, packed inputs)
        ledger.fault(f"indices are {indices.shape}, (groups, rows, words) is needed", indices)
        return
    if sizes.vector is None or sizes.centroids is None or sizes.group is None:
        ledger.fault("the config does not say vector_lens, num_centroids and group_size", indices)
        return
    shape = _shape(indices.shape, sizes, implied(name))
    ledger.tensors.append(LogicalTensor(indices, name, shape, "VPTQ"))
    _check_indices(indices, sizes, ledger)
    _check_parts(parts, sizes, shape, ledger)


def _shape(indices: Shape, sizes: _Sizes, expected: Shape | None) -> Shape:
    """The weight's shape, with the architecture's outputs if they fill as many rows of vectors."""
    groups, rows, _ = indices
    vector, group = sizes.vector or 1, sizes.group or 0
    outputs = rows * vector
    if expected and -(-expected[0] // vector) == rows:
        outputs = expected[0]
    return (outputs, groups * group + sizes.outliers)


def _bits(sizes: _Sizes) -> int:
    """The bits of one index: log2 of each number of centroids, rounded down like the writer."""
    return ((sizes.centroids or 1).bit_length() - 1) + max(sizes.residual.bit_length() - 1, 0)


def _check_indices(indices: StoredTensor, sizes: _Sizes, ledger: PackingLedger) -> None:
    shape, group = indices.shape or (0, 0, 0), sizes.group or 0
    if DTYPE_BITS.get(indices.dtype or "") == 16:  # noqa: PLR2004 - unpacked
        needed, arithmetic = group, f"groups of {group:,}"
    else:
        bits = _bits(sizes)
        needed = -(-group * bits // 32)
        arithmetic = f"ceil({group:,} * {bits} bits / 32) = {needed:,}"
    if shape[2] != needed or shape[0] != (sizes.groups or shape[0]):
        groups = sizes.groups or shape[0]
        ledger.fault(f"indices {shape} should be ({groups:,}, rows, {arithmetic})", indices)


def _check_parts(parts: Members, sizes: _Sizes, shape: Shape, ledger: PackingLedger) -> None:
    for part, right in _needed(parts["indices"].shape or (), sizes, shape).items():
        tensor = parts.get(part)
        if tensor is not None and tensor.shape not in {None, right}:
            ledger.fault(f"{part} is {tensor.shape}, {right} is needed", tensor)
    if sizes.residual and "res_centroids" not in parts:
        ledger.lack("the config has residual centroids, none are stored", parts["indices"])


def _needed(indices: Shape, sizes: _Sizes, shape: Shape) -> Mapping[str, Shape]:
    groups, rows, width = indices
    vector, (outputs, inputs) = sizes.vector or 1, shape
    needed: dict[str, Shape] = {
        "centroids": (groups, (sizes.centroids or 0) * vector),
        "res_centroids": (groups, sizes.residual * vector),
        "res_indices": (groups, rows, width),
        **dict.fromkeys(("perm", "weight_scale", "weight_bias"), (inputs,)),
    }
    if sizes.outlier_vector is not None and sizes.outlier_centroids is not None:
        vector = sizes.outlier_vector
        needed["outlier_centroids"] = (1, sizes.outlier_centroids * vector)
        needed["outlier_indices"] = (1, -(-outputs // vector), sizes.outliers)
    return needed


LAYOUT = Layout(name="vptq", methods=("vptq",), recognises=recognises, unpack=unpack)

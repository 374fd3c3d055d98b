"""VPTQ, https://arxiv.org/abs/2409.17066: vectors along the outputs, as indices into centroids.

`vptq.VQuantLinear` saves, for vectors of v outputs, C centroids, R residual centroids, N groups of
g inputs each and o outlier inputs, with i = ceil(out / v) rows:

    X.indices                   I32 (N, i, ceil(g * (log2 C + log2 R) / 32)); unpacked, 16 bits
                                wide: (N, i, g), with res_indices of this shape
    X.centroids.weight          float (N, C * v);  X.res_centroids.weight (N, R * v)
    X.outlier_indices           16 bits (1, ceil(out / w), o), of vectors of w outputs
    X.outlier_centroids.weight  float (1, number of outlier centroids * w)
    X.perm                      I16 or I64 (in,);  X.weight_scale, X.weight_bias  float (in,)

in = N * g + o. The rows show `out` only up to a multiple of v; the architecture shows it exactly.
Only the config contains v, C, R and g: in `config_for_layers`, by module, else in
`shared_layer_config`, by the last part of the module's name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from auditor.layouts.declared import object_or_empty
from auditor.layouts.engine import Bundle, LayoutTable, Packing
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
_INDICES = ("I32", "I16", "U16", "I64", "U32", "U64")
_LIMIT = 2**31  # above the size of any layer


class _Sizes(NamedTuple):
    """The settings of one module; a field is None if its setting is absent or impossible."""

    vector: int | None
    centroids: int | None
    residual: int  # 0: none
    groups: int | None
    group: int | None
    outliers: int
    outlier_vector: int | None
    outlier_centroids: int | None


def _bundles(stored: Stored, *_context: object) -> Iterator[Bundle]:
    """Yield indices with the centroids in their submodules, and centroids without indices."""
    for module, own in stored.modules.items():
        head, _, last = module.rpartition(".")
        if "indices" in own:
            parts = {part: own[part] for part in ("indices", *_OWN) if part in own}
            for part in _CENTROIDS:
                centroids = stored.members(tensor_name(module, part)).get("weight")
                parts |= {part: centroids} if centroids else {}
            yield Bundle(module, tensor_name(module), parts)
        elif last in _CENTROIDS and "weight" in own and "indices" not in stored.members(head):
            yield Bundle(head, tensor_name(head), {last: own["weight"]})


# --- settings ---------------------------------------------------------------------------------


def _settings(
    declared: Declared | None, _stored: Stored, _ledger: PackingLedger
) -> Callable[[str], _Sizes]:
    values = declared.settings if declared else {}
    own = object_or_empty(values.get("config_for_layers"))
    shared = object_or_empty(values.get("shared_layer_config"))

    def of(module: str) -> _Sizes:
        settings = object_or_empty(own.get(module) or shared.get(module.rpartition(".")[2]))
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

    return of


def _pair(value: object) -> tuple[int | None, int | None]:
    """Read a config pair: the value for outlier inputs, and the value for all other inputs."""
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a pair
        return None, None
    return _size(value[0]), _size(value[1])


def _size(value: object) -> int | None:
    return value if type(value) is int and 0 < value < _LIMIT else None


# --- shapes -----------------------------------------------------------------------------------


def _by_shapes(parts: Members, sizes: _Sizes, expected: Shape | None) -> list[Packing] | str:
    stored = parts["indices"].shape or ()
    if len(stored) != 3:  # noqa: PLR2004 - (groups, rows, words)
        return "(groups, rows, words)"
    if sizes.vector is None or sizes.centroids is None or sizes.group is None:
        return "vector_lens, num_centroids and group_size in the config"
    groups, rows, _ = stored
    outputs = rows * sizes.vector
    if expected and -(-expected[0] // sizes.vector) == rows:
        outputs = expected[0]
    shape = (outputs, groups * sizes.group + sizes.outliers)
    words = f"vectors of {sizes.vector:,} in groups of {sizes.group:,}"
    tensors = _tensors(parts, groups, rows, shape, sizes)
    return [Packing(shape=shape, dtype="VPTQ", tensors=tensors, words=words)]


def _tensors(
    parts: Members, groups: int, rows: int, shape: Shape, sizes: _Sizes
) -> Mapping[str, WrittenTensor]:
    vector, group, centroids = sizes.vector or 1, sizes.group or 0, sizes.centroids or 0
    # log2 of each number of centroids, rounded down as the writer does
    bits = (centroids.bit_length() - 1) + max(sizes.residual.bit_length() - 1, 0)
    is_unpacked = DTYPE_BITS.get(parts["indices"].dtype or "") == 16  # noqa: PLR2004 - bits
    width = group if is_unpacked else -(-group * bits // 32)
    needed = {
        "indices": WrittenTensor((sizes.groups or groups, rows, width), _INDICES),
        "res_indices": WrittenTensor((groups, rows, width), _INDICES),
        "centroids": WrittenTensor((groups, centroids * vector), FLOATS),
        "res_centroids": WrittenTensor((groups, sizes.residual * vector), FLOATS),
        "perm": WrittenTensor(shape[1:], _INDICES),
        "weight_scale": WrittenTensor(shape[1:], FLOATS),
        "weight_bias": WrittenTensor(shape[1:], FLOATS),
    }
    if sizes.outlier_vector is not None and sizes.outlier_centroids is not None:
        vector = sizes.outlier_vector
        indices = (1, -(-shape[0] // vector), sizes.outliers)
        needed["outlier_indices"] = WrittenTensor(indices, _INDICES)
        flat = (1, sizes.outlier_centroids * vector)
        needed["outlier_centroids"] = WrittenTensor(flat, FLOATS)
    return needed


LAYOUT = LayoutTable[_Sizes](
    name="vptq",
    recognises=lambda stored: any(
        {"indices", "centroids"} <= bundle.parts.keys() for bundle in _bundles(stored)
    ),
    packed="indices",
    dtypes=frozenset(_INDICES),
    dtype="VPTQ",
    companions=_OWN | _CENTROIDS,
    needed=lambda _, sizes, __: ["centroids", *(["res_centroids"] if sizes.residual else [])],
    settings=_settings,
    by_shapes=_by_shapes,
    title=lambda *_: "vptq",
    bundles=_bundles,
).layout()

"""The quantization settings that follow from the shapes of packed tensors.

For a linear layer (out, in) in b bits and groups of g inputs, the lengths of its packed words and
its scales determine b and g. If they do not determine the number of inputs, the architecture does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from typing import Any

from auditor.layouts.packing import Members, Shape, Stored, tensor_name

Settings = dict[str, Any]
_Implied = Callable[[str], Shape | None]

_WORD = 32  # bits of a packed word
_BLOCKS = (128, 64, 32, 256, 16, 8, 512)
_BITS = frozenset({2, 3, 4, 5, 6, 8})
_MATRIX = 2  # number of axes
_ALL_INPUTS = -1  # the group size that means all inputs
_LOOKED_AT = 64  # modules that are examined for one method
_MOST_RETURNED = 2  # settings that are returned for one method


def settings_of_files(stored: Stored, implied: _Implied) -> Iterator[Settings]:
    """Yield the config settings of the packed tensors, for each method that they fit."""
    for read in (_gptq, _awq, _fp8, _marked, _compressed, _mlx):
        yield from read(stored, implied)


def _commonest(
    stored: Stored, read: Callable[[str, Members], Settings | None], *marks: str
) -> list[Settings]:
    """Return the most frequent settings of the modules that have tensors named `marks`.

    A module with one group gives no upper bound of the group size; other modules may.
    """
    modules = ((name, parts) for name, parts in stored.modules.items() if parts.keys() >= {*marks})
    equal_settings: dict[str, list[Settings]] = {}
    for name, parts in islice(modules, _LOOKED_AT):
        if settings := read(name, parts):
            equal_settings.setdefault(str(settings), []).append(settings)
    by_frequency = sorted(equal_settings.values(), key=len, reverse=True)
    return [same[0] for same in by_frequency[:_MOST_RETURNED]]


def _sides(parts: Members, last: str) -> tuple[int, int] | None:
    shape = parts[last].shape if last in parts else None
    return None if shape is None or len(shape) != _MATRIX or 0 in shape else (shape[0], shape[1])


def _grouped(inputs: int, groups: int) -> int:
    return _ALL_INPUTS if groups == 1 else -(-inputs // groups)


def _gptq(stored: Stored, implied: _Implied) -> list[Settings]:
    """Read GPTQ: qweight (in * b/32, out), qzeros (groups, out * b/32), g_idx (in,)."""

    def read(module: str, parts: Members) -> Settings | None:
        qweight, scales = _sides(parts, "qweight"), _sides(parts, "scales")
        if qweight is None or scales is None or qweight[1] != scales[1]:
            return None
        inputs = _inputs(module, parts, implied, qweight[1])
        if inputs is None or (qweight[0] * _WORD) // inputs not in _BITS:
            return None
        bits = qweight[0] * _WORD // inputs
        group = _grouped(inputs, scales[0])
        return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False}

    return _commonest(stored, read, "qweight", "scales")


def _inputs(module: str, parts: Members, implied: _Implied, outputs: int) -> int | None:
    """Return the number of inputs by g_idx, else by the zero points, else by the architecture."""
    g_idx = parts["g_idx"].shape if "g_idx" in parts else None
    if g_idx and g_idx[0]:
        return g_idx[0]
    qweight, zeros = _sides(parts, "qweight"), _sides(parts, "qzeros")
    if qweight and zeros and zeros[1] * _WORD % outputs == 0:
        return qweight[0] * outputs // zeros[1]
    shape = implied(tensor_name(module))
    return shape[1] if shape and len(shape) == _MATRIX and shape[0] == outputs else None


def _awq(stored: Stored, _implied: _Implied) -> list[Settings]:
    """Read AWQ's GEMM version: qweight (in, out * b/32), scales (groups, out)."""

    def read(_module: str, parts: Members) -> Settings | None:
        qweight, scales = _sides(parts, "qweight"), _sides(parts, "scales")
        if qweight is None or scales is None or "g_idx" in parts or qweight[1] == scales[1]:
            return None
        bits, rest = divmod(qweight[1] * _WORD, scales[1])
        if rest or bits not in _BITS:
            return None
        group = _grouped(qweight[0], scales[0])
        zeros = "qzeros" in parts
        return {
            "quant_method": "awq",
            "bits": bits,
            "group_size": group,
            "zero_point": zeros,
            "version": "gemm",
        }

    return _commonest(stored, read, "qweight", "scales")


def _fp8(stored: Stored, _implied: _Implied) -> list[Settings]:
    """Return FP8 settings with the block size that explains most scales.

    `weight_scale_inv` has the shape (ceil(out / rows), ceil(in / columns)).
    """
    pairs = Counter(
        (weight, scale)
        for parts in stored.modules.values()
        if (scale := _sides(parts, "weight_scale_inv")) and (weight := _sides(parts, "weight"))
    )
    votes = Counter[tuple[int, int]]()
    for (weight, scale), count in pairs.items():
        for rows, columns in product(_BLOCKS, _BLOCKS):
            if (-(-weight[0] // rows), -(-weight[1] // columns)) == scale:
                votes[rows, columns] += count
    if not votes:
        return []
    rows, columns = max(votes, key=lambda block: (votes[block], block[0] == block[1]))
    block = {"activation_scheme": "dynamic", "weight_block_size": [rows, columns]}
    return [{"quant_method": "fp8", **block}]


# Methods that the name of one tensor shows, by the end of that name.
_MARKS: Mapping[str, Settings] = {
    "bitsandbytes__nf4": {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
    },
    "bitsandbytes__fp4": {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "fp4",
    },
    "SCB": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "_proj_blocks": {"quant_method": "mxfp4"},
}


def _marked(stored: Stored, _implied: _Implied) -> Iterator[Settings]:
    names = {last for parts in stored.modules.values() for last in parts}
    for end, settings in _MARKS.items():
        if any(name.endswith(end) for name in names):
            yield dict(settings)


def _compressed(stored: Stored, implied: _Implied) -> list[Settings]:
    """Read compressed-tensors: weight_packed (out, in * b/32), weight_scale (out, groups)."""

    def packed(module: str, parts: Members) -> Settings | None:
        words, scale = _sides(parts, "weight_packed"), _sides(parts, "weight_scale")
        shape = implied(tensor_name(module))
        if words is None or scale is None or not shape or len(shape) != _MATRIX:
            return None
        bits, rest = divmod(words[1] * _WORD, shape[1])
        if rest or bits not in _BITS or words[0] != shape[0]:
            return None
        symmetric = "weight_zero_point" not in parts
        return _group("pack-quantized", bits, "int", shape[1], scale[1], symmetric=symmetric)

    def whole(_module: str, parts: Members) -> Settings | None:
        dtype, shape = parts["weight"].dtype, parts["weight"].shape
        scale = parts["weight_scale"].shape
        if dtype not in {"I8", "F8_E4M3"} or not shape or scale is None:
            return None
        form = "int-quantized" if dtype == "I8" else "float-quantized"
        kind = "int" if dtype == "I8" else "float"
        rows = scale[0] if scale else 1
        groups = scale[1] if len(scale) == _MATRIX else 1
        if rows == 1 != shape[0]:
            groups = 0
        return _group(form, 8, kind, shape[-1], groups, symmetric=True)

    return _commonest(stored, packed, "weight_packed", "weight_scale") or _commonest(
        stored, whole, "weight", "weight_scale"
    )


def _group(  # noqa: PLR0913 - the fields of a config group
    form: str, bits: int, kind: str, inputs: int, groups: int, *, symmetric: bool
) -> Settings:
    strategy = "tensor" if groups == 0 else "channel" if groups == 1 else "group"
    size = -(-inputs // groups) if groups > 1 else None
    weights = {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "group_size": size,
        "symmetric": symmetric,
        "dynamic": False,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def _mlx(stored: Stored, implied: _Implied) -> list[Settings]:
    """Read MLX: weight U32 (out, in * b/32), scales (out, groups)."""

    def read(module: str, parts: Members) -> Settings | None:
        words, scales = _sides(parts, "weight"), _sides(parts, "scales")
        shape = implied(tensor_name(module))
        if parts["weight"].dtype != "U32" or words is None or scales is None or not shape:
            return None
        bits, rest = divmod(words[1] * _WORD, shape[-1])
        if rest or bits not in _BITS or shape[-1] % scales[1]:
            return None
        return {"bits": bits, "group_size": shape[-1] // scales[1]}

    return _commonest(stored, read, "weight", "scales")


def differing(declared: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings whose stored value differs from the declared one, by dotted key."""
    changes: dict[str, Any] = {}
    for key, value in held.items():
        declared_value = declared.get(key)
        if isinstance(value, Mapping):
            if isinstance(declared_value, Mapping):
                inner = differing(declared_value, value)
                changes.update({f"{key}.{name}": one for name, one in inner.items()})
        elif key in declared and declared_value != value and key not in _UNSEEN:
            changes[key] = value
    return changes


# Settings that shapes do not show, or that are compared by name elsewhere.
_UNSEEN = frozenset({"desc_act", "activation_scheme", "dynamic", "ignore", "targets", "version"})

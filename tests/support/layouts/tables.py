"""The tensors that each layout's own library stores for a linear (out, in), by its arithmetic.

A builder returns the tensors by the last part of their names, as the source in its docstring
registers them. `examples` draws their sizes; `packed_models` packs whole models.
"""

# ruff: noqa: PLR0913, PLR0917 - what a writer may choose

from collections.abc import Mapping
from math import ceil, log2, prod

from support.layouts.packed import says

from auditor.layouts.packing import Declared

Shape = tuple[int, ...]
Parts = dict[str, tuple[str, Shape]]  # dtype and shape, by the last part of a name

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"
EXPERTS = "model.layers.0.mlp.experts"


def below(module: str, parts: Mapping[str, tuple[str, Shape]]) -> Parts:
    return {f"{module}.{last}": described for last, described in parts.items()}


def without(table: Parts, *lasts: str) -> Parts:
    return {name: one for name, one in table.items() if name.rpartition(".")[2] not in lasts}


def up(count: int, step: int) -> int:
    return -(-count // step)


def groups_of(inputs: int, group: int | None) -> int:
    return 1 if group in {None, -1} else up(inputs, group)


# --- words of integers ----------------------------------------------------------------------------


def gptq(out: int, inputs: int, bits: int = 4, group: int = 128, *, g_idx=True, word=32) -> Parts:
    """gptqmodel/nn_modules/qlinear/__init__.py of GPTQModel 7.7.0."""
    groups, name = groups_of(inputs, group), f"I{word}"
    return {
        "qweight": (name, (ceil(inputs * bits / word), out)),
        "qzeros": (name, (groups, ceil(out * bits / word))),
        "scales": ("F16", (groups, out)),
        **({"g_idx": ("I32", (inputs,))} if g_idx else {}),
    }


def marlin(out: int, inputs: int, bits: int = 4, group: int = 128, names="Bs") -> Parts:
    """auto_gptq/nn_modules/qlinear/qlinear_marlin.py of AutoGPTQ 0.7.1."""
    weight, scales = names
    return {
        weight: ("I32", (inputs // 16, out * 16 * bits // 32)),
        scales: ("F16", (groups_of(inputs, group), out)),
    }


def gemm(out: int, inputs: int, bits: int = 4, group: int = 128) -> Parts:
    """awq/modules/linear/gemm.py of AutoAWQ 0.2.9."""
    groups = groups_of(inputs, group)
    return {
        "qweight": ("I32", (inputs, out * bits // 32)),
        "qzeros": ("I32", (groups, out * bits // 32)),
        "scales": ("F16", (groups, out)),
    }


def _zeros_width(inputs: int, group: int) -> int:
    """calculate_zeros_width of awq/modules/linear/gemv.py."""
    multiplier = {64: 2, 32: 4}.get(group, 1)
    return up(up(inputs // group, 8), multiplier) * multiplier


def gemv(out: int, inputs: int, group: int = 128) -> Parts:
    """awq/modules/linear/gemv.py."""
    width = _zeros_width(inputs, group)
    return {
        "qweight": ("I32", (out, inputs // 8)),
        "qzeros": ("I32", (out, width)),
        "scales": ("F16", (out, width * 8)),
    }


def gemv_fast(out: int, inputs: int, group: int = 128, zeros: str = "qzeros") -> Parts:
    """awq/modules/linear/gemv_fast.py."""
    padded = ("F16", (_zeros_width(inputs, group) * 8, out))
    return {"qweight": ("I16", (out // 4, inputs)), zeros: padded, "scales": padded}


def mlx(shape: Shape, bits: int = 4, group: int = 64, mode: str = "affine") -> Parts:
    """mlx.core.quantize: 32 numbers are `bits` words."""
    *rows, inputs = shape
    table = {"weight": ("U32", (*rows, inputs // 32 * bits))}
    scale = (*rows, inputs // group)
    if mode == "affine":
        return table | {"scales": ("BF16", scale), "biases": ("BF16", scale)}
    return table | {"scales": ("U8", scale)}


# --- bitsandbytes, compressed-tensors, fp8, modelopt ----------------------------------------------


def four_bits(shape: Shape, *, block=64, storage="U8", nested=False, kind="nf4") -> Parts:
    """QuantState.as_dict(packed=True) of bitsandbytes; the last parts follow `weight`."""
    numbers, widths = prod(shape), {"U8": 1, "BF16": 2, "F32": 4}
    blocks = ceil(numbers / block)
    table = {
        "weight": (storage, (numbers // 2 // widths[storage], 1)),
        "weight.absmax": ("U8" if nested else "F32", (blocks,)),
        "weight.quant_map": ("F32", (16,)),
        f"weight.quant_state.bitsandbytes__{kind}": ("U8", (87,)),
    }
    if nested:
        table["weight.nested_absmax"] = ("F32", (ceil(blocks / 256),))
        table["weight.nested_quant_map"] = ("F32", (256,))
    return table


def eight_bits(shape: Shape) -> Parts:
    """Linear8bitLt of bitsandbytes."""
    return {"weight": ("I8", shape), "SCB": ("F32", shape[:1]), "weight_format": ("U8", ())}


def scheme(*, targets=("Linear",), form=None, inputs=None, **weights) -> dict:
    """A config group of compressed-tensors."""
    group = {"targets": list(targets), "weights": weights, "input_activations": inputs}
    return group | ({"format": form} if form else {})


def compressed(*groups: dict, ignore=(), **settings) -> Declared:
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return says("compressed-tensors", config_groups=named, ignore=list(ignore), **settings)


def pack_quantized(out: int, inputs: int, bits: int = 4, group=32, *, zeros=False, index=False):
    """pack-quantized of compressed_tensors."""
    groups = groups_of(inputs, group)
    return {
        "weight_packed": ("I32", (out, up(inputs * bits, 32))),
        "weight_scale": ("BF16", (out, groups)),
        "weight_shape": ("I64", (2,)),
        **({"weight_zero_point": ("I32", (up(out * bits, 32), groups))} if zeros else {}),
        **({"weight_g_idx": ("I32", (inputs,))} if index else {}),
    }


def scaled(shape: Shape, scale: Shape, dtype="F8_E4M3", last="weight_scale", of="F32") -> Parts:
    """A weight that keeps its shape, as in compressed-tensors, fp8 and modelopt."""
    return {"weight": (dtype, shape), last: (of, scale)}


def block_scaled(out: int, inputs: int, rows: int, columns: int, of="F32") -> Parts:
    """FP8Linear of transformers' finegrained_fp8."""
    return scaled(
        (out, inputs), (up(out, rows), up(inputs, columns)), last="weight_scale_inv", of=of
    )


def nvfp4(out: int, groups: int, size: int = 16) -> Parts:
    """NVFP4 of modelopt.torch.export 0.47."""
    return {
        "weight": ("U8", (out, groups * size // 2)),
        "weight_scale": ("F8_E4M3", (out, groups)),
        "weight_scale_2": ("F32", ()),
        "input_scale": ("F32", ()),
    }


# --- other libraries ------------------------------------------------------------------------------


def mxfp4_blocks(experts: int, out: int, blocks: int, last: str = "down_proj") -> Parts:
    """gpt-oss, whose experts are (E, in, out) once unpacked."""
    return {
        f"{last}_blocks": ("U8", (experts, out, blocks, 16)),
        f"{last}_scales": ("U8", (experts, out, blocks)),
    }


def quanto(out: int, inputs: int, bits: int) -> Parts:
    """pack_weights of optimum.quanto's tensor/packed.py; QModuleMixin chooses the group."""
    ones = {"input_scale": ("BF16", ()), "output_scale": ("BF16", ())}
    fitting = (size for size in (128, 96, 64, 32) if inputs > 128 and inputs % size == 0)
    group = next(fitting, inputs)
    rows = out * inputs // group
    scale = ("BF16", (rows, 1))
    data = ("U8", (ceil(rows / (8 // bits)), group))
    return {"weight._data._data": data, "weight._scale": scale, "weight._shift": scale, **ones}


_HQQ_SETTINGS = {
    **dict.fromkeys(("nbits", "group_size", "axis"), ("I32", ())),
    **dict.fromkeys(("view_as_float", "quant_scale", "quant_zero", "offload_meta"), ("U8", ())),
    **dict.fromkeys(("encoded_state_dict", "stores_quant_config", "channel_wise"), ("U8", ())),
    **dict.fromkeys(("optimize", "round_zero"), ("U8", ())),
    "shape": ("I64", (2,)),
    "packing": ("U8", (7,)),
    "unpack_view_dtype": ("U8", (11,)),
    "compute_dtype": ("U8", (14,)),
}


def hqq(out: int, inputs: int, bits=4, group=64, axis=1, *, as_float=False) -> Parts:
    """bit_to_packing of hqq/core/quantize.py, hqq 0.2.8."""
    groups, per_word = out * inputs // group, {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}[bits]
    rows, columns = (groups, group) if axis == 1 else (group, groups)
    scale = ("BF16", (groups, 1) if axis == 1 else (1, groups))
    words = ("I32" if bits == 3 else "U8", (ceil(rows / per_word), columns))
    if as_float:
        words = ("BF16", (words[1][0], columns * 2 if bits == 3 else columns // 2))
    return {"W_q": words, "scale": scale, "zero": scale, **_HQQ_SETTINGS}


def torchao(out: int, inputs: int, kind: str) -> Parts:
    """The docstrings of torchao's tensor classes, 0.18; groups of 32."""
    weight, half, row = (out, inputs), (out, inputs // 2), (out, 1)
    across, along = (inputs // 32, out), (out, inputs // 32)
    n, k = 8 * ceil(out / 8), 1024 * ceil(inputs / 1024)
    parts = {
        "INT8": {"qdata": ("I8", weight), "scale": ("F32", row), "zero_point": ("I8", row)},
        "INT8 in groups": {
            "qdata": ("I8", weight),
            "scale": ("BF16", along),
            "zero_point": ("I8", along),
        },
        "F8_E4M3": {"qdata": ("F8_E4M3", weight), "scale": ("F32", row)},
        "INT4": {"qdata": ("I8", half), "scale": ("BF16", across), "zero_point": ("BF16", across)},
        "INT4 in words": {
            "qdata": ("I32", (out, inputs // 8)),
            "scale": ("BF16", across),
            "zero_point": ("I8", across),
        },
        "INT4 in tiles": {
            "qdata": ("I32", (n // 8, k // 128, 32, 4)),
            "scale_and_zero": ("BF16", (k // 32, n, 2)),
        },
        # hp_data_dims_to_swizzled_scale_dims of torchao/prototype/mx_formats/utils.py
        "F8_E4M3 in blocks": {
            "qdata": ("F8_E4M3", weight),
            "scale": ("F8_E8M0", (ceil(out / 128) * 32, ceil(inputs / 128) * 16)),
        },
        "MXFP4": {"qdata": ("U8", half), "scale": ("F8_E8M0", along)},
        "NVFP4": {
            "qdata": ("U8", half),
            "scale": ("F8_E4M3", (ceil(out / 128) * 32, ceil(inputs / 64) * 16)),
            "per_tensor_scale": ("F32", ()),
        },
    }[kind]
    return {f"_weight_{last}": described for last, described in parts.items()}


def vptq_settings(inputs: int, groups=1, vector=8, centroids=65536, residual=-1, outliers=0):
    """One module's settings, as VPTQ-community's configs have them."""
    return {
        "vector_lens": [4 if outliers else -1, vector],
        "num_centroids": [16 if outliers else -1, centroids],
        "num_res_centroids": [-1, residual],
        "group_num": groups,
        "group_size": (inputs - outliers) // groups,
        "outlier_size": outliers,
    }


def vptq(out: int, inputs: int, settings: dict) -> Parts:
    """vptq/layers/vqlinear.py of 0.0.5, with is_indice_packed."""
    vector, centroids = settings["vector_lens"][1], settings["num_centroids"][1]
    residual, groups = settings["num_res_centroids"][1], settings["group_num"]
    bits = int(log2(centroids)) + (int(log2(residual)) if residual > 0 else 0)
    table = {
        "indices": ("I32", (groups, up(out, vector), up(settings["group_size"] * bits, 32))),
        "centroids.weight": ("F16", (groups, centroids * vector)),
        "perm": ("I16", (inputs,)),
        "weight_scale": ("F16", (inputs,)),
        "weight_bias": ("F16", (inputs,)),
    }
    if residual > 0:
        table["res_centroids.weight"] = ("F16", (groups, residual * vector))
    if outliers := settings["outlier_size"]:
        table["outlier_indices"] = ("I16", (1, up(out, 4), outliers))
        table["outlier_centroids.weight"] = ("F16", (1, 16 * 4))
    return table


def aqlm(rows: int, columns: int, books=1, bits=16, outputs=1, inputs=8) -> Parts:
    """aqlm/inference.py: QuantizedLinear of aqlm 1.1.7."""
    return {
        "codes": ("I8" if bits <= 8 else "I16", (rows, columns, books)),
        "codebooks": ("F16", (books, 2**bits, outputs, inputs)),
        "scales": ("F16", (rows, 1, 1, 1)),
    }


def bitnet(rows: int, columns: int) -> Parts:
    """transformers' integrations/bitnet.py."""
    return {"weight": ("U8", (rows, columns)), "weight_scale": ("BF16", (1,))}


def eetq(out: int, inputs: int) -> Parts:
    """EetqLinear of transformers' integrations/eetq.py."""
    return {"weight": ("I8", (inputs, out)), "weight_scales": ("F16", (out,))}

"""Packed forms of a save's linear weights: names, shapes and dtypes as the packers write them.

The numbers are zeros, because loaders do not look at them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

_GROUP = 32  # divides all small sizes
Tensors = dict[str, torch.Tensor]
Pack = Callable[[str, int, int], Tensors]  # from a module's name, its outputs and its inputs


class Packing(NamedTuple):
    """A quantization: what config.json declares and what replaces a module's weight."""

    declared: Mapping[str, Any]
    pack: Pack

    def packed(self, tensors: Tensors) -> Tensors:
        """Return the tensors with each layer's linear weights packed."""
        result: Tensors = {}
        for name, tensor in tensors.items():
            if is_linear(name, tensor):
                result |= self.pack(name.removesuffix(".weight"), *tensor.shape)
            else:
                result[name] = tensor
        return result


def is_linear(name: str, tensor: torch.Tensor) -> bool:
    """Return whether quantizers pack a tensor: a matrix inside a layer, but no router."""
    parts = name.split(".")
    return (
        tensor.dim() == 2
        and parts[-1] == "weight"
        and any(part.isdecimal() for part in parts)
        and parts[-2] not in {"gate", "router", "shared_expert_gate"}
        and "norm" not in parts[-2]
        and "embed" not in parts[-2]
        and tensor.shape[1] % _GROUP == 0
        and tensor.shape[0] % 8 == 0
    )


def _gptq(module: str, rows: int, columns: int) -> Tensors:
    groups = columns // _GROUP
    return {
        f"{module}.qweight": torch.zeros(columns // 8, rows, dtype=torch.int32),
        f"{module}.qzeros": torch.zeros(groups, rows // 8, dtype=torch.int32),
        f"{module}.scales": torch.ones(groups, rows, dtype=torch.float16),
        f"{module}.g_idx": torch.arange(columns, dtype=torch.int32) // _GROUP,
    }


def _awq(module: str, rows: int, columns: int) -> Tensors:
    groups = columns // _GROUP
    return {
        f"{module}.qweight": torch.zeros(columns, rows // 8, dtype=torch.int32),
        f"{module}.qzeros": torch.zeros(groups, rows // 8, dtype=torch.int32),
        f"{module}.scales": torch.ones(groups, rows, dtype=torch.float16),
    }


def _lacking(pack: Pack, last: str) -> Pack:
    def packed(module: str, rows: int, columns: int) -> Tensors:
        complete = pack(module, rows, columns)
        return {name: tensor for name, tensor in complete.items() if not name.endswith(last)}

    return packed


def _fp8(module: str, rows: int, columns: int) -> Tensors:
    blocks = (-(-rows // 128), -(-columns // 128))
    return {
        f"{module}.weight": torch.zeros(rows, columns).to(torch.float8_e4m3fn),
        f"{module}.weight_scale_inv": torch.ones(blocks),
    }


def _fp8_static(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight": torch.zeros(rows, columns).to(torch.float8_e4m3fn),
        f"{module}.weight_scale": torch.tensor(1.0),
        f"{module}.input_scale": torch.tensor(1.0),
    }


def _nf4(module: str, rows: int, columns: int) -> Tensors:
    count = rows * columns
    state = torch.zeros(90, dtype=torch.uint8)
    return {
        f"{module}.weight": torch.zeros(count // 2, 1, dtype=torch.uint8),
        f"{module}.weight.absmax": torch.ones(count // 64),
        f"{module}.weight.quant_map": torch.ones(16),
        f"{module}.weight.quant_state.bitsandbytes__nf4": state,
    }


def _int8(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight": torch.zeros(rows, columns, dtype=torch.int8),
        f"{module}.SCB": torch.ones(rows),
        f"{module}.weight_format": torch.tensor(0, dtype=torch.uint8),
    }


def _pack_quantized(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight_packed": torch.zeros(rows, columns // 8, dtype=torch.int32),
        f"{module}.weight_scale": torch.ones(rows, columns // _GROUP, dtype=torch.bfloat16),
        f"{module}.weight_shape": torch.tensor([rows, columns]),
    }


def _int_quantized(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight": torch.zeros(rows, columns, dtype=torch.int8),
        f"{module}.weight_scale": torch.ones(rows, 1, dtype=torch.bfloat16),
    }


def _float_quantized(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight": torch.zeros(rows, columns).to(torch.float8_e4m3fn),
        f"{module}.weight_scale": torch.ones(rows, 1, dtype=torch.bfloat16),
    }


def mlx(bits: int, group_size: int, mode: str = "affine") -> Pack:
    """Return how MLX packs a weight; modes other than affine have no biases."""

    def packed(module: str, rows: int, columns: int) -> Tensors:
        shape = rows, columns // group_size
        weight = torch.zeros(rows, columns * bits // 32, dtype=torch.uint32)
        if mode != "affine":
            scales = torch.ones(shape, dtype=torch.uint8)
            return {f"{module}.weight": weight, f"{module}.scales": scales}
        return {
            f"{module}.weight": weight,
            f"{module}.scales": torch.ones(shape, dtype=torch.bfloat16),
            f"{module}.biases": torch.zeros(shape, dtype=torch.bfloat16),
        }

    return packed


def _mxfp4(module: str, rows: int, columns: int) -> Tensors:
    return {
        f"{module}.weight_blocks": torch.zeros(rows, columns // 32, 16, dtype=torch.uint8),
        f"{module}.weight_scales": torch.zeros(rows, columns // 32, dtype=torch.uint8),
    }


def _compressed(form: str, bits: int, kind: str, strategy: str) -> Mapping[str, Any]:
    weights = {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "group_size": _GROUP if strategy == "group" else None,
        "symmetric": True,
        "dynamic": False,
    }
    inputs = None if bits == 4 else {**weights, "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }


_GPTQ = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": _GROUP,
    "desc_act": False,
    "sym": True,
    "checkpoint_format": "gptq",
}
_AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": _GROUP,
    "zero_point": True,
    "version": "gemm",
}
PACKINGS: Mapping[str, Packing] = {
    "gptq": Packing(_GPTQ, _gptq),
    "gptq without g_idx": Packing(_GPTQ, _lacking(_gptq, ".g_idx")),
    "awq": Packing(_AWQ, _awq),
    "awq without qzeros": Packing({**_AWQ, "zero_point": False}, _lacking(_awq, ".qzeros")),
    "fp8": Packing(
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "fmt": "e4m3",
        },
        _fp8,
    ),
    "fp8 static": Packing({"quant_method": "fp8", "activation_scheme": "static"}, _fp8_static),
    "bitsandbytes": Packing(
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_use_double_quant": False,
            "bnb_4bit_quant_storage": "uint8",
        },
        _nf4,
    ),
    "bitsandbytes int8": Packing(
        {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}, _int8
    ),
    "compressed-tensors pack-quantized": Packing(
        _compressed("pack-quantized", 4, "int", "group"), _pack_quantized
    ),
    "compressed-tensors int-quantized": Packing(
        _compressed("int-quantized", 8, "int", "channel"), _int_quantized
    ),
    "compressed-tensors float-quantized": Packing(
        _compressed("float-quantized", 8, "float", "channel"), _float_quantized
    ),
    "mlx": Packing({"group_size": _GROUP, "bits": 4, "mode": "affine"}, mlx(4, _GROUP)),
    "mxfp4": Packing({"quant_method": "mxfp4"}, _mxfp4),
}

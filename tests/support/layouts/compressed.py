"""Builders of what compressed-tensors writes: settings, and tables of tensors."""

from hypothesis import strategies as st
from support.layouts.packed import (
    says,
)

Q = "model.layers.0.self_attn.q_proj"
NAME = f"{Q}.weight"
SIDES = st.integers(1, 40)


def up(count, step):
    return -(-count // step)


def scheme(*, targets=("Linear",), form=None, inputs=None, **weights):
    return {"targets": list(targets), "weights": weights, "input_activations": inputs} | (
        {"format": form} if form else {}
    )


def config(*groups, ignore=(), **settings):
    named = {f"group_{number}": group for number, group in enumerate(groups)}
    return says("compressed-tensors", config_groups=named, ignore=list(ignore), **settings)


def packed_words(out, width, bits, size, *beside):
    """pack-quantized in groups; size None: one scale an output."""
    count = 1 if size is None else up(width, size)
    table = {
        "weight_packed": ("I32", (out, up(width * bits, 32))),
        "weight_scale": ("BF16", (out, count)),
        "weight_shape": ("I64", (2,)),
    }
    if "zeros" in beside:
        table["weight_zero_point"] = ("I32", (up(out * bits, 32), count))
    if "index" in beside:
        table["weight_g_idx"] = ("I32", (width,))
    return table


def whole(out, width, grid, dtype="F8_E4M3"):
    return {"weight": (dtype, (out, width)), "weight_scale": ("F32", grid)}


def fp4(out, width, size, dtype, **beside):
    scale = ("weight_scale", (dtype, (out, width // size)))
    return {"weight_packed": ("U8", (out, width // 2)), **dict([scale]), **beside}


def below(module, table):
    return {f"{module}.{name}": described for name, described in table.items()}


W4 = config(scheme(num_bits=4, group_size=32), format="pack-quantized")
GOOD = packed_words(64, 128, 4, 32)

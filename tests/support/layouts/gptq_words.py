"""GPTQ: words of integers, as AutoGPTQ and GPTQModel pack them.

Neither library installs without CUDA (GPTQModel 7.7.0 wants cuda-toolkit, AutoGPTQ 0.7.1 is no
longer built), so that tables and checkpoints are packed by the arithmetic of their sources,
gptqmodel/nn_modules/qlinear/__init__.py and auto_gptq/nn_modules/qlinear/qlinear_marlin.py.
"""

from math import ceil

M = "model.layers.0.mlp.up_proj"
W = f"{M}.weight"


def linear(  # noqa: PLR0913 - what a writer may choose
    outputs, inputs, *, bits=4, group=128, module=M, g_idx=True, bias=False, word=32
):
    """As QuantLinear registers its buffers."""
    groups = 1 if group == -1 else ceil(inputs / group)
    name = f"I{word}"
    table = {
        f"{module}.qweight": (name, (ceil(inputs * bits / word), outputs)),
        f"{module}.qzeros": (name, (groups, ceil(outputs * bits / word))),
        f"{module}.scales": ("F16", (groups, outputs)),
    }
    if g_idx:
        table[f"{module}.g_idx"] = ("I32", (inputs,))
    if bias:
        table[f"{module}.bias"] = ("F16", (outputs,))
    return table


def marlin(  # noqa: PLR0913 - what a writer may choose
    outputs, inputs, *, group=128, weight="B", scales="s", module=M, bits=4
):
    groups = 1 if group == -1 else inputs // group
    return {
        f"{module}.{weight}": ("I32", (inputs // 16, outputs * 16 * bits // 32)),
        f"{module}.{scales}": ("F16", (groups, outputs)),
    }


def without(table, last):
    return {name: described for name, described in table.items() if not name.endswith(f".{last}")}


def packed_words(numpy, codes, bits):
    """(in, out) of codes -> (in * bits / 32, out): bit after bit down a column, lowest first."""
    lanes = (codes[:, None, :] >> numpy.arange(bits)[None, :, None]) & 1  # (in, bits, out)
    flat = lanes.reshape(-1, codes.shape[1]).astype(numpy.uint8)
    octets = numpy.packbits(flat, axis=0, bitorder="little")
    words = octets.reshape(-1, 4, codes.shape[1]).astype(numpy.uint32)
    return sum(words[:, byte] << (8 * byte) for byte in range(4)).astype(numpy.int32)

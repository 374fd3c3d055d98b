"""Examples of packed weights: for each layout and way of packing, a strategy over its sizes."""

# ruff: noqa: PLR0913, PLR0917 - what a writer may choose

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from hypothesis import strategies as st
from support.layouts.packed import says
from support.layouts.tables import (
    EXPERTS,
    M,
    Parts,
    Shape,
    W,
    aqlm,
    below,
    bitnet,
    block_scaled,
    compressed,
    eetq,
    eight_bits,
    four_bits,
    gemm,
    gemv,
    gemv_fast,
    gptq,
    hqq,
    marlin,
    mlx,
    mxfp4_blocks,
    nvfp4,
    pack_quantized,
    quanto,
    scaled,
    scheme,
    torchao,
    up,
    vptq,
    vptq_settings,
)

from auditor.layouts.packing import Declared, Layout


class Example(NamedTuple):
    """A packed weight, what a config says of it, and the weight that went into it."""

    table: Parts
    declared: Declared
    shape: Shape
    dtype: str
    name: str = W
    # What the shapes show without a config: everything, or less.
    is_shown: bool = True


def _of(method: str, parts: Parts, shape: Shape, dtype: str, *, shown=True, **settings) -> Example:
    return Example(below(M, parts), says(method, **settings), shape, dtype, is_shown=shown)


def _gptq(out, inputs, bits, group, g_idx, word):
    parts = gptq(out, inputs, bits, group, g_idx=g_idx, word=word)
    sizes = {"bits": bits, "group_size": group, "pack_dtype": f"int{word}"}
    return _of("gptq", parts, (out, inputs), f"INT{bits}", shown=word == 32, **sizes)


def _marlin(out, inputs, bits, group, names):
    shape = (2 * out, inputs)
    sizes = {"bits": bits, "group_size": group, "checkpoint_format": "marlin"}
    return _of("gptq", marlin(*shape, bits, group, names), shape, f"INT{bits}", **sizes)


def _auto_round(out, inputs, bits, group, packing, key):
    writes = gemm if "awq" in packing else gptq
    if writes is gemm and group == -1:
        group = inputs
    parts, sizes = writes(out, inputs, bits, group), {"bits": bits, "group_size": group}
    return _of("auto-round", parts, (out, inputs), f"INT{bits}", **sizes, **{key: packing})


def _awq(out, inputs, group, form):
    writes = {"gemm": lambda *sizes: gemm(*sizes[:2], 4, sizes[2]), "gemv": gemv}
    writes |= {
        "gemv_fast": gemv_fast,
        "marlin": lambda *sizes: marlin(*sizes[:2], 4, sizes[2], ("qweight", "scales")),
    }
    parts = writes[form](out, inputs, group)
    said = {"bits": 4, "group_size": group, "version": form.upper(), "zero_point": True}
    shown = form in {"gemm", "marlin"} or group == 128
    return _of("awq", parts, (out, inputs), "INT4", shown=shown, **said)


def _four_bits(out, inputs, block, storage, nested, kind):
    shape = (out, inputs)
    parts = four_bits(shape, block=block, storage=storage, nested=nested, kind=kind)
    said = {"load_in_4bit": True, "bnb_4bit_quant_storage": _STORAGE[storage]}
    return _of("bitsandbytes", parts, shape, kind.upper(), **said)


_STORAGE = {"U8": "uint8", "BF16": "bfloat16", "F32": "float32"}


def _pack_quantized(out, inputs, bits, group, zeros, index, padded):
    parts = pack_quantized(out, inputs, bits, group, zeros=zeros, index=index)
    if padded:  # as older versions do
        parts["weight_packed"] = ("I32", (out, up(inputs, 32 // bits)))
    weights = {"num_bits": bits, "group_size": group, "symmetric": not zeros}
    weights |= {"actorder": "group"} if index else {}
    declared = compressed(scheme(**weights), format="pack-quantized")
    return Example(below(M, parts), declared, (out, inputs), f"INT{bits}", is_shown=False)


def _int_or_float(out, inputs, dtype, grain):
    scale = {"tensor": (1,), "channel": (out, 1)}.get(grain) or (out, up(inputs, grain))
    weights = {"num_bits": 8, "type": "int" if dtype == "I8" else "float"}
    weights |= {"group_size": grain} if grain == 8 else {"strategy": grain}
    parts, kind = scaled((out, inputs), scale, dtype), "INT8" if dtype == "I8" else dtype
    return Example(below(M, parts), compressed(scheme(**weights)), (out, inputs), kind)


def _block(out, inputs, rows, columns, is_text):
    structure = f"{rows}x{columns}" if is_text else [rows, columns]
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": structure}
    parts = scaled((out, inputs), (up(out, rows), up(inputs, columns)))
    declared = compressed(scheme(**weights))
    return Example(below(M, parts), declared, (out, inputs), "F8_E4M3", is_shown=False)


def _small_floats(out, groups, kind):
    bits, size, dtype = {
        "NVFP4": (4, 16, "F8_E4M3"),
        "MXFP4": (4, 32, "U8"),
        "MXFP6": (6, 32, "U8"),
    }[kind]
    shape = (out, groups * size)
    parts = {
        "weight_packed": ("U8", (out, groups * size * bits // 8)),
        "weight_scale": (dtype, (out, groups)),
        **({"weight_global_scale": ("F32", (1,))} if kind == "NVFP4" else {}),
    }
    declared = compressed(scheme(num_bits=bits, type="float", group_size=size))
    return Example(below(M, parts), declared, shape, kind)


def _two_of_four(out, quarters):
    parts = {
        "compressed": ("BF16", (out, 2 * quarters)),
        "bitmask": ("U8", (out, up(4 * quarters, 8))),
        "shape": ("I64", (2, 1)),
    }
    declared = compressed(sparsity_config={"format": "sparse-24-bitmask"})
    return Example(below(M, parts), declared, (out, 4 * quarters), "BF16")


def _marlin_24(rows, columns, bits, grouped):
    out, inputs = 64 * rows, 256 * columns
    parts = {
        "weight_packed": ("I32", (inputs // 32, out * bits // 2)),
        "scale_packed": ("F16", (inputs // 128 if grouped else 1, out)),
        "meta": ("I16", (inputs // 32, 2 * out)),
    }
    weights = {"num_bits": bits, "group_size": 128 if grouped else -1}
    declared = compressed(scheme(**weights), format="marlin-24")
    return Example(below(M, parts), declared, (out, inputs), f"INT{bits}")


def _fp8(out, inputs, block, dtype):
    parts = block_scaled(out, inputs, *block, dtype)
    shape = (out, inputs)
    return _of("fp8", parts, shape, "F8_E4M3", shown=False, weight_block_size=[*block])


def _fp8_experts(experts, out, inputs, block):
    parts = {
        "down_proj": ("F8_E4M3", (experts, out, inputs)),
        "down_proj_scale_inv": ("F32", (experts, up(out, block[0]), up(inputs, block[1]))),
    }
    declared = says("fp8", weight_block_size=[*block])
    name, shape = f"{EXPERTS}.down_proj", (experts, out, inputs)
    return Example(below(EXPERTS, parts), declared, shape, "F8_E4M3", name, is_shown=False)


def _fp8_fours(out, groups, last):
    module = f"{EXPERTS}.3.down_proj"
    parts = {"weight": ("I8", (out, 16 * groups)), last: ("F8_E8M0", (out, groups))}
    declared = says("fp8", weight_block_size=[128, 128], expert_dtype="fp4")
    return Example(below(module, parts), declared, (out, 32 * groups), "FP4", f"{module}.weight")


def _modelopt(out, groups, kind):
    eight = {"F8_E4M3", "INT8", "MXFP8"}
    parts, algorithm, shape = {
        "NVFP4": lambda: (nvfp4(out, groups), "NVFP4", (out, 16 * groups)),
        "NVFP4 in 32": lambda: (nvfp4(out, groups, 32), "W4A8_NVFP4_FP8", (out, 32 * groups)),
        "MXFP4": lambda: (
            {"weight": ("U8", (out, 16 * groups)), "weight_scale": ("U8", (out, groups))},
            "mxfp4",
            (out, 32 * groups),
        ),
        "INT4": lambda: (
            {
                "weight": ("U8", (out, 64 * groups)),
                "weight_scale": ("F32", (2 * out, groups)),
                "pre_quant_scale": ("BF16", (64 * groups,)),
            },
            "W4A16_AWQ",
            (2 * out, 64 * groups),
        ),
        "F8_E4M3": lambda: (
            scaled((out, groups), (out,)),
            "FP8_PER_CHANNEL_PER_TOKEN",
            (out, groups),
        ),
        "INT8": lambda: (scaled((out, groups), (out,), "I8"), "W8A8_SQ_PER_CHANNEL", (out, groups)),
        "F8_E4M3 in 32": lambda: (
            scaled((out, 32 * groups), (out, groups), of="U8"),
            "MXFP8",
            (out, 32 * groups),
        ),
    }[kind]()
    size = {"NVFP4": 16, "NVFP4 in 32": 32, "INT4": 64}.get(kind)
    settings = {"quant_algo": algorithm} | ({"group_size": size} if size else {})
    shown = kind not in eight and kind != "NVFP4 in 32"
    return _of("modelopt", parts, shape, kind.partition(" ")[0], shown=shown, **settings)


def _modelopt_experts(experts, out, groups, turned):
    packed, scales = (experts, out, 8 * groups), (experts, out, groups)
    shape = (experts, out, 16 * groups)
    if turned == "turned":
        packed, scales, shape = ((one[0], one[2], one[1]) for one in (packed, scales, shape))
    parts = {
        "down_proj": ("U8", packed),
        "down_proj_weight_scale": ("F8_E4M3", scales),
        "down_proj_weight_scale_2": ("F32", (experts,)),
        "down_proj_input_scale": ("F32", (experts,)),
    }
    declared, name = says("modelopt", quant_algo="NVFP4"), f"{EXPERTS}.down_proj"
    return Example(below(EXPERTS, parts), declared, shape, "NVFP4", name)


FIXED_MODES = {"mxfp4": (4, 32, "F4"), "mxfp8": (8, 32, "F8_E4M3"), "nvfp4": (4, 16, "F4")}


def _mlx(out, groups, bits, group, mode):
    dtype = f"INT{bits}"
    if mode != "affine":
        bits, group, dtype = FIXED_MODES[mode]
    shape, said = (out, 128 * groups), {"bits": bits, "group_size": group, "mode": mode}
    return _of("mlx", mlx(shape, bits, group, mode), shape, dtype, **said)


def _mxfp4(experts, out, blocks):
    table = below(EXPERTS, mxfp4_blocks(experts, out, blocks))
    shape = (experts, 32 * blocks, out)
    return Example(table, says("mxfp4"), shape, "MXFP4", f"{EXPERTS}.down_proj")


def _quanto_bytes(out, inputs, dtype):
    ones = {"input_scale": ("BF16", ()), "output_scale": ("BF16", ())}
    parts = {"weight._data": (dtype, (out, inputs)), "weight._scale": ("BF16", (out, 1)), **ones}
    return _of("quanto", parts, (out, inputs), "INT8" if dtype == "I8" else dtype)


def _quanto_bits(out, inputs, bits):
    parts, said = quanto(out, inputs, bits), {"weights": f"int{bits}"}
    return _of("quanto", parts, (out, inputs), f"INT{bits}", shown=out > 2, **said)


def _hqq(out, inputs, bits, group, axis, as_float):
    weights = {"nbits": bits, "group_size": group, "axis": axis, "view_as_float": as_float}
    said = {"quant_config": {"weight_quant_params": weights}}
    parts, shape = hqq(out, inputs, bits, group, axis, as_float=as_float), (out, inputs)
    return _of("hqq", parts, shape, f"INT{bits}", shown=not as_float and group == 64, **said)


def _vptq(out, size, way):
    inputs = size * way["groups"] + way["outliers"]
    settings = vptq_settings(inputs, **way)
    said = {"config_for_layers": {M: settings}}
    return _of("vptq", vptq(out, inputs, settings), (out, inputs), "VPTQ", shown=False, **said)


def _aqlm(rows, columns, books, bits, outputs, inputs):
    said = {"num_codebooks": books, "nbits_per_codebook": bits}
    said |= {"out_group_size": outputs, "in_group_size": inputs}
    parts = aqlm(rows, columns, books, bits, outputs, inputs)
    return _of("aqlm", parts, (rows * outputs, columns * inputs), "AQLM", **said)


_ANY, _FEW = st.integers(1, 300), st.integers(1, 5)
_32, _64, _128 = (st.integers(1, 20).map(lambda n, step=step: step * n) for step in (32, 64, 128))
_BLOCKS = st.sampled_from([(128, 128), (1, 32), (64, 128), (7, 3)])
_GPTQ_WORDS = st.sampled_from(
    ("auto_round", "auto_round:gptq", "auto_round:gptq:exllamav2", "autoround:tritonv2", "auto")
)
_AWQ_WORDS = st.sampled_from(("auto_round:awq", "auto_round:auto_awq"))
_KEYS = st.sampled_from(("packing_format", "backend"))
_BITS = st.sampled_from((2, 3, 4, 8))
_GROUPS = st.sampled_from((-1, 32, 64, 128))
_NAMES = st.sampled_from(("Bs", ("qweight", "scales")))
_VPTQ = st.fixed_dictionaries(
    {
        "groups": st.integers(1, 3),
        "vector": st.integers(1, 16),
        "centroids": st.sampled_from((2, 256, 4096, 65536)),
        "residual": st.sampled_from((-1, 16, 256)),
        "outliers": st.sampled_from((0, 12)),
    }
)


def _draw(build: Callable[..., Example], *drawn: object) -> st.SearchStrategy[Example]:
    """Build an example of drawn values; what is no strategy is given as it is."""
    return st.builds(
        build, *(one if isinstance(one, st.SearchStrategy) else st.just(one) for one in drawn)
    )


# A layout's file and a way of packing -> examples.
EXAMPLES: dict[str, st.SearchStrategy[Example]] = {
    "gptq words": _draw(
        _gptq, _32, _32, _BITS, _GROUPS, st.booleans(), st.sampled_from((8, 16, 32, 64))
    ),
    "gptq marlin": _draw(
        _marlin, _128, _128, st.sampled_from((4, 8)), st.sampled_from((-1, 128)), _NAMES
    ),
    "auto_round gptq": _draw(_auto_round, _32, _32, st.integers(2, 8), _GROUPS, _GPTQ_WORDS, _KEYS),
    "auto_round awq": _draw(
        _auto_round,
        _32,
        _32,
        st.integers(2, 8),
        st.sampled_from((-1, 16, 32)),
        _AWQ_WORDS,
        "packing_format",
    ),
    **{
        f"awq {form}": _draw(_awq, _128, _128, st.sampled_from((32, 64, 128)), form)
        for form in ("gemm", "gemv", "gemv_fast", "marlin")
    },
    "bitsandbytes 4": _draw(
        _four_bits,
        _32,
        _32,
        st.just(64),
        st.sampled_from(("U8", "BF16", "F32")),
        st.booleans(),
        st.sampled_from(("nf4", "fp4")),
    ),
    "bitsandbytes 8": st.builds(
        lambda out, inputs: _of("bitsandbytes", eight_bits((out, inputs)), (out, inputs), "INT8"),
        _ANY,
        _ANY,
    ),
    **{
        f"compressed_tensors {kind}": _draw(
            _pack_quantized,
            _ANY,
            _ANY,
            st.sampled_from(bits),
            st.sampled_from((-1, 1, 8, 32, 128)),
            st.booleans(),
            st.booleans(),
            st.booleans(),
        )
        for kind, bits in (("words", (1, 2, 4, 8)), ("odd words", (3, 5, 6, 7)))
    },
    "compressed_tensors bytes": _draw(
        _int_or_float,
        _ANY,
        _ANY,
        st.sampled_from(("I8", "F8_E4M3")),
        st.sampled_from(("tensor", "channel", 8)),
    ),
    "compressed_tensors blocks": _draw(
        _block, _ANY, _ANY, st.integers(1, 9), st.integers(1, 9), st.booleans()
    ),
    **{
        f"compressed_tensors {kind}": _draw(_small_floats, _ANY, _FEW, kind)
        for kind in ("NVFP4", "MXFP4", "MXFP6")
    },
    "compressed_tensors 2:4": _draw(_two_of_four, _ANY, _FEW),
    "compressed_tensors marlin": _draw(
        _marlin_24, _FEW, _FEW, st.sampled_from((4, 8)), st.booleans()
    ),
    "fp8 blocks": _draw(
        _fp8, _ANY, _ANY, _BLOCKS, st.sampled_from(("F32", "F8_E8M0", "U8", "BF16"))
    ),
    "fp8 experts": _draw(_fp8_experts, _FEW, _ANY, _ANY, _BLOCKS),
    "fp8 fours": _draw(
        _fp8_fours, _ANY, _FEW, st.sampled_from(("weight_scale_inv", "scale", "qscale_weight"))
    ),
    **{
        f"modelopt {kind}": _draw(_modelopt, st.integers(2, 99), st.integers(2, 9), kind)
        for kind in ("NVFP4", "NVFP4 in 32", "MXFP4", "INT4", "F8_E4M3", "INT8", "F8_E4M3 in 32")
    },
    "modelopt experts": _draw(_modelopt_experts, _FEW, _ANY, _FEW, "as linears"),
    "modelopt turned": _draw(_modelopt_experts, _FEW, _ANY, _FEW, "turned"),
    "mlx affine": _draw(
        _mlx,
        _ANY,
        _FEW,
        st.sampled_from((1, 2, 3, 4, 5, 6, 8)),
        st.sampled_from((32, 64, 128)),
        "affine",
    ),
    **{f"mlx {mode}": _draw(_mlx, _ANY, _FEW, 0, 0, mode) for mode in FIXED_MODES},
    "mxfp4": _draw(_mxfp4, _FEW, _ANY, _FEW),
    "quanto bytes": _draw(_quanto_bytes, _32, _32, st.sampled_from(("I8", "F8_E4M3", "F8_E5M2"))),
    "quanto bits": _draw(_quanto_bits, _ANY, _32, st.sampled_from((2, 4))),
    "hqq": _draw(
        _hqq,
        _64,
        _64,
        st.sampled_from((8, 4, 3, 2, 1)),
        st.sampled_from((8, 16, 32, 64)),
        st.sampled_from((0, 1)),
        st.booleans(),
    ),
    **{
        f"torchao {kind}": st.builds(
            lambda out, inputs, kind=kind: _of(
                "torchao", torchao(out, inputs, kind), (out, inputs), kind.partition(" ")[0]
            ),
            _32,
            _32,
        )
        for kind in (
            "INT8",
            "INT8 in groups",
            "F8_E4M3",
            "INT4",
            "INT4 in words",
            "INT4 in tiles",
            "F8_E4M3 in blocks",
            "MXFP4",
            "NVFP4",
        )
    },
    "vptq": _draw(_vptq, st.integers(1, 500), st.integers(1, 100), _VPTQ),
    "aqlm": _draw(
        _aqlm,
        _ANY,
        _ANY,
        st.integers(1, 8),
        st.integers(1, 16),
        st.integers(1, 4),
        st.integers(1, 32),
    ),
    "bitnet": st.builds(
        lambda rows, inputs: _of("bitnet", bitnet(rows, inputs), (4 * rows, inputs), "TERNARY"),
        _ANY,
        _ANY,
    ),
    "eetq": st.builds(
        lambda out, inputs: _of("eetq", eetq(out, inputs), (out, inputs), "INT8"), _ANY, _ANY
    ),
}


def layout_of(label: str) -> Layout:
    """Return the layout of an example or of a file: `gptq words`, `gptq`."""
    layout: Layout = import_module(f"auditor.layouts.{label.partition(' ')[0]}").LAYOUT
    return layout

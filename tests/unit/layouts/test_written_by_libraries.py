"""Folders that each layout's own library wrote: what is unpacked is the plain checkpoint.

The libraries of `SCRIPTS` run each night, in processes of their own: packers.py says where.
"""

import json
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import each_night, one_in
from support.layouts import packers, writers
from support.layouts.examples import layout_of
from support.layouts.indexed import its_total_is_told
from support.layouts.packed import (
    holds_the_plain_checkpoint,
    on_disk,
    opened,
    pieces,
    says,
    shapes,
    tells_what_is_written,
)
from support.layouts.tables import EXPERTS, M, W, aqlm, below, bitnet, mlx, mxfp4_blocks

from auditor.audit.pipeline import audit
from auditor.layouts.declared import declaration

pytestmark = pytest.mark.oracle

# All of a layer in its own config, as an export of auto-round 0.16.1 writes it.
MIXED = {
    "lm_head": {"bits": 4, "group_size": 32, "sym": True, "data_type": "int", "super_bits": None},
    "model.layers.0.mlp.down_proj": {"bits": 16},
    "model.layers.0.self_attn.q_proj": {"group_size": 64},
    "model.layers.1.mlp.up_proj": {"bits": 8},
}
IN_BLOCKS = {"block_name_to_quantize": "model.layers", "data_type": "int"}
AUTO_ROUND = {
    "symmetric": {"bits": 4, "group_size": 32, "packing_format": "auto_round:auto_gptq"},
    "asymmetric": {"bits": 2, "group_size": 16, "packing_format": "auto_round"},
    "3-bits": {"bits": 3, "group_size": -1, "packing_format": "auto_round:gptqmodel"},
    "awq": {"bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"},
}
AUTO_ROUND["mixed"] = AUTO_ROUND["symmetric"] | IN_BLOCKS | {"extra_config": MIXED}
FOUR = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
BITSANDBYTES = {
    "int8": {"load_in_8bit": True},
    "nf4": FOUR,
    "fp4": FOUR | {"bnb_4bit_quant_type": "fp4"},
    "nested": FOUR | {"bnb_4bit_use_double_quant": True},
    "bf16": FOUR | {"bnb_4bit_quant_storage": "bfloat16"},
}
FP8 = {
    "blocks": {"weight_block_size": (32, 32)},
    "uneven": {"weight_block_size": (48, 32), "scale_fmt": "ue8m0"},
    "tensor": {"weight_block_size": None, "activation_scheme": "static"},
    "four": {"weight_block_size": (32, 32), "expert_dtype": "fp4", "scale_fmt": "ue8m0"},
}
PRESETS = """
    W4A16 W4A16_ASYM W3A16 W8A16 W8A8 W4AFP8 FP8 FP8_DYNAMIC FP8_BLOCK NVFP4 NVFP4A16 MXFP4A16
    MXFP6A16 MXFP8
""".split()  # noqa: SIM905 - a long list of names
LAYER = "model.layers.0"
TWO_SCHEMES = (
    ("W4A16", ["re:.*self_attn.*"]),
    ("FP8_DYNAMIC", [r"re:.*mlp\.(gate|up)_proj$"]),
    ("W8A16", ["model.layers.1.mlp.down_proj"]),
)
MODELOPT = """
    FP8_DEFAULT_CFG NVFP4_MLP_ONLY_CFG MXFP8_DEFAULT_CFG INT4_AWQ_CFG
    FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG W4A8_NVFP4_FP8_CFG
""".split()  # noqa: SIM905 - a long list of names
MLX = {
    "Llama": {},
    "Qwen2": {},
    "Mixtral": {"num_local_experts": 4},
    "Qwen3Moe": {**writers.EXPERTS, "head_dim": 32},
    "Lfm2Moe": {
        **writers.EXPERTS,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention"],
    },
}
MLX_WAYS = [("affine", 32, 3), ("affine", 64, 4), ("mxfp4", 32, 4)]
OF_AUTO_ROUND = {"Llama": {}, "Qwen2": {}, "Mixtral": {"num_local_experts": 2}}

# A layout's file and a way -> what writes the folders.
WRITERS = {
    "gptq llama": partial(writers.with_gptq, family="Llama", bits=4, group=32, desc_act=True),
    "gptq 3": partial(writers.with_gptq, family="GPT2", bits=3, group=32),
    "gptq 8": partial(
        writers.with_gptq, family="Llama", bits=8, group=-1, checkpoint_format="gptq_v2"
    ),
    "gptq 2": partial(writers.with_gptq, family="GPT2", bits=2, group=16),
    "awq llama": partial(writers.with_awq, family="Llama"),
    "awq tied": partial(writers.with_awq, family="Qwen2", tie_word_embeddings=True),
    "awq experts": partial(writers.with_awq, family="Mixtral", num_local_experts=2),
    **{
        f"auto_round {way} {family}": partial(
            writers.with_auto_round, family=family, sizes=OF_AUTO_ROUND[family], **AUTO_ROUND[way]
        )
        for way, family in one_in(4, product(AUTO_ROUND, OF_AUTO_ROUND))
        if (way, family) != ("mixed", "Mixtral")
    },
    **{
        f"bitsandbytes {way} {family}": partial(
            writers.with_bitsandbytes, family=family, **BITSANDBYTES[way]
        )
        for family, way in one_in(2, product(("Llama", "GPT2"), BITSANDBYTES))
    },
    "bitnet": writers.with_bitnet,
    "bitnet auto": partial(writers.with_bitnet, linear_class="autobitlinear", use_rms_norm=True),
    **{
        f"fp8 {way} {family}": partial(writers.with_fp8, family=family, **FP8[way])
        for family, way in product(("Llama", "Qwen3Moe"), FP8)
    },
    **{
        f"compressed_tensors {name}": lambda folder, name=name: writers.with_compressed_tensors(
            folder, (name, ["Linear"])
        )
        for name in one_in(2, PRESETS)
    },
    "compressed_tensors two": lambda folder: writers.with_compressed_tensors(
        folder,
        *TWO_SCHEMES,
        ignore=["model.layers.0.self_attn.o_proj", "model.layers.0.mlp.down_proj"],
    ),
    **{f"modelopt {name}": partial(writers.with_modelopt, name=name) for name in MODELOPT},
    **{
        f"mlx {family} {way[0]} {way[2]}": partial(
            writers.with_mlx, family=family, sizes=MLX[family], way=way
        )
        for family, way in one_in(4, product(MLX, MLX_WAYS))
    },
    "eetq": writers.with_eetq,
    "mxfp4": writers.with_mxfp4,
}
# Texts in tensors have no fixed length, and older versions padded words of 3 bits.
INEXACT = ("bitsandbytes nf4", "bitsandbytes fp4", "bitsandbytes nested", "bitsandbytes bf16")
INEXACT += ("compressed_tensors W3A16",)


@pytest.mark.parametrize("label", WRITERS)
def test_what_a_library_writes_is_the_checkpoint_that_went_in(label, tmp_path):
    WRITERS[label](tmp_path)
    layout, folder = layout_of(label), tmp_path / "packed"
    values = json.loads((folder / "config.json").read_text())
    declared, table = declaration(values, None), on_disk(folder)
    holds_the_plain_checkpoint(layout, folder, tmp_path / "plain", declared)
    if label != "bitnet auto":  # what is loaded and saved again may be floats
        its_total_is_told(folder, exact=not label.startswith(INEXACT))
        tells_what_is_written(layout, table, declared, shapes(on_disk(tmp_path / "plain")))


# --- single tensors of libraries ------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3))
def test_experts_in_blocks_have_the_shape_that_transformers_unpacks(experts, out, blocks):
    torch = pytest.importorskip("torch")
    integration = pytest.importorskip("transformers.integrations.mxfp4")
    table = below(EXPERTS, mxfp4_blocks(experts, out, blocks))
    packed = (torch.zeros(shape, dtype=torch.uint8) for _, shape in table.values())
    theirs = integration.convert_moe_packed_tensors(*packed)
    unpacked = opened(layout_of("mxfp4"), table, says("mxfp4"))
    assert pieces(unpacked) == {f"{EXPERTS}.down_proj": tuple(theirs.shape)}


def test_bytes_of_bitnet_have_the_shape_that_transformers_packs(subtests):
    for shape in [(4, 8), (64, 96), (12, 3)]:
        with subtests.test(shape=shape):
            torch = pytest.importorskip("torch")
            integration = pytest.importorskip("transformers.integrations.bitnet")
            packed = integration.pack_weights(torch.zeros(shape))
            unpacked = opened(layout_of("bitnet"), below(M, bitnet(*packed.shape)), says("bitnet"))
            assert (packed.dtype, pieces(unpacked)) == (torch.uint8, {W: shape})


def test_codes_of_aqlm_have_the_shapes_of_its_module(subtests):
    for books, bits in [(1, 16), (2, 8)]:
        with subtests.test(books=books, bits=bits):
            module = pytest.importorskip("aqlm").QuantizedLinear(
                96, 64, 8, 1, books, bits, bias=False, device="meta"
            )
            theirs = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
            assert theirs == shapes(aqlm(64, 12, books, bits))


def test_words_of_mlx_have_the_shapes_that_it_packs(subtests):
    for mode, bits, group in [
        ("affine", 3, 32),
        ("affine", 5, 64),
        ("mxfp4", 4, 32),
        ("mxfp8", 8, 32),
        ("nvfp4", 4, 16),
    ]:
        with subtests.test(mode=mode, bits=bits, group=group):
            mx = pytest.importorskip("mlx.core")
            parts = mx.quantize(
                mx.zeros((6, 128)), group_size=group, bits=bits, mode=mode, stream=mx.cpu
            )
            dtypes = {mx.uint32: "U32", mx.uint8: "U8", mx.float32: "BF16"}
            theirs = [(dtypes[part.dtype], part.shape) for part in parts]
            assert theirs == list(mlx((6, 128), bits, group, mode).values())


# --- each night -----------------------------------------------------------------------------------

TORCHAO = """
import torchao.quantization as q, torchao.prototype.mx_formats as mx
ways = {
    "int8": q.Int8WeightOnlyConfig(version=2),
    "int8-dynamic": q.Int8DynamicActivationInt8WeightConfig(version=2),
    "float8": q.Float8WeightOnlyConfig(),
    "intx": q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)),
    "int8-int4": q.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=q.PerGroup(32)),
    "mxfp8": mx.MXDynamicActivationMXWeightConfig(),
    "mxfp4": mx.MXDynamicActivationMXWeightConfig(
        activation_dtype=torch.float4_e2m1fn_x2, weight_dtype=torch.float4_e2m1fn_x2),
    "nvfp4": mx.NVFP4WeightOnlyConfig(),
}
for way, config in ways.items():
    packed = transformers.LlamaForCausalLM.from_pretrained(
        folder / "plain", dtype=torch.bfloat16,
        quantization_config=transformers.TorchAoConfig(config))
    packed.save_pretrained(folder / way)
"""
QUANTO = """
from optimum.quanto import QuantizedModelForCausalLM, qfloat8, qint2, qint4, qint8
for way, weights in {"int8": qint8, "int4": qint4, "int2": qint2, "float8": qfloat8}.items():
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "plain", dtype=torch.bfloat16)
    QuantizedModelForCausalLM.quantize(model, weights=weights, exclude="lm_head").save_pretrained(
        folder / way)
"""
HQQ = """
from hqq.core.quantize import BaseQuantizeConfig
from hqq.models.hf.base import AutoHQQHFModel
ways = {
    "4": dict(nbits=4, group_size=64, axis=1), "8": dict(nbits=8, group_size=32, axis=1),
    "3": dict(nbits=3, group_size=64, axis=0), "2": dict(nbits=2, group_size=16, axis=1),
    "1": dict(nbits=1, group_size=64, axis=0),
    "4-as-float": dict(nbits=4, group_size=64, axis=0, view_as_float=True),
}
for way, settings in ways.items():
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "plain", dtype=torch.bfloat16)
    config = BaseQuantizeConfig(**settings)
    config["weight_quant_params"]["optimize"] = False  # of values, which no header shows
    AutoHQQHFModel.quantize_model(
        model, quant_config=config, compute_dtype=torch.bfloat16, device="cpu")
    AutoHQQHFModel.save_to_safetensors(model, str(folder / way))
    said = json.loads((folder / way / "config.json").read_text())
    said["quantization_config"] = {
        "quant_method": "hqq", "quant_config": config, "skip_modules": ["lm_head"]}
    (folder / way / "config.json").write_text(json.dumps(said))
"""
AUTO_ROUND_EXPORT = """
from auto_round.export.export_to_autoround.export import save_quantized_as_autoround
from auto_round.export.export_to_awq.export import pack_layer
UNSET = "act_bits act_group_size act_sym act_data_type act_dynamic super_bits super_group_size"

def of_layer(name, scheme, own):
    said = dict.fromkeys(UNSET.split()) | {"data_type": "int", "act_bits": 16} | scheme
    said["in_blocks"] = name.startswith("model.layers")
    said["bits"] = scheme["bits"] if said["in_blocks"] else 16
    return said | own

def export(name, packing, blocks=None, layers={}, **scheme):
    model, settings = llama().half(), {}
    for module, linear in model.named_modules():
        if not isinstance(linear, torch.nn.Linear):
            continue
        said = of_layer(module, scheme, layers.get(module, {}))
        settings[module] = said
        vars(linear).update(said)
        outputs, inputs = linear.weight.shape
        groups = 1 if said["group_size"] == -1 else -(-inputs // said["group_size"])
        linear.scale = torch.full((outputs, groups), 0.01)
        linear.zp = torch.full((outputs, groups), 2.0 ** (said["bits"] - 1))
        if "awq" in packing:
            pack_layer(module, model, backend=packing)
    save_quantized_as_autoround(
        str(folder / name), model, layer_config=settings, backend=packing,
        serialization_dict={
            **scheme, "data_type": "int", "act_bits": 16, "to_quant_block_names": blocks,
            "regex_config": None,
        },
    )

MIXED = {
    "lm_head": {"bits": 4},
    "model.layers.0.mlp.down_proj": {"bits": 16},
    "model.layers.0.self_attn.q_proj": {"group_size": 64},
}
MORE = {"model.layers.1.mlp.up_proj": {"bits": 8}}
BLOCKS = "model.layers"
export("symmetric", "auto_round", BLOCKS, MIXED | MORE, bits=4, group_size=32, sym=True)
export("asymmetric", "auto_round", None, MIXED, bits=2, group_size=32, sym=False)
export("gptqmodel", "auto_round:gptqmodel", bits=3, group_size=-1, sym=True)
export("awq", "auto_round:auto_awq", BLOCKS, MIXED, bits=4, group_size=32, sym=False)
export("awq-5", "auto_round:auto_awq", bits=5, group_size=32, sym=False)
"""
SCRIPTS = {  # a layout's file -> its library's package, and the script
    "auto_round": ("auto_round", AUTO_ROUND_EXPORT),
    "hqq": ("hqq", HQQ),
    "quanto": ("optimum/quanto", QUANTO),
    "torchao": ("torchao", TORCHAO),
}


@each_night
@pytest.mark.parametrize("file", SCRIPTS)
def test_what_a_library_writes_in_a_process_of_its_own_is_what_went_in(file, tmp_path):
    package, script = SCRIPTS[file]
    packers.write(script, tmp_path, package)
    for folder in sorted(tmp_path.iterdir()):
        if folder.name != "plain":
            values = json.loads((folder / "config.json").read_text())
            declared = declaration(values, None)
            holds_the_plain_checkpoint(layout_of(file), folder, tmp_path / "plain", declared)


# --- what an audit says of other settings ---------------------------------------------------------


def test_a_config_that_contradicts_the_tensors_is_found(subtests, tmp_path):
    for settings, reason in [
        ({"quant_method": "awq"}, "packed as gptq, but quantization_config declares awq"),
        ({"bits": 8}, "is 8, stored are 4"),
        ({"bits": "four"}, "bits of quantization_config is the string 'four'"),
    ]:
        with subtests.test(settings=settings, reason=reason):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            writers.with_gptq(place, "Llama", 4, 32)
            writers.declare(
                place, {"quant_method": "gptq", "bits": 4, "group_size": 32, **settings}
            )
            report = audit(str(place / "packed"))
            loud = [finding for finding in report.findings if finding.severity != "info"]
            assert {finding.kind for finding in loud} == {"bad-quantization"}
            assert any(reason in finding.reason for finding in loud), loud
            assert report.residual == 0

"""Whole checkpoints, plain and packed: by each layout's own library, or by the tables of tables.py.

AutoAWQ, AutoGPTQ, GPTQModel and EETQ do not install without CUDA, so that their checkpoints are
written by the arithmetic of their sources. Each writer fills the folders `plain` and `packed`.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.layouts.packed import SMALL, on_disk
from support.layouts.tables import Parts, Shape, below, eetq, gemm, gptq, mxfp4_blocks
from support.sharding import write

SIZES = SMALL | {"dtype": "float16"}
GPT2 = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
EXPERTS = {"moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}


def plain_model(folder: Path, family: str, **sizes: Any) -> Any:
    """Save a causal model of a family of transformers as it is, and return it."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = getattr(transformers, f"{family}Config")(**sizes)
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{family}{head}")(config)
    model = model.to(getattr(torch, sizes.get("dtype", "float32")))
    model.save_pretrained(folder / "plain")
    return model


def by_table(
    folder: Path,
    pack: Callable[[str, Shape], Parts | None],
    settings: Mapping[str, Any],
    family: str = "Llama",
    **sizes: Any,
) -> None:
    """Write a model with the tensors that `pack` makes of each weight; None leaves it plain."""
    plain_model(folder, family, **{"dtype": "float16", **(sizes or SIZES)})
    table = {}
    for name, described in on_disk(folder / "plain").items():
        parts = pack(name, described[1])
        module = name.rpartition(".")[0]
        table |= {name: described} if parts is None else below(module, parts)
    (folder / "packed").mkdir()
    write(folder / "packed" / "model.safetensors", table)
    declare(folder, settings)


def declare(folder: Path, settings: Mapping[str, Any]) -> None:
    values = json.loads((folder / "plain" / "config.json").read_text())
    values["quantization_config"] = settings
    (folder / "packed" / "config.json").write_text(json.dumps(values))


def is_linear(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return last == "weight" and (
        "proj" in module or module.rpartition(".")[2] in {"w1", "w2", "w3"}
    )


def with_gptq(folder: Path, family: str, bits: int, group: int, **settings: Any) -> None:
    def pack(name: str, shape: Shape) -> Parts | None:
        if family == "GPT2" and ".c_" in name and name.endswith("weight"):
            return gptq(*shape[::-1], bits, group)  # a Conv1D is (in, out)
        return gptq(*shape, bits, group) if is_linear(name) else None

    declared = {"quant_method": "gptq", "bits": bits, "group_size": group, **settings}
    by_table(folder, pack, declared, family, **(GPT2 if family == "GPT2" else SIZES))


def with_awq(folder: Path, family: str, **sizes: Any) -> None:
    declared = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    by_table(
        folder,
        lambda name, shape: gemm(*shape, 4, 32) if is_linear(name) else None,
        declared,
        family,
        **SIZES,
        **sizes,
    )


def with_auto_round(folder: Path, family: str, sizes: Mapping[str, Any], **settings: Any) -> None:
    """As save_quantized_as_autoround packs: in blocks, and what extra_config says otherwise."""
    extra = settings.get("extra_config", {})
    pack_one = gemm if "awq" in settings["packing_format"] else gptq

    def pack(name: str, shape: Shape) -> Parts | None:
        module = name.rpartition(".")[0]
        default = settings["bits"] if is_linear(name) or module.endswith("gate") else 16
        own = {"bits": default, "group_size": settings["group_size"], **extra.get(module, {})}
        if own["bits"] == 16:
            return None
        return {
            last: one
            for last, one in pack_one(*shape, own["bits"], own["group_size"]).items()
            if last != "g_idx"
        }

    declared = {"quant_method": "auto-round", **settings}
    by_table(folder, pack, declared, family, **SIZES, tie_word_embeddings=False, **sizes)


def with_eetq(folder: Path) -> None:
    declared = {"quant_method": "eetq", "weights": "int8", "modules_to_not_convert": ["lm_head"]}
    by_table(folder, lambda name, shape: eetq(*shape) if is_linear(name) else None, declared)


def with_mxfp4(folder: Path) -> None:
    sizes = {"vocab_size": 40, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_local_experts": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 8, "dtype": "bfloat16"}

    def pack(name: str, shape: Shape) -> Parts | None:
        last = name.rpartition(".")[2]
        if last not in {"gate_up_proj", "down_proj"} or len(shape) != 3:
            return None
        return mxfp4_blocks(shape[0], shape[2], shape[1] // 32, last)

    by_table(folder, pack, {"quant_method": "mxfp4"}, "GptOss", **sizes)


# --- by transformers ------------------------------------------------------------------------------


def with_bitsandbytes(folder: Path, family: str, **settings: Any) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    model = plain_model(folder, family, dtype="float16", **(GPT2 if family == "GPT2" else SMALL))
    packing = transformers.BitsAndBytesConfig(**settings)
    packed = type(model).from_pretrained(
        folder / "plain", quantization_config=packing, device_map="cpu"
    )
    packed.save_pretrained(folder / "packed")


def with_bitnet(folder: Path, **way: Any) -> None:
    transformers = pytest.importorskip("transformers")
    integration = pytest.importorskip("transformers.integrations.bitnet")
    model = plain_model(folder, "Llama", dtype="bfloat16", **SMALL)
    settings = transformers.BitNetQuantConfig(["lm_head"], quantization_mode="offline", **way)
    integration.replace_with_bitnet_linear(model, ["lm_head"], settings)
    model.to_empty(device="cpu")
    model.config.quantization_config = settings
    model.save_pretrained(folder / "packed")


def with_fp8(folder: Path, family: str, **settings: Any) -> None:
    """The model with transformers' own FP8 modules, saved as a quantised one is."""
    pytest.importorskip("torch")
    from transformers import FineGrainedFP8Config  # noqa: PLC0415
    from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: PLC0415
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear  # noqa: PLC0415
    from transformers.quantizers.auto import FineGrainedFP8HfQuantizer  # noqa: PLC0415

    experts = EXPERTS | {"moe_intermediate_size": 32, "num_experts": 2, "head_dim": 16}
    model = plain_model(folder, family, **SMALL, **(experts if "Moe" in family else {}))
    config = FineGrainedFP8Config(**settings)
    replace_with_fp8_linear(model, ["lm_head"], config, pre_quantized=True)
    model = model.to_empty(device="cpu")
    model.config.quantization_config = config
    quantizer = FineGrainedFP8HfQuantizer(config, pre_quantized=True)
    model._weight_conversions = get_model_conversion_mapping(  # noqa: SLF001 - as loading does
        model, hf_quantizer=quantizer
    )
    model.save_pretrained(folder / "packed")


# --- by other libraries ---------------------------------------------------------------------------


def with_compressed_tensors(folder: Path, *schemes: tuple[str, list[str]], ignore=()) -> None:
    """The model, quantised and saved by the library with presets and their targets."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import ModelCompressor  # noqa: PLC0415
    from compressed_tensors.quantization import (  # noqa: PLC0415
        QuantizationConfig,
        apply_quantization_config,
    )

    model = plain_model(folder, "Llama", **SMALL)
    groups = {f"group_{at}": _preset(*one) for at, one in enumerate(schemes)}
    settings = QuantizationConfig(config_groups=groups, ignore=["lm_head", *ignore])
    apply_quantization_config(model, settings)
    for name, parameter in model.named_parameters():
        if name.endswith("scale"):
            parameter.data.fill_(0.01)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder / "packed")
    compressor.update_config(folder / "packed")


def _preset(name: str, targets: list[str]) -> dict[str, Any]:
    from compressed_tensors.quantization.quant_scheme import (  # noqa: PLC0415
        preset_name_to_scheme,
    )

    found: dict[str, Any] = preset_name_to_scheme(name, targets).model_dump()
    if found["weights"].get("group_size") == 128:
        found["weights"]["group_size"] = 32
    if found["weights"].get("block_structure"):
        found["weights"]["block_structure"] = [32, 32]
    return found


def with_mlx(
    folder: Path, family: str, sizes: Mapping[str, Any], way: tuple[str, int, int]
) -> None:
    mode, group, bits = way
    pytest.importorskip("mlx.core")
    utils = pytest.importorskip("mlx_lm.utils")
    small = SMALL | {"intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
    plain_model(folder, family, dtype="bfloat16", **(small | {"vocab_size": 128}), **sizes)
    path = folder / "plain" / "config.json"
    values = json.loads(path.read_bytes())
    theta = values["rope_parameters"]["rope_theta"]
    path.write_text(json.dumps(values | {"rope_theta": theta, **sizes}))  # keys that mlx_lm reads
    model, settings = utils.quantize_model(
        *utils.load_model(folder / "plain"), group_size=group, bits=bits, mode=mode
    )
    utils.save_model(folder / "packed", model)
    utils.save_config(settings, folder / "packed" / "config.json")


# In a process of its own: importing modelopt changes classes of transformers.
_MODELOPT = """
import sys
import torch
import modelopt.torch.quantization as mtq
from modelopt.torch.export import export_hf_checkpoint
from transformers import LlamaForCausalLM

folder, name = sys.argv[1:]
model = LlamaForCausalLM.from_pretrained(f"{folder}/plain", dtype=torch.bfloat16)
ids = torch.arange(8)[None]
model = mtq.quantize(model, getattr(mtq, name), lambda model: model(ids))
export_hf_checkpoint(model, export_dir=f"{folder}/packed")
"""


def with_modelopt(folder: Path, name: str) -> None:
    if find_spec("modelopt") is None:
        pytest.skip("modelopt is not installed")
    sizes = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 96}
    plain_model(folder, "Llama", **(SMALL | sizes | {"dtype": "bfloat16"}))
    command = [sys.executable, "-W", "ignore", "-c", _MODELOPT, str(folder), name]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own script

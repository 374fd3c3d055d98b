"""A module that is packed is not on the list of plain ones, and each plain linear is.

Loading a folder that breaks this makes up values, is refused, or fails in the first forward pass.
"""

import json
from functools import partial

import pytest

from auditor import audit

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # of libraries

LLAMA = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
}
MODULES = "modules_to_not_convert"
QUERY = "model.layers.1.self_attn.q_proj"
MLP = tuple(f"model.layers.{at}.mlp.{end}_proj" for at in (0, 1) for end in ("up", "gate", "down"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    config = transformers.LlamaConfig(**LLAMA, dtype="bfloat16")
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["4 bits", "8 bits", "aqlm", "eetq", "fp8"])
def packed(whole, request, tmp_path_factory):
    """A packed model in a folder, and the key of its list."""
    folder = tmp_path_factory.mktemp("packed")
    if request.param == "aqlm":
        pytest.importorskip("aqlm")
    if request.param in PARTS:
        key = "linear_weights_not_to_quantize" if request.param == "aqlm" else MODULES
        pack(whole, folder, {"quant_method": request.param, key: ["lm_head"]})
        return folder, key
    pytest.importorskip("bitsandbytes")
    flag = {"load_in_4bit": True} if request.param == "4 bits" else {"load_in_8bit": True}
    config = transformers.BitsAndBytesConfig(**flag)
    model = transformers.LlamaForCausalLM.from_pretrained(whole, quantization_config=config)
    model.save_pretrained(folder)
    return folder, "llm_int8_skip_modules"


@pytest.fixture(autouse=True)
def on_any_hardware(monkeypatch):
    """Let transformers build the packed modules of a GPU; their kernels are not run."""
    from transformers.integrations import hub_kernels  # noqa: PLC0415 - likewise
    from transformers.quantizers import quantizer_eetq, quantizer_finegrained_fp8  # noqa: PLC0415

    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *_, **__: None)
    for quantizer in (
        quantizer_eetq.EetqHfQuantizer,
        quantizer_finegrained_fp8.FineGrainedFP8HfQuantizer,
    ):
        monkeypatch.setattr(quantizer, "validate_environment", lambda *_, **__: None)


def pack(whole, folder, settings):
    """Write a model with packed linears, whose numbers are of no concern."""
    tensors = {}
    for name, weight in safetensors.load_file(whole / "model.safetensors").items():
        is_linear = name.endswith("_proj.weight")
        tensors |= (
            PARTS[settings["quant_method"]](name, *weight.shape) if is_linear else {name: weight}
        )
    safetensors.save_file(tensors, folder / "model.safetensors")
    values = json.loads((whole / "config.json").read_text())
    values["quantization_config"] = SETTINGS[settings["quant_method"]] | settings
    (folder / "config.json").write_text(json.dumps(values))


def aqlm_parts(name, outputs, inputs):
    module, ones = name.removesuffix(".weight"), partial(torch.ones, dtype=torch.float16)
    return {
        f"{module}.codes": torch.zeros(outputs, inputs // 8, 1, dtype=torch.int8),
        f"{module}.codebooks": ones(1, 256, 1, 8),
        f"{module}.scales": ones(outputs, 1, 1, 1),
    }


def eetq_parts(name, outputs, inputs):
    scales = torch.ones(outputs, dtype=torch.float16)
    return {name: torch.zeros(inputs, outputs, dtype=torch.int8), f"{name}_scales": scales}


def fp8_parts(name, outputs, inputs):
    weight = torch.zeros(outputs, inputs).to(torch.float8_e4m3fn)
    return {name: weight, f"{name}_scale_inv": torch.ones(outputs // 64, inputs // 64)}


PARTS = {"aqlm": aqlm_parts, "eetq": eetq_parts, "fp8": fp8_parts}
SETTINGS = {
    "aqlm": {"in_group_size": 8, "out_group_size": 1, "num_codebooks": 1, "nbits_per_codebook": 8},
    "eetq": {"weights": "int8"},
    "fp8": {"activation_scheme": "dynamic", "weight_block_size": [64, 64]},
}


def changed(packed, whole, folder, plain, listed):
    """Copy a packed folder with some modules stored plain, and another list."""
    source, key = packed
    tensors = safetensors.load_file(source / "model.safetensors")
    originals = safetensors.load_file(whole / "model.safetensors")
    for module in plain:
        tensors = {
            name: one for name, one in tensors.items() if not name.startswith(f"{module}.")
        } | {f"{module}.weight": originals[f"{module}.weight"]}
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"][key] = listed
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def loads(folder) -> bool:
    """Whether transformers loads the folder without made-up values, and computes with it."""
    try:
        model, info = transformers.LlamaForCausalLM.from_pretrained(
            folder, output_loading_info=True, dtype=torch.bfloat16
        )
        if info["missing_keys"] or info["unexpected_keys"]:
            return False
        if model.config.quantization_config.quant_method == "bitsandbytes":  # it runs anywhere
            model(torch.arange(4)[None])
    except (RuntimeError, AssertionError, AttributeError):
        return False
    return True


LISTS = (
    ((), ["lm_head"]),
    ((QUERY,), ["lm_head", QUERY]),
    ((QUERY,), ["lm_head", "v_proj"]),
    ((QUERY,), ["lm_head"]),
    (MLP, ["lm_head"]),
    (MLP, ["lm_head", "up_proj", "gate_proj", "down_proj"]),
    ((), ["lm_head", "o_proj"]),
    ((), ["lm_head", "self_attn.o_proj"]),
    ((), ["lm_head", QUERY]),
    ((), ["lm_head", "model.layers.1"]),
    ((), []),
)


def test_what_transformers_loads_is_clean_and_nothing_else(packed, whole, tmp_path, subtests):
    for plain, listed in LISTS:
        with subtests.test(plain=plain, listed=listed):
            folder = changed(packed, whole, tmp_path, plain, listed)
            report = audit(str(folder))
            kinds = {one.kind for one in report.findings if one.severity == "error"}
            assert kinds == (set() if loads(folder) else {"bad-quantization"})
            assert len(report.diagnosis) == len(kinds)

"""A module that is packed is not on the list of plain ones, and each plain linear is.

Loading a folder that breaks this makes up values, is refused, or fails in the first forward pass.
"""

import json

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
QUERY = "model.layers.1.self_attn.q_proj"
MLP = tuple(f"model.layers.{at}.mlp.{end}_proj" for at in (0, 1) for end in ("up", "gate", "down"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    config = transformers.LlamaConfig(**LLAMA, dtype="bfloat16")
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["4 bits", "8 bits", "aqlm"])
def packed(whole, request, tmp_path_factory):
    """A packed model in a folder, and the key of its list."""
    folder = tmp_path_factory.mktemp("packed")
    if request.param == "aqlm":
        pytest.importorskip("aqlm")
        _pack_by_aqlm(whole, folder)
        return folder, "linear_weights_not_to_quantize"
    pytest.importorskip("bitsandbytes")
    flag = {"load_in_4bit": True} if request.param == "4 bits" else {"load_in_8bit": True}
    config = transformers.BitsAndBytesConfig(**flag)
    model = transformers.LlamaForCausalLM.from_pretrained(whole, quantization_config=config)
    model.save_pretrained(folder)
    return folder, "llm_int8_skip_modules"


def _pack_by_aqlm(whole, folder):
    tensors = {}
    for name, weight in safetensors.load_file(whole / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if not module.endswith("_proj"):
            tensors[name] = weight
            continue
        outputs, inputs = weight.shape
        tensors[f"{module}.codes"] = torch.zeros(outputs, inputs // 8, 1, dtype=torch.int8)
        tensors[f"{module}.codebooks"] = torch.ones(1, 256, 1, 8, dtype=torch.float16)
        tensors[f"{module}.scales"] = torch.ones(outputs, 1, 1, 1, dtype=torch.float16)
    safetensors.save_file(tensors, folder / "model.safetensors")
    settings = {"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1}
    settings |= {"num_codebooks": 1, "nbits_per_codebook": 8}
    settings |= {"linear_weights_not_to_quantize": ["lm_head"]}
    config = json.loads((whole / "config.json").read_text()) | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))


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
        if model.config.quantization_config.quant_method != "aqlm":  # which needs other hardware
            model(torch.arange(4)[None])
    except (RuntimeError, AssertionError, AttributeError):
        return False
    return True


@pytest.mark.parametrize(
    ("plain", "listed"),
    [
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
    ],
)
def test_what_transformers_loads_is_clean_and_nothing_else(packed, whole, tmp_path, plain, listed):
    folder = changed(packed, whole, tmp_path, plain, listed)
    report = audit(str(folder))
    kinds = {one.kind for one in report.findings if one.severity == "error"}
    assert kinds == (set() if loads(folder) else {"bad-quantization"})
    assert len(report.diagnosis) == len(kinds)

"""Files that the `gguf` package writes, loaded by transformers and audited: they agree."""

import logging
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.gguf_files import STRING, read
from support.gguf_models import FIXED, Values, expectation, metadata, tensors

from auditor import Report, audit
from auditor.analytic.gguf_architectures import ARCHITECTURES as READ
from auditor.analytic.gguf_config import reconstructed_config

pytestmark = pytest.mark.oracle
gguf = pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DECODER = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
# Those of which transformers reads the metadata and knows the names; of an experts' tensor it makes
# its own fused one, which is not compared here.
MODELS = {
    "llama": {"head_dim": 16},
    "qwen2": {},
    "qwen3": {"head_dim": 128},  # transformers does not read attention.key_length here
    "gemma2": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16},
    "phi3": {},
    "starcoder2": {},
    "stablelm": {"use_qkv_bias": True},
    "gpt2": {"max_position_embeddings": 1024, "intermediate_size": 256},  # nor context_length
    "bloom": {"num_key_value_heads": 4},
    "mamba": {"intermediate_size": 128, "state_size": 4, "time_step_rank": 4, "conv_kernel": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
}
KINDS = [gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0]
# Keys that transformers reads under other names, or leaves to its class.
OWN = {"model_type", "architectures"}


def values_of(model_type: str) -> Values:
    return Values(model_type, {**DECODER, **MODELS[model_type], **FIXED.get(model_type, {})})


def written(path: Path, values: Values, kind: Any) -> Path:
    """The whole model in numbers at random, quantised as llama.cpp does: matrices alone."""
    writer = gguf.GGUFWriter(path, values.arch)
    for key, as_type, content in metadata(values)[1:]:
        if isinstance(content, tuple):
            writer.add_array(key, content[1])
        else:
            add = writer.add_string if as_type == STRING else writer.add_uint32
            add(key, content)
    writer.add_uint32("tokenizer.ggml.padding_token_id", 0)
    writer.add_float32(f"{values.arch}.rope.freq_base", 10_000.0)
    writer.add_float32(f"{values.arch}.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_float32(f"{values.arch}.attention.layer_norm_epsilon", 1e-6)
    if values.arch not in {"bert", "gpt2"}:
        writer.add_array("tokenizer.ggml.tokens", ["a"] * values.get("vocab_size"))
    random = np.random.default_rng(0)
    expected = expectation(values, READ[values.arch].name)
    for tensor in tensors(values, expected):
        data = random.standard_normal(tensor.shape, np.float32)
        if tensor.name.endswith(("ssm_a", "ssm_a.weight")):
            data = -np.exp(data)  # a logarithm is taken of it
        quantised = len(tensor.shape) > 1 and tensor.shape[-1] % 32 == 0
        stored_as = kind if quantised else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quantize(data, stored_as), raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_transformers_loads_without_a_loss_audits_clean(tmp_path, model_type, kind):
    values = values_of(model_type)
    path = written(tmp_path / "m.gguf", values, kind)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    report = audit(str(path))
    assert isinstance(report, Report), report
    assert (report.verdict, report.residual) == ("clean", 0)
    learned = sum(parameter.numel() for parameter in model.parameters())
    assert report.observed.parameters == report.expected.parameters == learned
    assert kind.name in dict(report.observed.by_dtype)


@pytest.mark.parametrize("model_type", MODELS)
def test_the_config_is_the_one_that_transformers_reads(tmp_path, model_type):
    loading = import_module("transformers.modeling_gguf_pytorch_utils")
    path = written(tmp_path / "m.gguf", values_of(model_type), KINDS[0])
    theirs = loading.load_gguf_checkpoint(str(path))["config"]
    ours = reconstructed_config(read(path.read_bytes())).values
    shared = ours.keys() & theirs.keys() - {"architectures"}
    assert {key: theirs[key] for key in shared} == {key: ours[key] for key in shared}
    assert {"model_type", "vocab_size", "num_hidden_layers"} & theirs.keys() <= shared


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("transformers").setLevel(logging.ERROR)

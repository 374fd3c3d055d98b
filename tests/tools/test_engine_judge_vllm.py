"""vLLM's judge, as far as it works without vLLM."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "tools" / "engines" / "judges" / "vllm.py"


@pytest.fixture(scope="module")
def judge():
    spec = spec_from_file_location("judge_of_vllm", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder(path, config, names=("model.safetensors",), data=b""):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    for name in names:
        (path / name).write_bytes(data)
    return path


def test_folders_share_a_model_if_only_their_weights_differ(judge, tmp_path):
    first = folder(tmp_path / "a", {"hidden_size": 64}, data=b"one")
    second = folder(tmp_path / "b", {"hidden_size": 64}, data=b"two")
    assert judge.config_key(first) == judge.config_key(second)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"hidden_size": 128}, ("model.safetensors",)),
        ({"hidden_size": 64}, ("weights.safetensors",)),
        ({"hidden_size": 64}, ("model.safetensors", "tokenizer.json")),
    ],
)
def test_another_config_or_another_file_gets_a_model_of_its_own(judge, tmp_path, config, names):
    first = folder(tmp_path / "a", {"hidden_size": 64})
    second = folder(tmp_path / "b", config, names)
    assert judge.config_key(first) != judge.config_key(second)


def test_quantized_folders_share_nothing(judge, tmp_path):
    config = {"quantization_config": {"quant_method": "gptq"}}
    keys = {judge.config_key(folder(tmp_path / name, config)) for name in "ab"}
    assert len(keys) == 2


def verdict_on(judge, error):
    try:
        raise error
    except type(error) as raised:
        return judge.verdict_on(raised, "load")


@pytest.mark.parametrize(
    ("error", "judged"),
    [
        (ValueError("There is no module or parameter named 'lm_head' in LlamaModel"), True),
        (KeyError("layers.0.mlp.gate.e_score_correction_bias"), True),
        (ModuleNotFoundError("No module named 'flashinfer'"), False),
        (NotImplementedError("Sparse Attention is not supported on CPU."), False),
        (AttributeError("'Lfm2Config' object has no attribute 'block_dim'"), False),
    ],
)
def test_what_this_machine_lacks_is_not_judged(judge, error, judged):
    verdict = verdict_on(judge, error)
    assert (verdict["loads"], verdict["judged"]) == (False, judged)


def test_a_message_is_the_same_in_each_run(judge):
    error = ValueError("not initialized from checkpoint: {'b.weight', 'a.weight'}")
    text = verdict_on(judge, error)["error"]
    assert text == "ValueError: not initialized from checkpoint: 'a.weight', 'b.weight'"

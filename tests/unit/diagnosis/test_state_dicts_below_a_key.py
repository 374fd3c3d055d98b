"""Training checkpoints in the place of a state dict: from_pretrained finds nothing in them."""

import tempfile
from pathlib import Path

import pytest

from auditor import audit

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.oracle

SMALL = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def test_all_is_missing_as_for_from_pretrained_and_the_key_is_named(subtests, tmp_path):
    for within, prefix, said in [
        (("state_dict",), "net.", "'state_dict' alone, without net. before its names"),
        (("model", "state_dict"), "", "'model.state_dict' alone"),
    ]:
        with subtests.test(within=within, prefix=prefix, said=said):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
            value = {f"{prefix}{name}": one for name, one in model.state_dict().items()}
            names = set(model.state_dict())
            for key in reversed(within):
                value = {key: value, "epoch": 3}
            model.save_pretrained(place)
            (place / "model.safetensors").unlink()
            torch.save(value, place / "pytorch_model.bin")
            _, info = transformers.LlamaForCausalLM.from_pretrained(place, output_loading_info=True)
            report = audit(str(place))
            missing = {
                name for one in report.findings if one.kind == "missing" for name in one.names
            }
            assert missing == set(info["missing_keys"]) == names
            [found] = report.diagnosis
            assert (found.cause, found.fix) == ("wrapper-prefix", f"save what lies under {said}")
            assert report.residual == 0


def test_a_key_that_reads_like_a_prefix_is_not_a_prefix(tmp_path):
    """`{"transformer": ...}` of a base model is not `transformer.h.0` and so on."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=48, **sizes))
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"transformer": model.transformer.state_dict()}, tmp_path / "pytorch_model.bin")
    report = audit(str(tmp_path))
    assert {one.kind for one in report.findings} >= {"missing", "unexpected"}

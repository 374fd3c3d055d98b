"""Model types with a config class of their own, for which transformers builds another's classes."""

import json
import tempfile
from pathlib import Path

import pytest

from auditor import audit, explain

transformers = pytest.importorskip("transformers")

SIZES = {
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 96,
    "kv_lora_rank": 16,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "n_routed_experts": 4,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "topk_group": 1,
    "v_head_dim": 16,
    "vocab_size": 400,
}


@pytest.mark.slow
def test_what_transformers_writes_for_the_type_is_clean(subtests, tmp_path):
    for model_type, norm in [
        ("exaone", "ln_2.weight"),
        ("internlm3", "post_attention_layernorm.weight"),
        ("iquestcoder", "post_attention_layernorm.weight"),
        ("sarvam_mla", "post_attention_layernorm.weight"),
        ("sarvam_moe", "post_attention_layernorm.weight"),
    ]:
        for auto in ["AutoModel", "AutoModelForCausalLM"]:
            with subtests.test(auto=auto, model_type=model_type, norm=norm):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                config = transformers.AutoConfig.for_model(model_type)
                for key, value in SIZES.items():
                    if hasattr(config, key):
                        setattr(config, key, value)
                model = getattr(transformers, auto).from_config(config)
                model.save_pretrained(place)
                assert audit(str(place)).verdict == "clean"
                lost = next(name for name in stored(place) if name.endswith(norm))
                without(place, lost)
                assert [
                    one.names for one in audit(str(place)).findings if one.kind == "missing"
                ] == [(lost,)]


def stored(folder):
    from safetensors.torch import load_file  # noqa: PLC0415 - torch takes a second

    return load_file(folder / "model.safetensors")


def without(folder, name):
    from safetensors.torch import save_file  # noqa: PLC0415 - torch takes a second

    tensors = stored(folder)
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_the_code_of_exaone_is_counted_as_published(tmp_path):
    # LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct: 2.14B without the embeddings, by its card.
    config = {
        "architectures": ["ExaoneForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_exaone.ExaoneForCausalLM"},
        "head_dim": 80,
        "hidden_size": 2560,
        "intermediate_size": 7168,
        "model_type": "exaone",
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_layers": 30,
        "tie_word_embeddings": True,
        "vocab_size": 102400,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    parameters = explain(str(tmp_path)).expected.parameters
    assert f"{(parameters - 102400 * 2560) / 1e9:.2f}B" == "2.14B"

"""Custom code that transformers took over under other names is compared by a map of its config."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.builders import safetensors_bytes

from auditor import Reason, Report, Unaudited, audit

Shapes = dict[str, tuple[int, ...]]

D, F, V = 256, 512, 64
NEW = {
    "architectures": ["NewModel"],
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "hidden_size": D,
    "intermediate_size": F,
    "layer_norm_type": "layer_norm",
    "model_type": "new",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "type_vocab_size": 0,
    "vocab_size": V,
}
NOMIC = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": D,
    "n_head": 4,
    "n_inner": F,
    "n_layer": 2,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "type_vocab_size": 2,
    "vocab_size": V,
}


def norm(name: str) -> Shapes:
    return {f"{name}.weight": (D,), f"{name}.bias": (D,)}


# The modules of modeling.py in Alibaba-NLP/new-impl, whose names gte-base-en-v1.5 stores.
OF_NEW: Shapes = {"embeddings.word_embeddings.weight": (V, D), **norm("embeddings.LayerNorm")}
# The modules of modeling_hf_nomic_bert.py, whose names nomic-embed-text-v1.5 stores.
OF_NOMIC: Shapes = {
    "embeddings.word_embeddings.weight": (V, D),
    "embeddings.token_type_embeddings.weight": (2, D),
    **norm("emb_ln"),
}
for number in range(2):
    layer = f"encoder.layer.{number}"
    OF_NEW |= {
        f"{layer}.attention.qkv_proj.weight": (3 * D, D),
        f"{layer}.attention.qkv_proj.bias": (3 * D,),
        f"{layer}.attention.o_proj.weight": (D, D),
        f"{layer}.attention.o_proj.bias": (D,),
        **norm(f"{layer}.attn_ln"),
        f"{layer}.mlp.up_gate_proj.weight": (2 * F, D),
        f"{layer}.mlp.down_proj.weight": (D, F),
        f"{layer}.mlp.down_proj.bias": (D,),
        **norm(f"{layer}.mlp_ln"),
    }
    layer = f"encoder.layers.{number}"
    OF_NOMIC |= {
        f"{layer}.attn.Wqkv.weight": (3 * D, D),
        f"{layer}.attn.out_proj.weight": (D, D),
        f"{layer}.mlp.fc11.weight": (F, D),
        f"{layer}.mlp.fc12.weight": (F, D),
        f"{layer}.mlp.fc2.weight": (D, F),
        **norm(f"{layer}.norm1"),
        **norm(f"{layer}.norm2"),
    }


def audited(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> Report | Unaudited:
    (folder / "config.json").write_text(json.dumps(config))
    stored = {name: ("F32", shape) for name, shape in shapes.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(stored))
    return audit(str(folder))


@pytest.mark.parametrize("prefix", ["", "new."])
def test_gte_is_compared_by_its_native_twin(tmp_path, prefix):
    outcome = audited(tmp_path, NEW, {f"{prefix}{name}": OF_NEW[name] for name in OF_NEW})
    assert (outcome.verdict, outcome.declared) == ("clean", ("NewModel",))
    assert "its native twin is transformers' GteModel: compared by map" in outcome.notes[-1]


@pytest.mark.parametrize("lost", ["embeddings.LayerNorm.bias", "encoder.layer.1.mlp_ln.weight"])
def test_a_lost_tensor_of_a_twin_is_a_finding(tmp_path, lost):
    outcome = audited(tmp_path, NEW, {name: OF_NEW[name] for name in OF_NEW if name != lost})
    assert isinstance(outcome, Report)
    assert [(one.kind, one.names) for one in outcome.findings] == [("missing", (lost,))]


@pytest.mark.parametrize(
    "changed",
    [
        {"pack_qkv": False},
        {"pack_qkv": 1},
        {"layer_norm_type": "rms_norm"},
        {"position_embedding_type": "absolute"},
        {"intermediate_size": None},
        {"auto_map": {"AutoModel": "modeling.OtherModel"}},
    ],
)
def test_a_config_that_the_map_does_not_cover_is_not_compared(tmp_path, changed):
    outcome = audited(tmp_path, NEW | changed, OF_NEW)
    assert isinstance(outcome, Unaudited)


def test_a_kind_of_name_that_the_twin_lacks_stays_custom_code(tmp_path):
    outcome = audited(tmp_path, NEW, OF_NEW | {"mask_token": (D,)})
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is Reason.CUSTOM_CODE
    assert "has no mask_token" in outcome.detail


@pytest.mark.oracle
def test_nomic_bert_is_compared_by_its_native_twin(tmp_path):
    assert audited(tmp_path, NOMIC, OF_NOMIC).verdict == "clean"

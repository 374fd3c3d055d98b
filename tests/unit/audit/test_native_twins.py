"""Custom code that transformers took over under other names is compared by a map of its config."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
from support.builders import safetensors_bytes
from support.generated_forms import differing

from auditor import Reason, Report, Unaudited, audit, explain
from auditor.analytic import Config, generated
from auditor.audit.native_twins import as_native_twin

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


WIDTHS, PATCHES, M = (16, 32, 64, 128), (7, 3, 3, 3), 48  # M: width of the language model
FLORENCE = {
    "architectures": ["Florence2ForConditionalGeneration"],
    "auto_map": {
        "AutoModelForCausalLM": "microsoft/Florence-2-large--m.Florence2ForConditionalGeneration"
    },
    "model_type": "florence2",
    "projection_dim": M,
    "text_config": {
        "d_model": M,
        "decoder_ffn_dim": 96,
        "decoder_layers": 1,
        "encoder_ffn_dim": 80,
        "encoder_layers": 2,
        "max_position_embeddings": 32,
        "model_type": "florence2_language",
        "vocab_size": V,
    },
    "vision_config": {
        "depths": [1, 1, 2, 1],
        "dim_embed": list(WIDTHS),
        "image_feature_source": ["spatial_avg_pool", "temporal_avg_pool"],
        "image_pos_embed": {"type": "learned_abs_2d", "max_pos_embeddings": 12},
        "model_type": "davit",
        "num_groups": [2, 4, 8, 16],
        "num_heads": [2, 4, 8, 16],
        "patch_padding": [3, 1, 1, 1],
        "patch_prenorm": [False, True, True, True],
        "patch_size": list(PATCHES),
        "patch_stride": [4, 2, 2, 2],
        "projection_dim": M,
        "visual_temporal_embedding": {"type": "COSINE", "max_temporal_embeddings": 5},
        "window_size": 12,
    },
    "vocab_size": V,
}


def linear(name: str, out: int, into: int) -> Shapes:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def sized(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


# The modules of modeling_florence2.py in microsoft/Florence-2-large, as its files store them.
OF_FLORENCE: Shapes = {
    "image_projection": (WIDTHS[-1], M),
    **sized("image_proj_norm", M),
    "image_pos_embed.row_embeddings.weight": (12, WIDTHS[-1] // 2),
    "image_pos_embed.column_embeddings.weight": (12, WIDTHS[-1] // 2),
    "visual_temporal_embed.pos_idx_to_embed": (5, WIDTHS[-1]),
    "language_model.final_logits_bias": (1, V),
    "language_model.model.shared.weight": (V, M),
}
for stage, (D_, patch) in enumerate(zip(WIDTHS, PATCHES, strict=True)):
    conv, before = f"vision_tower.convs.{stage}", (3, *WIDTHS)[stage]
    OF_FLORENCE |= {f"{conv}.proj.weight": (D_, before, patch, patch), f"{conv}.proj.bias": (D_,)}
    OF_FLORENCE |= sized(f"{conv}.norm", before if stage else D_)
    for block in range(2 if stage == 2 else 1):
        for kind, attention in (("spatial", "window_attn"), ("channel", "channel_attn")):
            name = f"vision_tower.blocks.{stage}.{block}.{kind}_block"
            for part in ("conv1", "conv2"):
                OF_FLORENCE[f"{name}.{part}.fn.dw.weight"] = (D_, 1, 3, 3)
                OF_FLORENCE[f"{name}.{part}.fn.dw.bias"] = (D_,)
            OF_FLORENCE |= sized(f"{name}.{attention}.norm", D_) | sized(f"{name}.ffn.norm", D_)
            OF_FLORENCE |= linear(f"{name}.{attention}.fn.qkv", 3 * D_, D_)
            OF_FLORENCE |= linear(f"{name}.{attention}.fn.proj", D_, D_)
            OF_FLORENCE |= linear(f"{name}.ffn.fn.net.fc1", 4 * D_, D_)
            OF_FLORENCE |= linear(f"{name}.ffn.fn.net.fc2", D_, 4 * D_)
for side, layers, inner in (("encoder", 2, 80), ("decoder", 1, 96)):
    name = f"language_model.model.{side}"
    OF_FLORENCE[f"{name}.embed_positions.weight"] = (32 + 2, M)
    OF_FLORENCE |= sized(f"{name}.layernorm_embedding", M)
    for number in range(layers):
        layer = f"{name}.layers.{number}"
        for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                OF_FLORENCE |= linear(f"{layer}.{attention}.{part}", M, M)
            OF_FLORENCE |= sized(f"{layer}.{attention}_layer_norm", M)
        OF_FLORENCE |= linear(f"{layer}.fc1", inner, M) | linear(f"{layer}.fc2", M, inner)
        OF_FLORENCE |= sized(f"{layer}.final_layer_norm", M)


INTERN = {
    "architectures": ["InternVLChatModel"],
    "auto_map": {"AutoModel": "OpenGVLab/InternVL3-1B--modeling_internvl_chat.InternVLChatModel"},
    "downsample_ratio": 0.5,
    "llm_config": {
        "hidden_size": M,
        "intermediate_size": 96,
        "model_type": "qwen2",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
        "vocab_size": V,
    },
    "model_type": "internvl_chat",
    "ps_version": "v2",
    "select_layer": -1,
    "use_backbone_lora": 0,
    "use_llm_lora": 0,
    "vision_config": {
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 80,
        "model_type": "intern_vit_6b",
        "norm_type": "layer_norm",
        "num_attention_heads": 4,
        "num_channels": 3,
        "num_hidden_layers": 2,
        "patch_size": 14,
        "qk_normalization": False,
        "qkv_bias": True,
    },
}
# The modules of modeling_internvl_chat.py in OpenGVLab/InternVL3-1B.
OF_INTERN: Shapes = {
    "language_model.lm_head.weight": (V, M),
    "language_model.model.embed_tokens.weight": (V, M),
    "language_model.model.norm.weight": (M,),
    **sized("mlp1.0", 4 * 32),
    **linear("mlp1.1", M, 4 * 32),
    **linear("mlp1.3", M, M),
    "vision_model.embeddings.class_embedding": (1, 1, 32),
    "vision_model.embeddings.patch_embedding.bias": (32,),
    "vision_model.embeddings.patch_embedding.weight": (32, 3, 14, 14),
    "vision_model.embeddings.position_embedding": (1, 4 * 4 + 1, 32),
}
for number in range(2):
    layer = f"language_model.model.layers.{number}"
    OF_INTERN |= {
        f"{layer}.input_layernorm.weight": (M,),
        f"{layer}.post_attention_layernorm.weight": (M,),
        f"{layer}.mlp.gate_proj.weight": (96, M),
        f"{layer}.mlp.up_proj.weight": (96, M),
        f"{layer}.mlp.down_proj.weight": (M, 96),
        f"{layer}.self_attn.o_proj.weight": (M, M),
        **linear(f"{layer}.self_attn.q_proj", M, M),
        **linear(f"{layer}.self_attn.k_proj", M // 2, M),
        **linear(f"{layer}.self_attn.v_proj", M // 2, M),
    }
    layer = f"vision_model.encoder.layers.{number}"
    OF_INTERN |= {
        f"{layer}.ls1": (32,),
        f"{layer}.ls2": (32,),
        **linear(f"{layer}.attn.qkv", 3 * 32, 32),
        **linear(f"{layer}.attn.proj", 32, 32),
        **linear(f"{layer}.mlp.fc1", 80, 32),
        **linear(f"{layer}.mlp.fc2", 32, 80),
        **sized(f"{layer}.norm1", 32),
        **sized(f"{layer}.norm2", 32),
    }


# The modules of modeling_lora.py and modeling_xlm_roberta.py in jinaai/jina-embeddings-v3.
JINA = {
    "architectures": ["XLMRobertaModel"],
    "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--m.XLMRobertaLoRA"},
    "hidden_size": D,
    "intermediate_size": F,
    "load_trained_adapters": True,
    "lora_adaptations": ["retrieval.query", "separation", "classification"],
    "lora_rank": 4,
    "max_position_embeddings": 32,
    "model_type": "xlm-roberta",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "position_embedding_type": "rotary",
    "type_vocab_size": 1,
    "vocab_size": V,
}


def adapted(name: str, out: int, into: int, *, bias: bool = True) -> Shapes:
    """A matrix with three adapters of rank 4, registered by torch's parametrize."""
    weight = f"{name}.parametrizations.weight"
    before, after = ((4, into), (out, 4)) if bias else ((out, 4), (4, into))
    return {
        f"{weight}.original": (out, into),
        f"{weight}.0.lora_A": (3, *before),
        f"{weight}.0.lora_B": (3, *after),
        **({f"{name}.bias": (out,)} if bias else {}),
    }


def flash_layers(matrix: Callable[[str, int, int], Shapes]) -> Shapes:
    shapes = norm("roberta.emb_ln")
    for number in range(2):
        layer = f"roberta.encoder.layers.{number}"
        shapes |= matrix(f"{layer}.mixer.Wqkv", 3 * D, D) | matrix(f"{layer}.mixer.out_proj", D, D)
        shapes |= matrix(f"{layer}.mlp.fc1", F, D) | matrix(f"{layer}.mlp.fc2", D, F)
        shapes |= norm(f"{layer}.norm1") | norm(f"{layer}.norm2")
    return shapes


OF_JINA: Shapes = {
    **adapted("roberta.embeddings.word_embeddings", V, D, bias=False),
    **adapted("roberta.embeddings.token_type_embeddings", 1, D, bias=False),
    **flash_layers(adapted),
    **adapted("roberta.pooler.dense", D, D),
}
# The modules of modeling_xlm_roberta.py in jinaai/jina-reranker-v2-base-multilingual.
RERANKER = JINA | {
    "architectures": ["XLMRobertaForSequenceClassification"],
    "auto_map": {
        "AutoModelForSequenceClassification": "m.XLMRobertaForSequenceClassification",
    },
    "id2label": {"0": "LABEL_0"},
    "position_embedding_type": "absolute",
    "use_flash_attn": True,
}
OF_RERANKER: Shapes = {
    "roberta.embeddings.word_embeddings.weight": (V, D),
    "roberta.embeddings.position_embeddings.weight": (32, D),
    "roberta.embeddings.token_type_embeddings.weight": (1, D),
    **flash_layers(linear),
    **linear("classifier.dense", D, D),
    **linear("classifier.out_proj", 1, D),
}
DEEPSEEK = {
    "aligner_config": {
        "cls": "MlpProjector",
        "model_type": "aligner",
        "params": {"depth": 2, "input_dim": 1024, "n_embed": M, "projector_type": "mlp_gelu"},
    },
    "architectures": ["MultiModalityCausalLM"],
    "language_config": {
        "hidden_size": M,
        "intermediate_size": 96,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": V,
    },
    "model_type": "multi_modality",
    "vision_config": {
        "cls": "CLIPVisionTower",
        "model_type": "vision",
        "params": {
            "image_size": 384,
            "model_name": "siglip_large_patch16_384",
            "select_feature": "same",
            "select_layer": -1,
        },
    },
}
# The modules of modeling_vlm.py, siglip_vit.py and projector.py in deepseek-ai/DeepSeek-VL.
TOWER = "vision_model.vision_tower"
OF_DEEPSEEK: Shapes = {
    f"{TOWER}.pos_embed": (1, 24 * 24, 1024),
    f"{TOWER}.patch_embed.proj.weight": (1024, 3, 16, 16),
    f"{TOWER}.patch_embed.proj.bias": (1024,),
    **sized(f"{TOWER}.norm", 1024),
    f"{TOWER}.attn_pool.latent": (1, 1, 1024),
    **linear(f"{TOWER}.attn_pool.q", 1024, 1024),
    **linear(f"{TOWER}.attn_pool.kv", 2 * 1024, 1024),
    **linear(f"{TOWER}.attn_pool.proj", 1024, 1024),
    **sized(f"{TOWER}.attn_pool.norm", 1024),
    **linear(f"{TOWER}.attn_pool.mlp.fc1", 4096, 1024),
    **linear(f"{TOWER}.attn_pool.mlp.fc2", 1024, 4096),
    **linear("aligner.layers.0", M, 1024),
    **linear("aligner.layers.2", M, M),
    "language_model.lm_head.weight": (V, M),
    "language_model.model.embed_tokens.weight": (V, M),
    "language_model.model.norm.weight": (M,),
}
for number in range(24):
    layer = f"{TOWER}.blocks.{number}"
    OF_DEEPSEEK |= sized(f"{layer}.norm1", 1024) | sized(f"{layer}.norm2", 1024)
    OF_DEEPSEEK |= linear(f"{layer}.attn.qkv", 3 * 1024, 1024)
    OF_DEEPSEEK |= linear(f"{layer}.attn.proj", 1024, 1024)
    OF_DEEPSEEK |= linear(f"{layer}.mlp.fc1", 4096, 1024) | linear(f"{layer}.mlp.fc2", 1024, 4096)
for number in range(2):
    layer = f"language_model.model.layers.{number}"
    OF_DEEPSEEK |= {f"{layer}.self_attn.{part}_proj.weight": (M, M) for part in "qkvo"}
    OF_DEEPSEEK |= {
        f"{layer}.mlp.gate_proj.weight": (96, M),
        f"{layer}.mlp.up_proj.weight": (96, M),
        f"{layer}.mlp.down_proj.weight": (M, 96),
        f"{layer}.input_layernorm.weight": (M,),
        f"{layer}.post_attention_layernorm.weight": (M,),
    }


def audited(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> Report | Unaudited:
    (folder / "config.json").write_text(json.dumps(config))
    stored = {name: ("F32", shape) for name, shape in shapes.items()}
    header = safetensors_bytes(stored, data=False)
    weights = folder / "model.safetensors"
    weights.write_bytes(header)
    os.truncate(weights, len(header) + 4 * sum(map(prod, shapes.values())))
    return audit(str(folder))


def test_gte_is_compared_by_its_native_twin(subtests, tmp_path):
    for prefix in ["", "new."]:
        with subtests.test(prefix=prefix):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audited(place, NEW, {f"{prefix}{name}": OF_NEW[name] for name in OF_NEW})
            assert (outcome.verdict, outcome.declared) == ("clean", ("NewModel",))
            assert "its native twin is transformers' GteModel: compared by map" in outcome.notes[-1]


def test_a_lost_tensor_of_a_twin_is_a_finding(subtests, tmp_path):
    for lost in ["embeddings.LayerNorm.bias", "encoder.layer.1.mlp_ln.weight"]:
        with subtests.test(lost=lost):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audited(place, NEW, {name: OF_NEW[name] for name in OF_NEW if name != lost})
            assert isinstance(outcome, Report)
            assert [(one.kind, one.names) for one in outcome.findings] == [("missing", (lost,))]


def test_a_config_that_the_map_does_not_cover_is_not_compared(subtests, tmp_path):
    for changed in [
        {"pack_qkv": False},
        {"pack_qkv": 1},
        {"layer_norm_type": "rms_norm"},
        {"position_embedding_type": "absolute"},
        {"intermediate_size": None},
        {"auto_map": {"AutoModel": "modeling.OtherModel"}},
    ]:
        with subtests.test(changed=changed):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audited(place, NEW | changed, OF_NEW)
            assert isinstance(outcome, Unaudited)


def test_a_kind_of_name_that_the_twin_lacks_stays_custom_code(tmp_path):
    outcome = audited(tmp_path, NEW, OF_NEW | {"mask_token": (D,)})
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is Reason.CUSTOM_CODE
    assert "has no mask_token" in outcome.detail


@pytest.mark.oracle
def test_nomic_bert_is_compared_by_its_native_twin(tmp_path):
    assert audited(tmp_path, NOMIC, OF_NOMIC).verdict == "clean"


OF_CODE = [
    (FLORENCE, OF_FLORENCE, "vision_tower.blocks.2.1.channel_block.ffn.fn.net.fc2.bias"),
    (FLORENCE, OF_FLORENCE, "image_projection"),
    (INTERN, OF_INTERN, "vision_model.encoder.layers.1.attn.qkv.weight"),
    (INTERN, OF_INTERN, "mlp1.3.bias"),
    (JINA, OF_JINA, "roberta.encoder.layers.1.mixer.Wqkv.parametrizations.weight.original"),
    (JINA, OF_JINA, "roberta.embeddings.word_embeddings.parametrizations.weight.0.lora_A"),
    (RERANKER, OF_RERANKER, "roberta.encoder.layers.1.mixer.Wqkv.bias"),
    (DEEPSEEK, OF_DEEPSEEK, "vision_model.vision_tower.attn_pool.kv.weight"),
    (DEEPSEEK, OF_DEEPSEEK, "language_model.lm_head.weight"),
]


def test_a_twin_is_compared_under_the_names_of_its_own_code(subtests, tmp_path):
    for config, shapes, lost in OF_CODE:
        with subtests.test(config=config, shapes=shapes, lost=lost):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audited(place, config, shapes)
            assert (outcome.verdict, outcome.load_report) == ("clean", None)
            assert "its native twin is transformers' " in outcome.notes[-1]
            outcome = audited(
                place, config, {name: shapes[name] for name in shapes if name != lost}
            )
            assert [one.names for one in outcome.findings if one.kind == "missing"] == [(lost,)]
            outcome = audited(place, config, shapes | {lost: (*shapes[lost], 2)})
            assert [one.names for one in outcome.findings if one.kind == "mismatched"] == [(lost,)]


# The counts that the Hub shows of jinaai/jina-embeddings-v3 and jina-reranker-v2-base-multilingual.
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}


def test_the_count_of_a_twin_is_the_published_count(subtests, tmp_path):
    for config, parameters in [
        (JINA | LARGE | {"lora_adaptations": ["a"] * 5, "vocab_size": 250002}, 572_310_396),
        (RERANKER | BASE | {"max_position_embeddings": 1026, "vocab_size": 250002}, 278_437_633),
    ]:
        with subtests.test(config=config, parameters=parameters):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            (place / "config.json").write_text(json.dumps(config))
            assert explain(str(place)).expected.parameters == parameters


def test_adapters_without_a_rank_are_not_covered():
    assert as_native_twin(Config(values=JINA | {"lora_rank": None}), "m.XLMRobertaLoRA") is None


def test_janus_is_not_taken_for_deepseek_vl():
    assert as_native_twin(Config(values=DEEPSEEK | {"gen_vision_config": {}}), None) is None


@pytest.mark.oracle
def test_the_form_of_a_twin_is_what_the_library_builds(subtests):
    for config in [FLORENCE, INTERN, JINA, DEEPSEEK]:
        with subtests.test(config=config):
            custom = next(iter(config.get("auto_map", {}).values()), None)
            twin = as_native_twin(Config(values=config), custom)
            [name] = twin.config.architectures
            form = generated.forms(twin.config.model_type)[name]
            assert differing("transformers", form, {**twin.config.values}) == set()

"""other-size: the config of one published size over the weights of another."""

import json
from collections.abc import Mapping
from importlib import resources
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples, one_in
from support.small_snapshots import FILE, snapshot_of

from auditor.analytic import Config, Role
from auditor.audit.expected import expectation_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.formats import as_json
from auditor.tensors import Span, StoredTensor

SCHEMA = json.loads((resources.files("auditor.formats") / "report.schema.json").read_text())


class Pair(NamedTuple):
    """Two published sizes of a model: the keys that shapes determine, and those they do not."""

    model_type: str
    target: str
    keys: Mapping  # path -> (of the config, of the weights)
    open_keys: Mapping = MappingProxyType({})


def config_of(pair: Pair, side: int) -> dict:
    config = {"model_type": pair.model_type, "architectures": [pair.target]}
    for path, sides in {**pair.keys, **pair.open_keys}.items():
        *folders, key = path.split(".")
        within = config
        for folder in folders:
            within = within.setdefault(folder, {})
        within[key] = sides[side]
    return config


def stored(config: dict) -> list[StoredTensor]:
    """The tensors that save_pretrained writes for the config, as F32."""
    target = config["architectures"][0]
    found = expectation_of(Config(values=config), target).expectation
    tensors, at = [], 0
    for one in found.tensors:
        if one.role in {Role.PARAMETER, Role.BUFFER}:
            elements = prod(one.shape)
            span = Span(at, at + 4 * elements)
            tensors.append(StoredTensor(one.name, "F32", one.shape, elements, FILE, span))
            at = span.stop
    return tensors


def audited(pair: Pair):
    return examine(
        snapshot_of(stored(config_of(pair, 1)), **config_of(pair, 0)), Options(requested="x")
    )


PUBLISHED = (
    Pair(
        "bert",
        "BertForMaskedLM",
        {
            "hidden_size": (512, 768),
            "intermediate_size": (2048, 3072),
            "num_hidden_layers": (8, 12),
        },
        {"num_attention_heads": (8, 12)},
    ),
    Pair(
        "gpt2",
        "GPT2LMHeadModel",
        {"n_embd": (1024, 1600), "n_layer": (24, 48)},
        {"n_head": (16, 25)},
    ),
    Pair(
        "electra",
        "ElectraForPreTraining",
        {
            "embedding_size": (1024, 128),
            "hidden_size": (1024, 256),
            "intermediate_size": (4096, 1024),
            "num_hidden_layers": (24, 12),
        },
        {"num_attention_heads": (16, 4)},
    ),
    Pair(
        "llama",
        "LlamaForCausalLM",
        {
            "hidden_size": (4096, 576),
            "intermediate_size": (14336, 1536),
            "num_hidden_layers": (32, 30),
            "vocab_size": (128256, 49152),
            "tie_word_embeddings": (False, True),
        },
        {"num_attention_heads": (32, 9), "num_key_value_heads": (8, 3)},
    ),
    Pair(
        "qwen2",
        "Qwen2ForCausalLM",
        {
            "hidden_size": (5120, 1536),
            "intermediate_size": (27648, 8960),
            "num_hidden_layers": (64, 28),
            "vocab_size": (152064, 151936),
        },
        {
            "num_attention_heads": (40, 12),
            "num_key_value_heads": (8, 2),
            "max_window_layers": (64, 28),
        },
    ),
    Pair(  # head_dim is 128 in both, and a norm has its length
        "qwen3",
        "Qwen3ForCausalLM",
        {
            "hidden_size": (2048, 2560),
            "intermediate_size": (6144, 9728),
            "num_attention_heads": (16, 32),
            "num_hidden_layers": (28, 36),
        },
    ),
    Pair(  # no shape shows which layers see all tokens
        "gemma3_text",
        "Gemma3ForCausalLM",
        {
            "hidden_size": (640, 1152),
            "intermediate_size": (2048, 6912),
            "num_hidden_layers": (18, 26),
        },
        {
            "layer_types": tuple(
                [f"{'full' if at % 6 == 5 else 'sliding'}_attention" for at in range(layers)]
                for layers in (18, 26)
            ),
        },
    ),
    Pair(  # one key, and a list that goes with it
        "qwen3",
        "Qwen3ForCausalLM",
        {"num_hidden_layers": (5, 7)},
        {"layer_types": (["full_attention"] * 5, ["full_attention"] * 7)},
    ),
    Pair(  # a table of relative positions has a column for each head
        "t5",
        "T5ForConditionalGeneration",
        {
            "d_ff": (16384, 2048),
            "d_kv": (128, 64),
            "d_model": (1024, 512),
            "num_heads": (32, 8),
            "num_layers": (24, 6),
        },
    ),
    Pair(
        "whisper",
        "WhisperForConditionalGeneration",
        {
            "d_model": (1280, 512),
            "decoder_ffn_dim": (5120, 2048),
            "decoder_layers": (4, 6),
            "encoder_ffn_dim": (5120, 2048),
            "encoder_layers": (32, 6),
            "num_mel_bins": (128, 80),
            "vocab_size": (51866, 51865),
        },
        {"decoder_attention_heads": (20, 8), "encoder_attention_heads": (20, 8)},
    ),
    Pair(
        "convnext",
        "ConvNextForImageClassification",
        {
            "depths": ([3, 3, 9, 3], [3, 3, 27, 3]),
            "hidden_sizes": ([96, 192, 384, 768], [192, 384, 768, 1536]),
        },
    ),
    Pair(
        "qwen3_vl",
        "Qwen3VLForConditionalGeneration",
        {
            "text_config.hidden_size": (2048, 2560),
            "text_config.intermediate_size": (6144, 9728),
            "text_config.num_attention_heads": (16, 32),
            "text_config.num_hidden_layers": (28, 36),
            "vision_config.out_hidden_size": (2048, 2560),
        },
    ),
    Pair(  # 2048 rows of 8 heads were 16 heads or head_dim 512, but norms are 256 long
        "gemma3_text",
        "Gemma3ForCausalLM",
        {
            "hidden_size": (2560, 3840),
            "intermediate_size": (10240, 15360),
            "num_attention_heads": (8, 16),
            "num_hidden_layers": (4, 8),
            "num_key_value_heads": (4, 8),
        },
    ),
    Pair(  # global attention layers have longer tables of relative positions
        "sam",
        "SamModel",
        {
            "vision_config.global_attn_indexes": ([2, 5, 8, 11], [5, 11, 17, 23]),
            "vision_config.hidden_size": (768, 1024),
            "vision_config.mlp_dim": (3072, 4096),
            "vision_config.num_attention_heads": (12, 16),
            "vision_config.num_hidden_layers": (12, 24),
        },
    ),
    Pair(  # a quarter of all heads and of all inner widths, but of no vocabulary: not a rank
        "t5",
        "T5ForConditionalGeneration",
        {"d_ff": (512, 128), "num_heads": (8, 2)},
    ),
    Pair(  # half the layers, each half as wide inside: no layers were lost
        "m2m_100",
        "M2M100ForConditionalGeneration",
        {
            "decoder_ffn_dim": (128, 64),
            "decoder_layers": (4, 2),
            "encoder_ffn_dim": (128, 64),
            "encoder_layers": (4, 2),
        },
        {"decoder_attention_heads": (4, 4), "encoder_attention_heads": (4, 4)},
    ),
    Pair(  # layers without gates, whose activation no shape shows
        "t5",
        "T5ForConditionalGeneration",
        {"d_ff": (1024, 2048), "num_heads": (6, 8), "num_layers": (8, 6)},
        {"feed_forward_proj": ("gated-gelu", "relu")},
    ),
    Pair(  # five lengths give the heads and their three widths together
        "deepseek_v2",
        "DeepseekV2ForCausalLM",
        {
            "hidden_size": (128, 80),
            "kv_lora_rank": (32, 16),
            "moe_intermediate_size": (44, 28),
            "num_attention_heads": (16, 10),
            "q_lora_rank": (None, 24),
            "qk_nope_head_dim": (16, 8),
            "qk_rope_head_dim": (8, 4),
            "v_head_dim": (16, 8),
        },
        {"num_key_value_heads": (16, 10)},
    ),
    Pair(  # 32 heads do not divide the stored width into heads that the groups have too
        "llama",
        "LlamaForCausalLM",
        {
            "hidden_size": (3072, 1152),
            "intermediate_size": (9216, 3072),
            "num_hidden_layers": (4, 6),
        },
        {
            "head_dim": (128, 64),
            "num_attention_heads": (32, 18),
            "num_key_value_heads": (8, 6),
        },
    ),
    Pair(  # null is false
        "esm",
        "EsmForMaskedLM",
        {
            "emb_layer_norm_before": (None, True),
            "num_hidden_layers": (4, 3),
            "vocab_size": (90, 50),
        },
    ),
    Pair(  # without adapters, no shape shows where the norms are
        "wav2vec2",
        "Wav2Vec2ForCTC",
        {"hidden_size": (768, 384), "num_hidden_layers": (4, 3), "vocab_size": (90, 50)},
        {
            "adapter_attn_dim": (16, None),
            "do_stable_layer_norm": (True, True),
            "num_attention_heads": (12, 6),
        },
    ),
    Pair(  # width and depth are equal, and yet it is another model's config
        "llama",
        "LlamaForCausalLM",
        {"attention_bias": (True, False), "intermediate_size": (256, 128), "vocab_size": (90, 50)},
        {"num_attention_heads": (8, 4), "num_key_value_heads": (8, 4)},
    ),
    Pair(  # the stored vocabulary has no row for the declared token
        "llama",
        "LlamaForCausalLM",
        {
            "hidden_size": (128, 64),
            "intermediate_size": (256, 128),
            "num_hidden_layers": (4, 3),
            "vocab_size": (90, 50),
        },
        {"num_attention_heads": (8, 4), "num_key_value_heads": (8, 4), "pad_token_id": (88, 2)},
    ),
    Pair(  # shapes show the number of layers whose features are used, not which
        "qwen3_vl",
        "Qwen3VLForConditionalGeneration",
        {
            "vision_config.depth": (27, 24),
            "vision_config.hidden_size": (1152, 1024),
            "vision_config.intermediate_size": (4304, 4096),
        },
        {
            "vision_config.deepstack_visual_indexes": ([8, 16, 24], [5, 11, 17]),
            "vision_config.num_heads": (16, 16),
        },
    ),
)


@pytest.mark.parametrize(
    "pair",
    one_in(2, PUBLISHED),
    ids=lambda pair: f"{pair.model_type}-{len(pair.keys)}-{len(pair.open_keys)}",
)
def test_each_key_that_shapes_determine_is_named_with_both_values(pair):
    report = audited(pair)
    [found] = report.diagnosis
    assert {key: (declared, held) for key, declared, held in found.fields} == pair.keys
    assert dict(found.undetermined) == {key: sides[0] for key, sides in pair.open_keys.items()}
    assert len(found.findings) == sum(one.severity != "info" for one in report.findings)
    jsonschema.validate(json.loads(as_json.render(report)), SCHEMA)


def test_a_key_that_only_the_code_of_the_family_reads_is_solved():
    declared = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}
    true = {"hidden_size": 32, "num_attention_heads": 2, "conv_kernel_size": 3}
    common = {"model_type": "deberta-v2", "architectures": ["DebertaV2ForMaskedLM"]}
    tensors = stored({**common, **declared, **true})
    report = examine(snapshot_of(tensors, **common, **declared), Options(requested="x"))
    [found] = report.diagnosis
    assert found.fields == (("conv_kernel_size", 0, 3), ("hidden_size", 64, 32))


WIDTHS = st.integers(1, 6).map(lambda number: 8 * number)
KEYS = st.fixed_dictionaries(
    {
        "hidden_size": st.tuples(WIDTHS, WIDTHS),
        "intermediate_size": st.tuples(WIDTHS, WIDTHS),
        "num_hidden_layers": st.tuples(st.integers(1, 5), st.integers(1, 5)),
        "vocab_size": st.tuples(st.integers(50, 90), st.integers(50, 90)),
    }
)
HEADS = st.sampled_from([1, 2, 4, 8])


@examples(60)
@given(
    model_type=st.sampled_from(["bert", "llama", "mistral"]),
    keys=KEYS,
    heads=st.tuples(HEADS, HEADS),
)
def test_no_number_of_heads_is_given_a_value_by_a_width(model_type, keys, heads):
    assume(all(declared != held for declared, held in keys.values()))
    target = {
        "bert": "BertForMaskedLM",
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
    }
    report = audited(Pair(model_type, target[model_type], keys, {"num_attention_heads": heads}))
    named = {key for one in report.diagnosis for key, *_ in one.fields}
    assert named & {"num_attention_heads", "num_key_value_heads", "head_dim"} == set()

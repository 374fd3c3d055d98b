"""How other software names the tensors of a model: rules from transformers' names, by class.

A rule is a pattern and its replacement, all applied in order. What is fused elsewhere, or lies
another way round, is said by name.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from support.faults.fault import of_shape

from auditor.tensors import StoredTensor

DECODERS = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "GemmaForCausalLM",
)

META = (
    (r"^model\.embed_tokens", "tok_embeddings"),
    (r"^model\.norm", "norm"),
    (r"^lm_head", "output"),
    (r"^model\.", ""),
    (r"self_attn\.([qkvo])_proj", r"attention.w\1"),
    (r"self_attn\.([qk])_norm", r"attention.\1_norm"),
    (r"mlp\.gate_proj", "feed_forward.w1"),
    (r"mlp\.up_proj", "feed_forward.w3"),
    (r"mlp\.down_proj", "feed_forward.w2"),
    (r"block_sparse_moe\.", "feed_forward."),
    ("input_layernorm", "attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)
GGUF = (
    (r"^model\.embed_tokens", "token_embd"),
    (r"^model\.norm", "output_norm"),
    (r"^lm_head", "output"),
    (r"^model\.layers\.", "blk."),
    (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.o_proj", "attn_output"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"mlp\.(gate|up|down)_proj", r"ffn_\1"),
    ("input_layernorm", "attn_norm"),
)
NORM_BEFORE_MLP = (("post_attention_layernorm", "ffn_norm"),)
NORMS_ON_BOTH_SIDES = (
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)
MEGATRON_CORE = (
    (r"^model\.embed_tokens", "embedding.word_embeddings"),
    (r"^model\.norm", "decoder.final_layernorm"),
    (r"^lm_head", "output_layer"),
    (r"^model\.layers\.", "decoder.layers."),
    (r"self_attn\.qkv", "self_attention.linear_qkv"),
    (r"self_attn\.o_proj", "self_attention.linear_proj"),
    (r"mlp\.gate_up", "mlp.linear_fc1"),
    (r"mlp\.down_proj", "mlp.linear_fc2"),
    (r"input_layernorm\.", "self_attention.linear_qkv.layer_norm_"),
    (r"post_attention_layernorm\.", "mlp.linear_fc1.layer_norm_"),
)
MEGATRON = (
    (r"^transformer\.word_embeddings_layernorm", "language_model.embedding.word_embeddings.norm"),
    (r"^transformer\.word_embeddings", "language_model.embedding.word_embeddings"),
    (r"^transformer\.ln_f", "language_model.encoder.final_layernorm"),
    (r"^transformer\.h\.", "language_model.encoder.layers."),
)
GGUF_BERT = (
    (r"^bert\.embeddings\.word_embeddings", "token_embd"),
    (r"^bert\.embeddings\.position_embeddings", "position_embd"),
    (r"^bert\.embeddings\.token_type_embeddings", "token_types"),
    (r"^bert\.embeddings\.LayerNorm", "token_embd_norm"),
    (r"^bert\.encoder\.layer\.", "blk."),
    (r"attention\.self\.query", "attn_q"),
    (r"attention\.self\.key", "attn_k"),
    (r"attention\.self\.value", "attn_v"),
    (r"attention\.output\.dense", "attn_output"),
    (r"attention\.output\.LayerNorm", "attn_output_norm"),
    (r"intermediate\.dense", "ffn_up"),
    (r"output\.dense", "ffn_down"),
    (r"output\.LayerNorm", "layer_output_norm"),
)
TF_BERT = (
    (r"\.layer\.", ".layer_"),
    (r"LayerNorm\.weight$", "LayerNorm.gamma"),
    (r"LayerNorm\.bias$", "LayerNorm.beta"),
    (r"embeddings\.weight$", "embeddings"),
    (r"predictions\.bias$", "predictions.output_bias"),
    (r"\.weight$", ".kernel"),
    (r"\.", "/"),
)
FAIRSEQ_ROBERTA = (
    (r"^roberta\.embeddings\.word_embeddings", "decoder.sentence_encoder.embed_tokens"),
    (r"^roberta\.embeddings\.position_embeddings", "decoder.sentence_encoder.embed_positions"),
    (r"^roberta\.embeddings\.token_type_embeddings", "decoder.sentence_encoder.segment_embeddings"),
    (r"^roberta\.embeddings\.LayerNorm", "decoder.sentence_encoder.emb_layer_norm"),
    (r"^roberta\.encoder\.layer\.", "decoder.sentence_encoder.layers."),
    (r"attention\.self\.query", "self_attn.q_proj"),
    (r"attention\.self\.key", "self_attn.k_proj"),
    (r"attention\.self\.value", "self_attn.v_proj"),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "self_attn_layer_norm"),
    (r"intermediate\.dense", "fc1"),
    (r"(\d)\.output\.dense", r"\1.fc2"),
    (r"(\d)\.output\.LayerNorm", r"\1.final_layer_norm"),
    (r"^lm_head\.", "decoder.lm_head."),
)
TIMM = (
    (r"^vit\.embeddings\.|^embeddings\.", ""),
    (r"^patch_embeddings\.projection", "patch_embed.proj"),
    (r"^position_embeddings", "pos_embed"),
    (r"^vit\.encoder\.layer\.|^vit\.layers\.|^encoder\.layer\.", "blocks."),
    (r"attention\.attention\.qkv|attention\.qkv", "attn.qkv"),
    (r"attention\.output\.dense|attention\.o_proj", "attn.proj"),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(\d)\.output\.dense", r"\1.mlp.fc2"),
    (r"^vit\.layernorm|^layernorm", "norm"),
    (r"^classifier", "head"),
)
JAX_VIT = (
    (r"^vit\.embeddings\.cls_token", "cls"),
    (r"^vit\.embeddings\.patch_embeddings\.projection", "embedding"),
    (r"^vit\.embeddings\.position_embeddings", "Transformer/posembed_input/pos_embedding"),
    (r"^vit\.encoder\.layer\.|^vit\.layers\.", "Transformer/encoderblock_"),
    (r"attention\.attention\.(query|key|value)", r"MultiHeadDotProductAttention_1/\1"),
    (r"attention\.([qkv])_proj", r"MultiHeadDotProductAttention_1/\1"),
    (r"attention\.(output\.dense|o_proj)", "MultiHeadDotProductAttention_1/out"),
    ("layernorm_before", "LayerNorm_0"),
    ("layernorm_after", "LayerNorm_2"),
    (r"intermediate\.dense|mlp\.fc1", "MlpBlock_3/Dense_0"),
    (r"(\d)\.output\.dense|(\d)\.mlp\.fc2", r"\1\2.MlpBlock_3/Dense_1"),
    (r"^vit\.layernorm", "Transformer/encoder_norm"),
    (r"^classifier", "head"),
    (r"(LayerNorm_\d|encoder_norm)\.weight$", r"\1.scale"),
    (r"\.weight$", ".kernel"),
    (r"\.", "/"),
)
GGUF_GPT2 = (
    (r"^transformer\.wte", "token_embd"),
    (r"^transformer\.wpe", "position_embd"),
    (r"^transformer\.ln_f", "output_norm"),
    (r"^transformer\.h\.", "blk."),
    (r"attn\.c_attn", "attn_qkv"),
    (r"attn\.c_proj", "attn_output"),
    (r"mlp\.c_fc", "ffn_up"),
    (r"mlp\.c_proj", "ffn_down"),
    ("ln_1", "attn_norm"),
    ("ln_2", "ffn_norm"),
)
GGUF_NEOX = (
    (r"^gpt_neox\.embed_in", "token_embd"),
    (r"^gpt_neox\.final_layer_norm", "output_norm"),
    (r"^embed_out", "output"),
    (r"^gpt_neox\.layers\.", "blk."),
    (r"^transformer\.word_embeddings_layernorm", "token_embd_norm"),
    (r"^transformer\.word_embeddings", "token_embd"),
    (r"^transformer\.ln_f", "output_norm"),
    (r"^transformer\.h\.", "blk."),
    (r"(self_)?attention\.query_key_value", "attn_qkv"),
    (r"(self_)?attention\.dense", "attn_output"),
    (r"mlp\.dense_h_to_4h", "ffn_up"),
    (r"mlp\.dense_4h_to_h", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)
GGUF_T5 = (
    (r"^shared", "token_embd"),
    (r"^encoder\.final_layer_norm", "enc.output_norm"),
    (r"^decoder\.final_layer_norm", "dec.output_norm"),
    (r"^encoder\.block\.", "enc.blk."),
    (r"^decoder\.block\.", "dec.blk."),
    (r"layer\.\d\.SelfAttention\.relative_attention_bias", "attn_rel_b"),
    (r"layer\.\d\.SelfAttention\.([qkvo])", r"attn_\1"),
    (r"layer\.\d\.EncDecAttention\.([qkvo])", r"cross_attn_\1"),
    (r"layer\.\d\.DenseReluDense\.wi", "ffn_up"),
    (r"layer\.\d\.DenseReluDense\.wo", "ffn_down"),
    (r"layer\.0\.layer_norm", "attn_norm"),
    (r"^(enc.*)layer\.1\.layer_norm", r"\1ffn_norm"),
    (r"layer\.1\.layer_norm", "cross_attn_norm"),
    (r"layer\.2\.layer_norm", "ffn_norm"),
)
OPENAI_WHISPER = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"encoder_attn_layer_norm", "cross_attn_ln"),
    (r"self_attn_layer_norm", "attn_ln"),
    (r"(\d)\.final_layer_norm", r"\1.mlp_ln"),
    (r"encoder_attn\.", "cross_attn."),
    (r"self_attn\.", "attn."),
    (r"\.q_proj", ".query"),
    (r"\.k_proj", ".key"),
    (r"\.v_proj", ".value"),
    (r"attn\.out_proj", "attn.out"),
    (r"\.fc1", ".mlp.0"),
    (r"\.fc2", ".mlp.2"),
    (r"encoder\.layer_norm", "encoder.ln_post"),
    (r"decoder\.layer_norm", "decoder.ln"),
    (r"embed_tokens", "token_embedding"),
    (r"embed_positions\.weight", "positional_embedding"),
)
OPENAI_CLIP = (
    (r"^vision_model\.embeddings\.class_embedding", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding", "visual.conv1"),
    (r"^vision_model\.embeddings\.position_embedding\.weight", "visual.positional_embedding"),
    (r"^vision_model\.pre_layrnorm", "visual.ln_pre"),
    (r"^vision_model\.post_layernorm", "visual.ln_post"),
    (r"^vision_model\.encoder\.layers", "visual.transformer.resblocks"),
    (r"^text_model\.encoder\.layers", "transformer.resblocks"),
    (r"^text_model\.embeddings\.token_embedding", "token_embedding"),
    (r"^text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
    (r"^text_model\.final_layer_norm", "ln_final"),
    (r"^visual_projection\.weight", "visual.proj"),
    (r"^text_projection\.weight", "text_projection"),
    (r"self_attn\.qkv\.", "attn.in_proj_"),
    (r"self_attn\.out_proj", "attn.out_proj"),
    (r"layer_norm(\d)", r"ln_\1"),
    (r"mlp\.fc1", "mlp.c_fc"),
    (r"mlp\.fc2", "mlp.c_proj"),
)
DEEPSEEK = (
    (r"^model\.embed_tokens", "embed"),
    (r"^model\.norm", "norm"),
    (r"^lm_head", "head"),
    (r"^model\.", ""),
    (r"self_attn\.q_a_proj", "attn.wq_a"),
    (r"self_attn\.q_b_proj", "attn.wq_b"),
    (r"self_attn\.kv_a_proj_with_mqa", "attn.wkv_a"),
    (r"self_attn\.kv_b_proj", "attn.wkv_b"),
    (r"self_attn\.o_proj", "attn.wo"),
    (r"self_attn\.q_a_layernorm", "attn.q_norm"),
    (r"self_attn\.kv_a_layernorm", "attn.kv_norm"),
    (r"mlp\.gate\.e_score_correction_bias", "ffn.gate.bias"),
    (r"gate_proj", "w1"),
    (r"down_proj", "w2"),
    (r"up_proj", "w3"),
    (r"\.mlp\.", ".ffn."),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)


class Layout(NamedTuple):
    """One way in which others store a class."""

    label: str
    rules: tuple[tuple[str, str], ...]
    fused: tuple[tuple[tuple[str, ...], str], ...] = ()  # leaves of a module, and their one name
    turned: str | None = None  # names whose shapes lie the other way round, before any rule


QKV = ((("q_proj", "k_proj", "v_proj"), "qkv"), (("query", "key", "value"), "qkv"))
GATED = (*QKV, (("gate_proj", "up_proj"), "gate_up"))
KERNELS = r"(?<!embeddings)(?<!Norm)(?<!norm)(?<!before)(?<!after)\.weight$"

LAYOUTS: dict[str, tuple[Layout, ...]] = {
    **dict.fromkeys(
        DECODERS,
        (
            Layout("Meta", META),
            Layout("GGUF", (*GGUF, *NORM_BEFORE_MLP)),
            Layout("Megatron Core", MEGATRON_CORE, GATED),
        ),
    ),
    "Qwen3ForCausalLM": (Layout("Meta", META), Layout("GGUF", (*GGUF, *NORM_BEFORE_MLP))),
    "Gemma2ForCausalLM": (Layout("GGUF", (*GGUF, *NORMS_ON_BOTH_SIDES)),),
    "MixtralForCausalLM": (Layout("Meta", META),),
    "BertForMaskedLM": (Layout("TensorFlow", TF_BERT, turned=KERNELS),),
    "BertForSequenceClassification": (
        Layout("GGUF", GGUF_BERT),
        Layout("TensorFlow", TF_BERT, turned=KERNELS),
    ),
    "RobertaForMaskedLM": (Layout("fairseq", FAIRSEQ_ROBERTA),),
    "ViTForImageClassification": (
        Layout("timm", TIMM, QKV),
        Layout("JAX", JAX_VIT, turned=KERNELS),
    ),
    "Dinov2Model": (Layout("timm", TIMM, QKV),),
    "GPT2LMHeadModel": (Layout("GGUF", GGUF_GPT2, turned=r"(attn|mlp)\.c_\w+\.weight$"),),
    "GPTNeoXForCausalLM": (Layout("GGUF", GGUF_NEOX),),
    "BloomForCausalLM": (Layout("GGUF", GGUF_NEOX), Layout("Megatron", MEGATRON)),
    "T5ForConditionalGeneration": (Layout("GGUF", GGUF_T5),),
    "WhisperForConditionalGeneration": (Layout("OpenAI", OPENAI_WHISPER),),
    "CLIPModel": (Layout("OpenAI", OPENAI_CLIP, QKV, turned=r"_projection\.weight$"),),
    "DeepseekV3ForCausalLM": (Layout("DeepSeek", DEEPSEEK),),
}


def as_others(tensors: list[StoredTensor], layout: Layout) -> Iterator[StoredTensor]:
    for tensor in fused(tensors, layout.fused):
        shape, name = tensor.shape, tensor.name
        if layout.turned and re.search(layout.turned, name):
            shape = shape[::-1] if len(shape) < 4 else (*shape[2:], shape[1], shape[0])
        for pattern, replacement in layout.rules:
            name = re.sub(pattern, replacement, name)
        yield of_shape(tensor, *shape, name=name)


def fused(
    tensors: list[StoredTensor], groups: tuple[tuple[tuple[str, ...], str], ...]
) -> Iterator[StoredTensor]:
    """Leaves of one module that belong together as one tensor, row below row."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        module, _, leaf = tensor.name.rpartition(".")[0].rpartition(".")
        kind = tensor.name.rpartition(".")[2]
        for leaves, name in groups:
            parts = [by_name.get(f"{module}.{one}.{kind}") for one in leaves]
            if leaf in leaves and all(parts):
                if leaf == leaves[0]:
                    rows = sum(part.shape[0] for part in parts)
                    yield of_shape(tensor, rows, *tensor.shape[1:], name=f"{module}.{name}.{kind}")
                break
        else:
            yield tensor

"""Patterns that recognise tensors by name: norms, heads, token embeddings, adapters' factors."""

import re
from collections.abc import Mapping
from types import MappingProxyType

NUMBER = re.compile(r"\d+")
HEAD = re.compile(
    r"(?:^|\.)(classifier|score|qa_outputs|lm_head|embed_out|classification_head|cls|head|"
    r"logits_proj|generator_lm_head|generator_predictions|discriminator_predictions|"
    r"start_logits|end_logits|vocab_transform|vocab_projector|\w+_classifier|\w+_head)\."
)
# Masks of attention are made of -Inf, whether or not the architecture is known to store them.
MASK = re.compile(r"(?:^|[._])(?:masked_bias|attn\.bias|mask|attention_bias)$")
# Tensors that transformers initializes to zero, or that are zero in real checkpoints without harm:
# tables of biases and of positions, sampling offsets and box heads of DETR and its like, routers,
# projections that join an image tower, the token types that RoBERTa ignores. Source: `init.zeros_`
# in transformers 5.23.
MAY_BE_ZERO = re.compile(
    r"bias|position|pos_emb|token_type|type_embed|relative|bbox|sampling_offsets|attention_weights"
    r"|(?:^|\.)(?:gate|router)\.weight$|mm_input|entity|(?:^|[._])(?:cls|mask|query(?!_key)|register)_"
    r"|gamma|alpha|static|running|mask|lora_|hada_|lokr_|vera_|ia3_|oft_|adaLN|modulation|zero"
)
NORM = re.compile(
    r"(?:^|[._])(?:\w*norm\w*|ln_?\w*|layernorm\w*)\.(?:weight|gamma)$", re.IGNORECASE
)
EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|word_embeddings|wte|tok_embeddings|shared|embed_in|token_embd|"
    r"word_embedding|embeddings?\.tokens?)\.?weight$|(?:^|\.)(?:encoder\.)?embeddings?\.weight$"
)
# The initial value of an adapter's factor that makes the product of the factors neutral.
NEUTRAL: Mapping[str, float] = MappingProxyType(
    {
        "lora_B": 0.0,
        "lora_embedding_A": 0.0,
        "hada_w2_b": 0.0,
        "lokr_w2": 0.0,
        "lokr_w2_b": 0.0,
        "vera_lambda_b": 0.0,
        "oft_R": 0.0,
        "boft_R": 0.0,
        "ia3_l": 1.0,
    }
)
NEUTRAL_FACTOR = re.compile(rf"\.(?:{'|'.join(NEUTRAL)})(?:\.|$)")

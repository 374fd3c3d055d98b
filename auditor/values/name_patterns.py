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

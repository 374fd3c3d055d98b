"""WavLM, https://arxiv.org/abs/2110.13900: wav2vec 2.0 with gated positions in the attention."""

from auditor.analytic.blocks import Embedding, Linear, Module, Param, stack
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import heads
from auditor.analytic.families._speech import layer, model
from auditor.analytic.families.wav2vec2 import ADAPTED_KEYS, LABELLING, adapter

WAVLM = Family(
    model_type="wavlm",
    prefix="wavlm",
    base="WavLMModel",
    keys=f"{ADAPTED_KEYS} num_buckets",
)


@architecture("WavLMModel", WAVLM)
def wavlm_model(c: Config) -> Module:
    layers = stack(c.dim("num_hidden_layers"), lambda n: n == 0, lambda first: block(c, first))
    return model(c, layers, adapter=adapter(c))


def block(c: Config, first: bool) -> Module:  # noqa: FBT001 - the one thing in which blocks differ
    """The first layer alone has the biases by distance, for all of them."""
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    return layer(
        c,
        adapters=False,
        gru_rel_pos_const=Param((1, H, 1, 1)),
        gru_rel_pos_linear=Linear(D.floor(H), 8),
        rel_attn_embed=Embedding(c.dim("num_buckets"), H) if first else None,
    )


heads(WAVLM, "WavLM", wavlm_model, **LABELLING)

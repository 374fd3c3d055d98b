"""GTE, https://arxiv.org/abs/2407.19669: BERT with rotary positions and a gated feed-forward.

The files have the names of Alibaba's own code, whose base model may be called `new`.
"""

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    Tied,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._heads import heads, labelled
from auditor.analytic.families.bert import pooled
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.loading import Operation, Rule

GTE = Family(
    model_type="gte",
    prefix="gte",
    base="GteModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
        "type_vocab_size head_dim tie_word_embeddings"
    ),
)


@architecture("GteModel", GTE)
def gte_model(c: Config, *, pooler: bool = False) -> Module:
    return module(
        embeddings=embeddings(c),
        encoder=module(layer=repeat(c.dim("num_hidden_layers"), lambda: layer(c))),
        pooler=pooled(c) if pooler else None,
    )


def embeddings(c: Config) -> Module:
    D, types = c.dim("hidden_size"), c.dim("type_vocab_size")
    return module(
        word_embeddings=Embedding(c.dim("vocab_size"), D),
        token_type_embeddings=Embedding(types, D) if types.value else None,
        LayerNorm=LayerNorm(D),
    )


def layer(c: Config) -> Module:
    D = c.dim("hidden_size")
    return module(attention=attention(c), attn_ln=LayerNorm(D), mlp=mlp(c), mlp_ln=LayerNorm(D))


def attention(c: Config) -> Module:
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    width = H * (c.optional("head_dim") or D.floor(H))
    return module(qkv_proj=Linear(D, 3 * width), o_proj=Linear(width, D))


def mlp(c: Config) -> Module:
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    return module(
        up_gate_proj=Linear(D, 2 * F, bias=False), act_fn=activation(c), down_proj=Linear(F, D)
    )


def lm_head(c: Config) -> Module:
    V, D = c.dim("vocab_size"), c.dim("hidden_size")
    tied = Tied("gte.embeddings.word_embeddings.weight")
    weight = tied if c.flag("tie_word_embeddings") else Param((V, D))
    return module(
        lm_head=module(
            dense=Linear(D, D),
            norm=LayerNorm(D),
            decoder=module(weight=weight, bias=Param((V,))),
        )
    )


heads(GTE, "GteFor", gte_model, MaskedLM=lm_head, TokenClassification=labelled)
heads(GTE, "GteFor", lambda c: gte_model(c, pooler=True), SequenceClassification=labelled)

_THIRDS = tuple(f"self_attn.{name}_proj" for name in "qkv")
_PARTS = (Operation("Chunk"),)
loads(
    "gte",
    LoadingFacts(
        silent=("inv_freq", "original_inv_freq"),
        rotary=True,
        rules=(
            (r"^new\.(.+)", r"\1"),
            ("encoder.layer", "layers"),
            ("attention.o_proj", "self_attn.o_proj"),
            ("attn_ln", "post_attention_layernorm"),
            ("mlp_ln", "post_mlp_layernorm"),
            ("lm_head.norm", "lm_head.layer_norm"),
            Rule(("attention.qkv_proj",), _THIRDS, operations=_PARTS),
            Rule(("mlp.up_gate_proj",), ("mlp.up_proj", "mlp.gate_proj"), operations=_PARTS),
        ),
    ),
)

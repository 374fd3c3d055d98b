"""MPT, of whose options transformers builds one choice: no biases, no learned positions."""

from types import MappingProxyType

from auditor.analytic.blocks import Embedding, LayerNorm, Linear, Module, Repeat, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._gpt import language_model, score, span
from auditor.analytic.families._heads import heads, labelled

MPT = Family(
    model_type="mpt",
    taken_over=True,
    prefix="transformer",
    base="MptModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 50368,
            "d_model": 2048,
            "n_layers": 24,
            "n_heads": 16,
            "tie_word_embeddings": True,
        }
    ),
    synonyms=MappingProxyType(
        {
            "num_attention_heads": "n_heads",
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
        }
    ),
)


@architecture("MptModel", MPT)
def mpt_model(c: Config) -> Module:
    D = c.dim("d_model")
    return module(
        wte=Embedding(c.dim("vocab_size"), D),
        blocks=Repeat(c.dim("n_layers"), block(c)),
        norm_f=LayerNorm(D, bias=False),
    )


def block(c: Config) -> Module:
    """`expansion_ratio` is not read: the feed-forward is four times as wide as the model."""
    D = c.dim("d_model")
    _ = c.dim("n_heads")  # refused where it is none: the class divides by it, though not exactly
    return module(
        norm_1=LayerNorm(D, bias=False),
        attn=module(Wqkv=Linear(D, 3 * D, bias=False), out_proj=Linear(D, D, bias=False)),
        norm_2=LayerNorm(D, bias=False),
        ffn=module(up_proj=Linear(D, 4 * D, bias=False), down_proj=Linear(4 * D, D, bias=False)),
    )


heads(
    MPT,
    "Mpt",
    mpt_model,
    ForCausalLM=language_model("transformer.wte.weight"),
    ForSequenceClassification=score,
    ForTokenClassification=labelled,
    ForQuestionAnswering=span,
)

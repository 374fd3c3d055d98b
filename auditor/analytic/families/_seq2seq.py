"""An encoder and a decoder under fairseq's names, with options for the differences of models.

A layer has attention, cross-attention in a decoder, and a feed-forward block, each with a norm.
"""

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Block,
    Embedding,
    LayerNorm,
    Legacy,
    Linear,
    Module,
    Submodel,
    Tied,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.family import LoadingFacts, loads

Side = Literal["encoder", "decoder"]

SHARED = "shared.weight"


def family(model_type: str, base: str, keys: str = "", **own: int) -> Family:
    """Return a Family with the keys that BART and related models share, and the given keys."""
    return Family(
        model_type=model_type,
        prefix="model",
        base=base,
        keys=(
            "vocab_size max_position_embeddings d_model encoder_layers encoder_ffn_dim "
            "encoder_attention_heads decoder_layers decoder_ffn_dim decoder_attention_heads "
            f"tie_word_embeddings {keys}"
        ),
        own=MappingProxyType(own),
    )


class Style(Struct, frozen=True, kw_only=True):
    """The options by which a model differs from BART."""

    positions: Callable[[Config], Module]
    embedding_norm: bool = False  # whether there is a norm after the embeddings
    final_norm: bool = False  # after the last layer, in models whose layers begin with a norm
    key_bias: bool = True
    versioned: bool = False  # the first checkpoints store fairseq's format version


def learned_positions(c: Config) -> Module:
    """Return learned positions; the first two rows are fairseq's padding and unused."""
    return Embedding(c.dim("max_position_embeddings") + 2, c.dim("d_model"))


def sinusoids(c: Config) -> Module:
    """Return sinusoidal positions, which transformers stores as frozen parameters."""
    return Embedding(c.dim("max_position_embeddings"), c.dim("d_model"), is_frozen=True)


def tower(c: Config, side: Side, style: Style, **embeddings: Block) -> Module:
    """Return the encoder or the decoder; the keywords name its embeddings."""
    D = c.dim("d_model")
    return module(
        version=Legacy((1,)) if style.versioned else None,
        **embeddings,
        embed_positions=style.positions(c),
        layers=repeat(c.dim(f"{side}_layers"), partial(layer, c, side, style)),
        layernorm_embedding=LayerNorm(D) if style.embedding_norm else None,
        layer_norm=LayerNorm(D) if style.final_norm else None,
    )


def layer(c: Config, side: Side, style: Style) -> Module:
    D, F = c.dim("d_model"), c.dim(f"{side}_ffn_dim")
    decoder = side == "decoder"
    attention_block = attention(c, style)
    return module(
        self_attn=attention_block,
        self_attn_layer_norm=LayerNorm(D),
        encoder_attn=attention_block if decoder else None,
        encoder_attn_layer_norm=LayerNorm(D) if decoder else None,
        activation_fn=activation(c, "activation_function"),
        fc1=Linear(D, F),
        fc2=Linear(F, D),
        final_layer_norm=LayerNorm(D),
    )


def attention(c: Config, style: Style) -> Module:
    D = c.dim("d_model")
    return module(
        k_proj=Linear(D, D, bias=style.key_bias),
        v_proj=Linear(D, D),
        q_proj=Linear(D, D),
        out_proj=Linear(D, D),
    )


def encoder_decoder(
    c: Config, style: Style, *, shared: bool = True, decoder_vocab: Dim | None = None
) -> Module:
    """Return the base class, whose encoder and decoder share an embedding unless untied."""
    V, tied = c.dim("vocab_size"), shared and c.flag("tie_word_embeddings")
    W = decoder_vocab or V
    return module(
        shared=words(c, V) if shared else None,
        encoder=tower(c, "encoder", style, embed_tokens=words(c, V, tied=tied)),
        decoder=tower(c, "decoder", style, embed_tokens=words(c, W, tied=tied)),
    )


def words(c: Config, vocab: Dim, *, tied: bool = False) -> Module:
    """Return a word embedding, which may be tied to the shared embedding."""
    return module(weight=Tied(SHARED)) if tied else Embedding(vocab, c.dim("d_model"))


def generation(
    c: Config,
    model: Module,
    *,
    logits_bias: bool = True,
    vocab: Dim | None = None,
    embeddings: str = SHARED,
) -> Module:
    """Return the language model; the bias of its logits is all zeros and may be absent."""
    V = vocab or c.dim("vocab_size")
    return module(
        final_logits_bias=Legacy((1, V)) if logits_bias else None,
        model=Submodel(model),
        lm_head=head(c, V, f"model.{embeddings}"),
    )


def head(c: Config, vocab: Dim, embeddings: str) -> Module:
    tied = module(weight=Tied(embeddings))
    return tied if c.flag("tie_word_embeddings") else Linear(c.dim("d_model"), vocab, bias=False)


def causal(c: Config, decoder: Module, *, name: str = "lm_head") -> Module:
    """Return the language model with only a decoder, which still has cross-attention."""
    output = head(c, c.dim("vocab_size"), "model.decoder.embed_tokens.weight")
    return module(model=module(decoder=decoder), **{name: output})


def register(family: Family, stem: str, style: Style) -> None:
    """Register the base class, the language model, and the model with only a decoder."""

    @architecture(f"{stem}Model", family)
    def model(c: Config) -> Module:
        return encoder_decoder(c, style)

    @architecture(f"{stem}ForConditionalGeneration", family)
    def for_conditional_generation(c: Config) -> Module:
        return generation(c, model(c))

    @architecture(f"{stem}ForCausalLM", family)
    def for_causal_lm(c: Config) -> Module:
        return causal(c, tower(c, "decoder", style, embed_tokens=words(c, c.dim("vocab_size"))))

    zeros = LoadingFacts(optional_buffers=("^final_logits_bias$",), unmissed=("final_logits_bias",))
    loads(f"{stem}ForConditionalGeneration", zeros)


def register_classifiers(family: Family, stem: str, style: Style) -> None:
    """Register the classifier and the question answering of BART and mBART."""

    @architecture(f"{stem}ForSequenceClassification", family)
    def for_sequence_classification(c: Config) -> Module:
        D = c.dim("d_model")
        head = module(
            dense=Linear(D, D),
            out_proj=Linear(D, c.num_labels),
        )
        return module(model=Submodel(encoder_decoder(c, style)), classification_head=head)

    @architecture(f"{stem}ForQuestionAnswering", family)
    def for_question_answering(c: Config) -> Module:
        outputs = Linear(c.dim("d_model"), 2)
        return module(model=Submodel(encoder_decoder(c, style)), qa_outputs=outputs)

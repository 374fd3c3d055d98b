"""Marian, https://arxiv.org/abs/1804.00344: BART without a norm of its own, for OPUS-MT."""

from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import Legacy, Module, module
from auditor.analytic.catalogue import architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, config_rules
from auditor.analytic.dims import Dim
from auditor.analytic.families._seq2seq import (
    SHARED,
    Style,
    causal,
    encoder_decoder,
    family,
    generation,
    sinusoids,
    tower,
    words,
)
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.parts import unstored

MARIAN = family(
    "marian",
    "MarianModel",
    "decoder_vocab_size share_encoder_decoder_embeddings",
)

STYLE = Style(positions=sinusoids)


def unsaved(c: Config) -> Module:
    """What save_pretrained leaves out of a MarianMTModel since transformers 4, and not before."""
    L, D = c.dim("max_position_embeddings"), c.dim("d_model")
    return module(weight=Legacy((L, D)), places=unstored(c, L, D))


def decoder_vocab(c: Config) -> Dim:
    return c.optional("decoder_vocab_size") or c.dim("vocab_size")


@architecture("MarianModel", MARIAN)
def marian_model(c: Config, *, style: Style = STYLE) -> Module:
    shared = c.flag("share_encoder_decoder_embeddings")
    return encoder_decoder(c, style, shared=shared, decoder_vocab=decoder_vocab(c))


@architecture("MarianMTModel", MARIAN)
def for_translation(c: Config) -> Module:
    model = marian_model(c, style=replace(STYLE, positions=unsaved))
    if c.flag("share_encoder_decoder_embeddings"):
        return generation(c, model, embeddings=SHARED)
    return generation(c, model, vocab=decoder_vocab(c), embeddings="decoder.embed_tokens.weight")


@architecture("MarianForCausalLM", MARIAN)
def for_causal_lm(c: Config) -> Module:
    embeddings = words(c, decoder_vocab(c))
    return causal(c, tower(c, "decoder", STYLE, embed_tokens=embeddings))


def first(config: Settled, others: dict[str, Any]) -> None:
    del others
    config.set("decoder_vocab_size", config["decoder_vocab_size"] or config["vocab_size"])


config_rules("MarianConfig", first=first)

_SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
loads(
    "MarianMTModel",
    LoadingFacts(
        taken=("^final_logits_bias$", r"coder\.embed_positions\.weight$"),
        unmissed=("final_logits_bias", *_SINUSOIDS),
    ),
)
loads("MarianModel", LoadingFacts(unmissed=_SINUSOIDS))

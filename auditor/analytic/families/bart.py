"""BART, https://arxiv.org/abs/1910.13461, and its relatives: mBART, PEGASUS, M2M-100, Marian."""

from typing import Any

from msgspec.structs import replace

from auditor.analytic.blocks import Legacy, Module, module
from auditor.analytic.catalogue import architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._seq2seq import (
    SHARED,
    Style,
    causal,
    encoder_decoder,
    family,
    generation,
    learned_positions,
    register,
    register_classifiers,
    sinusoids,
    tower,
    words,
)
from auditor.analytic.family import LoadingFacts, loads

BART = family("bart", "BartModel", num_labels=3)

STYLE = Style(positions=learned_positions, embedding_norm=True, versioned=True)


register(BART, "Bart", STYLE)
register_classifiers(BART, "Bart", STYLE)

loads("bart", LoadingFacts(silent=("encoder.version", "decoder.version")))


# --- mBART ----------------------------------------------------------------------------------------

# https://arxiv.org/abs/2001.08210: BART with norms before each block, and one at the end.

MBART = family("mbart", "MBartModel")

MBART_STYLE = Style(positions=learned_positions, embedding_norm=True, final_norm=True)

register(MBART, "MBart", MBART_STYLE)
register_classifiers(MBART, "MBart", MBART_STYLE)


# --- PEGASUS --------------------------------------------------------------------------------------

# https://arxiv.org/abs/1912.08777: computed positions, which are stored.

register(family("pegasus", "PegasusModel"), "Pegasus", Style(positions=sinusoids, final_norm=True))


# --- M2M-100 --------------------------------------------------------------------------------------

# https://arxiv.org/abs/2010.11125, also NLLB without experts.

M2M100 = family("m2m_100", "M2M100Model")


def positions(c: Config) -> Module:
    """Return sinusoidal positions, which the first versions of the base class stored."""
    L, D = c.dim("max_position_embeddings") + 2, c.dim("d_model")
    return module(weights=Legacy((L, D)))


@architecture("M2M100Model", M2M100)
def m2m_100_model(c: Config) -> Module:
    return encoder_decoder(c, Style(positions=positions, final_norm=True))


@architecture("M2M100ForConditionalGeneration", M2M100)
def for_conditional_generation(c: Config) -> Module:
    return generation(c, m2m_100_model(c), logits_bias=False)


# --- Marian ---------------------------------------------------------------------------------------

# https://arxiv.org/abs/1804.00344: BART without a norm of the embeddings, for OPUS-MT.

MARIAN = family(
    "marian",
    "MarianModel",
    "decoder_vocab_size share_encoder_decoder_embeddings",
)

MARIAN_STYLE = Style(positions=sinusoids)


def unsaved(c: Config) -> Module:
    """Return the positions of a MarianMTModel, which transformers stored before version 4."""
    L, D = c.dim("max_position_embeddings"), c.dim("d_model")
    return module(weight=Legacy((L, D)))


def decoder_vocab(c: Config) -> Dim:
    return c.optional("decoder_vocab_size") or c.dim("vocab_size")


@architecture("MarianModel", MARIAN)
def marian_model(c: Config, *, style: Style = MARIAN_STYLE) -> Module:
    shared = c.flag("share_encoder_decoder_embeddings")
    return encoder_decoder(c, style, shared=shared, decoder_vocab=decoder_vocab(c))


@architecture("MarianMTModel", MARIAN)
def for_translation(c: Config) -> Module:
    model = marian_model(c, style=replace(MARIAN_STYLE, positions=unsaved))
    if c.flag("share_encoder_decoder_embeddings"):
        return generation(c, model, embeddings=SHARED)
    return generation(c, model, vocab=decoder_vocab(c), embeddings="decoder.embed_tokens.weight")


@architecture("MarianForCausalLM", MARIAN)
def for_causal_lm(c: Config) -> Module:
    embeddings = words(c, decoder_vocab(c))
    return causal(c, tower(c, "decoder", MARIAN_STYLE, embed_tokens=embeddings))


@derived_defaults("MarianConfig")
def two_vocabularies(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the decoder's vocabulary to the encoder's, if the config has no size for it."""
    del others
    config.set("decoder_vocab_size", config["decoder_vocab_size"] or config["vocab_size"])


_SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
loads(
    "MarianMTModel",
    LoadingFacts(
        optional_buffers=("^final_logits_bias$", r"coder\.embed_positions\.weight$"),
        unmissed=("final_logits_bias", *_SINUSOIDS),
    ),
)
loads("MarianModel", LoadingFacts(unmissed=_SINUSOIDS))

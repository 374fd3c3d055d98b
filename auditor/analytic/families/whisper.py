"""Whisper, https://arxiv.org/abs/2212.04356: BART's towers, of which one hears a spectrogram."""

from types import MappingProxyType

from auditor.analytic.blocks import Conv, Embedding, Linear, Module, Param, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._seq2seq import SYNONYMS, Style, causal, head, tower, words

WHISPER = Family(
    model_type="whisper",
    prefix="model",
    base="WhisperModel",
    defaults=MappingProxyType(
        {
            "vocab_size": 51865,
            "num_mel_bins": 80,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "d_model": 384,
            "encoder_layers": 4,
            "encoder_ffn_dim": 1536,
            "encoder_attention_heads": 6,
            "decoder_layers": 4,
            "decoder_ffn_dim": 1536,
            "decoder_attention_heads": 6,
            "classifier_proj_size": 256,
            "use_weighted_layer_sum": False,
            "tie_word_embeddings": True,
        }
    ),
    synonyms=MappingProxyType({**SYNONYMS, "num_key_value_heads": "encoder_attention_heads"}),
    letters=MappingProxyType({"max_source_positions": "L", "max_target_positions": "L_decoder"}),
)


def style(positions: str) -> Style:
    return Style(
        positions=lambda c: Embedding(c.dim(positions), c.dim("d_model")),
        final_norm=True,
        key_bias=False,
    )


def encoder(c: Config) -> Module:
    """Its positions are sinusoids: stored, frozen, and counted by transformers all the same."""
    D = c.dim("d_model")
    conv1, conv2 = Conv(c.dim("num_mel_bins"), D, kernel=(3,)), Conv(D, D, kernel=(3,))
    return tower(c, "encoder", style("max_source_positions"), conv1=conv1, conv2=conv2)


def decoder(c: Config) -> Module:
    tokens = words(c, c.dim("vocab_size"))
    return tower(c, "decoder", style("max_target_positions"), embed_tokens=tokens)


@architecture("WhisperModel", WHISPER)
def whisper_model(c: Config) -> Module:
    return module(encoder=encoder(c), decoder=decoder(c))


@architecture("WhisperForConditionalGeneration", WHISPER)
def for_conditional_generation(c: Config) -> Module:
    output = head(c, c.dim("vocab_size"), "model.decoder.embed_tokens.weight")
    return module(model=whisper_model(c), proj_out=output)


@architecture("WhisperForCausalLM", WHISPER)
def for_causal_lm(c: Config) -> Module:
    return causal(c, decoder(c), name="proj_out")


@architecture("WhisperForAudioClassification", WHISPER)
def for_audio_classification(c: Config) -> Module:
    weighted, width = c.flag("use_weighted_layer_sum"), c.dim("classifier_proj_size")
    return module(
        layer_weights=Param((c.dim("encoder_layers") + 1,)) if weighted else None,
        encoder=encoder(c),
        projector=Linear(c.dim("d_model"), width),
        classifier=Linear(width, c.num_labels),
    )

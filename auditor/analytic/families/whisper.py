"""Whisper, https://arxiv.org/abs/2212.04356: BART's towers, with a spectrogram as input."""

from auditor.analytic.blocks import Conv, Embedding, Linear, Module, Param, module
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.families._seq2seq import Style, causal, head, tower, words

WHISPER = Family(
    model_type="whisper",
    prefix="model",
    base="WhisperModel",
    keys=(
        "vocab_size num_mel_bins max_source_positions max_target_positions d_model "
        "encoder_layers encoder_ffn_dim encoder_attention_heads decoder_layers "
        "decoder_ffn_dim decoder_attention_heads classifier_proj_size use_weighted_layer_sum "
        "tie_word_embeddings"
    ),
)


def style(positions: str) -> Style:
    return Style(
        positions=lambda c: Embedding(
            c.dim(positions), c.dim("d_model"), is_frozen=positions == "max_source_positions"
        ),
        final_norm=True,
        key_bias=False,
    )


def encoder(c: Config) -> Module:
    """Return the encoder; its sinusoids are stored and frozen, but count as parameters."""
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

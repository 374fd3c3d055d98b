"""A vision encoder and a language model with cross-attention: TrOCR, Donut, captions.

The first of these models is https://arxiv.org/abs/2109.10282.
"""

from types import MappingProxyType

from auditor.analytic.blocks import Linear, Module, Submodel, module
from auditor.analytic.catalogue import (
    Family,
    architecture,
    base_model,
    causal_model,
    completed_config,
)
from auditor.analytic.config import Config
from auditor.analytic.family import LoadingFacts, loads

VISION_ENCODER_DECODER = Family(
    model_type="vision-encoder-decoder",
    prefix="vision_encoder_decoder",
    base="VisionEncoderDecoderModel",
    own=MappingProxyType(
        {"decoder": MappingProxyType({"is_decoder": True, "add_cross_attention": True})}
    ),
)


@architecture("VisionEncoderDecoderModel", VISION_ENCODER_DECODER)
def vision_encoder_decoder(c: Config) -> Module:
    encoder, decoder = (
        completed_config(c.nested("encoder"), "vit"),
        completed_config(c.nested("decoder"), "bert"),
    )
    return module(
        encoder=Submodel(base_model(encoder)),
        decoder=Submodel(causal_model(decoder)),
        enc_to_dec_proj=bridge(encoder, decoder),
    )


def bridge(encoder: Config, decoder: Config) -> Module | None:
    """Return the layer that adapts the encoder's width; None if the decoder accepts it."""
    inputs, D = encoder.dim("hidden_size"), decoder.dim("hidden_size")
    bridged = inputs.value != D.value and not decoder.states("cross_attention_hidden_size")
    return Linear(inputs, D) if bridged else None


loads(
    "vision-encoder-decoder",
    LoadingFacts(inside=(("encoder", "encoder", "vit"), ("decoder", "decoder", "bert"))),
)

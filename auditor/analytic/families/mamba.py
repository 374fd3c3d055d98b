"""Mamba, https://arxiv.org/abs/2312.00752, and Mamba-2, https://arxiv.org/abs/2405.21060."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    Conv,
    Embedding,
    Linear,
    Module,
    Param,
    RMSNorm,
    module,
    repeat,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import heads, language_model

MAMBA = Family(
    model_type="mamba",
    prefix="backbone",
    base="MambaModel",
    keys=(
        "vocab_size hidden_size state_size num_hidden_layers expand conv_kernel use_bias "
        "use_conv_bias tie_word_embeddings intermediate_size"
    ),
    own=MappingProxyType({"time_step_rank": None}),
    letters=MappingProxyType({"time_step_rank": "R"}),
)
MAMBA2 = Family(
    model_type="mamba2",
    prefix="backbone",
    base="Mamba2Model",
    keys=(
        "vocab_size hidden_size state_size num_hidden_layers expand num_heads head_dim "
        "n_groups conv_kernel use_bias use_conv_bias tie_word_embeddings"
    ),
)


def backbone(c: Config, mixer: Callable[[Config], Module]) -> Module:
    D = c.dim("hidden_size")
    return module(
        embeddings=Embedding(c.dim("vocab_size"), D),
        layers=repeat(c.dim("num_hidden_layers"), lambda: module(norm=RMSNorm(D), mixer=mixer(c))),
        norm_f=RMSNorm(D),
    )


@architecture("MambaModel", MAMBA)
def mamba_model(c: Config) -> Module:
    return backbone(c, mixer)


@architecture("Mamba2Model", MAMBA2)
def mamba2_model(c: Config) -> Module:
    return backbone(c, mixer2)


def mixer(c: Config) -> Module:
    D, S, bias = c.dim("hidden_size"), c.dim("state_size"), c.flag("use_bias")
    F = c.optional("intermediate_size") or c.dim("expand") * D  # every saved config states it
    R = rank(c) or D.ceil(16)
    return module(
        act=activation(c),
        A_log=Param((F, S)),
        D=Param((F,)),
        conv1d=convolution(c, F),
        in_proj=Linear(D, 2 * F, bias=bias),
        x_proj=Linear(F, R + 2 * S, bias=False),
        dt_proj=Linear(R, F),
        out_proj=Linear(F, D, bias=bias),
    )


def mixer2(c: Config) -> Module:
    D, H, bias = c.dim("hidden_size"), c.dim("num_heads"), c.flag("use_bias")
    F = inner_width(c)
    G = c.dim("n_groups")
    convolved = F + 2 * G * c.dim("state_size")
    return module(
        act=activation(c),
        dt_bias=Param((H,)),
        A_log=Param((H,)),
        D=Param((H,)),
        conv1d=convolution(c, convolved),
        in_proj=Linear(D, F + convolved + H, bias=bias),
        norm=RMSNorm(F),
        out_proj=Linear(F, D, bias=bias),
    )


def inner_width(c: Config) -> Dim:
    return c.dim("expand") * c.dim("hidden_size")


def rank(c: Config) -> Dim | None:
    """Return the rank of the time steps; None if it follows from the model's width."""
    key = "time_step_rank"
    return None if c.attribute(key) == "auto" else c.optional(key)


def convolution(c: Config, channels: Dim) -> Module:
    """Return the convolution of each channel over the last `conv_kernel` tokens."""
    return Conv(1, channels, kernel=(c.dim("conv_kernel"),), bias=c.flag("use_conv_bias"))


@derived_defaults("MambaConfig")
def inner_size(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set `intermediate_size` to expand * hidden_size; older configs do not state it."""
    del others
    config.values["intermediate_size"] = int(config["expand"] * config["hidden_size"])


heads(MAMBA, "Mamba", mamba_model, ForCausalLM=language_model("backbone.embeddings.weight"))
heads(MAMBA2, "Mamba2", mamba2_model, ForCausalLM=language_model("backbone.embeddings.weight"))

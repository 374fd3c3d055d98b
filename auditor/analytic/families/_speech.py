"""Modules of wav2vec 2.0 and its relatives: convolutions over the waveform, and an encoder.

The weight of the convolution for positions is stored as a magnitude and a direction.
"""

from collections.abc import Callable

from auditor.analytic.activations import activation
from auditor.analytic.blocks import (
    BatchNorm,
    Block,
    Conv,
    Layer,
    LayerNorm,
    Linear,
    Module,
    Param,
    Repeat,
    Stack,
    module,
    repeat,
    sequential,
)
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._towers import attention
from auditor.errors import CheckpointError

KEYS = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
    "feat_extract_norm conv_dim conv_stride conv_kernel conv_bias num_conv_pos_embeddings "
    "num_conv_pos_embedding_groups do_stable_layer_norm mask_time_prob mask_feature_prob "
    "use_weighted_layer_sum classifier_proj_size adapter_attn_dim"
)


def model(
    c: Config,
    layers: Repeat | Stack | Callable[[], Module],
    *,
    projection_norm: bool = True,
    batch_norm: bool = False,
    adapter: Module | None = None,
) -> Module:
    """Return the model; `batch_norm` puts a BatchNorm before a plain convolution for positions."""
    D = c.dim("hidden_size")
    width = features(c)[-1][1]
    masks = c.real("mask_time_prob") > 0 or c.real("mask_feature_prob") > 0
    if not isinstance(layers, Repeat | Stack):
        layers = repeat(c.dim("num_hidden_layers"), layers)
    return module(
        masked_spec_embed=Param((D,)) if masks else None,
        feature_extractor=module(conv_layers=sequential(*convolutions(c))),
        feature_projection=module(
            layer_norm=LayerNorm(width) if projection_norm else None,
            projection=Linear(width, D),
        ),
        encoder=module(
            pos_conv_embed=positions(c, batch_norm=batch_norm),
            layer_norm=LayerNorm(D),
            layers=layers,
        ),
        adapter=adapter,
    )


def features(c: Config) -> tuple[tuple[Dim | int, Dim, Dim], ...]:
    """Return inputs, outputs and kernel of each convolution; the waveform has one channel."""
    outputs = c.dims("conv_dim")
    if not outputs:
        raise CheckpointError("conv_dim is empty, expected one convolution or more")
    kernels = c.dims("conv_kernel")
    if len(kernels) < len(outputs) or len(c.integers("conv_stride")) < len(outputs):
        keys = [f"{c.path}{key}" for key in ("conv_dim", "conv_kernel", "conv_stride")]
        raise CheckpointError(f"{', '.join(keys)} are not equally long", *keys)
    return tuple(zip((1, *outputs[:-1]), outputs, kernels, strict=False))


def convolutions(c: Config) -> list[Module]:
    bias, norm = c.flag("conv_bias"), c.text("feat_extract_norm")
    if norm not in {"group", "layer"}:
        key = f"{c.path}feat_extract_norm"
        raise CheckpointError(f"{key} is neither 'group' nor 'layer'", key)
    return [
        module(
            conv=Conv(inputs, outputs, kernel=(kernel,), bias=bias),
            activation=activation(c, "feat_extract_activation"),
            layer_norm=LayerNorm(outputs) if norm == "layer" or not number else None,
        )
        for number, (inputs, outputs, kernel) in enumerate(features(c))
    ]


def positions(c: Config, *, batch_norm: bool) -> Module:
    D, kernel = c.dim("hidden_size"), c.dim("num_conv_pos_embeddings")
    groups = c.dim("num_conv_pos_embedding_groups")
    group_width = _width_of_a_group(c, D, groups)
    learned = activation(c, "feat_extract_activation")
    if batch_norm:
        conv = module(weight=Param((D, group_width, kernel), Layer.ODD), bias=Param((D,)))
        return module(conv=conv, batch_norm=BatchNorm(D), activation=learned)
    norm = module(original0=Param((1, 1, kernel)), original1=Param((D, group_width, kernel)))
    conv = module(bias=Param((D,)), parametrizations=module(weight=norm))
    return module(conv=conv, activation=learned)


def _width_of_a_group(c: Config, width: Dim, groups: Dim) -> Dim:
    """Return the width of one group of a convolution; raise if groups do not divide the width."""
    if groups.value < 1:
        key = f"{c.path}num_conv_pos_embedding_groups"
        raise CheckpointError(f"{key} is {groups.value}, expected 1 or more", key)
    return width // groups


def layer(c: Config, *, adapters: bool = True, **relative: Block | None) -> Module:
    """Return a layer; `adapters` adds a language adapter, `relative` adds to the attention."""
    D, F = c.dim("hidden_size"), c.dim("intermediate_size")
    adapted = adapters and c.flag("do_stable_layer_norm") and c.present("adapter_attn_dim")
    return module(
        attention=Module((*attention(c).children, *module(**relative).children)),
        layer_norm=LayerNorm(D),
        feed_forward=module(
            intermediate_dense=Linear(D, F),
            intermediate_act_fn=activation(c),
            output_dense=Linear(F, D),
        ),
        final_layer_norm=LayerNorm(D),
        adapter_layer=attention_adapter(c) if adapted else None,
    )


def attention_adapter(c: Config) -> Module:
    D, width = c.dim("hidden_size"), c.dim("adapter_attn_dim")
    return module(norm=LayerNorm(D), linear_1=Linear(D, width), linear_2=Linear(width, D))


# --- the heads --------------------------------------------------------------------------------


def ctc(c: Config) -> Module:
    """Return the CTC head; `add_adapter` sets its width, even in models without an adapter."""
    width = c.dim("output_hidden_size" if c.truth("add_adapter") else "hidden_size")
    return module(lm_head=Linear(width, c.dim("vocab_size")))


def weights(c: Config) -> Param | None:
    """Return the weights for summing layers' outputs; None if the config does not use them."""
    weighted = c.flag("use_weighted_layer_sum")
    return Param((c.dim("num_hidden_layers") + 1,)) if weighted else None


def require_no_adapter(c: Config) -> None:
    """Raise CheckpointError for an adapter, with which transformers cannot build classifiers."""
    if c.truth("add_adapter"):
        key = f"{c.path}add_adapter"
        raise CheckpointError(f"{key} is true, expected false: classifiers have no adapter", key)


def sequence(c: Config) -> Module:
    require_no_adapter(c)
    D, width = c.dim("hidden_size"), c.dim("classifier_proj_size")
    return module(
        layer_weights=weights(c), projector=Linear(D, width), classifier=Linear(width, c.num_labels)
    )

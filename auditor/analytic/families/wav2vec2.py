"""wav2vec 2.0, https://arxiv.org/abs/2006.11477, XLS-R and MMS; its relatives HuBERT and WavLM."""

from functools import partial

from auditor.analytic.blocks import (
    Conv,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
    sequential,
    stack,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import heads, labelled
from auditor.analytic.families._speech import (
    KEYS,
    ctc,
    features,
    layer,
    model,
    require_no_adapter,
    sequence,
    weights,
)
from auditor.errors import CheckpointError

ADAPTED_KEYS = (
    f"{KEYS} add_adapter adapter_kernel_size num_adapter_layers output_hidden_size tdnn_dim "
    "tdnn_kernel xvector_output_dim"
)
WAV2VEC2 = Family(
    model_type="wav2vec2",
    prefix="wav2vec2",
    base="Wav2Vec2Model",
    keys=(
        f"{ADAPTED_KEYS} num_codevectors_per_group num_codevector_groups codevector_dim "
        "proj_codevector_dim"
    ),
)


@architecture("Wav2Vec2Model", WAV2VEC2)
def wav2vec2_model(c: Config) -> Module:
    return model(c, partial(layer, c), adapter=adapter(c))


def output_width(c: Config) -> Dim:
    """Return the width of the model's output: the adapter's width if there is an adapter."""
    adapted = c.optional("output_hidden_size") if c.flag("add_adapter") else None
    return adapted if adapted is not None and adapted.value else c.dim("hidden_size")


def adapter(c: Config) -> Module | None:
    """Return convolutions that shorten the encoder's output; None if `add_adapter` is false."""
    if not c.flag("add_adapter"):
        return None
    D, width = c.dim("hidden_size"), output_width(c)
    projected = width.value != D.value
    kernel = (c.dim("adapter_kernel_size"),)
    return module(
        proj=Linear(D, width) if projected else None,
        proj_layer_norm=LayerNorm(width) if projected else None,
        layers=repeat(
            c.dim("num_adapter_layers"), lambda: module(conv=Conv(width, 2 * width, kernel=kernel))
        ),
    )


def pre_training(c: Config) -> Module:
    """Return the quantizer, which selects a code vector in each group, and the projections."""
    groups, width, space = (
        c.dim(key) for key in ("num_codevector_groups", "codevector_dim", "proj_codevector_dim")
    )
    vectors = groups * c.dim("num_codevectors_per_group")
    return module(
        quantizer=module(
            codevectors=Param((1, vectors, width // groups)),
            weight_proj=Linear(features(c)[-1][1], vectors),
        ),
        project_hid=Linear(c.dim("hidden_size"), space),
        project_q=Linear(width, space),
    )


def adapted_ctc(c: Config) -> Module:
    return module(lm_head=Linear(output_width(c), c.dim("vocab_size")))


def frames(c: Config) -> Module:
    require_no_adapter(c)
    return module(layer_weights=weights(c), **dict(labelled(c).children))


def x_vector(c: Config) -> Module:
    """Return the x-vector layers: over windows of frames, then over their statistics."""
    widths, kernels = c.dims("tdnn_dim"), c.dims("tdnn_kernel")
    shorter = len(kernels) < len(widths) or len(c.integers("tdnn_dilation")) < len(widths)
    if not widths or shorter:
        keys = [f"{c.path}{key}" for key in ("tdnn_dim", "tdnn_kernel", "tdnn_dilation")]
        raise CheckpointError(f"{', '.join(keys)} are not equally long", *keys)
    inputs, width = (widths[0], *widths), c.dim("xvector_output_dim")
    windows = zip(inputs, kernels, widths, strict=False)
    layers = [module(kernel=Linear(n * kernel, out)) for n, kernel, out in windows]
    return module(
        layer_weights=weights(c),
        projector=Linear(c.dim("hidden_size"), widths[0]),
        tdnn=sequential(*layers),
        feature_extractor=Linear(widths[-1] * 2, width),
        classifier=Linear(width, width),
        objective=module(weight=Param((width, c.num_labels))),
    )


LABELLING = {
    "ForCTC": adapted_ctc,
    "ForSequenceClassification": sequence,
    "ForAudioFrameClassification": frames,
    "ForXVector": x_vector,
}

heads(WAV2VEC2, "Wav2Vec2", wav2vec2_model, ForPreTraining=pre_training, **LABELLING)


# --- HuBERT ---------------------------------------------------------------------------------------

# https://arxiv.org/abs/2106.07447: the model of wav2vec 2.0, trained differently.

HUBERT = Family(
    model_type="hubert",
    prefix="hubert",
    base="HubertModel",
    keys=f"{KEYS} feat_proj_layer_norm conv_pos_batch_norm",
)


@architecture("HubertModel", HUBERT)
def hubert_model(c: Config) -> Module:
    return model(
        c,
        partial(layer, c),
        projection_norm=c.flag("feat_proj_layer_norm"),
        batch_norm=c.flag("conv_pos_batch_norm"),
    )


heads(HUBERT, "Hubert", hubert_model, ForCTC=ctc, ForSequenceClassification=sequence)


# --- WavLM ----------------------------------------------------------------------------------------

# https://arxiv.org/abs/2110.13900: wav2vec 2.0 with gated positions in the attention.

WAVLM = Family(
    model_type="wavlm",
    prefix="wavlm",
    base="WavLMModel",
    keys=f"{ADAPTED_KEYS} num_buckets",
)


@architecture("WavLMModel", WAVLM)
def wavlm_model(c: Config) -> Module:
    layers = stack(c.dim("num_hidden_layers"), lambda n: n == 0, lambda first: block(c, first))
    return model(c, layers, adapter=adapter(c))


def block(c: Config, first: bool) -> Module:  # noqa: FBT001 - the only difference of blocks
    """Return a layer; the first layer has the relative position biases, which all layers use."""
    D, H = c.dim("hidden_size"), c.dim("num_attention_heads")
    return layer(
        c,
        adapters=False,
        gru_rel_pos_const=Param((1, H, 1, 1)),
        gru_rel_pos_linear=Linear(D.floor(H), 8),
        rel_attn_embed=Embedding(c.dim("num_buckets"), H) if first else None,
    )


heads(WAVLM, "WavLM", wavlm_model, **LABELLING)

"""wav2vec 2.0, https://arxiv.org/abs/2006.11477, XLS-R and MMS, with adapters of two kinds."""

from functools import partial

from auditor.analytic.blocks import (
    Conv,
    LayerNorm,
    Linear,
    Module,
    Param,
    module,
    repeat,
    sequential,
)
from auditor.analytic.catalogue import Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim
from auditor.analytic.families._heads import heads, labelled
from auditor.analytic.families._speech import KEYS, features, layer, model, sequence, weights
from auditor.analytic.parts import dropout, refused
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
    """The adapter's, where there is one."""
    adapted = c.optional("output_hidden_size") if c.flag("add_adapter") else None
    return adapted if adapted is not None and adapted.value else c.dim("hidden_size")


def adapter(c: Config) -> Module | None:
    """Convolutions behind the encoder, that shorten what it says."""
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
    """The quantizer chooses one code vector of each group, and their row is a target."""
    groups, width, space = (
        c.dim(key) for key in ("num_codevector_groups", "codevector_dim", "proj_codevector_dim")
    )
    vectors = groups * c.dim("num_codevectors_per_group")
    return module(
        dropout_features=dropout(c, "feat_quantizer_dropout"),
        quantizer=module(
            codevectors=Param((1, vectors, width // groups)),
            weight_proj=Linear(features(c)[-1][1], vectors),
        ),
        project_hid=Linear(c.dim("hidden_size"), space),
        project_q=Linear(width, space),
    )


def ctc(c: Config) -> Module:
    share = dropout(c, "final_dropout")
    return module(dropout=share, lm_head=Linear(output_width(c), c.dim("vocab_size")))


def sequence_or_refusal(c: Config) -> Module:
    return Module((("no_adapter", no_adapter(c)), *sequence(c).children))


def frames(c: Config) -> Module:
    return module(no_adapter=no_adapter(c), layer_weights=weights(c), **dict(labelled(c).children))


def no_adapter(c: Config) -> Module:
    adapted = c.truth("add_adapter") and c.settled is not None
    reason = f"{c.path}add_adapter is true, with which no class of labels can be built"
    return module(wrong=refused(c, reason, "add_adapter") if adapted else None)


def x_vector(c: Config) -> Module:
    """A speaker's vector: layers over windows of frames, and a head on their mean and spread."""
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
    "ForCTC": ctc,
    "ForSequenceClassification": sequence_or_refusal,
    "ForAudioFrameClassification": frames,
    "ForXVector": x_vector,
}

heads(WAV2VEC2, "Wav2Vec2", wav2vec2_model, ForPreTraining=pre_training, **LABELLING)

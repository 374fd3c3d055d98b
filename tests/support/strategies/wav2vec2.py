from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of

PROBABILITIES = st.sampled_from([0, 0.0, 0.05, 1])


@st.composite
def speech_values(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> Values:
    """A small config of wav2vec 2.0 or a relative; `options` are keys of the family's own."""
    heads, groups, depth = draw(sizes(4)), draw(sizes(3)), draw(sizes(3))
    lists = st.lists(sizes(5), min_size=depth, max_size=depth)
    width = {"num_attention_heads", "num_conv_pos_embedding_groups", "hidden_size"}
    convolutions = {"conv_dim", "conv_kernel", "conv_stride"}
    values = {
        "num_attention_heads": heads,
        "num_conv_pos_embedding_groups": groups,
        "hidden_size": heads * groups * draw(sizes(3)),
        "num_hidden_layers": draw(sizes(3, least=0)),
        "intermediate_size": draw(sizes(20)),
        "vocab_size": draw(sizes(20)),
        **{key: draw(lists) for key in sorted(convolutions)},
        "conv_bias": draw(st.booleans()),
        "feat_extract_norm": draw(st.sampled_from(["group", "layer"])),
        "num_conv_pos_embeddings": draw(sizes(6)),
        "do_stable_layer_norm": draw(st.booleans()),
        "mask_time_prob": draw(PROBABILITIES),
        "mask_feature_prob": draw(PROBABILITIES),
        "use_weighted_layer_sum": draw(st.booleans()),
        "classifier_proj_size": draw(sizes(6)),
        "adapter_attn_dim": draw(st.none() | sizes(4)),
        **{key: draw(option) for key, option in options.items()},
        **draw(labels()),
    }
    return draw(some_of(values, frozenset(width), frozenset(convolutions)))


@st.composite
def adapted_values(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> Values:
    """With the keys of the adapter and of the speaker's vector, which WavLM has, too."""
    values = draw(
        speech_values(
            adapter_kernel_size=sizes(4),
            num_adapter_layers=sizes(3, least=0),
            output_hidden_size=st.none() | sizes(12),
            xvector_output_dim=sizes(6),
            **options,
        )
    )
    depth = draw(sizes(3))
    lists = st.lists(sizes(5), min_size=depth, max_size=depth)
    tdnn = {key: draw(lists) for key in ("tdnn_dim", "tdnn_kernel", "tdnn_dilation")}
    return values | draw(st.sampled_from([{}, tdnn]))


def by_class(
    model_type: str, *adapted: str, **options: st.SearchStrategy[Any]
) -> dict[str, st.SearchStrategy[Values]]:
    """The strategy of the type, and of those of its classes that can have an adapter behind."""
    behind = adapted_values(add_adapter=st.booleans(), **options)
    return {model_type: adapted_values(**options)} | dict.fromkeys(adapted, behind)


VALUES = (
    by_class(
        "wav2vec2",
        "Wav2Vec2Model",
        "Wav2Vec2ForCTC",
        "Wav2Vec2ForPreTraining",
        "Wav2Vec2ForXVector",
        num_codevector_groups=st.sampled_from([1, 2, 4]),
        num_codevectors_per_group=sizes(5),
        codevector_dim=st.sampled_from([4, 8]),
        proj_codevector_dim=sizes(6),
    )
    | {
        "hubert": speech_values(
            feat_proj_layer_norm=st.booleans(), conv_pos_batch_norm=st.booleans()
        ),
        "HubertForCTC": st.builds(
            lambda values, width: values | {"add_adapter": True, "output_hidden_size": width},
            speech_values(feat_proj_layer_norm=st.booleans()),
            sizes(9),
        ),
    }
    | by_class("wavlm", "WavLMModel", "WavLMForCTC", "WavLMForXVector", num_buckets=sizes(9))
)

from hypothesis import strategies as st
from support.strategies.common import Values, labels, sizes, some_of
from support.strategies.resnet import resnet_values

BACKBONE = {
    "model_type": "resnet",
    "depths": [1, 2, 1, 1],
    "hidden_sizes": [8, 12, 16, 20],
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
# The class's own backbone is timm's ResNet-50, which cannot be built without timm.
LEAST = {"detr": {"use_timm_backbone": False, "backbone_config": BACKBONE}}


@st.composite
def detr_values(draw: st.DrawFn) -> Values:
    D, H = st.sampled_from([16, 32, 64]), st.sampled_from([8, 16])
    backbones = st.builds(lambda values: {"model_type": "resnet"} | values, resnet_values())
    values = {
        "backbone_config": draw(backbones),
        "num_queries": draw(sizes(9)),
        "encoder_layers": draw(sizes(2, least=0)),
        "decoder_layers": draw(sizes(2, least=0)),
        "encoder_ffn_dim": draw(sizes(9)),
        "decoder_ffn_dim": draw(sizes(9)),
        "encoder_attention_heads": draw(H),
        "decoder_attention_heads": draw(H),
        "d_model": draw(D),
        "position_embedding_type": draw(st.sampled_from(["sine", "learned"])),
        **draw(labels()),
    }
    return {"use_timm_backbone": False} | draw(some_of(values))


@st.composite
def segmentation_values(draw: st.DrawFn) -> Values:
    """With a backbone that hands on three stages or more, for the mask head."""
    stages = ["stem", *BACKBONE["out_features"]]
    some = draw(st.sets(st.sampled_from(stages), min_size=3))
    handed = {"out_features": [name for name in stages if name in some]}
    return draw(detr_values()) | {"backbone_config": BACKBONE | handed}


VALUES = {"detr": detr_values(), "DetrForSegmentation": segmentation_values()}

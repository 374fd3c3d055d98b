"""Counts that others published for image models, from the classes' own defaults where they fit."""

import pytest
from support.bert_configs import config_of

from auditor.analytic import Role, catalogue

IMAGENET = {"num_labels": 1000}
BASIC = {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512]}
GIANT = {
    "hidden_size": 1536,
    "num_hidden_layers": 40,
    "num_attention_heads": 24,
    "use_swiglu_ffn": True,
    "image_size": 518,
}


@pytest.mark.parametrize(
    ("values", "target", "parameters"),
    [
        # `num_params` of torchvision's weights
        pytest.param(
            {"model_type": "resnet", **IMAGENET, **BASIC, "depths": [2, 2, 2, 2]},
            "ResNetForImageClassification",
            11_689_512,
            id="resnet18",
        ),
        pytest.param(
            {"model_type": "resnet", **IMAGENET},
            "ResNetForImageClassification",
            25_557_032,
            id="resnet50",
        ),
        pytest.param(
            {"model_type": "swin", **IMAGENET},
            "SwinForImageClassification",
            28_288_354,
            id="swin_t",
        ),
        pytest.param(
            {"model_type": "convnext", **IMAGENET},
            "ConvNextForImageClassification",
            28_589_128,
            id="convnext_tiny",
        ),
        # The original SAM counts no positional embedding: its matrix of 2 * 128 is a buffer there.
        pytest.param({"model_type": "sam"}, "SamModel", 93_735_472 + 2 * 128, id="sam_vit_b"),
    ],
)
def test_a_published_image_model_has_the_published_count(values, target, parameters):
    assert catalogue.expect(config_of(**values), target).parameters == parameters


@pytest.mark.parametrize(
    ("values", "target", "millions"),
    [
        pytest.param(
            {"model_type": "deit", **IMAGENET},
            "DeiTForImageClassificationWithTeacher",
            87,  # the paper's table of DeiT-B, distilled
            id="deit-base-distilled",
        ),
        # timm's table of results: vit_giant_patch14_dinov2
        pytest.param({"model_type": "dinov2", **GIANT}, "Dinov2Model", 1136.5, id="dinov2-giant"),
        pytest.param(
            {"model_type": "segformer", "num_labels": 150},
            "SegformerForSemanticSegmentation",
            3.8,  # the paper's table of SegFormer-B0 on ADE20K
            id="segformer-b0",
        ),
    ],
)
def test_a_published_image_model_has_the_published_millions(values, target, millions):
    parameters = catalogue.expect(config_of(**values), target).parameters
    digits = len(str(millions).partition(".")[2])
    assert round(parameters / 1e6, digits) == millions


def test_detr_learns_what_its_authors_log_and_freezes_the_rest():
    """Training logs `number of params: 41302368`: without the stem, layer1 and all norms."""
    config = config_of(model_type="detr", num_labels=91)
    expected = catalogue.expect(config, "DetrForObjectDetection")
    resnet = "model.backbone.conv_encoder.model"
    stem, first = (expected.modules[f"{resnet}.{name}"].parameters for name in ("conv1", "layer1"))
    assert expected.parameters - stem - first == 41_302_368
    norms = [tensor for tensor in expected.tensors if tensor.role is Role.BUFFER]
    assert len(norms) == 53 * 4
    assert {tensor.name.rsplit(".", 1)[1] for tensor in norms} == {
        "weight",
        "bias",
        "running_mean",
        "running_var",
    }


def test_detr_may_store_the_batches_that_its_shortcuts_have_seen():
    """transformers 4 warned that it uses none of these four of facebook/detr-resnet-50."""
    config = config_of(model_type="detr", num_labels=91)
    expected = catalogue.expect(config, "DetrForObjectDetection")
    assert [tensor.name for tensor in expected.tensors if tensor.role is Role.LEGACY] == [
        f"model.backbone.conv_encoder.model.layer{number}.0.downsample.1.num_batches_tracked"
        for number in (1, 2, 3, 4)
    ]

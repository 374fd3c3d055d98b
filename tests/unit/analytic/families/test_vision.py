"""What image models share: patches, stages, and what a backbone hands on."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of, refusal

from auditor.analytic import Role, catalogue
from auditor.errors import CheckpointError, SourceError

MANY = [1] * 33


def test_formulas_give_each_stage_the_place_of_its_sizes():
    config = config_of(model_type="convnext", depths=[2, 5], hidden_sizes=[8, 16], num_stages=2)
    expected = catalogue.expect(config, "ConvNextModel")
    formulas = {prefix: formula for prefix, (_, formula) in expected.modules.items()}
    assert formulas["encoder.stages.0.layers"] == "N[0]*(8*D[0]^2 + 58*D[0])"
    assert formulas["encoder.stages.1.layers"] == "N[1]*(8*D[1]^2 + 58*D[1])"
    assert formulas["encoder.stages.1.downsampling_layer"] == "4*D[0]*D[1] + 2*D[0] + D[1]"
    keys = {symbol.letter: symbol.key for symbol in expected.legend}
    assert (keys["N[1]"], keys["D[0]"]) == ("depths[1]", "hidden_sizes[0]")


def test_a_stage_of_a_nested_config_has_its_place_behind_the_subscript():
    inner = {"model_type": "resnet", "depths": [1], "hidden_sizes": [8]}
    config = config_of(model_type="detr", backbone_config=inner)
    expected = catalogue.expect(config, "DetrModel")
    keys = {symbol.letter: symbol.key for symbol in expected.legend}
    assert keys["D_backbone[0]"] == "backbone_config.hidden_sizes[0]"


@given(st.integers(0, 3), st.sets(st.integers(0, 3), min_size=1).map(sorted))
def test_a_backbone_selects_its_outputs_in_three_ways(missing, chosen):
    names = ["stem", "stage1", "stage2", "stage3"]
    config = {"model_type": "convnext", "depths": [1] * 3, "hidden_sizes": [2, 4, 6]}
    config |= {"num_stages": 3 - missing}
    told = [
        {"out_features": [names[number] for number in chosen]},
        {"out_indices": chosen},
        {"out_indices": [number - len(names) for number in chosen]},
    ]
    expected = [catalogue.expect(config_of(**config, **way), "ConvNextBackbone") for way in told]
    assert expected[0].tensors == expected[1].tensors == expected[2].tensors
    norms = {name.split(".")[1] for name in expected[0].modules if "norms." in name}
    assert norms == {names[number] for number in chosen}


def test_a_list_that_does_not_fit_the_stages_is_named(subtests):
    for values, message in [
        ({"depths": MANY}, r"^depths has 33 items, expected 1 to 32$"),
        ({"num_heads": [3, 6]}, r"^num_heads has 2 items, expected 4 to 32$"),
        ({"mlp_ratio": -1.0}, r"^intermediate\.dense\.weight would have a negative size: "),
        ({"out_features": ["stage5"]}, r"^out_features has 'stage5'; there are 4 stages$"),
        ({"out_features": "stage1"}, r"^out_features is .*, expected a list$"),
        ({"out_indices": [1, 5]}, r"^out_indices goes to 5; there are 4 stages$"),
        ({"out_indices": [-6]}, r"^out_indices goes to -6; there are 4 stages$"),
    ]:
        with subtests.test(values=values, message=message):
            catalogue.expect(config_of(model_type="swin"), "SwinBackbone")
            assert re.match(message, refusal("SwinBackbone", model_type="swin", **values))


def test_stages_whose_layers_are_too_many_together_are_refused():
    values = {"model_type": "segformer", "depths": [3_000] * 4}  # three times 22 names, and 18
    with pytest.raises(CheckpointError, match=r"^the config would imply 252,000 tensors, expected"):
        catalogue.expect(config_of(**values), "SegformerModel")


def test_a_detector_whose_backbone_is_not_known_is_not_audited(subtests):
    for values, message in [
        ({"backbone": "resnet50d"}, r"^no closed form is known for backbone 'resnet50d' of timm$"),
        (
            {"backbone_config": {"model_type": "timm_backbone", "backbone": "x"}},
            r"^no closed form is known for backbone_config\.backbone 'x' of timm$",
        ),
        (
            {"backbone_config": {"model_type": "swin"}},
            r"^no closed form is known for DETR with a backbone 'swin'$",
        ),
    ]:
        with subtests.test(values=values, message=message):
            catalogue.expect(config_of(model_type="detr", backbone="resnet50.a1_in1k"), "DetrModel")
            with pytest.raises(SourceError, match=message):
                catalogue.expect(config_of(model_type="detr", **values), "DetrModel")


def test_a_mask_head_that_cannot_be_built_is_refused_with_a_reason(subtests):
    for values, message in [
        (
            {"backbone_config": {"model_type": "resnet"}},
            r"^backbone_config\.out_features selects 1 stages, expected 3$",
        ),
        ({"position_embedding_type": "none"}, r"^position_embedding_type is neither sine nor"),
    ]:
        with subtests.test(values=values, message=message):
            assert not refusal("DetrForSegmentation", model_type="detr")
            assert re.match(message, refusal("DetrForSegmentation", model_type="detr", **values))


def test_a_resnet_of_timm_has_the_convolutions_of_its_name(subtests):
    """ResNet-34 has 33 and a classifier, which a backbone lacks; the shortcuts come on top."""
    for name, layers, convolutions, widest in [
        ("resnet18", 8, 20, 512),
        ("resnet34", 16, 36, 512),
        ("resnet101", 33, 104, 2048),
    ]:
        with subtests.test(name=name, layers=layers, convolutions=convolutions, widest=widest):
            tensors = catalogue.expect(
                config_of(model_type="detr", backbone=name), "DetrModel"
            ).tensors
            shapes = {tensor.name: tensor.shape for tensor in tensors if "backbone" in tensor.name}
            kernels = [name for name, shape in shapes.items() if len(shape) == 4]
            assert len([name for name in kernels if name.endswith("conv1.weight")]) == layers + 1
            assert len(kernels) == convolutions
            assert max(shape[0] for shape in shapes.values() if shape) == widest


# --- DETR's ResNet --------------------------------------------------------------------------------


def test_the_norms_of_detr_are_frozen():
    config = config_of(model_type="detr", num_labels=91)
    expected = catalogue.expect(config, "DetrForObjectDetection")
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

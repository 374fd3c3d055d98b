"""What DETR's ResNet holds that is not learned."""

from support.bert_configs import config_of

from auditor.analytic import Role, catalogue


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

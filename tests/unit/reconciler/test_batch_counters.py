"""Batch counters that are not stored: transformers lists them, and no output depends on them."""

import pytest

from auditor import audit

COUNTER = ".num_batches_tracked"


@pytest.fixture(scope="module")
def resnet():
    transformers = pytest.importorskip("transformers")
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))
    return model.eval()


def saved(model, folder, lost):
    state = {name: one for name, one in model.state_dict().items() if not name.endswith(lost)}
    model.save_pretrained(folder, state_dict=state)
    return str(folder)


@pytest.mark.oracle
def test_counters_that_are_not_stored_are_no_alarm(resnet, tmp_path):
    import torch  # noqa: PLC0415 - seconds

    folder = saved(resnet, tmp_path, COUNTER)
    loaded, info = type(resnet).from_pretrained(folder, output_loading_info=True)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded.eval()(images).logits, resnet(images).logits)
    report = audit(folder)
    [found] = [one for one in report.findings if one.kind == "newly-initialized"]
    assert set(found.names) == set(info["missing_keys"])
    assert {name[-len(COUNTER) :] for name in found.names} == {COUNTER}
    assert (report.verdict, report.residual) == ("clean", 0)


@pytest.mark.oracle
@pytest.mark.parametrize("lost", [".running_mean", ".running_var"])
def test_statistics_that_are_not_stored_are_missing(resnet, lost, tmp_path):
    report = audit(saved(resnet, tmp_path, lost))
    [found] = [one for one in report.findings if one.severity == "error"]
    assert found.kind == "missing"
    assert {name[-len(lost) :] for name in found.names} == {lost}
    assert report.residual == 0

"""Law 9 for timm: the table has the tensors that timm itself builds, whatever the head."""

import json
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.libraries import needs, with_timm

from auditor.analytic import Config
from auditor.analytic.timm_table import expect_timm, expect_wrapped
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.inventory import inventory

pytestmark = [pytest.mark.oracle, needs("timm")]

IMAGES = "TimmWrapperForImageClassification"


def config_of(pretrained: str) -> dict:
    """Return the config.json that timm writes for pretrained weights, before a new head."""
    import timm  # noqa: PLC0415 - seconds

    source = timm.get_pretrained_cfg(pretrained).to_dict()
    config = {"architecture": pretrained.partition(".")[0], "pretrained_cfg": source}
    return config | {"num_classes": source["num_classes"]}


def names() -> st.SearchStrategy[str]:
    with_timm()
    import timm  # noqa: PLC0415 - as above

    return st.sampled_from(timm.list_models(pretrained=True))


@settings(max_examples=20)
@given(data=st.data(), classes=st.none() | st.integers(0, 40), channels=st.sampled_from([3, 1, 4]))
def test_the_table_is_what_timm_builds(data, classes, channels):
    config = config_of(data.draw(names()))
    if classes is not None:
        config["num_classes"] = classes
    size = config["pretrained_cfg"]["input_size"]
    config["pretrained_cfg"]["input_size"] = [channels, *size[1:]]
    try:
        found = expect_timm(Config(values=config), config["architecture"])
    except SourceError:  # what timm refuses is outside, and what has no proportion
        return
    built = inventory("timm", config["architecture"], config)
    assert {*found.tensors} == {*built.tensors}
    assert found.parameters == built.parameters


@given(data=st.data(), target=st.sampled_from(["TimmWrapperModel", *[IMAGES] * 2]))
@settings(max_examples=8)
def test_the_wrapper_has_what_it_asks_timm_for(data, target):
    """transformers builds it only beside torchvision; this is the call in its source."""
    architecture = data.draw(names()).partition(".")[0]
    config = {"architecture": architecture, "num_classes": 7}
    try:
        found = expect_wrapped(Config(values=config), target)
    except SourceError:
        return
    import timm  # noqa: PLC0415 - seconds
    import torch  # noqa: PLC0415 - likewise

    with torch.device("meta"):
        built = timm.create_model(architecture, num_classes=7 if target == IMAGES else 0)
    names_built = {f"timm_model.{name}" for name in built.state_dict()}
    assert {one.name for one in found.tensors} == names_built
    assert found.parameters == sum(one.numel() for one in built.parameters())


@given(data=st.data())
@settings(max_examples=8)
def test_an_older_config_is_what_timm_builds(data):
    architecture = data.draw(names()).partition(".")[0]
    config = {"architecture": architecture, "num_classes": 7}
    try:
        found = expect_timm(Config(values=config), architecture)
    except SourceError:
        return
    try:
        built = inventory("timm", architecture, config)
    except CheckpointError:  # timm finds how a network was pruned by its pretrained_cfg alone
        assert architecture.endswith("_pruned")
        return
    assert {*found.tensors} == {*built.tensors}


def test_the_tool_writes_the_table():
    with_timm()
    import rebuild_timm  # noqa: PLC0415 - imports timm

    with ZipFile(rebuild_timm.PLACE) as members:
        written = json.loads(members.read("xception.json"))
    assert json.loads(json.dumps(rebuild_timm.family_of("xception"))) == written

"""Models of timm without timm: heads, and what lies outside the table."""

import json
import tempfile
from pathlib import Path

import pytest
from support.builders import safetensors_bytes

from auditor import audit
from auditor.analytic import Config, Role
from auditor.analytic.timm_table import expect_timm
from auditor.errors import CheckpointError, SourceError

SIZED = {"vit_base_patch16_224", "deit_small_patch16_224", "swin_tiny_patch4_window7_224"}


def config_of(architecture: str, **keys: object) -> dict:
    source = {"input_size": [3, 224, 224], "fixed_input_size": architecture in SIZED}
    return {"architecture": architecture, "num_classes": 1000, "pretrained_cfg": source, **keys}


def expected(architecture: str, **keys: object):
    return expect_timm(Config(values=config_of(architecture, **keys)), architecture)


def test_the_head_has_a_row_for_each_class_and_the_stem_a_slice_for_each_channel():
    config = config_of("resnet50", num_classes=7)
    config["pretrained_cfg"]["input_size"] = [1, 64, 64]
    shapes = {one.name: one.shape for one in expect_timm(Config(values=config), "resnet50").tensors}
    assert shapes["fc.weight"] == (7, 2048)
    assert shapes["fc.bias"] == (7,)
    assert shapes["conv1.weight"] == (64, 1, 7, 7)


def test_an_older_config_without_pretrained_cfg_is_of_the_default_size():
    older = {"architecture": "vit_base_patch16_224", "num_classes": 1000, "global_pool": "token"}
    found = expect_timm(Config(values=older), "vit_base_patch16_224")
    assert found.parameters == expected("vit_base_patch16_224").parameters


def test_a_model_without_classes_has_no_head():
    [gone] = {one.name.partition(".")[0] for one in expected("resnet50").tensors} - {
        one.name.partition(".")[0] for one in expected("resnet50", num_classes=0).tensors
    }
    assert gone == "fc"


def test_what_lies_outside_is_named(subtests):
    for architecture, keys, named in [
        ("no_such_net", {}, "no_such_net"),
        ("resnet50", {"model_args": {"width": 2}}, "model_args"),
        ("vit_base_patch16_224", {"pretrained_cfg": {"global_pool": "map"}}, "global_pool"),
        (
            "vit_base_patch16_224",
            {
                "pretrained_cfg": {
                    "fixed_input_size": True,
                    "input_size": [3, 48, 48],
                }
            },
            "pretrained_cfg.input_size",
        ),
    ]:
        with (
            subtests.test(architecture=architecture, keys=keys, named=named),
            pytest.raises(SourceError, match=named),
        ):
            expected(architecture, **keys)


def test_a_value_that_is_no_size_is_a_fault_of_the_config(subtests):
    for keys in [
        {"num_classes": "10"},
        {"num_classes": -1},
        {"num_classes": True},
        {"num_classes": 2**70},
        {"pretrained_cfg": 3},
        {"pretrained_cfg": {"input_size": [3]}},
        {"pretrained_cfg": {"input_size": [0, 2, 2]}},
    ]:
        with subtests.test(keys=keys), pytest.raises(CheckpointError):
            expected("resnet50", **keys).tensors  # noqa: B018 - sizes are checked when it is listed


def written(folder, change) -> None:
    """Write a checkpoint of resnet18 whose tensors `change` may edit."""
    config = config_of("resnet18", num_classes=5)
    tensors = {
        one.name: ("I64" if one.role is Role.LEGACY else "F32", one.shape)
        for one in expect_timm(Config(values=config), "resnet18").tensors
    }
    change(tensors)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))


def reshape(tensors) -> None:
    tensors["conv1.weight"] = ("F32", (64, 4, 7, 7))


def drop_counters(tensors) -> None:
    for name in [name for name in tensors if name.endswith("num_batches_tracked")]:
        del tensors[name]


def test_a_checkpoint_of_timm_gets_a_verdict(subtests, tmp_path):
    for change, kinds in [
        (lambda _: None, set()),
        (drop_counters, set()),
        (lambda tensors: tensors.pop("layer1.0.conv1.weight"), {"missing"}),
        (lambda tensors: tensors.pop("bn1.running_mean"), {"missing"}),
        (reshape, {"mismatched"}),
        (lambda tensors: tensors.update(extra=("F32", (2,))), {"unexpected"}),
    ]:
        with subtests.test(change=change, kinds=kinds):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            written(place, change)
            outcome = audit(str(place))
            assert outcome.expected is not None
            assert outcome.target == "resnet18"
            assert outcome.expected.library.startswith("timm ")
            alarms = {one.kind for one in outcome.findings if one.severity != "info"}
            assert alarms == kinds


def test_the_wrapper_of_transformers_gets_a_verdict(subtests, tmp_path):
    for lost in [0, 1]:
        for prefix in ["timm_model.", ""]:
            with subtests.test(prefix=prefix, lost=lost):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                written(place, lambda _: None)
                tensors = {
                    f"{prefix}{one.name}": ("I64" if one.role is Role.LEGACY else "F32", one.shape)
                    for one in expected("resnet18", num_classes=5).tensors[lost:]
                }
                config = {"architectures": ["TimmWrapperForImageClassification"], "num_classes": 5}
                config |= {"model_type": "timm_wrapper", "architecture": "resnet18"}
                (place / "config.json").write_text(json.dumps(config))
                (place / "model.safetensors").write_bytes(safetensors_bytes(tensors))
                outcome = audit(str(place))
                assert outcome.target == "TimmWrapperForImageClassification"
                assert outcome.expected.library.startswith("timm ")
                alarms = [one.kind for one in outcome.findings if one.severity != "info"]
                assert alarms == ["missing"] * lost

"""Configs of another model, declared drafting layers, and files that were not opened."""

import pytest
from support.checkpoints import expect, stored_by
from support.four_tensors import WHOLE, named

from auditor.analytic import Config, catalogue
from auditor.checkpoint.snapshot import RepoFile
from auditor.findings import (
    BadConfig,
    BadSize,
    WrongDtype,
    kind_of,
)
from auditor.reconciler.contents import Contents
from auditor.reconciler.other_model import (
    drafting_notes,
    listed_size_rule,
    other_model_rule,
    other_names_note,
)
from auditor.reconciler.reconcile import FamilyExpectations, reconcile

# --- another model's config -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rename", "found"),
    [
        (lambda name: name, []),
        (lambda name: f"module.{name}", []),  # strange to loading, and yet this model's
        (lambda name: f"blocks.{len(name)}.{name[::-1]}", [BadConfig]),
    ],
    ids=["as it is", "all below a prefix", "another model"],
)
def test_a_config_is_of_another_model_where_hardly_a_name_is_common(rename, found):
    expectation = expect("BertModel")
    tensors = [named(rename(tensor.name)) for tensor in expectation.tensors]
    family = FamilyExpectations(declared=expectation, siblings=tuple)
    result = reconcile(Contents(tensors=tensors), expectation, family)
    findings = list(other_model_rule(result, expectation, "config.json"))
    assert [kind_of(one) for one in findings] == found
    assert all("39 of its 39 tensors are not stored" in one.reason for one in findings)


def test_the_missing_tensors_of_another_model_are_at_most_all_that_its_config_implies():
    """ResNet's buffers are stored as well, and are not counted among its parameters."""
    config = Config(values={"model_type": "resnet", "depths": [1, 1], "hidden_sizes": [8, 16]})
    expectation = catalogue.expect(config, "ResNetModel")
    tensors = [named(f"blocks.{at}.{'x' * at}") for at in range(len(expectation.tensors))]
    family = FamilyExpectations(declared=expectation, siblings=tuple)
    result = reconcile(Contents(tensors=tensors), expectation, family)
    [finding] = other_model_rule(result, expectation, "config.json")
    learned = sum(tensor.role.learned for tensor in expectation.tensors)
    assert learned < len(expectation.tensors)
    assert f"{learned} of its {learned} tensors are not stored" in finding.reason


def test_a_model_of_the_same_sizes_is_the_same_under_other_names():
    expectation = expect("BertModel")
    needed = stored_by(expectation)
    foreign = [f"x{number}.{one.name[::-1]}" for number, one in enumerate(needed)]
    family = FamilyExpectations(declared=expectation, siblings=tuple)
    whole = [one._replace(name=name) for name, one in zip(foreign, needed, strict=True)]
    result = reconcile(Contents(tensors=whole), expectation, family)
    assert list(other_model_rule(result, expectation, "config.json")) == []
    assert "have the shapes of the 39 that are missing" in other_names_note(
        result, expectation, None
    )
    less = reconcile(Contents(tensors=whole[1:]), expectation, family)
    assert other_names_note(less, expectation, None) is None
    assert list(other_model_rule(less, expectation, "config.json"))
    names_alone = Contents(tensors=[named(name) for name in foreign])
    unseen = reconcile(names_alone, expectation, family)
    total = 2 * expectation.parameters
    assert list(other_model_rule(unseen, expectation, "config.json", total)) == []
    assert "as many bytes as the 39" in other_names_note(unseen, expectation, total)
    for other in (None, total + 2):
        assert other_names_note(unseen, expectation, other) is None
        assert list(other_model_rule(unseen, expectation, "config.json", other))


@pytest.mark.parametrize(
    ("values", "names", "said"),
    [
        ({"mtp_num_hidden_layers": 1}, ["model.layers.0.w"], ["mtp_num_hidden_layers is 1"]),
        ({"mtp_num_hidden_layers": 1}, ["mtp.layers.0.w"], []),
        ({"mtp_num_hidden_layers": 0}, ["model.layers.0.w"], []),
        ({"mtp_num_hidden_layers": 1}, [], []),
        (
            {"text_config": {"mtp_num_hidden_layers": 2}},
            ["model.layers.0.w"],
            ["text_config.mtp_num_hidden_layers is 2"],
        ),
        (
            {"num_nextn_predict_layers": 1, "num_hidden_layers": 3},
            ["model.layers.2.w"],
            ["num_nextn_predict_layers is 1"],
        ),
        ({"num_nextn_predict_layers": 1, "num_hidden_layers": 3}, ["model.layers.3.w"], []),
        ({"num_nextn_predict_layers": "1"}, ["model.layers.3.w"], []),
    ],
)
def test_layers_for_drafting_that_are_declared_and_absent_are_noted(values, names, said):
    notes = list(drafting_notes(Config(values=values), [named(name) for name in names]))
    end = ", and no layer for drafting tokens is stored"
    assert notes == [f"{words}{end}" for words in said]


# --- sizes from a listing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "declared", "found"),
    [
        (44 * 4 + 300, "F32", []),
        (44 * 2 + 300, "BF16", []),
        (44 * 4 + 300, "BF16", []),  # room for buffers
        (44 * 2 + 50, "F32", [(WrongDtype, "2 for each of 44 parameters and 50 around them")]),
        (40, "F32", [(BadSize, "fewer than the 176 that 44 parameters take in F32: -136")]),
        (None, "F32", []),
        (40, None, []),
    ],
)
def test_an_unopened_file_has_room_for_the_expected_shapes(size, declared, found):
    files = [RepoFile(name="other.h5", size=1), RepoFile(name="model.safetensors", size=size)]
    findings = list(listed_size_rule(files, WHOLE, declared))
    assert [kind_of(one) for one in findings] == [kind for kind, _ in found]
    for one, (_, words) in zip(findings, found, strict=True):
        assert words in one.reason

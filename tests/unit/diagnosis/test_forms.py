"""Checkpoints whose names are those in memory: a state dict that was saved as it was."""

import pytest
from support.changes import with_names
from support.checkpoints import expect, stored
from support.small_snapshots import snapshot_of

from auditor.analytic import Role
from auditor.analytic.name_forms import NameForms
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.name_kinds import kinds_of

CLASS = "ViTForImageClassification"
VIT = {
    "model_type": "vit",
    "hidden_size": 8,
    "num_hidden_layers": 12,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "image_size": 16,
    "patch_size": 8,
    "num_labels": 3,
}
IN_MEMORY = [
    stored(name, one.shape)
    for expectation in [expect(CLASS, **VIT)]
    for one in expectation.tensors
    if one.role is Role.PARAMETER
    for names in expectation.loading.reported((one.name,))
    for name in names
]


def diagnosed(rename=str, **values):
    snapshot = snapshot_of(IN_MEMORY, **{**VIT, "architectures": [CLASS], **values})
    renames = {one.name: rename(one.name) for one in IN_MEMORY}
    report = examine(with_names(snapshot, renames), Options(requested="saved"))
    return report.verdict, [(one.cause, one.fields) for one in report.diagnosis]


def test_a_state_dict_is_clean_as_it_is():
    assert diagnosed() == ("clean", [])


@pytest.mark.parametrize(
    ("key", "declared"),
    [
        ("num_hidden_layers", 11),
        ("num_hidden_layers", 13),
        ("num_hidden_layers", 24),
        ("intermediate_size", 40),
        ("hidden_size", 16),
    ],
)
def test_a_key_is_solved_for(key, declared):
    found = [("config-field", ((key, declared, VIT[key]),))]
    assert diagnosed(**{key: declared}) == ("findings", found)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "student.", "net.module."])
def test_a_prefix_is_found(prefix):
    assert diagnosed(lambda name: prefix + name) == ("findings", [("wrapper-prefix", ())])


def test_a_wrapper_inside_is_found():
    _, found = diagnosed(lambda name: name.replace(".1.", ".1._fsdp_wrapped_module."))
    assert found == [("wrapper-prefix", ())]


def test_layers_are_counted_from_another_start():
    def later(name):
        before, _, behind = name.partition("vit.layers.")
        number, dot, rest = behind.partition(".")
        return f"vit.layers.{int(number) + 1}{dot}{rest}" if behind and not before else name

    assert diagnosed(later) == ("findings", [("layers-renumbered", ())])


FORMS = NameForms(
    [
        ("a.layer.0.dense.weight", "a.layers.0.fc.weight"),
        ("a.norm.weight", "a.norm.weight"),
        ("swapped.one", "swapped.two"),
        ("swapped.two", "swapped.one"),
    ]
)


@pytest.mark.parametrize(
    ("on_disk", "in_memory"),
    [
        ("a.layer.17.dense.weight", "a.layers.17.fc.weight"),
        ("a.norm.weight", "a.norm.weight"),
        ("swapped.one", "swapped.one"),  # it is a name in both forms
        ("unknown.3", "unknown.3"),
    ],
)
def test_a_name_has_two_forms(on_disk, in_memory):
    assert FORMS.in_memory(on_disk) == in_memory
    assert FORMS.on_disk(in_memory) == on_disk


def test_the_form_is_seen_behind_a_prefix():
    assert FORMS.are_in_memory(kinds_of(["module.a.layers.3.fc.weight", "module.a.norm.weight"]))
    assert not FORMS.are_in_memory(kinds_of(["module.a.layer.3.dense.weight", "other"]))
    assert not FORMS.are_in_memory(kinds_of([]))

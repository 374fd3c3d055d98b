"""Tensors that are stored as they are in memory, where save_pretrained writes others."""

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of
from support.checkpoints import stored

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic.conversions import ConvertedGroup, converted_groups, tensors_before_conversion
from auditor.findings import Severity
from auditor.reconciler.contents import Contents
from auditor.reconciler.loading.stored_form import expected_as_stored
from auditor.reconciler.reconcile import FamilyExpectations, reconcile
from auditor.walker import walk

TINY = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "patch_size": 2}
# gates in front of what is gated, which is one tensor on disk and two in memory
DINO = {"model_type": "dinov2", "use_swiglu_ffn": True, "image_size": 4, **TINY}
# experts, one by one on disk and two tensors a layer in memory
MIXTRAL = {
    "model_type": "mixtral",
    "vocab_size": 16,
    "intermediate_size": 4,
    "num_key_value_heads": 1,
    "num_local_experts": 3,
    **TINY,
}
CLASSES = [
    (DINO, "Dinov2Model"),
    (DINO, "Dinov2ForImageClassification"),
    (MIXTRAL, "MixtralModel"),
    (MIXTRAL, "MixtralForCausalLM"),
]


def expect(values: dict[str, Any], target: str) -> Expectation:
    return catalogue.expect(config_of(**values), target)


def groups(expectation: Expectation) -> list[ConvertedGroup]:
    return list(
        converted_groups(tensors_before_conversion(expectation), expectation.loading).values()
    )


def needed(expectation: Expectation) -> dict[str, tuple[int, ...]]:
    roles = {Role.PARAMETER, Role.BUFFER}
    return {one.name: one.shape for one in expectation.tensors if one.role in roles}


def in_form(expectation: Expectation, some: list[ConvertedGroup]) -> dict[str, tuple[int, ...]]:
    """A whole checkpoint with these groups as they are in memory."""
    shapes = needed(expectation)
    for group in some:
        for tensor in group.on_disk:
            del shapes[tensor.name]
        shapes.update(group.in_memory)
    return shapes


def audited(shapes: dict[str, tuple[int, ...]], expectation: Expectation):
    """What alarms, and the parameters that no finding explains."""
    family = FamilyExpectations(declared=expectation, siblings=lambda: ())
    tensors = [stored(name, shape) for name, shape in shapes.items()]
    result = reconcile(Contents(tensors=tensors), expectation, family)
    difference = walk(result.counted).total.parameters - expectation.parameters
    loud = [one.kind for one in result.findings if one.severity is not Severity.INFO]
    return loud, difference - sum(one.explains for one in result.findings)


@pytest.mark.parametrize(("values", "target"), CLASSES)
@given(st.data())
def test_each_group_is_expected_as_it_is_stored(values, target, data):
    plain = expect(values, target)
    every = groups(plain)
    assert every
    some = data.draw(st.lists(st.sampled_from(every), unique_by=lambda group: group.on_disk[0]))
    shapes = in_form(plain, some)
    found = expected_as_stored(plain, shapes)
    assert (found is plain) == (not some)
    assert needed(found) == shapes
    assert audited(shapes, found) == ([], 0)
    for prefix, (parameters, _) in found.modules.items():
        below = [name for name in shapes if not prefix or name.startswith(f"{prefix}.")]
        assert parameters == sum(prod(shapes[name]) for name in below)


def test_the_prefix_of_the_base_model_is_no_matter(subtests):
    for values, target in CLASSES:
        with subtests.test(values=values, target=target):
            plain = expect(values, target)
            prefix = f"{plain.prefix}."
            memory = in_form(plain, groups(plain))
            for shapes in (
                {name.removeprefix(prefix): shape for name, shape in memory.items()},
                {f"{prefix}{name}": shape for name, shape in memory.items()},
            ):
                found = expected_as_stored(plain, shapes)
                assert (
                    audited(shapes, found)[0]
                    == audited(memory, expected_as_stored(plain, memory))[0]
                )


def test_what_is_half_on_disk_is_expected_on_disk():
    plain = expect(MIXTRAL, "MixtralForCausalLM")
    first, *_ = groups(plain)
    half = needed(plain) | first.in_memory
    del half[first.on_disk[0].name]
    assert expected_as_stored(plain, half) is plain


def test_unusual_names_change_nothing():
    plain = expect(DINO, "Dinov2Model")
    assert expected_as_stored(plain, (*needed(plain), "other.gate_proj.weight")) is plain

"""The part of a load that is looked at has the report of the whole, whatever happened to it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.bert_configs import config_of
from support.checkpoints import Spoilt, expect, spoilt, stored

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic.conversions import class_memory
from auditor.reconciler.contents import Contents
from auditor.reconciler.loading.from_pretrained import (
    complete_load,
    load_of_differences,
    simulate_load,
)
from auditor.reconciler.loading.report import LoadReport
from auditor.reconciler.reconcile import FamilyExpectations, reconcile
from auditor.tensors import StoredTensor

Shape = tuple[int, ...]
SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 16}
MORE = {"intermediate_size": 4, "num_key_value_heads": 1}
# renamed and fused, fused in a tower, cut in two, and older names of every tensor
CLASSES = {
    "MixtralForCausalLM": {"model_type": "mixtral", "num_local_experts": 3, **SIZES, **MORE},
    "Qwen3_5MoeForConditionalGeneration": {
        "model_type": "qwen3_5_moe",
        "text_config": {**SIZES, **MORE, "num_experts": 2, "moe_intermediate_size": 4},
        "vision_config": {"depth": 1, "hidden_size": 8, "intermediate_size": 4, "num_heads": 2},
    },
    "Dinov2Model": {
        "model_type": "dinov2", "use_swiglu_ffn": True, "image_size": 4, "patch_size": 2,
        **{key: size for key, size in SIZES.items() if key != "vocab_size"},
    },
    "ViTForImageClassification": {"model_type": "vit", "image_size": 4, "patch_size": 2, **SIZES},
}  # fmt: skip


def parts(expectation: Expectation, tensors: list[StoredTensor]) -> tuple[LoadReport, LoadReport]:
    """The report on what is touched, and on all."""
    family = FamilyExpectations(declared=expectation, siblings=lambda: ())
    result = reconcile(Contents(tensors=tensors), expectation, family)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    whole = {name for name, one in result.plain.items() if one.name == name}
    return simulate_load(load_of_differences(expectation, shapes, whole)), simulate_load(
        complete_load(expectation, shapes)
    )


@given(spoilt())
def test_of_a_bert(case: Spoilt) -> None:
    tensors = {tensor.name: tensor for tensor in case.tensors}
    some, every = parts(expect(case.target, **case.changes), list(tensors.values()))
    assert some == every


@st.composite
def changed(draw: st.DrawFn, expectation: Expectation) -> dict[str, Shape]:
    """A checkpoint with some names dropped, reshaped, doubled or as they are in memory."""
    roles = {Role.PARAMETER, Role.BUFFER}
    whole = {one.name: one.shape for one in expectation.tensors if one.role in roles}
    in_memory = class_memory(expectation).shapes
    names, others = st.sampled_from(sorted(whole)), st.sampled_from(sorted(in_memory))
    for name in draw(st.lists(names, max_size=6)):
        how = draw(st.sampled_from(["dropped", "reshaped", "expert", "prefixed", "stranger"]))
        shape = whole.pop(name, (1,))
        match how:
            case "reshaped":
                whole[name] = (*shape, 2)
            case "expert":
                whole[name] = shape
                whole[name.replace(".0.", ".7.")] = shape
            case "prefixed":
                whole[f"{expectation.prefix}.{name}"] = shape
            case "stranger":
                whole[f"module.{name}"] = shape
    for name in draw(st.lists(others, max_size=3)):
        whole[name] = in_memory[name]
    return whole


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("target", CLASSES)
@given(data=st.data())
def test_of_what_is_renamed_and_converted(target: str, explicit: Any, data: Any) -> None:
    expectation = catalogue.expect(config_of(**CLASSES[target]), target)
    if explicit:  # as the oracle has it
        known = replace(expectation.loading, memory=class_memory(expectation))
        expectation = replace(expectation, loading=known)
    shapes = data.draw(changed(expectation))
    some, every = parts(expectation, [stored(name, shape) for name, shape in shapes.items()])
    assert some == every


@pytest.mark.parametrize("target", CLASSES)
def test_a_complete_checkpoint_is_not_changed(target: str) -> None:
    expectation = catalogue.expect(config_of(**CLASSES[target]), target)
    roles = {Role.PARAMETER, Role.BUFFER}
    shapes = {one.name: one.shape for one in expectation.tensors if one.role in roles}
    load = load_of_differences(expectation, shapes, shapes)
    assert not load.stored
    assert simulate_load(load) == LoadReport()

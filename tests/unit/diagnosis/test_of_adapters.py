"""Adapters whose settings, names or files are not what PEFT would have written."""

from itertools import count

import pytest
from support.small_adapters import (
    BELOW,
    CONFIG,
    GPT2,
    LORA,
    TENSORS,
    coded,
    files,
    folder_of,
)

import auditor


@pytest.fixture
def diagnosed(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    numbers = count()

    def of(tensors=TENSORS, **settings):
        folder = tmp_path / str(next(numbers))
        return auditor.audit(folder_of(folder, files({**LORA, **settings}, tensors)))

    return of


def other_rank(layer, last, rank):
    """Layers of another rank in another module."""
    return {
        f"{BELOW}.{layer}.{last}.lora_A.weight": ("F32", (rank, 8)),
        f"{BELOW}.{layer}.{last}.lora_B.weight": ("F32", (8, rank)),
    }


MAGNITUDES = {f"{BELOW}.{layer}.attn.c_attn.lora_magnitude_vector": (24,) for layer in (0, 1)}
HEAD = {"base_model.model.lm_head.weight": (40, 8)}


def beside(shapes):
    return TENSORS | {name: ("F32", shape) for name, shape in shapes.items()}


def test_a_key_of_the_settings_is_named_with_the_value_that_the_file_holds(diagnosed, subtests):
    two_ranks = TENSORS | other_rank(0, "attn.c_proj", 4) | other_rank(1, "attn.c_proj", 4)
    for tensors, declared, held in [
        (TENSORS, {"r": 4}, {"r": 2}),
        (TENSORS, {"rank_pattern": {"c_attn": 4}}, {"rank_pattern": {}}),
        (TENSORS, {"target_modules": ["c_fc"]}, {"target_modules": ["c_attn"]}),
        (beside(MAGNITUDES), {"use_dora": False}, {"use_dora": True}),
        (
            two_ranks,
            {"r": 16, "target_modules": ["c_attn", "attn.c_proj"]},
            {"r": 2, "rank_pattern": {"c_proj": 4}},
        ),
    ]:
        with subtests.test(declared=declared):
            report = diagnosed(tensors, **declared)
            [found] = report.diagnosis
            assert found.cause == "config-field"
            assert {key: value for key, _, value in found.fields} == held
            assert len(found.findings) == len(report.alarms)
            assert " in adapter_config.json" in found.fix


def test_tensors_that_a_setting_adds_may_be_lost(diagnosed, subtests):
    """PEFT would load such an adapter in silence if the setting were changed."""
    for tensors, key, value, held in [
        (TENSORS, "use_dora", True, False),
        (TENSORS, "bias", "lora_only", "none"),
        (TENSORS, "modules_to_save", ["lm_head"], None),
        (TENSORS, "target_modules", ["c_attn", "c_fc"], ["c_attn"]),
        (beside(HEAD), "modules_to_save", ["wte"], ["lm_head"]),
    ]:
        with subtests.test(key=key, held=held):
            [found] = diagnosed(tensors, **{key: value}).diagnosis
            assert (found.fields, found.undetermined) == ((), ((key, value),))
            assert found.alternatives == ({key: held},)
            assert "either they were lost or" in found.summary
            assert found.fix.startswith("save the adapter again with all of its tensors; ")


def test_two_lists_that_stand_for_all_layers_are_both_listed(diagnosed):
    [found] = diagnosed(layers_to_transform=[1]).diagnosis
    assert [one["layers_to_transform"] for one in found.alternatives] == [None, [0, 1]]
    assert "the shapes do not decide between layers_to_transform = null and [0, 1]" in found.summary


def test_in_memory_names_are_reported_as_those_of_an_adapter(diagnosed):
    tensors = {name.replace(".weight", ".sft.weight"): what for name, what in TENSORS.items()}
    [found] = diagnosed(tensors).diagnosis
    assert found.cause == "wrapper-prefix"
    assert "an adapter called 'sft'" in found.summary
    assert "save by PeftModel.save_pretrained" in found.fix


def of_lengths(queries, width, layers):
    """A LoRA of `c_attn`, as it is for a base with these lengths."""
    return {
        f"{BELOW}.{layer}.attn.c_attn.lora_{side}.weight": ("F32", shape)
        for layer in range(layers)
        for side, shape in (("A", (2, width)), ("B", (queries, 2)))
    }


def test_lengths_of_other_modules_are_those_of_another_base(diagnosed):
    for queries, width, layers, says in [
        (36, 12, 1, "takes 12 numbers there, and 8 in this one"),
        (36, 12, 3, "takes 12 numbers there, and 8 in this one"),
        (18, 8, 2, "gives 18 numbers there, and 24 in this one"),
    ]:
        [found] = diagnosed(of_lengths(queries, width, layers)).diagnosis
        assert found.cause == "other-base"
        assert says in found.summary
        assert found.explains.startswith("all ")


def test_modules_that_the_base_lacks_are_those_of_another_base(diagnosed):
    tower = {
        f"base_model.model.vision_tower.layers.{layer}.q_proj.lora_{side}.weight": ("F32", shape)
        for layer in (0, 1)
        for side, shape in (("A", (2, 4)), ("B", (4, 2)))
    }
    [found] = diagnosed(TENSORS | tower).diagnosis
    assert found.cause == "other-base"
    assert "4 tensors are for modules that this one does not have" in found.summary
    assert "'vision_tower.layers.0.q_proj'" in found.summary


def test_one_module_with_the_lengths_of_another_one_has_another_name(diagnosed):
    head = {
        f"base_model.model.unembed_tokens.lora_{side}.weight": ("F32", shape)
        for side, shape in (("A", (2, 8)), ("B", (40, 2)))
    }
    [found] = diagnosed(TENSORS | head).diagnosis
    assert found.cause == "moved-names"
    assert "2 tensors are for 'unembed_tokens', which the base does not have" in found.summary
    assert found.summary.endswith("its lengths are those of transformer.wte")


def test_no_module_of_the_base_is_called_modules_to_save(diagnosed):
    """The name of PEFT's wrapper in memory, around a head with one row more than the base's."""
    wrapped = {"base_model.model.lm_head.modules_to_save.weight": (41, 8)}
    report = diagnosed(beside(wrapped), modules_to_save=["lm_head"])
    assert report.verdict == "findings"
    assert not [one for one in report.diagnosis if one.cause == "config-field"]

"""The load report beside from_pretrained's, for a few model types; `make parity` does them all."""

import pytest
from bert_configs import config_of
from parity_cases.words import Raised, Word, compared

from auditor.analytic import catalogue
from auditor.analytic.families import _loading as facts
from auditor.reconciler.matching import places

# An encoder, a decoder and two towers with buffers of old, fused experts, a model of models, and
# one of pictures that version 5 names otherwise in memory.
SHARE = ("mpnet", "gpt2", "pegasus", "mixtral", "qwen2_5_vl", "segformer")


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", SHARE)
def test_every_load_report_is_that_of_from_pretrained(model_type: str) -> None:
    from parity_cases.rows import rows_of  # noqa: PLC0415 - seconds, which these tests alone pay

    rows = rows_of(model_type)
    assert {row.identical for row in rows} <= {"yes", "finer", "no"}
    assert any(row.identical == "yes" for row in rows)
    assert [row for row in rows if row.identical == "no"] == []


# --- the facts, against the library's own -----------------------------------------------------


def _keys() -> tuple[str, ...]:
    """Model types and class names, by either of which the library looks renames up."""
    types = [each for each in catalogue.model_types() if each != "transformer-2017"]
    return tuple(dict.fromkeys(key for each in types for key in (each, *catalogue.siblings(each))))


@pytest.mark.oracle
def test_the_renames_are_those_of_the_library() -> None:
    from transformers import conversion_mapping, core_model_loading  # noqa: PLC0415 - as above

    legacy = {
        pattern
        for each in conversion_mapping.get_checkpoint_conversion_mapping("legacy")
        for pattern in each.source_patterns
    }
    theirs = {
        key: tuple(
            (pattern.replace("*.", r".*\."), target)
            for each in conversion_mapping.get_checkpoint_conversion_mapping(key) or ()
            if isinstance(each, core_model_loading.WeightRenaming)
            for pattern, target in zip(each.source_patterns, each.target_patterns, strict=True)
            if pattern not in legacy
        )
        for key in _keys()
    }
    assert dict(facts.RENAMES) == {key: renames for key, renames in theirs.items() if renames}


@pytest.mark.oracle
def test_what_loading_leaves_out_is_what_the_classes_say() -> None:
    from parity_cases.library import unexpected_patterns  # noqa: PLC0415 - as above

    for model_type in catalogue.model_types():
        if model_type == "transformer-2017":
            continue
        classes = catalogue.siblings(model_type)
        theirs = {name: set(unexpected_patterns(name)) for name in classes}
        of_type = set().union(*theirs.values())  # a class has those of the models inside it, too
        for name in classes:
            ours = {*facts.SILENT.get(name, ()), *facts.SILENT.get(model_type, ())}
            assert theirs[name] <= ours <= of_type, name


# --- older names ------------------------------------------------------------------------------

TARGETS = {
    "clip_text_model": "CLIPTextModel",
    "gemma3": "Gemma3ForConditionalGeneration",
    "mixtral": "MixtralForCausalLM",
    "paligemma": "PaliGemmaForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
}
PICTURES = "vision_tower.post_layernorm.bias"
EXPERT = "layers.0.block_sparse_moe.experts.0.w1.weight"
FUSED = "layers.0.mlp.experts.0.up_proj.weight"


@pytest.mark.parametrize(
    ("model_type", "stored", "found"),
    [
        # as the indices of paligemma, medgemma-27b-it and Qwen2.5-VL-7B-Instruct have them
        ("paligemma", "vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "language_model.model.norm.weight", "language_model.model.norm.weight"),
        ("qwen2_5_vl", "visual.merger.ln_q.weight", "visual.merger.ln_q.weight"),
        ("qwen2_5_vl", "model.norm.weight", "model.norm.weight"),
        # as versions 4 and 5 have them in memory
        ("paligemma", "model.vision_tower.post_layernorm.bias", PICTURES),
        ("paligemma", "model.vision_tower.vision_model.post_layernorm.bias", PICTURES),
        ("gemma3", "model.language_model.norm.weight", "language_model.model.norm.weight"),
        ("qwen2_5_vl", "model.visual.merger.ln_q.weight", "visual.merger.ln_q.weight"),
        ("qwen2_5_vl", "model.language_model.norm.weight", "model.norm.weight"),
        ("clip_text_model", "text_model.final_layer_norm.bias", "final_layer_norm.bias"),
        ("mixtral", f"model.{EXPERT}", f"model.{EXPERT}"),
        ("mixtral", "model.layers.0.mlp.experts.0.w1.weight", f"model.{EXPERT}"),
        # the experts of a model inside another are found by their whole path alone
        ("qwen3_5_moe", f"model.language_model.{FUSED}", f"model.language_model.{FUSED}"),
        ("qwen3_5_moe", f"language_model.{FUSED}", f"model.language_model.{FUSED}"),
        ("qwen3_5_moe", f"model.model.language_model.{FUSED}", None),
        # and what is none of these
        ("paligemma", "vision_tower.vision_model.other.bias", None),
        ("paligemma", "vision_model.post_layernorm.bias", None),
        ("clip_text_model", "vision_model.final_layer_norm.bias", None),
        ("qwen2_5_vl", "model.model.language_model.norm.weight", None),
    ],
)
def test_an_older_name_finds_its_tensor(model_type: str, stored: str, found: str | None) -> None:
    expectation = catalogue.expect(config_of(model_type=model_type), TARGETS[model_type])
    tensor = places(expectation).of(stored).expected
    assert (tensor.name if tensor else None) == found


# --- how the two are compared -----------------------------------------------------------------

NOTHING = Word(frozenset(), frozenset(), frozenset())
LACKS = NOTHING._replace(missing=frozenset({"experts.down_proj"}))
MISFITS = NOTHING._replace(mismatched=frozenset({("experts.down_proj", ((1, 2), (3, 2)))}))
RAISED = Raised("ValueError: sizes differ")


@pytest.mark.parametrize(
    ("ours", "theirs", "fused", "identical"),
    [
        (NOTHING, NOTHING, False, "yes"),
        (LACKS, LACKS, True, "yes"),
        (LACKS, NOTHING, False, "no"),
        (NOTHING, LACKS, True, "no"),
        (LACKS, MISFITS, True, "finer"),
        (LACKS, MISFITS, False, "no"),
        (LACKS, MISFITS._replace(unexpected=frozenset({"x"})), True, "no"),
        (LACKS, RAISED, True, "finer"),
        (LACKS, RAISED, False, "no"),
        (NOTHING, RAISED, True, "no"),
    ],
)
def test_a_difference_is_finer_only_where_fused_tensors_are_wrong_for_both(
    ours: Word, theirs: Word | Raised, *, fused: bool, identical: str
) -> None:
    assert compared(ours, theirs, fused=fused).identical == identical

"""The load report beside from_pretrained's, for a few model types; `make parity` does them all."""

import pytest
from bert_configs import config_of
from parity_cases.words import Raised, Word, compared

from auditor.analytic import catalogue
from auditor.analytic.families import _loading as facts
from auditor.analytic.loading import LEGACY
from auditor.analytic.rules import Rule
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
def test_the_rules_are_those_of_the_library() -> None:
    """By class name and by model type; that they are combined as there, law 9 holds."""
    from transformers import conversion_mapping as library  # noqa: PLC0415 - as above

    from auditor.oracle.rules import rule_of  # noqa: PLC0415 - as above

    theirs = {
        key: _sorted([rule_of(each, None) for each in found])
        for key in _keys()
        if (found := library.get_checkpoint_conversion_mapping(key))
    }
    ours = {
        key: _sorted(
            [one if isinstance(one, Rule) else Rule((one[0],), (one[1],)) for one in rules]
        )
        for key, rules in facts.RULES.items()
    }
    assert ours == theirs
    legacy = library.get_checkpoint_conversion_mapping("legacy")
    assert tuple(rule_of(each, None) for each in legacy) == LEGACY


def _sorted(rules: list[Rule]) -> list[Rule]:
    """Renames first, as they are applied; each kind in its order."""
    return sorted(rules, key=lambda rule: bool(rule.operations))


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

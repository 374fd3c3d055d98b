"""The load report beside from_pretrained's, for a few model types; `make parity` does them all."""

from pathlib import Path

import pytest
from parity_cases.words import Raised, Silent, Word, compared, finer
from support.bert_configs import config_of

from auditor.analytic import catalogue
from auditor.analytic.family import loading_facts
from auditor.analytic.loading import LEGACY, Rule
from auditor.reconciler.matching import places

SHARE = [
    # An encoder, a decoder and two towers with buffers of old, fused experts, a model of models,
    # and one of pictures that version 5 names otherwise in memory.
    *(("closed", (each,)) for each in ("mpnet", "gpt2", "pegasus", "mixtral", "qwen2_5_vl")),
    ("closed", ("segformer",)),
    # Without a closed form: a tower under the names of three versions, an infinity in the config,
    # a fused projection that is cut in three, and experts of two kinds. Together, for the oracle's
    # process starts once for them.
    ("oracle", ("internvl", "bamba", "radio", "flex_olmo")),
]

CLASSES = 3  # of each type: the model, one with its head, and one with another


def _joined(part: str | tuple[str, ...]) -> str:
    return part if isinstance(part, str) else "-".join(part)


@pytest.mark.oracle
@pytest.mark.parametrize(("kind", "model_types"), SHARE, ids=_joined)
def test_every_load_report_is_that_of_from_pretrained(
    kind: str, model_types: tuple[str, ...], tmp_path: Path
) -> None:
    from parity_cases.loads import IGNORED  # noqa: PLC0415 - seconds, which these alone pay
    from parity_cases.rows import Work, rows_of  # noqa: PLC0415 - likewise

    rows, left_out = rows_of(Work(kind, model_types, 0, tmp_path, classes=CLASSES))
    assert left_out == []
    assert len(rows) > 5 * len(model_types)
    assert [row for row in rows if row.same == "no"] == []
    # What the library loads without a word is no alarm, but for what is tied and stored twice, and
    # for names made up of what it ignores: they belong to no class, and are dropped.
    alarms = {row.alarms for row in rows if row.case != IGNORED}
    assert alarms <= {"", "duplicate"}


# --- the facts, against the library's own -----------------------------------------------------


def _keys() -> tuple[str, ...]:
    """Model types and class names, by either of which the library looks renames up."""
    types = [each for each in catalogue.model_types() if each != "transformer-2017"]
    return tuple(dict.fromkeys(key for each in types for key in (each, *catalogue.siblings(each))))


@pytest.mark.oracle
def test_the_rules_are_those_of_the_library() -> None:
    """By class name and by model type; that they are combined as there, law 9 holds."""
    from transformers import conversion_mapping as library  # noqa: PLC0415 - as above

    from auditor.oracle.loading_rules import rule_of  # noqa: PLC0415 - as above

    theirs = {
        key: _sorted([rule_of(each, None) for each in found])
        for key in _keys()
        if (found := library.get_checkpoint_conversion_mapping(key))
    }
    ours = {
        key: _sorted(
            [one if isinstance(one, Rule) else Rule((one[0],), (one[1],)) for one in rules]
        )
        for key in _keys()
        if (rules := loading_facts(key).rules)
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
    (place,) = places(expectation).of((stored,))
    assert (place.expected.name if place.expected else None) == found


# --- how the two are compared -----------------------------------------------------------------

NOTHING = Word(frozenset(), frozenset(), frozenset())
LACKS = NOTHING._replace(missing=frozenset({"experts.down_proj"}))
MISFITS = NOTHING._replace(mismatched=frozenset({("experts.down_proj", ((1, 2), (3, 2)))}))
RAISED = Raised("ValueError: sizes differ")


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        (NOTHING, NOTHING, "yes"),
        (LACKS, LACKS, "yes"),
        (LACKS, NOTHING, "no"),
        (NOTHING, LACKS, "no"),
        (LACKS, MISFITS, "no"),
        (LACKS, LACKS._replace(unexpected=frozenset({"x"})), "no"),
        (Raised("one has the shape (1,), another (2,)"), RAISED, "yes"),
        (LACKS, RAISED, "no"),
        (RAISED, NOTHING, "no"),
        (Silent("no load report: gated"), NOTHING, "no"),
    ],
)
def test_two_words_are_the_same_or_they_are_not(
    ours: Word | Raised | Silent, theirs: Word | Raised, same: str
) -> None:
    assert compared(ours, theirs).same == same


@pytest.mark.parametrize(
    ("report", "names", "expected"),
    [
        ({"missing_keys": ["a"], "raises": None}, ["a"], False),
        ({"missing_keys": [], "raises": None}, ["experts"], True),  # the report has a mismatch
        ({"missing_keys": ["experts"], "raises": "sizes differ"}, ["experts"], True),
        (None, ["a"], False),
    ],
)
def test_findings_are_finer_where_they_name_a_part_of_what_is_reported(report, names, expected):
    finding = {"kind": "missing", "in_memory": [names], "silent": [False]}
    assert finer({"load_report": report, "findings": [finding]}) is expected

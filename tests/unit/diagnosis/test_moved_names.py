"""Changes of names: what they were saved from, and parts of a model in another place."""

import json
import re

import pytest
from support.checkpoints import stored_by
from support.examples import one_in
from support.small_snapshots import snapshot_of

from auditor.analytic import catalogue, read_config
from auditor.audit.model import examine_model
from auditor.audit.options import Options

DECODER = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VISION = {
    "hidden_size": 20,
    "intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
}
SIGLIP = {"vision_config": {"model_type": "siglip_vision_model", **VISION}}
CONFIGS = {
    "LlamaForCausalLM": {"model_type": "llama", **DECODER},
    "Qwen3MoeForCausalLM": {
        "model_type": "qwen3_moe",
        **DECODER,
        "head_dim": 8,
        "num_experts": 4,
        "moe_intermediate_size": 12,
    },
    "Qwen2MoeForCausalLM": {
        "model_type": "qwen2_moe",
        **DECODER,
        "num_experts": 4,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 8,
    },
    "LlavaForConditionalGeneration": {
        "model_type": "llava",
        "text_config": {"model_type": "llama", **DECODER},
        "vision_config": {"model_type": "clip_vision_model", **VISION},
    },
    "PaliGemmaForConditionalGeneration": {
        "model_type": "paligemma",
        "text_config": {"model_type": "gemma", **DECODER, "head_dim": 8},
        **SIGLIP,
        "projection_dim": 16,
    },
    "Qwen3VLForConditionalGeneration": {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", **DECODER, "head_dim": 8},
        "vision_config": {
            "depth": 2,
            "hidden_size": 20,
            "intermediate_size": 28,
            "num_heads": 4,
            "out_hidden_size": 16,
        },
    },
    "SiglipModel": {"model_type": "siglip", "text_config": DECODER, **SIGLIP},
    "ViTForImageClassification": {"model_type": "vit", **VISION},
    "BertForMaskedLM": {"model_type": "bert", **DECODER},
    "GPT2LMHeadModel": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2},
    "T5ForConditionalGeneration": {
        "model_type": "t5",
        "vocab_size": 48,
        "d_model": 16,
        "d_ff": 24,
        "d_kv": 4,
        "num_layers": 2,
        "num_heads": 4,
    },
    "WhisperForConditionalGeneration": {
        "model_type": "whisper",
        "vocab_size": 48,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 3,
    },
}
COMPILED = "the state dict of a compiled model was saved"
IN_PARALLEL = "the state dict of a DistributedDataParallel model was saved"
WRAPPED = "the model was saved from within a wrapper"


def tensors_of(name):
    config = read_config("config.json", json.dumps(CONFIGS[name]).encode())
    return stored_by(catalogue.expect(config, name))


def diagnoses_of(name, tensors):
    snapshot = snapshot_of(tensors, architectures=[name], **CONFIGS[name])
    return examine_model(snapshot, Options(requested="moved")).diagnosis


def diagnosis_of(name, rename):
    moved = [one._replace(name=rename(one.name)) for one in tensors_of(name)]
    [diagnosis] = diagnoses_of(name, moved)
    return diagnosis


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("_orig_mod.", COMPILED),
        ("module._orig_mod.", f"{IN_PARALLEL} and {COMPILED}"),
        ("net.", WRAPPED),
        ("module.net.", WRAPPED),
    ],
)
def test_wrappers_that_are_known_are_named_each(prefix, reason):
    found = diagnosis_of("LlamaForCausalLM", lambda name: f"{prefix}{name}")
    assert found.cause == "wrapper-prefix"
    assert found.summary.startswith(f"every name begins with {prefix} ({reason})")


def test_a_subtree_without_a_level_lacks_it():
    found = diagnosis_of("Qwen3MoeForCausalLM", lambda name: name.replace("mlp.experts", "experts"))
    assert found.cause == "moved-names"
    assert "names lack 'mlp.' after 'model.layers.N.'" in found.summary


def test_a_subtree_below_another_module_is_named_with_an_example():
    found = diagnosis_of(
        "Qwen2MoeForCausalLM",
        lambda name: name.replace("model.", "model.language_model.", "experts." in name),
    )
    assert found.cause == "moved-names"
    assert "names contain language_model. where the class does not (model." in found.summary
    assert (
        "language_model.layers.0.mlp.experts.0.down_proj.weight for model.layers" in found.summary
    )


@pytest.mark.parametrize(
    "name", ["LlavaForConditionalGeneration", "PaliGemmaForConditionalGeneration"]
)
def test_a_repeated_level_and_a_moved_tower_are_one_explanation(name):
    def spoilt(name):
        name = re.sub(r"^(model\.)?vision_tower", r"\1language_model.vision_tower", name)
        return re.sub(r"^(model\.)?language_model\.", r"\1" + 3 * "language_model.", name)

    found = diagnosis_of(name, spoilt)
    assert found.cause == "moved-names"
    assert found.summary.count("where the class does not") == 2
    assert found.explains.startswith("all ")


WRAPPER, MOVED = "wrapper-prefix", "moved-names"


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "cause"),
    one_in(
        2,
        [
            ("LlamaForCausalLM", "^", "base_model.model.", WRAPPER),
            ("LlamaForCausalLM", "^", "base_model.model.model.", WRAPPER),
            ("LlamaForCausalLM", r"(layers\.\d+\.)", r"\1_fsdp_wrapped_module.", WRAPPER),
            ("LlamaForCausalLM", "self_attn", "attention", MOVED),
            ("Qwen3MoeForCausalLM", "^", "module._orig_mod.", WRAPPER),
            ("Qwen3MoeForCausalLM", r"mlp\.experts", "mlp", MOVED),
            ("Qwen3MoeForCausalLM", r"mlp\.gate\.", "mlp.router.", MOVED),
            ("Qwen3MoeForCausalLM", r"mlp\.", "moe.", MOVED),
            ("LlavaForConditionalGeneration", "^multi_modal", "language_model.multi_modal", MOVED),
            ("LlavaForConditionalGeneration", r"^language_model\.", "llm.", MOVED),
            ("Qwen3VLForConditionalGeneration", r"visual\.", "language_model.visual.", MOVED),
            ("Qwen3VLForConditionalGeneration", r"visual\.blocks", "visual.encoder.blocks", MOVED),
            ("T5ForConditionalGeneration", r"^decoder\.", "encoder.decoder.", MOVED),
            ("T5ForConditionalGeneration", r"block\.", "layers.", MOVED),
            ("WhisperForConditionalGeneration", r"model\.encoder", "model.decoder.encoder", MOVED),
            ("BertForMaskedLM", r"encoder\.layer", "layers", MOVED),
            ("BertForMaskedLM", r"attention\.self", "attention", MOVED),
            ("BertForMaskedLM", r"cls\.predictions\.", "mlm_head.", MOVED),
            ("GPT2LMHeadModel", r"transformer\.h", "transformer.blocks", MOVED),
            ("ViTForImageClassification", r"classifier", "head", MOVED),
        ],
    ),
)
def test_folded_names_get_back_those_of_the_class(name, pattern, replacement, cause):
    renames = {re.sub(pattern, replacement, one.name): one.name for one in tensors_of(name)}
    diagnosis = diagnosis_of(name, lambda one: re.sub(pattern, replacement, one))
    assert diagnosis.cause == cause
    assert diagnosis.change.renames == {new: old for new, old in renames.items() if new != old}


@pytest.mark.parametrize("old", ["to_query", "queryquery", "quer"])
def test_of_modules_with_equal_shapes_each_gets_the_name_that_is_most_like_its_own(old):
    """The shapes of query, key and value are equal, so that only their names tell them apart."""
    misspelt = {
        name: re.sub(r"self\.(query|key|value)", lambda match: old_of(match[1], old), name)
        for name in (one.name for one in tensors_of("BertForMaskedLM"))
    }
    diagnosis = diagnosis_of("BertForMaskedLM", misspelt.get)
    assert (diagnosis.cause, " or " in diagnosis.summary) == (MOVED, False)
    assert all(diagnosis.change.renames.get(new, new) == name for name, new in misspelt.items())


def old_of(module, old):
    return f"self.{old.replace('query', module) if 'query' in old else module[:-1]}"


@pytest.mark.parametrize("level", ["decoder.decoder.", "module.decoder."])
def test_a_part_that_is_stored_twice_is_named_as_a_repetition(level):
    name = "T5ForConditionalGeneration"
    tensors = tensors_of(name)
    decoder = [one for one in tensors if one.name.startswith("decoder.")]
    again = [one._replace(name=one.name.replace("decoder.", level, 1)) for one in decoder]
    [diagnosis] = diagnoses_of(name, [*tensors, *again])
    assert diagnosis.cause == MOVED
    assert diagnosis.summary.startswith(f"{len(again)} names repeat names of the class with ")
    assert diagnosis.change.tensors.keys() == {one.name for one in again}


def test_a_second_tower_of_other_shapes_repeats_nothing():
    name = "T5ForConditionalGeneration"
    tensors = tensors_of(name)
    other = [
        one._replace(name=f"module.{one.name}", shape=(1, *one.shape))
        for one in tensors
        if one.name.startswith("decoder.")
    ]
    assert diagnoses_of(name, [*tensors, *other]) == ()


@pytest.mark.parametrize(
    ("name", "own", "library_name"),
    [
        ("Qwen3VLForConditionalGeneration", "mlp.down_proj", "mlp.linear_fc2"),  # Megatron's
        ("SiglipModel", "self_attn.out_proj", "attention.out_proj"),  # MLX's
    ],
)
def test_a_name_of_the_class_itself_is_no_sign_of_another_library(name, own, library_name):
    """The other names of the class have what these are taken for: `visual.blocks.0.mlp.linear_fc2`.

    The shapes differ, so that no rename explains them.
    """
    tensors = [
        one._replace(name=one.name.replace(own, library_name), shape=(1, *one.shape))
        if own in one.name
        else one
        for one in tensors_of(name)
    ]
    assert all(one.cause != "foreign-names" for one in diagnoses_of(name, tensors))

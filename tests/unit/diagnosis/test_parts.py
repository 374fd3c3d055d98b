"""A part of a multimodal model: of another type than its config, or stored alone."""

import pytest
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.diagnosis.causes import other_architecture

TEXT = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
CLIP = {"model_type": "clip_vision_model", "projection_dim": 16, **VISION}
SIGLIP = {"model_type": "siglip_vision_model", **VISION}
WIDER = {"hidden_size": 36, "num_hidden_layers": 3}
WHOLE = "LlavaForConditionalGeneration"


def llava(vision, text=TEXT):
    return {"model_type": "llava", "vision_config": vision, "text_config": text}


def diagnosed(tensors, **config):
    report = examine(snapshot_of(tensors, **config), Options(requested="saved"))
    return report.diagnosis


@pytest.mark.parametrize(
    ("declared", "saved"),
    [(CLIP, SIGLIP), (SIGLIP, CLIP), (CLIP, SIGLIP | WIDER), (SIGLIP, CLIP | WIDER)],
)
def test_a_tower_of_another_type_is_named_whatever_its_size(declared, saved):
    tensors = stored_by(expect(WHOLE, **llava(saved)))
    [found] = diagnosed(tensors, architectures=[WHOLE], **llava(declared))
    types = (declared["model_type"], saved["model_type"])
    assert (found.cause, found.fields) == (
        "other-architecture",
        (("vision_config.model_type", *types),),
    )
    assert found.explains.startswith("all ")


def test_types_of_a_language_model_that_fit_are_listed():
    tensors = stored_by(expect(WHOLE, **llava(CLIP, {**TEXT, "model_type": "qwen2"})))
    [found] = diagnosed(tensors, architectures=[WHOLE], **llava(CLIP))
    assert found.undetermined == (("text_config.model_type", "llama"),)
    assert found.alternatives[0] == {"text_config.model_type": "qwen2"}
    assert "the shapes do not decide between 'qwen2', " in found.summary


def test_a_language_model_that_is_stored_alone_has_the_config_of_its_part():
    tensors = stored_by(expect("LlamaForCausalLM", **TEXT))
    [found] = diagnosed(tensors, architectures=[WHOLE], **llava(CLIP))
    assert (found.cause, found.fields) == (
        "other-class",
        (("architectures", [WHOLE], ["LlamaForCausalLM"]),),
    )
    assert "take text_config as the config" in found.fix


def test_a_tower_of_another_size_is_no_other_type():
    tensors = stored_by(expect(WHOLE, **llava(CLIP | WIDER)))
    [found] = diagnosed(tensors, architectures=[WHOLE], **llava(CLIP))
    assert found.cause in {"config-field", "other-size"}
    assert {key for key, *_ in found.fields} == {f"vision_config.{key}" for key in WIDER}


def test_only_the_first_parts_of_a_config_are_compared(monkeypatch):
    """A hostile config has any number of parts, each with a type."""
    tensors = stored_by(expect(WHOLE, **llava(SIGLIP)))
    many = {f"part_{number}": {"model_type": "bert"} for number in range(3000)}
    solved = []
    solve = other_architecture.solve
    monkeypatch.setattr(
        other_architecture, "solve", lambda *a, **k: solved.append(1) or solve(*a, **k)
    )
    diagnosed(tensors, architectures=[WHOLE], **many, **llava(CLIP))
    assert len(solved) < 100

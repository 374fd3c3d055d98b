"""head-not-saved is said of classifiers, and of types that only the library knows, too."""

import pytest
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor import audit
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

VIT = {
    "model_type": "vit",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}

SIZES = {
    "XLNetLMHeadModel": {"vocab_size": 48, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24},
    "XLMWithLMHeadModel": {"vocab_size": 48, "emb_dim": 16, "n_layers": 1, "n_heads": 2},
    "RoFormerForMaskedLM": {  # whose bias is stored by both of its names
        "vocab_size": 48,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    },
}


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # of the library's
@pytest.mark.parametrize("name", SIZES)
def test_an_untied_output_layer_is_missed_by_whatever_name(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    of_class = getattr(transformers, name)
    model = of_class(of_class.config_class(**SIZES[name], tie_word_embeddings=False))
    [head] = [one for one, weight in model.named_parameters() if weight is head_of(model)]
    state = {one: weight for one, weight in model.state_dict().items() if one != head}
    model.save_pretrained(tmp_path, state_dict=state)
    [found] = audit(str(tmp_path)).diagnosis
    assert (found.cause, found.fields) == (
        "head-not-saved",
        (("tie_word_embeddings", False, True),),
    )


def head_of(model):
    return model.get_output_embeddings().weight


def cut(lost):
    """The causes that are named where the tensors of these names are not stored."""
    target = "ViTForImageClassification"
    tensors = [one for one in stored_by(expect(target, **VIT)) if not one.name.startswith(lost)]
    shot = snapshot_of(tensors, **VIT, architectures=[target])
    return [one.cause for one in examine(shot, Options(requested="cut")).diagnosis]


def test_a_classifier_missing_from_a_complete_base_model_was_not_saved():
    assert cut("classifier.") == ["head-not-saved"]


@pytest.mark.parametrize("lost", [("classifier.", "vit.layernorm."), "vit.layernorm."])
def test_what_the_base_model_lacks_is_no_output_layer(lost):
    assert "head-not-saved" not in cut(lost)

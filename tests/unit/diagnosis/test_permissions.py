"""What a fix may write by itself, with the user's permission, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.diagnosis.permissions import Allow, Unwritten, needs_of_edits, needs_of_renames

DETERMINED = {
    "vocab_size": 90,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_local_experts": 4,
    "num_attention_heads": 8,
    "num_labels": 3,
}
DEPTH = Edit(("num_hidden_layers",), 4, 6)
NO_NEED = [
    (Edit(("vocab_size",), 100, 90),),
    (DEPTH,),
    (Edit(("num_attention_heads",), 4, 8),),
    (Edit(("dtype",), "bfloat16", "float32"),),
    (Edit(("quantization_config",), {"bits": 4}, ABSENT),),
    (Edit(("attention_bias",), before=False, after=True),),
    (Edit(("hidden_size",), "64", 64),),
    (Edit(("num_experts_per_tok",), 2.0, 2),),
]
NEEDS = [
    (Edit(("tie_word_embeddings",), before=False, after=True), Allow.TIE_HEAD),
    (Edit(("num_labels",), 2, 3), Allow.LABELS),
    (Edit(("id2label", "2"), ABSENT, "LABEL_2"), Allow.LABELS),
    (Edit(("num_hidden_layers",), 12, 6), Allow.LAYERS),
    (Edit(("num_local_experts",), 8, 4), Allow.EXPERTS),
    (Edit(("architectures",), ["BertModel"], ["BertForMaskedLM"]), Allow.CLASS),
]
REFUSED = [
    (Edit(("hidden_size",), 32, 64),),
    (Edit(("vocab_size",), 100, 91),),  # the shapes say 90
    (Edit(("vocab_size",), 30, 90),),
    (Edit(("num_key_value_heads",), 4, 2),),
    (Edit(("head_dim",), 4, 8),),
    (Edit(("num_experts_per_tok",), 2, 1),),
    (Edit(("rope_theta",), 1e4, 1e6),),
    (Edit(("model_type",), "bert", "roberta"),),
    (Edit(("attention_bias",), before=True, after=False),),  # biases that may be lost
    (Edit(("tie_word_embeddings",), before=True, after=False),),  # only values could tell
    (Edit(("target_modules",), ["q_proj", "k_proj"], ["q_proj"]),),
    (Edit(("layer_types",), ["a", "b"], ["a"]),),  # beside no other number of layers
    (Edit(("vocab_size",), 100, 90), DEPTH),  # two sizes at once are those of another model
    (Edit(("vocab_size",), 100, 90), Edit(("num_labels",), 2, 3)),
]


def needs(*edits):
    """The options that edits of a config need."""
    return [need.allow for need in needs_of_edits(edits, DETERMINED, {})]


def test_edits_are_written_if_the_files_determine_them(subtests):
    for edits in NO_NEED:
        with subtests.test(edits=edits):
            assert needs(*edits) == []
    for edit, allow in NEEDS:
        with subtests.test(edit=edit):
            assert needs(edit) == [allow]
    for edits in REFUSED:
        with subtests.test(edits=edits), pytest.raises(Unwritten):
            needs(*edits)


def test_lists_of_layers_go_with_the_number_of_layers():
    depth = Edit(("num_hidden_layers",), 7, 6)
    assert needs(depth, Edit(("layer_types",), ["a"] * 7, ["a"] * 6)) == [Allow.LAYERS]


paths = st.lists(st.text("abc_", min_size=1, max_size=6), min_size=1, max_size=3).map(tuple)


@given(paths, st.integers() | st.text() | st.none(), st.integers() | st.booleans())
def test_an_unknown_key_is_never_written(path, before, after):
    edit = Edit(path, before, after)
    if isinstance(before, str) and before.lower() == str(after).lower():
        assert needs(edit) == []
    else:
        with pytest.raises(Unwritten):
            needs(edit)


numbers = st.integers(0, 99)


@given(numbers, numbers, st.sampled_from(["module.", "_orig_mod.", "a.b.", ""]))
def test_renames_need_permission_if_they_change_the_numbers_of_layers(layer, other, prefix):
    name = f"layers.{layer}.experts.{other}.up.weight"
    assert [*needs_of_renames({f"{prefix}{name}": name})] == []
    assert [*needs_of_renames({name: f"{prefix}{name}"})] == []
    renames = {f"{prefix}layers.{layer}.up.weight": f"layers.{other}.up.weight"}
    assert [need.allow for need in needs_of_renames(renames)] == [Allow.LAYERS] * (layer != other)

"""head-not-saved is named for types that only the library knows, too."""

import pytest

from auditor import audit

SIZES = {
    "XLNetLMHeadModel": {"vocab_size": 48, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24},
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

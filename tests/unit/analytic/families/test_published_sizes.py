"""The bytes of files on the Hub: four a parameter, and a header.

For sound files the header was found to take 110 to 140 bytes a tensor.
"""

import pytest
from support.bert_configs import config_of

from auditor.analytic import Role, catalogue

BART_LARGE_CNN = config_of(
    model_type="bart",
    vocab_size=50264,
    d_model=1024,
    encoder_layers=12,
    encoder_ffn_dim=4096,
    encoder_attention_heads=16,
    decoder_layers=12,
    decoder_ffn_dim=4096,
    decoder_attention_heads=16,
    num_hidden_layers=12,
    max_position_embeddings=1024,
    id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
)
WHISPER_MEDIUM = config_of(
    model_type="whisper",
    vocab_size=51865,
    num_mel_bins=80,
    d_model=1024,
    encoder_layers=24,
    encoder_ffn_dim=4096,
    encoder_attention_heads=16,
    decoder_layers=24,
    decoder_ffn_dim=4096,
    decoder_attention_heads=16,
    num_hidden_layers=24,
    max_source_positions=1500,
    max_target_positions=448,
)


@pytest.mark.parametrize(
    ("config", "target", "file"),
    [
        # The bias of the logits, which a class of today would store, too, is not in this one:
        # 4 * 50264 bytes more would be more than the file has.
        pytest.param(
            BART_LARGE_CNN, "BartForConditionalGeneration", 1_625_222_120, id="bart-large-cnn"
        ),
        pytest.param(
            WHISPER_MEDIUM, "WhisperForConditionalGeneration", 3_055_544_304, id="whisper-medium"
        ),
    ],
)
def test_a_published_file_has_the_bytes_that_its_config_implies(config, target, file):
    expected = catalogue.expect(config, target)
    stored = sum(tensor.role is Role.PARAMETER for tensor in expected.tensors)
    assert 110 * stored <= file - 4 * expected.parameters <= 140 * stored


def test_wav2vec2_base_and_large_have_the_published_counts():
    """95.04 and 317.38 million, by SUPERB, https://arxiv.org/abs/2105.01051."""
    large = config_of(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        do_stable_layer_norm=True,
        feat_extract_norm="layer",
        conv_bias=True,
        codevector_dim=768,
        proj_codevector_dim=768,
    )
    base = catalogue.expect(config_of(), "Wav2Vec2ForPreTraining")
    assert f"{base.parameters / 1e6:.2f}" == "95.04"
    # 317.39 to the nearest: their figure is cut, or of a variant without a few biases.
    assert int(catalogue.expect(large, "Wav2Vec2ForPreTraining").parameters / 1e6) == 317

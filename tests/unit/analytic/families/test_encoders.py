"""What the oracle cannot tell of BERT's relatives: counts of real files, what old ones hold."""

from support.bert_configs import config_of, refusal

from auditor.analytic import Role, catalogue

ROBERTA_BASE = config_of(
    model_type="roberta",
    vocab_size=50265,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    max_position_embeddings=514,
    type_vocab_size=1,
)
DISTILBERT_BASE_UNCASED = config_of(
    model_type="distilbert",
    vocab_size=30522,
    dim=768,
    hidden_dim=3072,
    n_layers=6,
    n_heads=12,
    max_position_embeddings=512,
)


def roles(config, target, *roles):
    """By name, the shapes of the tensors that have one of the roles."""
    expected = catalogue.expect(config, target)
    return {tensor.name: tensor.shape for tensor in expected.tensors if tensor.role in roles}


def test_roberta_base_is_published_with_its_position_ids():
    assert catalogue.expect(ROBERTA_BASE, "RobertaForMaskedLM").parameters == 124_697_433
    beyond = roles(ROBERTA_BASE, "RobertaForMaskedLM", Role.LEGACY, Role.EXTRA)
    assert beyond == {"roberta.embeddings.position_ids": (1, 514)}


def test_distilbert_base_uncased_is_published_as_its_class_has_it():
    expected = catalogue.expect(DISTILBERT_BASE_UNCASED, "DistilBertForMaskedLM")
    assert expected.parameters == 66_985_530
    assert not [tensor for tensor in expected.tensors if tensor.role.optional]


def test_a_hidden_size_that_the_heads_cannot_share_is_refused(subtests):
    for target in ["AlbertModel", "DebertaV2Model", "EsmModel", "LayoutLMModel", "MPNetModel"]:
        with subtests.test(target=target):
            said = refusal(target, hidden_size=7, num_attention_heads=2, vocab_size=8)
            assert ("hidden_size 7 is not a multiple" in said) is (target != "AlbertModel")


def test_a_rotary_esm_may_hold_the_tables_that_transformers_4_stored():
    config = config_of(
        vocab_size=33,
        hidden_size=6,
        num_attention_heads=2,
        num_hidden_layers=2,
        max_position_embeddings=9,
        position_embedding_type="rotary",
    )
    frequencies = "attention.self.rotary_embeddings.inv_freq"
    assert roles(config, "EsmModel", Role.LEGACY) == {
        "embeddings.position_ids": (1, 9),
        f"encoder.layer.0.{frequencies}": (2,),  # half of a head's 3, rounded up
        f"encoder.layer.1.{frequencies}": (2,),
        f"encoder.layer.*.{frequencies}": (2,),  # transformers 5, to the letter
    }
    assert roles(config, "EsmModel", Role.EXTRA) == {
        "embeddings.position_embeddings.weight": (9, 6)
    }


def test_deberta_may_hold_the_heads_that_it_was_trained_with(subtests):
    for legacy in [True, False]:
        with subtests.test(legacy=legacy):
            config = config_of(hidden_size=4, num_attention_heads=1, vocab_size=8, legacy=legacy)
            extra = roles(config, "DebertaV2ForMaskedLM", Role.EXTRA)
            replaced = {name: shape for name, shape in extra.items() if name.startswith("mask_")}
            assert replaced == {
                "mask_predictions.dense.weight": (4, 4),
                "mask_predictions.dense.bias": (4,),
                "mask_predictions.LayerNorm.weight": (4,),
                "mask_predictions.LayerNorm.bias": (4,),
                "mask_predictions.classifier.weight": (1, 4),
                "mask_predictions.classifier.bias": (1,),
            }
            assert ("lm_predictions.lm_head.bias" in extra) == legacy

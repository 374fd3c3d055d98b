"""BERT's classes: what of a config shapes them."""

from support.bert_configs import config_of

from auditor.analytic import catalogue


def test_keys_that_shape_no_tensor_change_nothing():
    noise = {"pooler_fc_size": 768, "directionality": "bidi", "return_dict": 3, "num_labels": 18}
    assert catalogue.expect(config_of(**noise), "BertModel") == catalogue.expect(
        config_of(), "BertModel"
    )
    labels = catalogue.expect(config_of(**noise), "BertForTokenClassification")
    assert labels.modules["classifier"] == (18 * 768 + 18, "C*D + C")

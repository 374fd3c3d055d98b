"""Parts by the names that people have for them."""

import pytest

from auditor.analytic import Config, catalogue
from auditor.claims.cells import cells_of_tree, total_of
from auditor.claims.parts import readings

CONFIG = Config(values={"model_type": "bert"})
CELLS = cells_of_tree(catalogue.block_tree(CONFIG, "BertForMaskedLM"))
D, F, V, L, N = 768, 3072, 30522, 512, 12


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("word_embeddings + position_embeddings", V * D + L * D),
        ("one layer", 12 * D * D + 13 * D),
        ("bert.encoder.layer.11", 12 * D * D + 13 * D),
        ("bert.encoder.layer.*.attention", N * (4 * (D * D + D) + 2 * D)),
        ("attention", N * 4 * (D * D + D)),
        ("encoder.layer.3 attention without bias", 4 * D * D),
        ("Feed-Forward", N * (2 * D * F + F + D)),
        ("head", V + D * D + 3 * D),
        ("MLM head", V + D * D + 3 * D),
        ("encoder", N * (12 * D * D + 13 * D)),
        ("the encoder alone", N * (12 * D * D + 13 * D)),
        ("one layer attention", 4 * (D * D + D)),
        ("attention of one layer", 4 * (D * D + D)),
        ("layer 3 attention", 4 * (D * D + D)),
        ("feed-forward network in each layer", 2 * D * F + F + D),
        ("word embeddings", V * D),
        ("position embeddings", L * D),
        ("layer norm", (2 * N + 2) * 2 * D),
        ("encoder without layer norm", N * (12 * D * D + 9 * D)),
        ("non-embedding", N * (12 * D * D + 13 * D) + V + D * D + 3 * D),
        ("嵌入层", V * D + L * D + 4 * D),
        ("词嵌入", V * D),
        ("位置编码", L * D),
        ("编码器", N * (12 * D * D + 13 * D)),
        ("注意力", N * 4 * (D * D + D)),
        ("单层自注意力", 4 * (D * D + D)),
        ("每层前馈网络", 2 * D * F + F + D),
        ("层归一化", (2 * N + 2) * 2 * D),
        ("第3层", 12 * D * D + 13 * D),
        ("总参数量", V * D + L * D + 4 * D + N * (12 * D * D + 13 * D) + V + D * D + 3 * D),
    ],
)
def test_a_name_stands_for_these_parameters(name, count):
    first, *_ = readings(name, CELLS, "bert")
    assert total_of(first.cells) == count


@pytest.mark.parametrize("name", ["pooler", "pooling layer", "池化", "池化层"])
def test_a_pooler_has_a_matrix_and_a_bias(name):
    cells = cells_of_tree(catalogue.block_tree(CONFIG, "BertModel"))
    first, *_ = readings(name, cells, "")
    assert total_of(first.cells) == D * D + D


@pytest.mark.parametrize(
    "name",
    [
        "vision",
        "encoder.layer.12",
        "encoder.layer.9999999999",
        "+",
        "a" * 500,
        "norm+" * 40 + "norm",
    ],
)
def test_a_name_of_nothing_stands_for_nothing(name):
    assert readings(name, CELLS, "bert") == ()

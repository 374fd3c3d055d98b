"""Parts by the names that people have for them."""

from auditor.analytic import Config, catalogue
from auditor.claims.cells import cells_of_tree, total_of
from auditor.claims.parts import readings

CONFIG = Config(values={"model_type": "bert"})
CELLS = cells_of_tree(catalogue.block_tree(CONFIG, "BertForMaskedLM"))
D, F, V, L, N = 768, 3072, 30522, 512, 12


LAYER, ATTENTION, FFN = 12 * D * D + 13 * D, 4 * (D * D + D), 2 * D * F + F + D
HEAD, EMBEDDINGS = V + D * D + 3 * D, V * D + L * D + 4 * D
COUNTS = {
    "word_embeddings + position_embeddings": V * D + L * D,
    "one layer": LAYER,
    "bert.encoder.layer.11": LAYER,
    "bert.encoder.layer.*.attention": N * (ATTENTION + 2 * D),
    "attention": N * ATTENTION,
    "encoder.layer.3 attention without bias": 4 * D * D,
    "Feed-Forward": N * FFN,
    "head": HEAD,
    "MLM head": HEAD,
    "the encoder alone": N * LAYER,
    "one layer attention": ATTENTION,
    "attention of one layer": ATTENTION,
    "layer 3 attention": ATTENTION,
    "feed-forward network in each layer": FFN,
    "word embeddings": V * D,
    "position embeddings": L * D,
    "layer norm": (2 * N + 2) * 2 * D,
    "encoder without layer norm": N * (LAYER - 4 * D),
    "non-embedding": N * LAYER + HEAD,
    "嵌入层": EMBEDDINGS,
    "词嵌入": V * D,
    "位置编码": L * D,
    "编码器": N * LAYER,
    "单层自注意力": ATTENTION,
    "每层前馈网络": FFN,
    "层归一化": (2 * N + 2) * 2 * D,
    "第3层": LAYER,
    "总参数量": EMBEDDINGS + N * LAYER + HEAD,
}


def test_a_name_stands_for_these_parameters():
    found = {name: total_of(readings(name, CELLS, "bert")[0].cells) for name in COUNTS}
    assert found == COUNTS


def test_a_pooler_has_a_matrix_and_a_bias():
    cells = cells_of_tree(catalogue.block_tree(CONFIG, "BertModel"))
    for name in ("pooler", "pooling layer", "池化", "池化层"):
        assert total_of(readings(name, cells, "")[0].cells) == D * D + D


def test_a_name_of_nothing_stands_for_nothing():
    names = ("vision", "encoder.layer.12", "encoder.layer.9999999999", "+", "a" * 500)
    for name in (*names, "norm+" * 40 + "norm"):
        assert readings(name, CELLS, "bert") == ()

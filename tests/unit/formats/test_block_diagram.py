"""The blocks of a model: layers once, in the order in which people draw them."""

import json

from msgspec.structs import replace
from support.outcomes.examples import EXAMPLES

from auditor import explain
from auditor.formats import View
from auditor.formats.block_diagram import diagram, groups
from auditor.formats.icicle import cells_of_outcome
from auditor.formats.registry import FORMATS

MIXTRAL = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 99}


def drawn(outcome):
    root = cells_of_outcome(outcome)[0]
    return root, groups(root)


def test_layers_are_drawn_once_between_embeddings_and_head(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    root, found = drawn(explain(str(tmp_path)))
    assert [[box.label for box in group.boxes] for group in found] == [
        ["embed_tokens"],
        ["input_layernorm", "self_attn", "post_attention_layernorm", "block_sparse_moe"],
        ["norm"],
        ["lm_head"],
    ]
    assert found[1].layers.copies == 32
    assert sum(box.size for group in found for box in group.boxes) == root.size


def test_an_encoder_stands_before_its_decoder():
    _, found = drawn(explain("t5"))
    paths = [group.boxes[0].path.partition(".")[0] for group in found]
    assert paths == sorted(paths, key=["shared", "encoder", "decoder"].index)


def test_a_missing_part_is_marked():
    outcome = EXAMPLES["every-kind"]()
    root, found = drawn(outcome)
    assert "missing" in {box.drawn_as for group in found for box in group.boxes}
    [text] = FORMATS["svg"]([outcome], View()).values()
    assert text.count("p-missing") > 2
    assert diagram(root, outcome) is not None


def test_a_model_without_modules_has_no_diagram():
    outcome = replace(EXAMPLES["bert-base-chinese"](), modules=())
    assert cells_of_outcome(outcome) == ()
    assert "blocks" not in FORMATS["html"]([outcome], View())["report.html"].split("</style>")[1]

"""Files without tensors, tensors in two files, lost layers and stages: each with its evidence."""

import json

import pytest
from msgspec.structs import replace
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.changes import with_shapes
from auditor.checkpoint.snapshot import TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.diagnosis.causes import config_field

SIZES = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
CONFIGS = {
    "LlamaForCausalLM": {"model_type": "llama", "num_key_value_heads": 2, **SIZES},
    "Qwen2ForCausalLM": {"model_type": "qwen2", "num_key_value_heads": 2, **SIZES},
    "BertForMaskedLM": {"model_type": "bert", "type_vocab_size": 2, **SIZES},
    "Qwen3ForCausalLM": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 4, **SIZES},
    "MixtralForCausalLM": {"model_type": "mixtral", "num_local_experts": 4, **SIZES},
    "GptOssForCausalLM": {
        "model_type": "gpt_oss",
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 4,
        **SIZES,
    },
}
DECODERS = ["LlamaForCausalLM", "Qwen2ForCausalLM"]
BOTH = ["LlamaForCausalLM", "BertForMaskedLM"]


def snapshot(name, keep=lambda _: True, **changes):
    config = {**CONFIGS[name], **changes}
    stored = [one for one in stored_by(expect(name, **CONFIGS[name])) if keep(one.name)]
    return snapshot_of(stored, **config, architectures=[name])


def diagnosed(made):
    return examine(made, Options(requested="lost")).diagnosis


def loses(*layers, names=()):
    places = tuple(f".{layer}." for layer in layers)
    return lambda name: not any(one in name for one in (*places, *names))


@pytest.mark.parametrize("name", BOTH)
def test_a_file_without_tensors_was_not_gathered(name):
    [found] = diagnosed(snapshot(name, lambda _: False))
    assert found.cause == "empty-file"
    assert "'model.safetensors' has no tensor" in found.summary


def test_vectors_that_are_cut_beside_an_empty_matrix_are_of_the_same_rank():
    made = snapshot("LlamaForCausalLM")
    shapes = {"model.embed_tokens.weight": (0,), "model.norm.weight": (8,)}
    [found] = diagnosed(with_shapes(made, shapes))
    assert (found.cause, found.explains) == ("unsharded-save", "all 2 names")
    assert "1 tensor has no elements and 1 shorter than expected" in found.summary


@pytest.mark.parametrize(("lost", "layers"), [((1, 4), "layers 1, 4"), ((4,), "layer 4")])
@pytest.mark.parametrize(
    ("name", "other"),
    [("LlamaForCausalLM", "model.norm."), ("BertForMaskedLM", "cls.predictions.")],
)
def test_lost_layers_are_not_renumbered_if_more_is_lost(name, other, lost, layers):
    [found] = diagnosed(snapshot(name, loses(*lost, names=[other])))
    assert found.cause == "lost-part"
    assert f"lack {layers} of 6 in " in found.summary
    assert found.fields == ()


def test_lost_layers_alone_may_have_been_taken_out():
    [found] = diagnosed(snapshot("LlamaForCausalLM", loses(1, 4)))
    assert found.cause == "layers-renumbered"
    assert "layers 1, 4 were removed or lost" in found.summary
    assert "save the complete model again" in found.fix


@pytest.mark.parametrize("names", [("q_norm.", "k_norm."), ("post_attention_layernorm.",)])
def test_names_that_all_layers_lack_are_lost_and_no_sign_of_another_type(names):
    [found] = diagnosed(snapshot("Qwen3ForCausalLM", loses(names=names)))
    assert found.cause == "lost-part"
    assert all(name in found.summary for name in names)
    assert (found.fields, found.explains) == ((), f"all {6 * len(names)} names")
    assert found.fix.startswith("convert or save the complete model again; or ")


def test_experts_that_all_layers_lack_are_lost_and_no_sign_of_a_dense_type():
    [found] = diagnosed(snapshot("MixtralForCausalLM", loses(names=[".experts."])))
    assert found.cause == "lost-part"
    assert "'block_sparse_moe.experts.N.w1.weight'" in found.summary


@pytest.mark.parametrize("name", DECODERS)
def test_a_first_stage_has_no_final_norm(name):
    stage = loses(3, 4, 5, names=["lm_head", "model.norm"])
    assert [one.cause for one in diagnosed(snapshot(name, stage))] == ["parallel-rank"]


@pytest.mark.parametrize("name", DECODERS)
def test_a_shallower_tied_model_is_not_a_stage(name):
    tied = loses(3, 4, 5, names=["lm_head"])
    found = diagnosed(snapshot(name, tied, tie_word_embeddings=False))
    assert found
    assert "parallel-rank" not in [one.cause for one in found]


@pytest.mark.parametrize("name", BOTH)
def test_tensors_in_two_files_are_not_an_index_of_another_save(name):
    made = snapshot(name)
    tensors = made.headers[0].parsed.tensors
    half = len(tensors) // 2
    files = {"a": tensors[: half + 3], "b": tensors[half:]}
    heads = tuple(
        WeightHeader(
            name=f"{file}.safetensors",
            size=None,
            known=Table(
                file=f"{file}.safetensors",
                tensors=tuple(one._replace(file=f"{file}.safetensors") for one in some),
            ),
        )
        for file, some in files.items()
    )
    places = {one.name: f"{file}.safetensors" for file, some in files.items() for one in some}
    index = TextFile(
        name="model.safetensors.index.json", content=json.dumps({"weight_map": places}).encode()
    )
    [found] = diagnosed(replace(made, headers=heads, index=index))
    assert found.cause == "stored-twice"
    assert "3 tensors are in two files, a.safetensors and b.safetensors" in found.summary


def test_experts_that_the_class_stacks_are_joined():
    made = snapshot("GptOssForCausalLM")

    def single(one):
        experts, part = one.name.partition(".experts.")[::2]
        if part not in {"gate_up_proj", "down_proj"}:
            return (one,)
        count, rows, columns = one.shape
        if part == "down_proj":
            shapes = {"down_proj": (columns, rows)}
        else:
            shapes = dict.fromkeys(("gate_proj", "up_proj"), (columns // 2, rows))
        return [
            one._replace(
                name=f"{experts}.experts.{at}.{leaf}.weight",
                shape=shape,
                elements=shape[0] * shape[1],
            )
            for at in range(count)
            for leaf, shape in shapes.items()
        ]

    tensors = [new for one in made.headers[0].parsed.tensors for new in single(one)]
    config = {**CONFIGS["GptOssForCausalLM"], "architectures": ["GptOssForCausalLM"]}
    [found] = diagnosed(snapshot_of(tensors, **config))
    assert found.cause == "fused-names"
    assert "and the class stacks a layer's (in gate_up_proj, down_proj)" in found.summary


@pytest.mark.parametrize("also", ["o_proj", "dense"])
def test_fused_projections_are_found_beside_a_module_of_another_name(also):
    made = snapshot("LlamaForCausalLM")
    tensors = []
    for one in made.headers[0].parsed.tensors:
        if ".q_proj." in one.name:
            rows = one.shape[0] * 2  # q has four heads, k and v two each
            name = one.name.replace("q_proj", "qkv_proj")
            shape = (rows, one.shape[1])
            tensors.append(one._replace(name=name, shape=shape, elements=rows * one.shape[1]))
        elif ".k_proj." not in one.name and ".v_proj." not in one.name:
            tensors.append(one._replace(name=one.name.replace("o_proj", also)))
    config = {**CONFIGS["LlamaForCausalLM"], "architectures": ["LlamaForCausalLM"]}
    causes = {one.cause for one in diagnosed(snapshot_of(tensors, **config))}
    assert causes == {"fused-names"} | ({"moved-names"} if also == "dense" else set())


def test_layers_of_a_model_of_another_width_are_not_lost(monkeypatch):
    monkeypatch.setattr(config_field, "solve", lambda *_, **__: ())  # as if no values were found
    made = snapshot("BertForMaskedLM", hidden_size=32, num_hidden_layers=9)
    assert examine(made, Options(requested="x")).diagnosis == ()


def test_a_finding_says_by_itself_that_one_tensor_is_lost():
    lost = "model.layers.2.mlp.up_proj.weight"
    assert diagnosed(snapshot("LlamaForCausalLM", lambda name: name != lost)) == ()


def test_tensors_that_are_absent_here_and_there_were_lost():
    lost = (
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.norm.weight",
    )
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
    tensors = [
        one for one in stored_by(expect("LlamaForCausalLM", **config)) if one.name not in lost
    ]
    [found] = examine(snapshot_of(tensors, **config), Options(requested="shared")).diagnosis
    assert (found.cause, found.explains) == ("lost-part", "all 4 names")
    assert found.summary.startswith("4 tensors are absent here and there")

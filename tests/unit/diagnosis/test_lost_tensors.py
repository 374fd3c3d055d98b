"""Tensors in two files, experts and projections that the class fuses, other widths."""

import json

import pytest
from msgspec.structs import replace
from support.checkpoints import expect, stored_by
from support.small_snapshots import snapshot_of

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
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
    "BertForMaskedLM": {"model_type": "bert", "type_vocab_size": 2, **SIZES},
    "GptOssForCausalLM": {
        "model_type": "gpt_oss",
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 4,
        **SIZES,
    },
}
BOTH = ["LlamaForCausalLM", "BertForMaskedLM"]


def snapshot(name, **changes):
    config = {**CONFIGS[name], **changes}
    return snapshot_of(stored_by(expect(name, **CONFIGS[name])), **config, architectures=[name])


def diagnosed(made):
    return examine(made, Options(requested="lost")).diagnosis


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

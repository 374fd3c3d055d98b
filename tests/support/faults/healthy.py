"""Checkpoints that look odd and are sound: none may get a diagnosis."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace
from support.faults.fault import of_shape, rewritten, tensors_of
from support.faults.files import CONFIG, INDEX, hub, split

from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.downloader import local_folder

BASES = {
    "BertForSequenceClassification": ("BertModel", "bert."),
    "DistilBertForMaskedLM": ("DistilBertModel", "distilbert."),
    "LlamaForCausalLM": ("LlamaModel", "model."),
    "GPT2LMHeadModel": ("GPT2Model", "transformer."),
}
# Classes whose head is lost, and reported, if their base model is declared.
LOST_HEADS = ("BertForSequenceClassification", "LlamaForCausalLM")
ROTARY = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "GPTNeoXForCausalLM"}


def odd(name: str, snapshot: Snapshot, place: Path) -> Iterator[tuple[str, Snapshot]]:
    """What is odd of it, and the checkpoint."""
    yield from _of_files(name, place)
    yield from _of_names(name, snapshot)


def _of_files(name: str, place: Path) -> Iterator[tuple[str, Snapshot]]:
    few = split(place / name, place / f"{name}-few", 2)
    many = split(place / name, place / f"{name}-many", 4)
    sharded = local_folder.read(few, name)
    yield "in shards", sharded
    yield "in shards on the Hub", hub(sharded)
    both = place / f"{name}-both"
    shutil.rmtree(both, ignore_errors=True)
    shutil.copytree(many, both)
    for path in few.glob("*.safetensors"):
        shutil.copy(path, both)
    yield "another split beside it, and one index", local_folder.read(both, name)
    plain = place / f"{name}-without-totals"
    shutil.rmtree(plain, ignore_errors=True)
    shutil.copytree(few, plain)
    values = json.loads((plain / INDEX).read_text("utf-8"))
    (plain / INDEX).write_text(json.dumps({"weight_map": values["weight_map"]}), "utf-8")
    yield "an index without totals", local_folder.read(plain, name)


def _of_names(name: str, snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    old = rewritten(snapshot, lambda one: (one._replace(name=_older(one.name)),))
    if tensors_of(old) != tensors_of(snapshot):
        yield "gamma and beta", old
    if name in BASES:
        base, prefix = BASES[name]
        declared = _declaring(snapshot, architectures=[base])
        if name not in LOST_HEADS:
            yield f"declared as {base}", declared
        yield (
            f"{base} alone",
            rewritten(
                declared,
                lambda one: (
                    (one._replace(name=one.name.removeprefix(prefix)),)
                    if one.name.startswith(prefix)
                    else ()
                ),
            ),
        )
    if name in ROTARY:
        yield (
            "frequencies of an older version",
            rewritten(
                snapshot,
                lambda one: (
                    (one, of_shape(one, 4, name=_frequencies(one.name)))
                    if one.name.endswith("input_layernorm.weight")
                    else (one,)
                ),
            ),
        )
    module = f"modeling_own.{name}"
    own = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": module}
    yield "its own code under the same name", _declaring(snapshot, auto_map=own)


def _older(name: str) -> str:
    """As the first BERTs were saved."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )


def _frequencies(norm: str) -> str:
    layer = norm.removesuffix("input_layernorm.weight")
    attention = "attention" if layer.startswith("gpt_neox") else "self_attn"
    return f"{layer}{attention}.rotary_emb.inv_freq"


def _declaring(snapshot: Snapshot, **values: object) -> Snapshot:
    assert snapshot.config is not None
    config = {**json.loads(snapshot.config.content), **values}
    text = TextFile(name=CONFIG, content=json.dumps(config).encode())
    return replace(snapshot, config=text)

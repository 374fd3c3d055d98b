"""Folders as transformers writes them, spoiled in one way that `audit fix` can mend."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.fault_bench import FAMILIES

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
_LAYER = re.compile(r"\b(layers?|h|block)\.(\d+)\.")

Spoil = Callable[[Path], None]


class Spoiled(NamedTuple):
    """One way to spoil one model, and what a plan says of it."""

    family: str
    spoil: Spoil
    says: str
    sharded: bool = False
    allow: str = ""  # the option without which nothing is changed


def saved(family: str, folder: Path, *, sharded: bool = False) -> Path:
    """A small model of the class, in one file or in several."""
    import torch  # noqa: PLC0415 - takes seconds
    import transformers  # noqa: PLC0415 - the same

    kind = getattr(transformers, family)
    torch.manual_seed(0)
    model = kind(kind.config_class(**FAMILIES[family]))
    model.save_pretrained(folder, max_shard_size="30KB" if sharded else "1GB")
    return folder


def loading_faults(family: str, folder: Path) -> Mapping[str, Any]:
    """What from_pretrained says was missing, unexpected or of another shape."""
    import transformers  # noqa: PLC0415 - takes seconds

    _, said = getattr(transformers, family).from_pretrained(folder, output_loading_info=True)
    return {key: value for key, value in said.items() if value}


def data_digests(folder: Path) -> dict[str, str]:
    """Of each weight file, the sha256 of all that comes after its header."""
    return {path.name: _digest(path) for path in sorted(folder.glob("*.safetensors"))}


def _digest(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha256(content[8 + int.from_bytes(content[:8], "little") :]).hexdigest()


def all_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


# --- ways ---------------------------------------------------------------------------------------


def renamed(rename: Callable[[str], str]) -> Spoil:
    """Each tensor under another name, in the headers and in the index, as a writer would do it."""

    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file  # noqa: PLC0415 - imports torch

        for path in folder.glob("*.safetensors"):
            tensors = {rename(name): tensor for name, tensor in load_file(path).items()}
            save_file(tensors, path, metadata={"format": "pt"})
        if (folder / INDEX).exists():
            edit(folder / INDEX, _renamed_map(rename))

    return spoil


def _renamed_map(rename: Callable[[str], str]) -> Callable[[dict], None]:
    def change(index: dict) -> None:
        index["weight_map"] = {rename(name): file for name, file in index["weight_map"].items()}

    return change


def prefixed(prefix: str) -> Spoil:
    return renamed(lambda name: f"{prefix}{name}")


def renumbered(by: int) -> Spoil:
    return renamed(lambda name: _LAYER.sub(lambda at: f"{at[1]}.{int(at[2]) + by}.", name, count=1))


def configured(**values: Any) -> Spoil:
    """Values in the config; None takes a key out."""

    def change(config: dict) -> None:
        config.update(values)
        for key in [key for key, value in values.items() if value is None]:
            del config[key]

    return lambda folder: edit(folder / CONFIG, change)


def without(*names: str) -> Spoil:
    """Tensors that were not saved."""

    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file  # noqa: PLC0415 - imports torch

        for path in folder.glob("*.safetensors"):
            tensors = {key: one for key, one in load_file(path).items() if key not in names}
            save_file(tensors, path, metadata={"format": "pt"})

    return spoil


def indexed(change: Callable[[dict], None]) -> Spoil:
    return lambda folder: edit(folder / INDEX, change)


def unindexed(folder: Path) -> None:
    (folder / INDEX).unlink()


def resharded(folder: Path) -> None:
    """The shards of one save under the index of another one, of nine."""

    def change(index: dict) -> None:
        index["weight_map"] = {
            name: f"model-{at % 9 + 1:05}-of-00009.safetensors"
            for at, name in enumerate(index["weight_map"])
        }

    edit(folder / INDEX, change)


def both(*ways: Spoil) -> Spoil:
    def spoil(folder: Path) -> None:
        for way in ways:
            way(folder)

    return spoil


def edit(path: Path, change: Callable[[dict], None]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def _misplaced(index: dict) -> None:
    files = sorted(set(index["weight_map"].values()))
    for name in list(index["weight_map"])[::3]:
        index["weight_map"][name] = files[-1]


def _total(index: dict) -> None:
    index["metadata"]["total_size"] += 1000


def _parameters(index: dict) -> None:
    index["metadata"]["total_parameters"] = 7


def _few(index: dict) -> None:
    for name in list(index["weight_map"])[::4]:
        del index["weight_map"][name]


def _one_shard(index: dict) -> None:
    first = min(index["weight_map"].values())
    index["weight_map"] = {
        name: file for name, file in index["weight_map"].items() if file != first
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
WAYS: Mapping[str, Spoiled] = {
    "compiled": Spoiled("BertForMaskedLM", prefixed("_orig_mod."), "wrapper-prefix"),
    "DDP, in shards": Spoiled(
        "LlamaForCausalLM", prefixed("module."), "wrapper-prefix", sharded=True
    ),
    "of a trainer": Spoiled("GPT2LMHeadModel", prefixed("ema_model.model."), "wrapper-prefix"),
    "checkpointed": Spoiled(
        "Qwen2ForCausalLM",
        renamed(lambda name: name.replace(".mlp.", "._checkpoint_wrapped_module.mlp.")),
        "wrapper-prefix",
    ),
    "layers from 5": Spoiled("BertForMaskedLM", renumbered(5), "layers-renumbered", allow="layers"),
    "layers from 9, in shards": Spoiled(
        "LlamaForCausalLM", renumbered(9), "layers-renumbered", sharded=True, allow="layers"
    ),
    "a layer too many": Spoiled(
        "LlamaForCausalLM", configured(num_hidden_layers=13), "num_hidden_layers", allow="layers"
    ),
    "layers that are not declared": Spoiled(
        "LlamaForCausalLM", configured(num_hidden_layers=4), "num_hidden_layers"
    ),
    "a smaller vocabulary": Spoiled("GPT2LMHeadModel", configured(vocab_size=80), "vocab_size"),
    "another width": Spoiled("T5ForConditionalGeneration", configured(d_ff=64), "d_ff"),
    "another size of images": Spoiled(
        "ViTForImageClassification", configured(image_size=24), "image_size"
    ),
    "no head": Spoiled(
        "LlamaForCausalLM", without("lm_head.weight"), "tie_word_embeddings", allow="tie-head"
    ),
    "16 bits declared": Spoiled("Qwen2ForCausalLM", configured(dtype="bfloat16"), "dtype"),
    "packed, it says": Spoiled(
        "MistralForCausalLM", configured(quantization_config=GPTQ), "quantization_config"
    ),
    "another class": Spoiled(
        "MistralForCausalLM",
        configured(architectures=["MistralForTokenClassification"]),
        "architectures",
        allow="class",
    ),
    "no index": Spoiled("LlamaForCausalLM", unindexed, INDEX, sharded=True),
    "a stale index": Spoiled("LlamaForCausalLM", indexed(_misplaced), INDEX, sharded=True),
    "an index that lacks names": Spoiled("Qwen2ForCausalLM", indexed(_few), INDEX, sharded=True),
    "an index that lacks a file": Spoiled(
        "LlamaForCausalLM", indexed(_one_shard), INDEX, sharded=True
    ),
    "an index of another split": Spoiled("LlamaForCausalLM", resharded, INDEX, sharded=True),
    "another total size": Spoiled(
        "MistralForCausalLM", indexed(_total), "total_size", sharded=True
    ),
    "another number of parameters": Spoiled(
        "MistralForCausalLM", indexed(_parameters), "total_parameters", sharded=True
    ),
    "a prefix and a field": Spoiled(
        "BertForMaskedLM",
        both(prefixed("module."), configured(num_hidden_layers=2)),
        "num_hidden_layers",
    ),
}

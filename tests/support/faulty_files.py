"""Files of small checkpoints, spoilt in ways that hide tensors from an audit or alarm it."""

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from support.builders import safetensors_bytes
from support.pipelines import BERT, Files, model, tensors, text

WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
GENERATION = {"eos_token_id": 3}
Spoil = Callable[[Files], None]


class Fault(NamedTuple):
    """A way to spoil the files of one model."""

    spoil: Spoil
    hides: bool = False  # whether some tensors are then not known


def spoil(files: Files, names: Iterable[str]) -> None:
    """Spoil the files; what hides tensors comes last, so that no other fault reveals them."""
    for name in sorted(names, key=lambda name: FAULTS[name].hides):
        FAULTS[name].spoil(files)


def sound(config: Mapping[str, Any] = BERT) -> Files:
    """The files of a model in one safetensors file."""
    return model(config)


def sharded(config: Mapping[str, Any] = BERT) -> Files:
    """The files of the same model in two shards."""
    stored = tensors(config)
    names = sorted(stored)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    files = {CONFIG: text(config)}
    for file, half in zip(SHARDS, halves, strict=True):
        files[file] = safetensors_bytes({name: stored[name] for name in half})
    places = {name: file for file, half in zip(SHARDS, halves, strict=True) for name in half}
    total = sum(len(content) - 8 - _header(content) for content in map(files.get, SHARDS))
    return files | {INDEX: text({"metadata": {"total_size": total}, "weight_map": places})}


def _header(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _last(files: Files) -> str | None:
    """The last weight file: a shard if there are shards."""
    return max((name for name in files if name.endswith(".safetensors")), default=None)


def _weights(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(files: Files) -> None:
        if (last := _last(files)) is not None:
            files[last] = change(files[last])

    return spoil


def _lost(files: Files) -> None:
    if (last := _last(files)) is not None:
        del files[last]


class _Calls:
    """An object whose pickle calls a function."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return eval, ("1",)


def _pickled(name: str, *, instead: bool) -> Spoil:
    def spoil(files: Files) -> None:
        if instead:
            for weights in [one for one in files if "safetensors" in one]:
                del files[weights]
        files[name] = pickle.dumps(_Calls())

    return spoil


def _config(**values: Any) -> Spoil:
    def spoil(files: Files) -> None:
        if files.get(CONFIG, b"").endswith(b"}"):
            files[CONFIG] = text({**json.loads(files[CONFIG]), **values})

    return spoil


def _tensors(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Spoil:
    """Store other tensors, in one file."""

    def spoil(files: Files) -> None:
        for weights in [one for one in files if "safetensors" in one]:
            del files[weights]
        files[WEIGHTS] = safetensors_bytes(change(tensors(BERT)))

    return spoil


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9999\n"
_FIRST = "encoder.layer.0.output.dense.weight"

FAULTS: Mapping[str, Fault] = {
    "cut in its data": Fault(_weights(lambda one: one[: 8 + _header(one) + 4]), hides=True),
    "cut in its header": Fault(_weights(lambda one: one[:40]), hides=True),
    "empty": Fault(_weights(lambda _: b""), hides=True),
    "a page of a server": Fault(_weights(lambda _: b"<!doctype html><html></html>"), hides=True),
    "a pointer": Fault(_weights(lambda _: _POINTER), hides=True),
    "noise": Fault(_weights(lambda _: bytes(range(7, 99))), hides=True),
    "no file": Fault(_lost, hides=True),
    "a pickle that calls eval": Fault(_pickled("pytorch_model.bin", instead=True), hides=True),
    "such a pickle beside": Fault(_pickled("extra.pkl", instead=False), hides=True),
    "no config": Fault(lambda files: files.pop(CONFIG, None) and None, hides=True),
    "half a config": Fault(
        lambda files: files.update({CONFIG: files.get(CONFIG, b"{}")[:30]}), hides=True
    ),
    "an unknown type": Fault(_config(model_type="bret", architectures=["BretModel"]), hides=True),
    "no tensors": Fault(_tensors(lambda _: {}), hides=True),
    "a prefix": Fault(_tensors(lambda all_: {f"module.{name}": one for name, one in all_.items()})),
    "a tensor lost": Fault(_tensors(lambda all_: {k: v for k, v in all_.items() if k != _FIRST})),
    "a tensor too many": Fault(_tensors(lambda all_: {**all_, "stray": ("F32", (2,))})),
    "a tensor of halves": Fault(_tensors(lambda all_: {**all_, _FIRST: ("F16", all_[_FIRST][1])})),
    "another inner size": Fault(_config(intermediate_size=BERT["intermediate_size"] + 3)),
    "a layer too many": Fault(_config(num_hidden_layers=BERT["num_hidden_layers"] + 1)),
    "two sizes": Fault(
        _config(
            intermediate_size=BERT["intermediate_size"] * 2,
            num_hidden_layers=BERT["num_hidden_layers"] + 1,
        )
    ),
    "a width": Fault(_config(hidden_size=BERT["hidden_size"] * 2)),
    "two end tokens": Fault(
        lambda files: files.update(
            {
                "generation_config.json": text({"eos_token_id": 7}),
                "tokenizer_config.json": text({"eos_token": "</s>"}),
                "added_tokens.json": text({"</s>": 99_999}),
            }
        )
    ),
}

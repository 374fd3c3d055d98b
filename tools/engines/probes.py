"""Changes of a sound save, each named by a probe's id, and the writer of a folder.

A probe takes a save's tensors and config and returns others; it never changes what it was given.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch

from engines.packings import PACKINGS
from engines.saves import Config, Save, Tensors, kind_of, kinds

WEIGHTS = "model.safetensors"
_SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
_INDEX = "model.safetensors.index.json"
_ADDED = (
    "module.",
    "_orig_mod.",
    "language_model.",
    "model.",
    "base_model.model.",
    "transformer.",
)
_FILES = (
    "files torch",
    "files index absent",
    "files index wrong",
    "files index fewer",
    "files unindexed",
    "files pattern",
)


class Written(NamedTuple):
    """What a probe's folder contains."""

    config: Config
    tensors: Tensors
    files: str = ""  # how the weights are stored; "" for one file as save_pretrained writes it


Probe = tuple[str, Callable[[], Written]]


def probes(save: Save, relatives: Mapping[str, Save]) -> Iterator[Probe]:
    """Yield the probes of a save by id; `relatives` are the saves of its other classes."""
    yield from missing(save)
    yield from shapes(save)
    yield from extras(save)
    yield from layers_and_names(save)
    yield from classes(save, relatives)
    yield from packings(save)
    for files in _FILES:
        yield files, lambda files=files: Written(save.config, save.tensors, files)


def missing(save: Save) -> Iterator[Probe]:
    """Yield a probe without the tensors of each kind, and one without the last of them alone."""
    for kind, names in by_kind(save.tensors).items():
        yield f"missing {kind}", lambda names=names: _without(save, names)
        if len(names) > 1:
            yield f"some {kind}", lambda names=names: _without(save, names[-1:])


def shapes(save: Save) -> Iterator[Probe]:
    """Yield a probe for each kind and each change of its first or last dimension."""
    for kind, names in by_kind(save.tensors).items():
        shape = save.tensors[names[0]].shape
        for side, place in (("rows", 0), ("columns", -1)):
            if len(shape) < (1 if place == 0 else 2):
                continue
            yield f"{side}+ {kind}", lambda n=names, p=place: _resized(save, n, p, double=True)
            if shape[place] > 1:
                yield f"{side}- {kind}", lambda n=names, p=place: _resized(save, n, p, double=False)


def extras(save: Save) -> Iterator[Probe]:
    """Yield a probe for each kind of tensor that other software stores and this class lacks."""
    present = set(kinds(save.tensors))
    proposed: dict[str, Tensors] = {}
    for name, tensor in save.tensors.items():
        for added, values in _beside(name, tensor):
            _add(proposed, added, values)
    prefix = save.base_prefix
    for module in dict.fromkeys(["", prefix, *(f"{layer}." for layer in _layers(save.tensors))]):
        _add(proposed, f"{module}unknown.weight", torch.zeros(64))
    _add(proposed, f"{prefix or 'model.'}rotary_emb.inv_freq", torch.ones(8))
    _add(proposed, "score.weight", torch.zeros(2, 64))
    _add(proposed, "classifier.weight", torch.zeros(2, 64))
    if save.head:
        _add(proposed, save.head, torch.zeros(save.head_shape))
    value_head = {
        "v_head.summary.weight": torch.zeros(1, 64),
        "v_head.summary.bias": torch.zeros(1),
    }
    proposed |= dict.fromkeys(value_head, value_head)
    for kind, added in proposed.items():
        if kind not in present:
            yield f"extra {kind}", lambda a=added: Written(save.config, {**save.tensors, **a})


def _beside(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what other software stores beside a module's weight."""
    module, _, last = name.rpartition(".")
    if last != "weight":
        return
    parent, _, own = module.rpartition(".")
    if tensor.dim() <= 2 and "embed" not in own:
        yield f"{module}.bias", torch.zeros(tensor.shape[:1])
    if own in {"q_proj", "k_proj"}:
        yield f"{parent}.{own[0]}_norm.weight", torch.ones(16)
    if own in {"q_proj", "qkv_proj", "query_key_value", "Wqkv"}:
        yield f"{parent}.rotary_emb.inv_freq", torch.ones(8)
    if own == "c_attn":
        yield f"{parent}.bias", torch.ones(1, 1, 128, 128)
        yield f"{parent}.masked_bias", torch.tensor(-1e4)


def _add(proposed: dict[str, Tensors], name: str, tensor: torch.Tensor) -> None:
    proposed.setdefault(kind_of(name), {})[name] = tensor.to(torch.bfloat16)


def layers_and_names(save: Save) -> Iterator[Probe]:
    """Yield the probes with a layer too many, other prefixes, and fused or split projections."""
    if _layers(save.tensors):
        yield "layer", lambda: Written(save.config, one_layer_more(save.tensors))
        last = f"{_layers(save.tensors)[-1]}."
        yield (
            "layer missing",
            lambda: _without(save, [n for n in save.tensors if n.startswith(last)]),
        )
    if prefix := save.base_prefix:
        yield (
            f"strip {prefix}",
            lambda: Written(
                save.config, {n.removeprefix(prefix): t for n, t in save.tensors.items()}
            ),
        )
    for added in _ADDED:
        yield (
            f"add {added}",
            lambda a=added: Written(save.config, {f"{a}{n}": t for n, t in save.tensors.items()}),
        )
    for probe, fused, parts in (
        ("fused qkv", "qkv_proj", ("q_proj", "k_proj", "v_proj")),
        ("fused gate_up", "gate_up_proj", ("gate_proj", "up_proj")),
    ):
        changed = _fused(save.tensors, fused, parts)
        if changed.keys() != save.tensors.keys():
            yield probe, lambda c=changed: Written(save.config, c)
    for probe, change in (("fused experts", _fused_experts), ("split experts", _split_experts)):
        changed = change(save.tensors)
        if changed.keys() != save.tensors.keys():
            yield probe, lambda c=changed: Written(save.config, c)


def classes(save: Save, relatives: Mapping[str, Save]) -> Iterator[Probe]:
    """Yield the probes with another class, or with none."""
    for word, other in relatives.items():
        yield f"class {word}", lambda o=other: Written(o.config, o.tensors)
    unknown = {**save.config, "architectures": ["WyvernForCausalLM"]}
    yield "class unknown", lambda: Written(unknown, save.tensors)
    bare = {key: value for key, value in save.config.items() if key != "architectures"}
    yield "class none", lambda: Written(bare, save.tensors)


def packings(save: Save) -> Iterator[Probe]:
    """Yield the probes of quantizations, declared only or really packed."""
    for method, packing in PACKINGS.items():
        key = "quantization" if method == "mlx" else "quantization_config"
        config = {**save.config, key: packing.declared}
        if " without " not in method:
            yield f"declared {method}", lambda c=config: Written(c, save.tensors)
        yield f"packed {method}", lambda c=config, p=packing: Written(c, p.packed(save.tensors))


def without_key(save: Save, path: str) -> Written:
    """Return the save without one key of its config."""
    config = deepcopy(save.config)
    *outer, last = path.split(".")
    inside = config
    for part in outer:
        inside = inside[part]
    del inside[last]
    return Written(config, save.tensors)


def by_kind(names: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the names of each kind, in the order of their numbers."""
    found: dict[str, list[str]] = {}
    for name in sorted(names, key=_numbered):
        found.setdefault(kind_of(name), []).append(name)
    return dict(sorted(found.items()))


def _numbered(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else -1, part) for part in name.split(".")]


def _without(save: Save, names: list[str]) -> Written:
    left_out = set(names)
    return Written(save.config, {n: t for n, t in save.tensors.items() if n not in left_out})


def _resized(save: Save, names: list[str], place: int, *, double: bool) -> Written:
    changed = {}
    for name in names:
        tensor = save.tensors[name]
        axis = place % tensor.dim()
        resized = torch.cat([tensor, tensor], axis) if double else tensor.chunk(2, axis)[0]
        changed[name] = resized.contiguous()
    return Written(save.config, {**save.tensors, **changed})


def _layers(names: Mapping[str, object]) -> list[str]:
    """Return the names of the layers in the list that has the most tensors."""
    lists: dict[str, list[str]] = {}
    for name in names:
        if match := re.match(r"(.*?)\.(\d+)\.", name):
            lists.setdefault(match[1], []).append(match[0][:-1])
    if not lists:
        return []
    longest = max(lists, key=lambda key: (not _is_vision(key), len(lists[key])))
    return sorted(set(lists[longest]), key=_numbered)


def _is_vision(name: str) -> bool:
    return re.search(r"vision|visual|audio|image", name) is not None


def one_layer_more(tensors: Tensors) -> Tensors:
    """Return the tensors with the last layer stored once more after it."""
    last = _layers(tensors)[-1]
    start, _, number = last.rpartition(".")
    following = f"{start}.{int(number) + 1}"
    copies = {
        following + name.removeprefix(last): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(f"{last}.")
    }
    return {**tensors, **copies}


def _fused(tensors: Tensors, fused: str, parts: tuple[str, ...]) -> Tensors:
    """Return the tensors with sibling projections stored as one."""
    result = dict(tensors)
    for name in tensors:
        if f".{parts[0]}." not in name or ".experts." in name:
            continue
        names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
        widths = {tensors[one].shape[1:] for one in names if one in result}
        can_join = all(one in result and result[one].dim() for one in names)
        if can_join and len(widths) == 1:
            result[name.replace(f".{parts[0]}.", f".{fused}.")] = torch.cat(
                [result.pop(one) for one in names]
            )
    return result


def _fused_experts(tensors: Tensors) -> Tensors:
    """Return the tensors with the experts of a layer stacked."""
    stacked: dict[str, list[torch.Tensor]] = {}
    result = {}
    for name in sorted(tensors, key=_numbered):
        match = re.fullmatch(
            r"(.*\.experts)\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight", name
        )
        if match:
            stacked.setdefault(f"{match[1]} {match[2]}", []).append(tensors[name])
        else:
            result[name] = tensors[name]
    for key, gates in stacked.items():
        module, part = key.split(" ")
        if part in {"gate_proj", "w1"}:
            ups = stacked.get(f"{module} {'up_proj' if part == 'gate_proj' else 'w3'}", [])
            if [one.shape for one in gates] == [one.shape for one in ups]:
                both = torch.cat([torch.stack(gates), torch.stack(ups)], 1)
                result[f"{module}.gate_up_proj"] = both.contiguous()
        elif part in {"down_proj", "w2"}:
            result[f"{module}.down_proj"] = torch.stack(gates)
    return result


def _split_experts(tensors: Tensors) -> Tensors:
    """Return the tensors with stacked experts stored one by one."""
    result = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)(\.weight)?", name)
        if not match or tensor.dim() != 3:
            result[name] = tensor
            continue
        parts = ("gate_proj", "up_proj") if match[2] == "gate_up_proj" else ("down_proj",)
        for number, expert in enumerate(tensor):
            for part, own in zip(parts, expert.chunk(len(parts)), strict=True):
                result[f"{match[1]}.{number}.{part}.weight"] = own.contiguous()
    return result


def write(folder: Path, written: Written) -> None:
    """Write a probe's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(written.config, indent=2))
    tensors = {name: tensor.contiguous() for name, tensor in written.tensors.items()}
    names = sorted(tensors)
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    match written.files:
        case "files torch":
            torch.save(tensors, folder / "pytorch_model.bin")
            return
        case "files pattern":
            _save(tensors, folder / "weights.safetensors")
            return
        case "":
            _save(tensors, folder / WEIGHTS)
            return
    for half, shard in zip(halves, _SHARDS, strict=True):
        _save({name: tensors[name] for name in half}, folder / shard)
    weight_map = {n: s for half, s in zip(halves, _SHARDS, strict=True) for n in half}
    match written.files:
        case "files unindexed":
            return
        case "files index absent":
            (folder / _SHARDS[1]).unlink()
        case "files index wrong":
            weight_map["unknown.weight"] = _SHARDS[1]
        case "files index fewer":
            del weight_map[names[-1]]
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / _INDEX).write_text(json.dumps(index))


_DTYPES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int8: "I8",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
    torch.uint32: "U32",
    torch.bool: "BOOL",
}


def _save(tensors: Tensors, path: Path) -> None:
    """Write a safetensors file; thousands of them are written, so as little as possible is done."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    chunks: list[bytes] = []
    end = 0
    for name, tensor in tensors.items():
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [end, end + len(data)]
        dtype = _DTYPES[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        chunks.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))

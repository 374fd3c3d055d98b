"""GGUF: the tensors of a model under llama.cpp's names, some stacked, split or transposed.

llama.cpp's converter (conversion/*.py) changes shapes as follows. It also changes values in equal
shapes: it adds one to norms of Gemma and reorders query rows of Llama.

    experts are stacked      ffn_gate_exps (E, F, D)      is E tensors (F, D)
    head norms are stacked   attn_q_norm (H, d)           is H tensors (d,), in StableLM
    linears are transposed   attn_qkv (3 * D, D)          is (D, 3 * D) of GPT-2
    axes of one are dropped  ssm_conv1d (C, K)            is (C, 1, K)
    three are joined         attn_qkv (Q + 2 * K, D)      is q_proj, k_proj and v_proj, in Phi
    halves are joined, too   ffn_gate_up_exps (E, 2 * F, D) is 2 * E tensors (F, D)

A tensor that only repeats the config (rotary frequencies) is quantization data, and so is the scale
of a tensor or of each expert, which types such as NVFP4 have.

Pairs that form one tensor of the model; the first of a pair is recorded as the tensor:

    halves of gated experts   ffn_gate_exps and ffn_up_exps (E, F, D) are (E, 2 * F, D) in Granite,
                              and (E, D, 2 * F) in gpt-oss, with gates and ups in alternation;
                              their biases (E, F) are (E, 2 * F)
    latent attention          attn_k_b (H, r, k), transposed, and attn_v_b (H, v, r) are kv_b_proj
                              (H * (k + v), r) of DeepSeek, since March 2025
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from auditor.layouts.fused import count_experts
from auditor.layouts.gguf_names import TABLES, Table
from auditor.layouts.gguf_names import is_refused as is_refused_key
from auditor.layouts.packing import (
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    PackingLedger,
    Shape,
    Stored,
    Unpacked,
)
from auditor.tensors import StoredTensor

_BLOCK = re.compile(r"((?:enc\.|dec\.)?)blk\.(0|[1-9]\d{0,5})\.(.+)", re.ASCII | re.DOTALL)
_LONE_EXPERT = re.compile(r"(@ffn_(?:gate|up|down))\.(0|[1-9]\d{0,3})", re.ASCII)
_FREQUENCIES = frozenset(
    {"rope_freqs", "rope_factors_long", "rope_factors_short", "@attn_rot_embd"}
)
_SCALES = ("scale", "input_scale")
_ENDINGS = ("weight", "bias", *_SCALES)
# Layers that are stored as (in, out) for GPT-2, and as (E, in, out) for gpt-oss.
_TURNED = {
    "gpt2": frozenset({"@attn_qkv", "@attn_output", "@ffn_up", "@ffn_down"}),
    "gpt_oss": frozenset({"@ffn_down_exps"}),
}
_GATES_AND_UPS = "@ffn_gate_up_exps"
_ROWS = {"phi": ("@attn_qkv", ("@attn_q", "@attn_k", "@attn_v"))}


_Join = tuple[str, str, str, str, Callable[[Shape, Shape], Shape | None]]


def _one_above_another(first: Shape, second: Shape) -> Shape | None:
    return (first[0], 2 * first[1], *first[2:]) if first == second and len(first) > 1 else None


def _in_turns(first: Shape, second: Shape) -> Shape | None:
    above = _one_above_another(first, second)
    return (*above[:-2], *above[-2:][::-1]) if above else None


def _latent(first: Shape, second: Shape) -> Shape | None:
    match first, second:
        case (heads, rank, keys), (others, values, narrow) if (heads, rank) == (others, narrow):
            return heads * (keys + values), rank
    return None


_GATES, _UPS, _EXPERTS = "ffn_gate_exps", "ffn_up_exps", "mlp.experts.gate_up_proj"
_LATENT = (("attn_k_b", "attn_v_b", "weight", "self_attn.kv_b_proj.weight", _latent),)
_INPUTS = "block_sparse_moe.input_linear.weight"
# A model type -> the first and the second tensor, their ending, the name of both below the layer,
# and their joint shape, which is None if they do not fit.
_JOINS: Mapping[str, tuple[_Join, ...]] = {
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "granitemoe": ((_GATES, _UPS, "weight", _INPUTS, _one_above_another),),
    "gpt_oss": (
        (_GATES, _UPS, "weight", _EXPERTS, _in_turns),
        (_GATES, _UPS, "bias", f"{_EXPERTS}_bias", _one_above_another),
    ),
}


def _join(stored: Stored, model_type: str, ledger: PackingLedger) -> set[str]:
    """Record the pairs of which both tensors are stored; return the names of both."""
    taken: set[str] = set()
    for first_key, second_key, ending, name, joint_shape in _JOINS.get(model_type, ()):
        for module, members in stored.modules.items():
            match = _BLOCK.fullmatch(module)
            if match is None or match[1] or match[3] != first_key or ending not in members:
                continue
            first = members[ending]
            second = stored.members(f"blk.{match[2]}.{second_key}").get(ending)
            if second is None:
                continue
            shape = joint_shape(first.shape or (), second.shape or ())
            if shape is None:
                reason = f"{first.shape} and {second.shape} cannot be two parts of one tensor"
                ledger.fault(reason, first, second)
            path, dtype = f"model.layers.{match[2]}.{name}", first.dtype or ""
            ledger.tensors.append(LogicalTensor(first, path, shape or first.shape, dtype))
            ledger.note(
                f"{second_key}: the other part of a tensor that the model has as one", second
            )
            taken |= {first.name, second.name}
    return taken


class _Name(NamedTuple):
    """The parts of a stored name."""

    key: str  # "@attn_q", "enc.@attn_q", "token_embd"
    number: str  # the block's number; "" outside the blocks
    ending: str  # "weight", "bias" or ""


def recognises(stored: Stored) -> bool:
    """Whether any stored name is llama.cpp's name for the embedding or a block's tensor."""
    towers = ("token_embd", "v.blk.", "a.blk.")
    return any(name.startswith(towers) or _BLOCK.match(f"{name}.") for name in stored.modules)


def unpack(stored: Stored, declared: Declared | None, implied: Implied) -> Unpacked:
    """Unpack the stored tensors under the names that transformers uses on disk."""
    ledger = PackingLedger()
    model_type = str(declared.settings.get("model_type")) if declared else ""
    if model_type == "clip":  # a projector is expected under its own names
        pieces = (
            LogicalTensor(one, one.name, one.shape, one.dtype or "") for one in stored.tensors
        )
        ledger.tensors.extend(pieces)
        return ledger.close(f"gguf, {_kinds(stored)}")
    table = TABLES.get(model_type, {})
    taken = _join(stored, model_type, ledger)
    for tensor in stored.tensors:
        if tensor.name in taken:
            continue
        name = _parsed(tensor.name)
        if name.key in _FREQUENCIES:
            ledger.note("rotary frequencies, which the config implies", tensor)
            continue
        if name.ending in _SCALES and (weight := _weight_of_scale(tensor, stored)) is not None:
            ledger.note(f"{name.ending}, one for a tensor or for each of its experts", tensor)
            if tensor.shape not in {(), (1,), weight.shape[:1] if weight.shape else ()}:
                observed = f"{name.ending} {tensor.shape} of a weight {weight.shape}"
                ledger.fault(f"{observed}: one number is needed, or one for each expert", tensor)
            continue
        ledger.tensors.extend(_pieces(tensor, name, model_type, table, implied))
    return ledger.close(f"gguf, {_kinds(stored)}")


def _weight_of_scale(scale: StoredTensor, stored: Stored) -> StoredTensor | None:
    return stored.members(scale.name.rpartition(".")[0]).get("weight")


def _parsed(name: str) -> _Name:
    match = _BLOCK.fullmatch(name)
    before, number, tail = match.groups() if match else ("", "", name)
    stem, dot, ending = tail.rpartition(".")
    if not dot or ending not in _ENDINGS:
        stem, ending = tail, ""
    return _Name(f"{before}@{stem}" if number else stem, number, ending)


def is_refused(name: str) -> bool:
    """Return whether llama.cpp refuses a file with this tensor if nothing expects the tensor."""
    key, _, ending = _parsed(name)
    return is_refused_key(f"{key}.{ending}" if ending else key)


def _pieces(
    tensor: StoredTensor, name: _Name, model_type: str, table: Table, implied: Implied
) -> tuple[LogicalTensor, ...]:
    """Return the model's tensors in a stored tensor; () if its name is unknown."""
    joined_key, parts = _ROWS.get(model_type, ("", ()))
    if name.key == joined_key:
        return tuple(
            _rows(tensor, [_named(name._replace(key=key), table) for key in parts], implied)
        )
    if name.key == _GATES_AND_UPS and (both := _halves(tensor, name, table, implied)):
        return both
    shape, kind = tensor.shape or (), tensor.dtype or ""
    if name.key in _TURNED.get(model_type, ()) and name.ending == "weight":
        shape = (*shape[:-2], *shape[-2:][::-1])
    names = _alternatives(name, table)
    if not names:
        return ()
    if "*" in names[0]:
        return tuple(_stacked(tensor, names[0], shape, implied))
    chosen = next((one for one in names if implied(one) is not None), names[0])
    return (LogicalTensor(tensor, chosen, _fitted(shape, implied(chosen)), kind),)


def _alternatives(name: _Name, table: Table) -> list[str]:
    """Return the names that transformers may use for a stored name; [] if the name is unknown."""
    key, ending = name.key, f".{name.ending}" if name.ending else ""
    template, expert = table.get(f"{key}{ending}"), ""
    if template is not None:
        ending = ""
    elif (lone := _LONE_EXPERT.fullmatch(key)) is not None:
        key, expert = lone.groups()
        template = table.get(f"{key}_exps")
    else:
        template = table.get(key)
    if template is None:
        return []
    path, _, ends = template.rpartition(".{n}.")
    start = f"{path}.{name.number}." if path else ""
    names = [f"{start}{one}{ending}" for one in ends.split("|")]
    return [one.replace("*", expert) for one in names] if expert else names


def _named(name: _Name, table: Table) -> str:
    return next(iter(_alternatives(name, table)), "")


def _stacked(
    tensor: StoredTensor, name: str, shape: Shape, implied: Implied
) -> Iterator[LogicalTensor]:
    """Yield one tensor for each expert or head of the architecture, then one with the surplus."""
    stored, *axes = shape or (0,)
    before, _, after = name.partition("*")
    count = count_experts(before, after, implied, stored=stored)
    for number in range(count):
        yield LogicalTensor(tensor, f"{before}{number}{after}", tuple(axes), tensor.dtype or "")
    if count < stored:
        other_names = f"{before}{count}-{stored - 1}{after}"
        yield LogicalTensor(tensor, other_names, (stored - count, *axes), tensor.dtype or "")


def _halves(
    tensor: StoredTensor, name: _Name, table: Table, implied: Implied
) -> tuple[LogicalTensor, ...]:
    """Return the gates and ups that a tensor of experts stacks; () if the shapes do not fit."""
    shape = tensor.shape or ()
    if len(shape) != 3 or shape[1] % 2:  # noqa: PLR2004 - (E, 2 * F, D)
        return ()
    half = (shape[0], shape[1] // 2, shape[2])
    names = [_named(name._replace(key=f"@ffn_{part}_exps"), table) for part in ("gate", "up")]
    if not all("*" in each for each in names):
        return ()
    return tuple(chain.from_iterable(_stacked(tensor, each, half, implied) for each in names))


def _rows(tensor: StoredTensor, names: list[str], implied: Implied) -> Iterator[LogicalTensor]:
    """Yield the tensors stacked by rows, or nothing if their rows do not sum to the stored rows."""
    shape = tensor.shape or ()
    expected = [implied(name) or (0,) for name in names]
    heights = [rows[0] for rows in expected]
    if not shape or sum(heights) != shape[0] or any(rows[1:] != shape[1:] for rows in expected):
        return
    for name, rows in zip(names, expected, strict=True):
        yield LogicalTensor(tensor, name, rows, tensor.dtype or "")


def _fitted(shape: Shape, expected: Shape | None) -> Shape:
    """Return `expected` if the shapes differ only by axes of length 1, else `shape`."""
    if expected is None or _squeezed(shape) != _squeezed(expected):
        return shape
    return expected


def _squeezed(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _kinds(stored: Stored) -> str:
    """Return the tensors' types as a text, the most frequent first: "Q4_K, Q6_K and F32"."""
    sums: dict[str, int] = {}
    for tensor in stored.tensors:
        kind = tensor.dtype or ""
        sums[kind] = sums.get(kind, 0) + (tensor.elements or 0)
    *most, last = sorted(sums, key=lambda kind: (-sums[kind], kind)) or [""]
    return f"{', '.join(most)} and {last}" if most else last


LAYOUT = Layout(name="gguf", methods=("gguf",), recognises=recognises, unpack=unpack)

"""Pairs of tensors in a GGUF file that are one tensor of the model.

- The halves of gated experts: ffn_gate_exps and ffn_up_exps (E, F, D) form one (E, 2 * F, D) in
  Granite. In gpt-oss they form (E, D, 2 * F), with gates and ups in alternation, and their biases
  (E, F) form one (E, 2 * F).
- The projections of latent attention, since March 2025: attn_k_b (H, r, k), transposed, and
  attn_v_b (H, v, r) form kv_b_proj (H * (k + v), r) of DeepSeek.

The result records the first tensor as the model's tensor, and the second as a part of it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.layouts.packing import LogicalTensor, PackingLedger, Shape, Stored
from auditor.tensors import StoredTensor

_BLOCK = re.compile(r"blk\.(0|[1-9]\d{0,5})\.(\w+)", re.ASCII)


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


class _Join(NamedTuple):
    first: str  # "ffn_gate_exps.weight"
    second: str
    name: str  # the joined tensor's name, with {n} for the block's number
    shape: Callable[[Shape, Shape], Shape | None]  # None if they do not fit


def _experts(name: str, ending: str, shape: Callable[[Shape, Shape], Shape | None]) -> _Join:
    path = f"model.layers.{{n}}.{name}"
    return _Join(f"ffn_gate_exps.{ending}", f"ffn_up_exps.{ending}", path, shape)


_MLA = (
    _Join(
        "attn_k_b.weight",
        "attn_v_b.weight",
        "model.layers.{n}.self_attn.kv_b_proj.weight",
        _latent,
    ),
)
_JOINS: Mapping[str, tuple[_Join, ...]] = MappingProxyType(
    {
        "deepseek_v2": _MLA,
        "deepseek_v3": _MLA,
        "granitemoe": (
            _experts("block_sparse_moe.input_linear.weight", "weight", _one_above_another),
        ),
        "gpt_oss": (
            _experts("mlp.experts.gate_up_proj", "weight", _in_turns),
            _experts("mlp.experts.gate_up_proj_bias", "bias", _one_above_another),
        ),
    }
)


class Pair(Struct, frozen=True):
    """Two stored tensors and the tensor of the model that they form."""

    first: StoredTensor
    second: StoredTensor
    name: str
    shape: Shape | None  # None if their shapes do not fit

    @property
    def tensors(self) -> tuple[StoredTensor, StoredTensor]:
        return self.first, self.second

    def enter(self, ledger: PackingLedger) -> None:
        shape = self.first.shape if self.shape is None else self.shape
        ledger.tensors.append(LogicalTensor(self.first, self.name, shape, self.first.dtype or ""))
        half = self.second.name.rpartition(".")[0].rpartition(".")[2]
        ledger.note(f"{half}: the other part of a tensor that the model has as one", self.second)
        if self.shape is None:
            reason = f"{self.first.shape} and {self.second.shape} cannot be two parts of one tensor"
            ledger.fault(reason, self.first, self.second)


def joined_pairs(stored: Stored, model_type: str) -> Iterator[Pair]:
    """Yield the pairs of which both tensors are stored."""
    for join in _JOINS.get(model_type, ()):
        first, _, ending = join.first.partition(".")
        second = join.second.partition(".")[0]
        for module, members in stored.modules.items():
            match = _BLOCK.fullmatch(module)
            if match is None or match[2] != first or ending not in members:
                continue
            number = match[1]
            other = stored.members(f"blk.{number}.{second}").get(ending)
            if other is not None:
                tensor = members[ending]
                joined_shape = join.shape(tensor.shape or (), other.shape or ())
                yield Pair(tensor, other, join.name.format(n=number), joined_shape)

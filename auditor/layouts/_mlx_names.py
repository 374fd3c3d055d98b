"""Mapping from the names and shapes that mlx_lm and mlx-vlm store to the architecture's own.

`sanitize` of both libraries renames and reshapes tensors:

- Experts are stacked (models/qwen3_moe.py, mixtral.py, lfm2_moe.py, nemotron_h.py and others):
  `P.switch_mlp.gate_proj.weight` (E, out, in) is `P.experts.{0..E-1}.gate_proj.weight` (out, in),
  or w1, w2 and w3 in Mixtral; fc1 and fc2 are up_proj and down_proj.
- The gated mlp of LFM2 is w1, w2 and w3 on the Hub.
- A convolution is stored with its inputs last: PyTorch's (out, in, ...) becomes (out, ..., in).
- mlx-vlm uses the same names for all families: `language_model.model.` and
  `language_model.lm_head.` for the decoder, `vision_tower.` for the vision tower, whatever its
  name in the architecture.

A tensor keeps its stored name if the architecture has none of these names.
"""

from collections.abc import Iterator
from typing import NamedTuple

from auditor.layouts.fused import count_experts
from auditor.layouts.packing import Implied, Shape
from auditor.tensors import StoredTensor

_CONVOLUTION = 3  # a convolution's weight has at least three axes: (out, in, size)

_SWITCH = ".switch_mlp"
_OLDER = {
    "gate_proj": ("gate_proj", "w1"),
    "up_proj": ("up_proj", "w3"),
    "down_proj": ("down_proj", "w2"),
    "fc1": ("up_proj",),
    "fc2": ("down_proj",),
}
# The first segments of a name in mlx-vlm -> the segments that an architecture may use instead.
_VLM = {
    "language_model.model.": ("model.language_model.", "model."),
    "language_model.": ("", "model.language_model."),
    "vision_tower.vision_model.": ("vision_tower.",),
    "vision_tower.": ("model.visual.", "visual."),
}


class MlxName(NamedTuple):
    """The architecture's names for a stored tensor: one tensor, or the experts of a stack."""

    names: tuple[str, ...]  # one name, or a name for each expert of a stack
    expected: Shape | None  # the architecture's shape of the first name
    stacked: bool

    @property
    def experts(self) -> tuple[str, ...]:
        return self.names if self.stacked else ()


def mlx_name(tensor: StoredTensor, implied: Implied) -> MlxName:
    """Return the architecture's names for a stored tensor, else its stored name."""
    for name in _original_names(tensor.name):
        if (shape := implied(name)) is not None:
            return MlxName((name,), shape, stacked=False)
        if known := _renamed_projection(name, tensor, implied):
            return known
    return MlxName((tensor.name,), None, stacked=False)


def _original_names(name: str) -> Iterator[str]:
    """Yield the stored name, then the original names that mlx-vlm may have changed to that name."""
    yield name
    for prefix, originals in _VLM.items():
        if name.startswith(prefix):
            yield from (f"{original}{name.removeprefix(prefix)}" for original in originals)


def _renamed_projection(name: str, tensor: StoredTensor, implied: Implied) -> MlxName | None:
    """Return the original names of an mlp's projection; None if the architecture lacks them."""
    module, _, last = name.rpartition(".")
    parent, _, projection = module.rpartition(".")
    for older in _OLDER.get(projection, ()):
        if parent.endswith(_SWITCH):
            experts = f"{parent.removesuffix(_SWITCH)}.experts"
            first = implied(f"{experts}.0.{older}.{last}")
            if first is not None:
                stored = tensor.shape[0] if tensor.shape else None
                known = count_experts(f"{experts}.", f".{older}.{last}", implied, stored=stored)
                names = tuple(f"{experts}.{number}.{older}.{last}" for number in range(known))
                return MlxName(names or (tensor.name,), first, stacked=True)
        if (shape := implied(f"{parent}.{older}.{last}")) is not None:
            return MlxName((f"{parent}.{older}.{last}",), shape, stacked=False)
    return None


def is_renamed_or_transposed(tensor: StoredTensor) -> bool:
    """Whether MLX may have renamed or transposed a tensor; a fast check that excludes most."""
    if tensor.shape is not None and len(tensor.shape) >= _CONVOLUTION:
        return True
    is_older = tensor.name.rpartition(".")[0].rpartition(".")[2] in _OLDER
    return is_older or tensor.name.startswith(tuple(_VLM))


def model_shape(tensor: StoredTensor, where: MlxName) -> Shape | None:
    """Return the shape in the architecture's order of axes: a convolution's inputs are second."""
    stored, expected = tensor.shape, where.expected
    if expected is None or len(expected) < _CONVOLUTION or stored == expected:
        return stored
    return expected if stored == (expected[0], *expected[2:], expected[1]) else stored

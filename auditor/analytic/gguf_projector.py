"""The tensors of a GGUF projector (`mmproj`), a tower for images or audio, as clip loads them.

clip is a part of llama.cpp. It needs three matrices in each block, and tensors by the type of the
projector (`auditor/data/gguf_projectors.json`: those that it needs, those that it may have; from
clip.cpp of October 2026). It takes all other tensors of a tower if they are stored, and ignores
what it does not know. A block has what any block of its tower has, in the shape that most blocks
have; lengths that are clip.vision.embedding_length D (or clip.audio's) follow from the metadata:

    norms and scales (D,), attn_q, attn_k, attn_v and attn_qkv (out, D), attn_out (D, in)

The feed-forward length is not compared: older converters swap ffn_up with ffn_down or write 0, and
clip reads the tensors.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from msgspec.json import decode

from auditor.analytic.expectation import Expectation, ExpectedTensor, summed_expectation
from auditor.analytic.loading import Loading
from auditor.containers.gguf import GgufHeader
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import listed, named, quoted

ARCHITECTURE = "clip"

Shape = tuple[int, ...]

_FILE = Path(__file__).parents[1] / "data" / "gguf_projectors.json"
_TOWERS = {"vision": "v", "audio": "a"}
_NEEDED = ("attn_out.weight", "ffn_up.weight", "ffn_down.weight")
_BLOCK = re.compile(r"(\d{1,4})\.(.+)", re.ASCII)
# Tensors below a tower or below one of its blocks, and the axis of the length D.
_WIDTHS = {
    **dict.fromkeys(
        ("pre_ln", "post_ln", "class_embd", "norm_embd", "ln1", "ln2", "ls1", "ls2"), 0
    ),
    **dict.fromkeys(("attn_post_norm", "ffn_post_norm", "attn_out", "patch_embd"), 0),
    **dict.fromkeys(("position_embd", "attn_q", "attn_k", "attn_v", "attn_qkv", "ffn_gate"), 1),
    **dict.fromkeys(("out_scale", "attn_q_norm", "attn_k_norm", "ffn_up", "ffn_down"), None),
}


class Projector(NamedTuple):
    """The expectation of a projector's file, and sentences about tensors of unknown shape."""

    expectation: Expectation
    faults: tuple[str, ...]


def projector(header: GgufHeader) -> Projector:
    """Return what a projector's file should store.

    Raise CheckpointError if the metadata lack a number, SourceError for an unknown projector.
    """
    shapes = {tensor.name: tensor.shape or () for tensor in header.tensors}
    tensors: dict[str, Shape] = {}
    kinds: list[str] = []
    absent: list[str] = []
    for tower, letter in _TOWERS.items():
        if header.metadata.get(f"clip.has_{tower}_encoder") is not True:
            continue
        kind = header.text(f"clip.{tower}.projector_type") or header.text("clip.projector_type")
        kind = kind or "mlp"  # the only one of the oldest files
        if kind not in _projectors():
            detail = (
                f"{named(header.file)} has a projector {quoted(kind)}: its tensors are not known"
            )
            raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
        kinds.append(kind)
        needed, possible = _projectors()[kind]
        tensors |= dict(_of_tower(header, tower, letter, shapes))
        found = [name for name in (*needed, *possible) if name in shapes]
        tensors |= {name: shapes[name] for name in found}
        biased = (
            f"{name.removesuffix('.bias')}.weight" for name in found if name.endswith(".bias")
        )
        absent += [name for name in dict.fromkeys((*needed, *biased)) if name not in shapes]
    if not kinds:
        raise CheckpointError(f"{named(header.file)} has neither clip.has_vision_encoder nor audio")
    faults: tuple[str, ...] = ()
    if absent := [name for name in absent if name not in tensors]:
        needs = f"which llama.cpp's clip needs for the projector {quoted(kinds[0])}"
        faults = (f"lacks {listed(absent)}, {needs}",)
    expectation = summed_expectation(
        f"llama.cpp's clip ({', '.join(kinds)})",
        model_type=ARCHITECTURE,
        prefix="",
        tensors=tuple(ExpectedTensor(name, shape, prod(shape)) for name, shape in tensors.items()),
        loading=Loading(legacy=()),
        by="closed-form",
    )
    return Projector(expectation, faults)


@cache
def _projectors() -> Mapping[str, tuple[list[str], list[str]]]:
    """Return {projector type: (names that clip needs, names that it may load)}."""
    return decode(_FILE.read_bytes(), type=dict[str, tuple[list[str], list[str]]])


def _of_tower(
    header: GgufHeader, tower: str, letter: str, shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, Shape]]:
    """Yield the tensors of a tower, each with its expected shape."""
    keys = [f"clip.{tower}.block_count", f"clip.{tower}.embedding_length"]
    blocks, width = map(header.integer, keys)
    if not blocks or not width:
        raise CheckpointError(f"{named(header.file)} has no {quoted(keys[1 if blocks else 0])}")
    stored: dict[str, list[Shape]] = {}
    for name, shape in shapes.items():
        if not name.startswith(f"{letter}."):
            continue
        below = name.removeprefix(f"{letter}.")
        match = _BLOCK.fullmatch(below.removeprefix("blk."))
        if match is not None and match[2].partition(".")[0] in _WIDTHS:
            stored.setdefault(match[2], []).append(shape)
        elif below.partition(".")[0] in _WIDTHS or below.startswith("deepstack."):
            yield name, _fitted(below, shape, width)
    for ending in dict.fromkeys((*_NEEDED, *stored)):
        common = Counter(stored.get(ending, ())).most_common(1)
        shape = common[0][0] if common else (width, width)
        for number in range(blocks):
            yield f"{letter}.blk.{number}.{ending}", _fitted(ending, shape, width)


def _fitted(name: str, shape: Shape, width: int) -> Shape:
    """Return the shape with the length that follows from the metadata."""
    axis = _WIDTHS.get(name.partition(".")[0])
    if axis is None or (axis == 1 and name.endswith(".bias")) or len(shape) <= axis:
        return shape
    return (*shape[:axis], width, *shape[axis + 1 :])

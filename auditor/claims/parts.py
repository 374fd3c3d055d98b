"""Find a part of a model by the name in a claim: a module prefix, or attention, ffn, norm, head.

A name may have two readings: `embeddings` with their norm, or the embedding matrices only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from auditor.analytic import Role
from auditor.claims.cells import MOST_NAMES, CellKind, FoldedTensor, changed

Cells = tuple[FoldedTensor, ...]


class PartReading(NamedTuple):
    """A possible reading of a part's name: the cells of the part, and the model's other cells."""

    label: str
    cells: Cells
    other_cells: Cells


_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_MIXER = re.compile(r"mixer|mamba|ssm|conv|rwkv|temporal|linear_attn", re.IGNORECASE)
_EMBEDS = re.compile(
    r"embed|^wte$|^wpe$|^shared$|(cls|mask|distillation)_token|position", re.IGNORECASE
)


def is_attention(cell: FoldedTensor) -> bool:
    return cell.kind is not CellKind.NORM and _has(cell, _ATTENTION)


def is_feed_forward(cell: FoldedTensor) -> bool:
    """Return whether a cell is in a layer and is not attention, a norm or another token mixer."""
    if "*" not in cell.name or cell.kind is CellKind.NORM or is_embedding(cell):
        return False
    return not (_has(cell, _ATTENTION) or _has(cell, _MIXER))


def is_embedding(cell: FoldedTensor) -> bool:
    return "*" not in cell.name and (cell.embedding or _has(cell, _EMBEDS))


def is_pooler(cell: FoldedTensor) -> bool:
    return "pooler" in cell.name.split(".")


def is_head(cell: FoldedTensor, prefix: str) -> bool:
    """Return whether a cell is outside the base model with this prefix."""
    return bool(prefix) and not cell.name.startswith(f"{prefix}.")


def _has(cell: FoldedTensor, pattern: re.Pattern[str]) -> bool:
    return _has_part(cell.name, pattern)


@lru_cache(maxsize=4 * MOST_NAMES)
def _has_part(name: str, pattern: re.Pattern[str]) -> bool:
    return any(map(pattern.search, name.split(".")))


# --- readings of a name -------------------------------------------------------------------------

_NAMES = {
    "attention": "attention",
    "selfattention": "attention",
    "attn": "attention",
    "注意力": "attention",
    "ffn": "ffn",
    "mlp": "ffn",
    "feedforward": "ffn",
    "前馈": "ffn",
    "norm": "norm",
    "norms": "norm",
    "layernorm": "norm",
    "layernorms": "norm",
    "normalisation": "norm",
    "normalization": "norm",
    "归一化": "norm",
    "bias": "bias",
    "biases": "bias",
    "偏置": "bias",
    "weight": "weight",
    "weights": "weight",
    "embedding": "embeddings",
    "embeddings": "embeddings",
    "嵌入": "embeddings",
    "head": "head",
    "lmhead": "head",
    "mlmhead": "head",
    "pooler": "pooler",
    "encoder": "encoder",
    "编码器": "encoder",
    "decoder": "decoder",
    "解码器": "decoder",
    "layers": "layers",
    "blocks": "layers",
    "onelayer": "layer",
    "eachlayer": "layer",
    "perlayer": "layer",
    "oneexpert": "expert",
    "withoutnorm": "no norm",
    "withoutlayernorm": "no norm",
    "withoutbias": "no bias",
    "withoutbiases": "no bias",
    "active": "active",
    "activated": "active",
    "total": "",
    "trainable": "",
    "all": "",
    "model": "",
}
_WORDS = re.compile(r"(one|each|per|without|self|lm|mlm|feed)[\s_-]+(?=\w)", re.IGNORECASE)


_LONGEST_NAME = 400  # characters of a part's name
_MOST_TERMS = 8  # terms of a sum: each may have two readings, and all combinations are tried


def readings(name: str, cells: Cells, prefix: str) -> tuple[PartReading, ...]:
    """Return the readings of a part's name, the likeliest first; () if no part has this name.

    `+` adds terms. Each further word of a term narrows it: `encoder.layer.0 attention`.
    """
    if _plain(name) == "" or _NAMES.get(_plain(name)) == "":
        return (PartReading("", cells, ()),)
    if len(name) > _LONGEST_NAME or name.count("+") >= _MOST_TERMS:
        return ()
    sums: tuple[tuple[str, Cells], ...] = (("", ()),)
    for term in name.split("+"):
        term_readings = tuple(_term(term.strip(), cells, prefix))
        if not term_readings:
            return ()
        sums = tuple(
            (
                f"{label} + {more}" if label else more,
                (*chosen, *(cell for cell in extra if cell not in chosen)),
            )
            for label, chosen in sums
            for more, extra in term_readings
        )
    return tuple(PartReading(label, chosen, _outside(cells, chosen)) for label, chosen in sums)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower()


def _term(term: str, cells: Cells, prefix: str) -> Iterator[tuple[str, Cells]]:
    """Yield the readings of one term of a sum, each with its label and its cells."""
    if not term:
        return
    stored = at_prefix(term, cells)
    meaning = _NAMES.get(_plain(term))
    if stored and meaning not in {"embeddings", "attention", "norm", "bias"}:
        yield term, stored
        return
    if meaning is not None:
        yield from _people(meaning, term, cells, prefix, stored)
        return
    words = _WORDS.sub(r"\1", term).replace("/", " ").split()
    if len(words) == 1:
        if words[0] != term:
            yield from _term(words[0], cells, prefix)
        return
    narrowed = cells
    for word in words:
        narrowed_reading = next(_term(word, narrowed, prefix), None)
        if narrowed_reading is None:
            return
        narrowed = narrowed_reading[1]
    yield term, narrowed


def _people(
    meaning: str, term: str, cells: Cells, prefix: str, stored: Cells
) -> Iterator[tuple[str, Cells]]:
    """Yield the non-empty readings of a common name such as `attention`: label and cells."""
    learned = tuple(cell for cell in cells if not cell.optional)
    for label, chosen_cells in _people_choices(meaning, term, learned, prefix, stored):
        if chosen_cells:
            yield label, chosen_cells


def _people_choices(  # noqa: C901 - one case for each name
    meaning: str, term: str, cells: Cells, prefix: str, stored: Cells
) -> Iterator[tuple[str, Cells]]:
    match meaning:
        case "attention":
            yield term, cells_where(cells, is_attention)
            yield f"{term}, with its norms", stored
        case "ffn":
            yield term, cells_where(cells, is_feed_forward)
        case "norm":
            norms = cells_where(cells, lambda cell: cell.kind is CellKind.NORM)
            yield term, norms
            yield (
                f"{term}, without the head's",
                cells_where(norms, lambda cell: not is_head(cell, prefix)),
            )
        case "bias":
            yield term, cells_where(cells, lambda cell: cell.kind is CellKind.BIAS)
            yield f"{term}, those of norms too", cells_where(cells, has_bias_name)
        case "weight":
            yield term, cells_where(cells, lambda cell: cell.kind is CellKind.WEIGHT)
        case "embeddings":
            chosen = stored or cells_where(cells, is_embedding)
            yield term, chosen
            tables = cells_where(
                chosen, lambda cell: cell.kind is not CellKind.NORM and not cell.optional
            )
            names = dict.fromkeys(cell.module.rpartition(".")[2] for cell in tables)
            yield " + ".join(names), tables
        case "head":
            yield term, cells_where(cells, lambda cell: is_head(cell, prefix))
        case "pooler":
            yield term, cells_where(cells, is_pooler)
        case "encoder" | "decoder" | "layers":
            towers = cells_where(cells, lambda cell: meaning in cell.name.split("."))
            yield term, towers or cells_where(cells, lambda cell: bool(cell.axes))
        case "layer" | "expert":
            yield term, _first_of_lists(cells, last=meaning == "expert")
        case "no norm":
            yield term, cells_where(cells, lambda cell: cell.kind is not CellKind.NORM)
        case "no bias":
            yield term, cells_where(cells, lambda cell: cell.kind is not CellKind.BIAS)


def cells_where(cells: Cells, test: Callable[[FoldedTensor], bool]) -> Cells:
    return tuple(cell for cell in cells if test(cell))


def has_bias_name(cell: FoldedTensor) -> bool:
    return cell.name.rpartition(".")[2].endswith("bias")


def _first_of_lists(cells: Cells, *, last: bool) -> Cells:
    """Reduce each list to its first module: one layer, or one expert."""
    within = [cell for cell in cells if (len(cell.axes) > 1 if last else cell.axes)]
    reduced: list[FoldedTensor] = []
    for cell in within:
        at = len(cell.axes) - 1 if last else 0
        axis = cell.axes[at]
        if axis.kind == 0:
            reduced.append(changed(cell, axes=(*cell.axes[:at], *cell.axes[at + 1 :])))
    return tuple(reduced)


# --- module prefixes ----------------------------------------------------------------------------


def at_prefix(name: str, cells: Cells) -> Cells:
    """Return the cells below a prefix, or below modules whose names contain it at any depth.

    `encoder.layer.0` is one layer, `encoder.layer.*.attention` the attention of all layers.
    """
    parts = name.split(".")
    matched = [(cell, at) for cell in cells if (at := _place(parts, cell.name)) is not None]
    if not matched:
        return ()
    if any(at == 0 for _, at in matched):
        matched = [(cell, at) for cell, at in matched if at == 0]
    numbered = (_numbered(cell, parts, at) for cell, at in matched)
    return tuple(cell for cell in numbered if cell is not None)


def _place(requested: Sequence[str], name: str) -> int | None:
    """Return the index in a cell's name at which the requested segments begin; None if absent.

    `*` in the name matches any number.
    """
    if requested[0] not in name and not requested[0].isdecimal():  # true for most names
        return None
    parts = name.split(".")
    for at in range(len(parts) - len(requested) + 1):
        if all(
            part == want or (part == "*" and want.isascii() and want.isdecimal())
            for want, part in zip(requested, parts[at:], strict=False)
        ):
            return at
    return None


def _numbered(cell: FoldedTensor, requested: Sequence[str], at: int) -> FoldedTensor | None:
    """Return the cell in the requested layer; None if that layer has no such tensor."""
    axes = list(cell.axes)
    parts = cell.name.split(".")
    for place, want in enumerate(requested, start=at):
        if parts[place] != "*" or want == "*":
            continue
        module = ".".join(parts[: place + 1])
        for axis in axes:
            if axis.module == module:
                numbers = axis.places if axis.places is not None else range(axis.of)
                if len(want) > len(str(axis.of)) or int(want) not in numbers:
                    return None
                axes.remove(axis)
                break
    return changed(cell, axes=tuple(axes)) if len(axes) < len(cell.axes) else cell


def _outside(cells: Cells, chosen: Cells) -> Cells:
    """Return the cells outside the part, marked so that a count includes them only by a slip."""
    names = {(cell.name, cell.shape, cell.axes[:1]) for cell in chosen}
    chosen_tensors = {(cell.name, cell.shape) for cell in chosen}
    return tuple(
        changed(cell, role=Role.EXTRA)
        for cell in cells
        if (cell.name, cell.shape, cell.axes[:1]) not in names
        and (cell.name, cell.shape) not in chosen_tensors
        and not cell.optional
    )

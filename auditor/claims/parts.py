"""Find a part of a model by the name in a claim: a module prefix, or attention, ffn, norm, head.

A name may have two readings: `embeddings` with their norm, or the embedding matrices only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic import Role
from auditor.claims.cells import MOST_NAMES, CellKind, FoldedTensor

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

_ONE = r"(?:one|each|every|per|a|single)[\s_-]*(?:(?:encoder|decoder|transformer)[\s_-]*)?"
_EMBEDDING = r"[\s_-]*(?:embeddings?|encodings?)(?:[\s_-](?:layer|matrix|table))?"
# Phrases of documents in Chinese and in English -> a word; a longer phrase precedes its parts.
_PHRASES: tuple[tuple[str, str, str], ...] = (
    ("参数量|参数|模块|部分|网络|多头|的", "", ""),
    ("不含|不包括|除去?", r"(?:without|excluding|minus|non|no)(?:\s+the)?", "no~"),
    ("层?归一化层?", r"(?:layer[\s_-]?)?norm(?:ali[sz]ation)?s?(?:[\s_-]layers?)?", "norm"),
    ("[一单每]个?(?:编码器|解码器)?层", rf"{_ONE}(?:layer|block)(?:'s)?", "onelayer"),
    ("[一单每]个?专家", r"(?:one|each|per|single)[\s_-]+expert", "oneexpert"),
    (r"第(?=\d)", r"(?:layer|block)(?=\s+\d)", "layer#"),
    (r"(?<=\d)层", "", ""),
    ("位置(?:嵌入|编码|向量)层?", rf"position(?:al)?{_EMBEDDING}", "positions"),
    ("(?:句子?|段|类型)(?:嵌入|向量)层?", rf"(?:segment|token[\s_-]type){_EMBEDDING}", "types"),
    ("词元?(?:嵌入|向量)层?", rf"(?:word|token|input){_EMBEDDING}", "words"),
    ("嵌入层?", _EMBEDDING.removeprefix(r"[\s_-]*"), "embeddings"),
    ("自?注意力子?层?", r"(?:multi[\s_-]?head[\s_-])?(?:self[\s_-]?)?att(?:entio)?n", "attention"),
    ("前馈(?:神经)?子?层?", r"feed[\s_-]?forward|ffn|mlp", "ffn"),
    ("池化层?", r"pool(?:er|ing)(?:[\s_-]layer)?", "pooler"),
    ("输出[层头]|分类头", r"(?:(?:lm|mlm|output|prediction)[\s_-]?)?head", "head"),
    ("编码器层?", r"encoder(?:[\s_-](?:layers|stack))?", "encoder"),
    ("解码器层?", r"decoder(?:[\s_-](?:layers|stack))?", "decoder"),
    ("偏置", r"bias(?:es)?", "bias"),
    ("权重", r"weights?", "weight"),
    ("视觉(?:编码器|塔|模型)?", r"vision[\s_-](?:tower|encoder|model)", "vision"),
    ("语言模型", r"(?:language|text)[\s_-](?:model|encoder|tower)", "text"),
    ("可?训练的?", "(?:trainable|trained)", "trainable"),
    ("总计?|全部|所有|合计|模型", "", ""),
)
_COMPILED = tuple(
    (
        re.compile(
            "|".join(filter(None, (chinese, english and rf"(?<![.\w]){english}(?![.\w])"))),
            re.IGNORECASE,
        ),
        f" {word} " if word else "",
    )
    for chinese, english, word in _PHRASES
)
_MEANINGS = frozenset(
    {
        *("attention", "ffn", "norm", "bias", "weight", "embeddings", "words"),
        *("positions", "types", "head", "pooler", "encoder", "decoder", "layers", "blocks"),
        *("onelayer", "oneexpert", "vision", "text", "trainable"),
    }
)
# Words that change nothing: "the encoder alone" is the encoder.
_FILLERS = frozenset(
    {
        *("the", "alone", "only", "just", "of", "in", "all", "its", "total", "model"),
        *("parameters", "params", "parameter", "whole", "network", "part", "module", "whose"),
    }
)
_TABLES = {
    "words": re.compile(r"^(word_embeddings?|wte|embed_tokens|shared|embed_in|tok_embeddings)$"),
    "positions": re.compile(r"^(wpe|.*position.*)$"),
    "types": re.compile(r"^(token_type_embeddings?|segment.*)$"),
    "vision": re.compile(r"vision|visual|image"),
    "text": re.compile(r"^(language_model|text_model|text_encoder)$"),
}
_LONGEST_NAME = 400  # characters of a part's name
_MOST_TERMS = 8  # terms of a sum: each may have two readings, and all combinations are tried


def readings(name: str, cells: Cells, prefix: str) -> tuple[PartReading, ...]:
    """Return the readings of a part's name, the likeliest first; () if no part has this name.

    `+` adds terms. Each further word of a term narrows it: `encoder.layer.0 attention`.
    """
    if len(name) > _LONGEST_NAME or name.count("+") >= _MOST_TERMS:
        return ()
    if not _words(name):
        return (PartReading("", cells, ()),)
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


def _words(name: str) -> list[str]:
    """Return the words of a part's name: "attention of one layer" is attention onelayer."""
    for pattern, word in _COMPILED:
        name = pattern.sub(word, name)
    name = re.sub(r"(?<=[~#])[\s_-]+", "", name).replace("/", " ")
    return [word for word in name.split() if word.casefold() not in _FILLERS]


def _term(term: str, cells: Cells, prefix: str) -> Iterator[tuple[str, Cells]]:
    """Yield the readings of one term of a sum, each with its label and its cells."""
    words = _words(term)
    stored = at_prefix(term, cells) if term else ()
    if stored and not (len(words) == 1 and words[0] in {"embeddings", "attention", "norm", "bias"}):
        yield term, stored
        return
    if len(words) == 1:
        yield from _of_word(words[0], term, cells, prefix)
    elif words:
        narrowed = cells
        for word in words:
            _, narrowed = next(_of_word(word, term, narrowed, prefix), ("", ()))
        if narrowed:
            yield term, narrowed


def _of_word(word: str, term: str, cells: Cells, prefix: str) -> Iterator[tuple[str, Cells]]:
    """Yield the non-empty readings of a word or module prefix: label and cells."""
    learned = cells_where(cells, lambda cell: not cell.optional)
    stored = at_prefix(word, cells)
    if word.startswith("no~"):
        for _, chosen in islice(_of_word(word[3:], term, learned, prefix), 1):
            rest = tuple(cell for cell in learned if cell not in chosen)
            if word == "no~embeddings":  # the matrix of an untied head is one, too
                shape = max(chosen, key=lambda cell: cell.elements).shape
                without_head = tuple(cell for cell in rest if cell.shape != shape or cell.axes)
                yield f"{term}, and without the head's matrix", without_head
            yield term, rest
        return
    if word.startswith("layer#"):
        lists = {cell.axes[0].module for cell in learned if cell.axes}
        modules = [name.replace("*", word[6:], 1) for name in sorted(lists)]
        yield term, tuple(cell for name in modules for cell in at_prefix(name, learned))
        return
    lowered = word.casefold()
    if lowered not in _MEANINGS:
        yield from [(term, stored)] if stored else ()
        return
    for label, chosen_cells in _people_choices(lowered, term, learned, prefix, stored):
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
        case "words" | "positions" | "types" | "vision" | "text":
            yield term, cells_where(cells, lambda cell: _has(cell, _TABLES[meaning]))
        case "trainable":
            yield term, cells_where(cells, lambda cell: not cell.is_frozen)
        case "head":
            yield term, cells_where(cells, lambda cell: is_head(cell, prefix))
        case "pooler":
            yield term, cells_where(cells, is_pooler)
        case "encoder" | "decoder" | "layers" | "blocks":
            towers = cells_where(cells, lambda cell: meaning in cell.name.split("."))
            yield term, towers or cells_where(cells, lambda cell: bool(cell.axes))
        case _:
            yield term, _first_of_lists(cells, last=meaning == "oneexpert")


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
            reduced.append(replace(cell, axes=(*cell.axes[:at], *cell.axes[at + 1 :])))
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
    return replace(cell, axes=tuple(axes)) if len(axes) < len(cell.axes) else cell


def _outside(cells: Cells, chosen: Cells) -> Cells:
    """Return the cells outside the part, marked so that a count includes them only by a slip."""
    names = {(cell.name, cell.shape) for cell in chosen}
    return tuple(
        replace(cell, role=Role.EXTRA)
        for cell in cells
        if (cell.name, cell.shape) not in names and not cell.optional
    )

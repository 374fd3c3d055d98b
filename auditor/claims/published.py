"""Published counts of a model: in its name, on the Hub, in the model card.

Sizes in names are read as their authors mean them. They are rounded, not always to the nearest
number (gemma-7b has 8.5B parameters, gemma-2-2b 2.6B). Some omit embeddings (Llama-Guard-3-1B),
count only the language model (blip2-opt-2.7b), or the parameters that one token uses (OLMoE-1B-7B).
Other numbers in a name have other units: contexts are in k, data in T, versions have no unit.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct

from auditor.claims.figures import parse_figure, without_active
from auditor.claims.verdict import PublishedCount
from auditor.names.parts import file_name

# The allowed ratios of a model's count to the size in its name: opt-350m has 0.95, gemma-2-2b 1.31,
# codegen-2B 1.39, btlm-3b 0.88. An 8B that is stored as 2B, or a 7B that is a 13B, is outside.
_LEAST, _MOST = 0.68, 1.45
_NEAR = 0.05  # allowed relative difference of a count: biases that a packer added
_SHARED = 0.5  # the least ratio to experts times size: 8x7B has 0.83, 8x1.1B 0.73


class OtherCounts(NamedTuple):
    """Other counts that a published size may mean, besides the model's total."""

    counts: tuple[int, ...] = ()  # of parts of the model
    experts: bool = False  # whether a token uses only some of the parameters


class ModelCounts(Struct, frozen=True, kw_only=True):
    """The counts of a model with which published numbers are compared."""

    parameters: int  # stored parameters, or implied ones without the files
    expected: int
    elements: int | None  # stored elements; None if not all files were read
    packed: bool  # whether an element contains several parameters
    others: Callable[[], OtherCounts] = OtherCounts  # called if the counts above do not fit


# --- names --------------------------------------------------------------------------------------

_NUMBER = r"(\d{1,4}(?:\.\d{1,3})?)"
_SIZE = re.compile(
    rf"(?<![a-z0-9.])(?:(\d{{1,3}})[x\u00d7])?{_NUMBER}([bm])(\d)?(?![a-z0-9])", re.IGNORECASE
)
_BEFORE = re.compile(r"(?<![a-z0-9.])(\d{1,3})[-_]$", re.IGNORECASE)  # 1_8b, opt-1-3b
_WORDS = re.compile(r"[a-z0-9.]+", re.IGNORECASE)
# Next to such a word a number counts data, or is the length of a text: 10B-tokens.
_OF_DATA = frozenset(
    {
        *("token", "tokens", "tok", "word", "words", "step", "steps", "samples", "pairs"),
        *("images", "hours", "context", "ctx", "seqlen", "len"),
    }
)
_DATA = frozenset({"laion", "metaclip", "babylm", "datacomp"})  # their sizes are in M
# A name with such a word contains the name of another model, or is not a model's.
_MADE_FOR = frozenset(
    {
        *("tiny", "random", "dummy", "test", "tests", "testing", "toy", "debug"),
        *("draft", "eagle", "eagle2", "eagle3", "medusa", "hydra", "mtp", "speculator"),
        *("lora", "qlora", "adapter", "adapters", "projector", "mmproj", "vae", "tokenizer"),
        *("sae", "saes", "pruned", "layers"),
    }
)
_SMALLEST = 2_000_000  # a smaller number in M is a context


class NamedSize(Struct, frozen=True, kw_only=True):
    """A size in a name, with its possible values."""

    text: str
    readings: tuple[int, ...]  # the likeliest first
    experts: int = 0  # 8 of 8x7B


def sizes_in(name: str) -> tuple[NamedSize, ...]:
    """Return the sizes in a repository's name; () if the name may be another model's."""
    name = file_name(name)
    words = [word.lower() for word in _WORDS.findall(name)]
    if _MADE_FOR.intersection(words):
        return ()
    sizes = []
    for match in _SIZE.finditer(name):
        experts, number, unit, tenth = match.groups()
        words_before = _WORDS.findall(name[: match.start()].lower())
        words_after = _WORDS.findall(name[match.end() :].lower())
        if not _OF_DATA.isdisjoint((*words_before[-1:], *words_after[:1])):
            continue
        readings = [f"{number}.{tenth}" if tenth else number]
        if "." not in number and (before := _BEFORE.search(name[: match.start()])):
            readings.append(f"{before[1]}.{number}")
        values = tuple(round(float(each) * _UNITS[unit.lower()]) for each in readings)
        small = unit.lower() == "m" and (values[0] < _SMALLEST or _DATA.intersection(words))
        if values[0] and not small:
            size = NamedSize(text=match[0], readings=values, experts=int(experts or 0))
            sizes.append(size)
    return tuple(sizes)


_UNITS = {"b": 10**9, "m": 10**6}


def count_in_name(name: str, counts: ModelCounts) -> PublishedCount | None:
    """Judge a name by its first size that fits, else by its first size; None if it has no size."""
    sizes = sizes_in(name)
    if not sizes or not counts.parameters:
        return None
    right = next((size for size in sizes if _fits(size, counts)), None)
    judged_size = right or sizes[0]
    texts = " and ".join(size.text for size in sizes)
    fault = (
        f"the name says {texts}, and the model has {counts.parameters:,} parameters; "
        "no part of it has about as many"
    )
    return PublishedCount(
        where="name",
        key=name,
        text=judged_size.text,
        claim=judged_size.readings[0] * (judged_size.experts or 1),
        verdict="confirmed to its rounding" if right else "refuted",
        actual=counts.parameters,
        reason="" if right else fault,
    )


def _fits(size: NamedSize, counts: ModelCounts) -> bool:
    plain = [counts.parameters, counts.expected]
    if counts.elements and not counts.packed:
        plain.append(counts.elements)
    if any(_rounds(size, count) for count in plain):
        return True
    others = counts.others()
    most = max(counts.parameters, counts.expected)
    # The size may count the parameters that one token uses.
    if others.experts and size.readings[0] <= most:
        return not size.experts
    return any(_rounds(size, count) for count in others.counts)


def _rounds(size: NamedSize, count: int) -> bool:
    # 8x7B has 47 billion, not 56: only the experts are repeated.
    least = _SHARED if size.experts > 1 else _LEAST
    totals = (reading * max(size.experts, 1) for reading in size.readings)
    return any(total * least <= count <= total * _MOST for total in totals)


# --- the Hub's count and the card's ---------------------------------------------------------------


def count_of_hub(key: str, text: str, counts: ModelCounts) -> PublishedCount | None:
    """Judge the parameter count that the Hub shows; None if not all files were read."""
    figure = parse_figure(text)
    if figure is None or figure.is_share or counts.elements is None:
        return None
    claim = figure.value
    are_elements = _near(claim, (counts.elements,))  # the Hub counts masks and copies, too
    right = _near(claim, (counts.parameters, counts.expected))
    right |= are_elements and not counts.packed
    how = "that is neither the number of parameters nor of stored elements"
    if are_elements:
        how = f"it counts the {counts.elements:,} elements in which they are packed"
    observed = f"the Hub shows {claim:,} parameters ({key})"
    return PublishedCount(
        where="hub",
        key=key,
        text=text,
        claim=claim,
        verdict="confirmed" if right else "refuted",
        actual=counts.parameters,
        reason="" if right else f"{observed}, and the model has {counts.parameters:,}: {how}",
        usual=are_elements and not right,
    )


def count_in_card(key: str, text: str, counts: ModelCounts) -> PublishedCount | None:
    """Judge a number in the card's front matter; None if it is not a number of parameters."""
    figure = parse_figure(without_active(text)[0])
    if figure is None or figure.is_share or figure.unit == "bytes" or figure.value < _SMALLEST:
        return None
    size = NamedSize(text=text, readings=(figure.value,), experts=figure.experts or 0)
    right = figure.low <= counts.parameters <= figure.high or (
        _near(figure.value, (counts.expected, *counts.others().counts))
        if figure.exact
        else _fits(size, counts)
    )
    fault = f"the model card says {text}, and the model has {counts.parameters:,} parameters"
    return PublishedCount(
        where="card",
        key=key,
        text=text,
        claim=figure.value,
        verdict="confirmed to its rounding" if right else "refuted",
        actual=counts.parameters,
        reason="" if right else fault,
    )


def _near(claim: int, counts: Iterable[int]) -> bool:
    return any(abs(claim - count) <= _NEAR * count for count in counts)

"""Which slices of a checkpoint's tensors tell most of its numbers, and how much each. Pure.

Norms and biases are small, and show a body that was trained; a head and an adapter's factors show
what was not; the last rows of the embedding are those of added tokens; two copies of a tied tensor
are compared at the same place. Of everything else the first, the middle and the last layer stand
for the others.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from auditor.tensors import Span, natural_key
from auditor.values.name_patterns import EMBEDDING, HEAD, NEUTRAL_FACTOR, NORM, NUMBER
from auditor.values.placing import Placed
from auditor.values.plan import Slice

SMALL = 16 * 1024  # bytes of a tensor that is read whole: norms and biases
_START = 16 * 1024  # bytes of the beginning of a matrix
_END = 8 * 1024  # of its end, which lies beside the beginning of the next
_HEAD_START = 48 * 1024  # 24,576 numbers of BF16 tell a deviation from another by 2 %
_LEAST_ROWS = 4  # of the embedding's end

_MOST_PAIRS = 2


class Interest(NamedTuple):
    """The tensors whose numbers are worth reading after an audit of the headers."""

    pairs: tuple[tuple[str, str], ...] = ()  # a copy, and what it is tied to
    doubted: frozenset[str] = frozenset()  # tensors that only numbers can judge: added biases
    tokens: int | None = None  # rows of the embedding that tokens have; None: not known


def telling_slices(placed: Sequence[Placed], interest: Interest) -> Iterator[Slice]:
    """Slices within the tensors; those of a pair at the same place of both, and before all others.

    Which tensors stand for their kind does not depend on the order in which they come.
    """
    kinds: dict[str, list[Placed]] = {}
    for one in placed:
        if one.span.length > 0:
            kinds.setdefault(NUMBER.sub("#", one.tensor.name), []).append(one)
    for kind, members in sorted(kinds.items()):
        members.sort(key=lambda one: (natural_key(one.tensor.name), one.path, one.span))
        chosen = sorted({0, len(members) // 2, len(members) - 1})
        doubted = (at for at, one in enumerate(members) if one.tensor.name in interest.doubted)
        for at in sorted({*chosen, *doubted}):
            yield from _of_tensor(members[at], kind, interest)
    yield from _pairs(placed, interest.pairs)


def _of_tensor(one: Placed, kind: str, interest: Interest) -> Iterator[Slice]:
    name, size = one.tensor.name, one.span.length
    if EMBEDDING.search(name):
        worth = 1.0 if interest.tokens is None else 6.0  # without tokens no row is untrained
        yield _slice(one, _last_rows(one, interest.tokens), f"{kind} rows", worth)
    worth = _worth(name, interest.doubted)
    if size <= SMALL:
        yield _slice(one, Span(0, size), kind, worth)
        return
    start = min(size, _HEAD_START if HEAD.search(name) else _START)
    yield _slice(one, Span(0, start), kind, worth)
    if size - _END >= start:
        yield _slice(one, Span(size - _END, size), f"{kind} end", 0.3)


def _worth(name: str, doubted: Container[str]) -> float:
    if name in doubted or NEUTRAL_FACTOR.search(name):
        return 3.0
    if HEAD.search(name):
        return 4.0
    if NORM.search(name):
        return 2.0
    return 1.5 if name.endswith(".bias") else 1.0


def _last_rows(one: Placed, tokens: int | None) -> Span:
    """The last rows that a token has, as many as 16 KiB hold, and four at the least."""
    rows = (one.tensor.shape or (1,))[0] or 1
    row = max(1, one.span.length // rows)
    last = min(rows, tokens or rows)
    count = max(_LEAST_ROWS, _START // row)
    return Span(max(0, last - count) * row, last * row)


def _pairs(placed: Iterable[Placed], pairs: Sequence[tuple[str, str]]) -> Iterator[Slice]:
    named = {name for pair in pairs for name in pair}
    there = [one for one in placed if one.tensor.name in named and one.span.length > 0]
    there.sort(key=lambda one: (one.path, one.span), reverse=True)
    known = {one.tensor.name: one for one in there}  # of a name in several files the first counts
    whole = [pair for pair in pairs if set(pair) <= known.keys()]
    for copy, of in whole[:_MOST_PAIRS]:
        if copy != of:
            span = Span(0, min(_START, known[copy].span.length, known[of].span.length))
            for name in (copy, of):
                yield _slice(known[name], span, f"{copy} tied", 4.0)._replace(wanted=True)


def _slice(one: Placed, span: Span, kind: str, worth: float) -> Slice:
    start = one.span.start + span.start
    layer = ".".join(NUMBER.findall(one.tensor.name))
    return Slice(one.path, Span(start, start + span.length), kind, worth, layer=layer)

"""What the totals of an index come to where its shards are not here: expected shapes in some width.

An index names tensors and states their sum, and says nothing of shapes or dtypes. The expected
shapes give the elements; with one width for all parameters and one for each kind of buffer the
sum has to be the total, to the byte.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import NamedTuple

from auditor.containers.words import named
from auditor.reconciler.reconcile import Reconciled
from auditor.reconciler.status import Fate

WIDTHS = {"F32": 32, "BF16": 16, "F16": 16, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8}  # bits

# I64 position_ids, F32 inv_freq, F16 of a cast model, BOOL masks; and what some versions of
# transformers counted for an element of a BOOL mask, which takes a byte in the file.
_BUFFER_BITS = (64, 32, 16, 8)
_FLAG_BITS = 1

_MOST_GROUPS = 5  # whose widths are tried: 5 widths each are 3,125 sums for a width of parameters
_MOST_PIECES = 12  # that may explain a difference: 298 sums of up to three


class Group(NamedTuple):
    """Tensors that have one width together."""

    what: str
    elements: int


class Part(NamedTuple):
    """A group in the width that makes the sum come out."""

    what: str
    elements: int
    bits: int  # of an element; 0: the total does not count it

    def __str__(self) -> str:
        width = f"{self.bits // 8}" if self.bits % 8 == 0 else f"{self.bits}/8"
        return f"{self.elements * self.bits // 8:,} of {self.what} ({self.elements:,} x {width})"


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What stands behind the names of an index, by expected shapes and by the headers at hand."""

    learned: int  # elements of parameters, of unknown width
    buffers: tuple[Group, ...]  # by the last part of their names, sorted
    copies: tuple[Group, ...]  # of parameters that are stored elsewhere too, by name
    read: int  # bytes of the tensors whose header is at hand
    read_parameters: int
    spare: tuple[Group, ...]  # tied and not stored, by name
    strange: int  # tensors of which nothing is expected; the rest leaves them out

    @property
    def parameters(self) -> int:
        return self.learned + self.read_parameters


def holdings(reconciled: Reconciled, names: int) -> Holdings | None:
    """What an index of so many names holds; None where a shard that is not here has others."""
    learned, strange, buffers, copies = 0, 0, list[Group](), list[Group]()
    for name, elements, fate in _unread(reconciled):
        if elements is None:
            strange += 1
        elif fate == Fate.BUFFER:
            buffers.append(Group(name, elements))
        elif fate == Fate.DUPLICATE:
            copies.append(Group(named(name), elements))
        else:
            learned += elements
    if len(reconciled.counted) + _count(reconciled, Fate.UNREADABLE) != names:
        return None
    read = [(one, parameters) for one, parameters, _ in reconciled.counted if one.span]
    return Holdings(
        learned=learned,
        buffers=tuple(_by_last_part(buffers)),
        copies=tuple(copies),
        read=sum(one.span.length for one, _ in read if one.span),
        read_parameters=sum(parameters for _, parameters in read),
        spare=spare(reconciled),
        strange=strange,
    )


def _by_last_part(buffers: Iterable[Group]) -> Iterator[Group]:
    """`running_mean` of all layers as one; `attn.bias` where all of them are called so."""
    kinds: dict[str, list[Group]] = {}
    for one in buffers:
        kinds.setdefault(one.what.rpartition(".")[2], []).append(one)
    for last, group in sorted(kinds.items()):
        ends = {".".join(one.what.rsplit(".", 2)[-2:]) for one in group}
        what = ends.pop() if len(ends) == 1 else last
        yield Group(named(what), sum(one.elements for one in group))


def spare(reconciled: Reconciled) -> tuple[Group, ...]:
    """The tied tensors that are not stored; some writers count them all the same."""
    tied = (item.tensor for item in reconciled.absent if item.fate == Fate.TIED)
    return tuple(Group(_shaped(one.name, one.shape), one.elements) for one in tied)


def _shaped(name: str, shape: tuple[int, ...]) -> str:
    return f"{named(name)} ({' x '.join(map(str, shape))})"


def _count(reconciled: Reconciled, fate: Fate) -> int:
    return sum(item.fate == fate for item in reconciled.absent)


def _unread(reconciled: Reconciled) -> Iterator[tuple[str, int | None, int]]:
    """Name, expected elements and fate of every tensor whose header is not at hand."""
    buffer, equal = Fate.BUFFER.value, Fate.EQUAL.value
    for hit in reconciled.answered:
        if hit.stored.span is None:
            fate = equal if hit.expected.role.learned else buffer
            yield hit.stored.name, hit.expected.elements, fate
    for hit in reconciled.copies:
        if hit.stored.span is None:
            yield hit.stored.name, hit.expected.elements, Fate.DUPLICATE.value
    for item in reconciled.strangers:
        if item.tensor.span is None:
            yield item.tensor.name, item.implied, item.fate
    for absent in reconciled.absent:
        if absent.fate == Fate.UNREADABLE:
            fate = equal if absent.tensor.role.learned else buffer
            yield absent.tensor.name, absent.tensor.elements, fate


# --- the sum ----------------------------------------------------------------------------------


class Sum(NamedTuple):
    """Parts whose sizes add up to a total."""

    dtype: str  # of the parameters, or another of its width
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts if part.bits)

    @property
    def flags(self) -> tuple[Part, ...]:
        """What is counted with an eighth of its size."""
        return tuple(part for part in self.parts if part.bits == _FLAG_BITS)


def plain_sum(held: Holdings, dtype: str) -> int:
    """The bytes if all that is named, buffers and copies too, had the parameters' width."""
    elements = held.learned + sum(group.elements for group in (*held.buffers, *held.copies))
    return held.read + elements * WIDTHS[dtype] // 8


def summed(held: Holdings, total: float, declared: str | None) -> Sum | None:
    """The widths in which the holdings take exactly `total` bytes; the declared dtype comes first.

    None: there are none.
    """
    first = [declared] if declared in WIDTHS else []
    dtypes = list(dict.fromkeys([*first, *WIDTHS]))
    for flags in (False, True):
        for dtype in dtypes:
            found = _in_dtype(held, total, WIDTHS[dtype], flags=flags)
            if found is not None:
                return Sum(dtype, found)
    return None


def _in_dtype(held: Holdings, total: float, width: int, *, flags: bool) -> tuple[Part, ...] | None:
    groups = (*held.copies, *held.buffers)
    read = (Part("tensors with a header", held.read, 8),) if held.read else ()
    many = (Part(*group, width) for group in groups[_MOST_GROUPS:])
    fixed = (Part("parameters", held.learned, width), *read, *many)
    tried = groups[:_MOST_GROUPS]
    rest = total * 8 - sum(part.elements * part.bits for part in fixed)
    buffer = tuple(dict.fromkeys((width, *_BUFFER_BITS, *((_FLAG_BITS,) * flags))))
    choices = [(width, 0) if group in held.copies else buffer for group in tried]
    for bits in product(*choices):
        if sum(group.elements * each for group, each in zip(tried, bits, strict=True)) == rest:
            parts = (Part(*group, each) for group, each in zip(tried, bits, strict=True))
            return (*fixed, *parts)
    return None


def pieces(difference: float, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The fewest groups, three at the most, whose elements make up a difference; () if none do."""
    some = groups[:_MOST_PIECES]
    picks = chain.from_iterable(combinations(some, count) for count in (1, 2, 3))
    return next((pick for pick in picks if sum(one.elements for one in pick) == difference), ())

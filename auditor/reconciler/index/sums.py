"""The possible totals of an index without its shards, from the expected shapes.

An index names tensors and states the sum of their bytes, but no shapes or dtypes. The expected
shapes give the number of elements, and a packed layout the bytes of packed tensors. Each group of
tensors has one width, the bits of an element: all plain parameters, and each kind of scale and
buffer. For some choice of widths, the sum has to equal the total to the byte.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain, combinations, product
from math import prod
from operator import mul
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from auditor.layouts.packing import WrittenTensor
from auditor.messages import named
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import NameWithoutHeader, Reconciled
from auditor.tensors import DTYPE_BITS

WIDTHS = {"F32": 32, "BF16": 16, "F16": 16, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8}  # bits

# Widths of buffers: I64 position_ids, F32 inv_freq, F16 of a cast model, BOOL masks. Some versions
# of transformers counted an element of a BOOL mask as one bit, although it takes a byte in the
# file.
_BUFFER_BITS = (64, 32, 16, 8)
_FLAG_BITS = 1

_WIDE = 32  # bits of a parameter that stays as it is if the model is cast to 16 bits

_MOST_SUMS = 3125  # the most sums that are tried: five groups of 5 widths each, or eleven of 2
_MOST_PIECES = 12  # the most groups that may explain a difference: 298 sums of up to three
_NOTHING: Mapping[str, WrittenTensor] = MappingProxyType({})


class WidthGroup(NamedTuple):
    """Tensors whose elements have one width."""

    what: str
    elements: int


class WidthTerm(NamedTuple):
    """A group of tensors with its bits per element; all groups add up to the total of the index."""

    what: str
    elements: int
    bits: int  # bits of an element; 0 if the total does not count the group

    def __str__(self) -> str:
        width = f"{self.bits // 8}" if self.bits % 8 == 0 else f"{self.bits}/8"
        return f"{self.elements * self.bits // 8:,} of {self.what} ({self.elements:,} x {width})"


class Scales(NamedTuple):
    """Scales or other quantization data with the same last part of the name and the same widths."""

    what: str
    elements: int
    widths: tuple[int, ...]  # bits that an element may have, the usual ones first


class IndexSizes(Struct, frozen=True, kw_only=True):
    """The sizes of the tensors that an index names, by expected shapes and available headers."""

    learned: int  # elements of plain parameters, whose width is unknown
    buffers: tuple[WidthGroup, ...]  # grouped by the last part of their names, sorted
    copies: tuple[WidthGroup, ...]  # parameters that are stored under another name too
    read: int  # bytes of the tensors that were read
    parameters: int  # number of parameters of all tensors, also packed ones
    tied: tuple[WidthGroup, ...]  # tied tensors that are not stored
    unexpected: int  # number of unexpected tensors; the other fields exclude them
    wide: tuple[WidthGroup, ...] = ()  # may stay in 32 bits, by the last two parts
    packed: int = 0  # bytes of packed tensors, and of quantization data with its own dtype
    fewer: int = 0  # bytes by which `packed` may be too high
    scales: tuple[Scales, ...] = ()  # grouped by the last part of their names, sorted
    unsized: int = 0  # number of packed tensors of unknown size; the other fields exclude them


def index_sizes(
    reconciled: Reconciled,
    names: int,
    wide_names: re.Pattern[str],
    written: Mapping[str, WrittenTensor] = _NOTHING,
) -> IndexSizes | None:
    """Sum up an index of `names` names; return None if some of its names are unknown.

    Parameters whose names match `wide_names` may stay in 32 bits; `written` are the packed tensors
    that the layout stores under names without a header.
    """
    without_header = _without_header(reconciled)
    with_header = sum(tensor.span is not None for tensor, _, _ in reconciled.counted)
    if with_header + len(without_header) != names:
        return None
    read = [(tensor, parameters) for tensor, parameters, _ in reconciled.counted if tensor.span]
    sums = _Sums(wide_names)
    for name, item in without_header.items():
        sums.add(name, item, written.get(name))
    return IndexSizes(
        learned=sums.learned,
        buffers=tuple(_by_last_part(sums.buffers)),
        copies=tuple(sums.copies),
        read=sum(tensor.span.length for tensor, _ in read if tensor.span),
        parameters=sums.parameters + sum(parameters for _, parameters in read),
        tied=tied_not_stored(reconciled),
        unexpected=sums.unexpected,
        wide=tuple(WidthGroup(named(last), count) for last, count in sorted(sums.wide.items())),
        packed=sums.packed,
        fewer=sums.fewer,
        scales=tuple(
            Scales(named(last), count, widths)
            for (last, widths), count in sorted(sums.scales.items())
        ),
        unsized=sums.unsized,
    )


_UNCOUNTED = frozenset({Fate.BUFFER, Fate.DUPLICATE, Fate.QUANTIZATION_DATA})


class _Sums:
    """The sums over the tensors whose headers were not read."""

    def __init__(self, wide_names: re.Pattern[str]) -> None:
        self.wide_names = wide_names
        self.learned = self.parameters = self.packed = self.fewer = 0
        self.unexpected = self.unsized = 0
        self.wide: dict[str, int] = {}
        self.scales: dict[tuple[str, tuple[int, ...]], int] = {}
        self.buffers: list[WidthGroup] = []
        self.copies: list[WidthGroup] = []

    def add(self, name: str, item: NameWithoutHeader, written: WrittenTensor | None) -> None:
        if item.fate not in _UNCOUNTED:
            self.parameters += item.elements or 0
        if written is not None:
            self._add_written(name, written)
        elif item.packed:
            self.unsized += 1
        elif item.elements is None:
            self.unexpected += 1
        elif item.fate == Fate.BUFFER:
            self.buffers.append(WidthGroup(name, item.elements))
        elif item.fate == Fate.DUPLICATE:
            self.copies.append(WidthGroup(named(name), item.elements))
        else:
            self.learned += item.elements
            if self.wide_names.search(name):
                kind = last_two_parts(name)
                self.wide[kind] = self.wide.get(kind, 0) + item.elements

    def _add_written(self, name: str, written: WrittenTensor) -> None:
        widths = tuple(dict.fromkeys(DTYPE_BITS[dtype] for dtype in written.dtypes))
        elements = prod(written.shape)
        if len(widths) > 1:
            key = (name.rpartition(".")[2], widths)
            self.scales[key] = self.scales.get(key, 0) + elements
        else:
            self.packed += elements * widths[0] // 8
            self.fewer += written.fewer * widths[0] // 8


def last_two_parts(name: str) -> str:
    """Return `q_proj.weight` for `model.layers.0.self_attn.q_proj.weight`."""
    return ".".join(name.rsplit(".", 2)[-2:])


def _without_header(reconciled: Reconciled) -> dict[str, NameWithoutHeader]:
    """Return the facts about each name without a header; elements of equal names are added."""
    by_name: dict[str, NameWithoutHeader] = {}
    for name, item in chain(_named(reconciled), reconciled.without_header):
        other = by_name.get(name)
        both = other is not None and None not in {other.elements, item.elements}
        added = (other.elements or 0) + (item.elements or 0) if other and both else item.elements
        by_name[name] = item._replace(elements=added)
    return by_name


def _named(reconciled: Reconciled) -> Iterator[tuple[str, NameWithoutHeader]]:
    buffer, equal = Fate.BUFFER.value, Fate.EQUAL.value
    packed = {name for name, _ in reconciled.packed}
    for hit in reconciled.answered:
        if hit.stored.span is None:
            fate = equal if hit.expected.role.learned else buffer
            name = hit.stored.name
            yield name, NameWithoutHeader(hit.expected.elements, fate, name in packed)
    for hit in reconciled.copies:
        if hit.stored.span is None:
            name, fate = hit.stored.name, Fate.DUPLICATE.value
            yield name, NameWithoutHeader(hit.expected.elements, fate, name in packed)
    for item in reconciled.unexpected:
        if item.tensor.span is None:
            name = item.tensor.name
            yield name, NameWithoutHeader(item.implied, item.fate, name in packed)
    for tensor, _, fate in reconciled.counted:
        if tensor.span is None and fate == Fate.QUANTIZATION_DATA:
            yield tensor.name, NameWithoutHeader(None, fate, packed=True)


def _by_last_part(buffers: Iterable[WidthGroup]) -> Iterator[WidthGroup]:
    """Sum up the buffers by the last part of their names, such as `running_mean` of all layers.

    If the last two parts of a group's names are all equal, both name the group: `attn.bias`.
    """
    kinds: dict[str, list[WidthGroup]] = {}
    for group in buffers:
        kinds.setdefault(group.what.rpartition(".")[2], []).append(group)
    for last, groups in sorted(kinds.items()):
        ends = {last_two_parts(group.what) for group in groups}
        what = ends.pop() if len(ends) == 1 else last
        yield WidthGroup(named(what), sum(group.elements for group in groups))


def tied_not_stored(reconciled: Reconciled) -> tuple[WidthGroup, ...]:
    """Return the tied tensors that are not stored; some writers count them in the totals."""
    tied = (item.tensor for item in reconciled.absent if item.fate == Fate.TIED)
    return tuple(
        WidthGroup(f"{named(one.name)} ({' x '.join(map(str, one.shape))})", one.elements)
        for one in tied
    )


# --- the sum ----------------------------------------------------------------------------------


class Sum(NamedTuple):
    """The groups of tensors, each with its width, whose sizes add up to a total."""

    dtype: str  # dtype of the parameters, or another one of equal width
    parts: tuple[WidthTerm, ...]

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts if part.bits)

    @property
    def flags(self) -> tuple[WidthTerm, ...]:
        """The groups whose elements are counted as one bit although they take a byte."""
        return tuple(part for part in self.parts if part.bits == _FLAG_BITS)


def plain_sum(sizes: IndexSizes, dtype: str) -> int:
    """Return the bytes of the index's tensors if those of unknown dtype have `dtype`."""
    elements = sizes.learned + sum(group.elements for group in (*sizes.buffers, *sizes.copies))
    scales = sum(scale.elements * scale.widths[0] // 8 for scale in sizes.scales)
    return sizes.read + sizes.packed + elements * WIDTHS[dtype] // 8 + scales


def least_sum(sizes: IndexSizes, dtype: str) -> int:
    """Return the fewest bytes that the expected tensors can take if parameters have `dtype`."""
    scales = sum(scale.elements * min(scale.widths) // 8 for scale in sizes.scales)
    return sizes.read + sizes.packed - sizes.fewer + sizes.learned * WIDTHS[dtype] // 8 + scales


def find_sum(sizes: IndexSizes, total: float, declared: str | None) -> Sum | None:
    """Return bit widths for which the tensors take exactly `total` bytes; None if no widths fit.

    The declared dtype is tried first.
    """
    first = [declared] if declared in WIDTHS else []
    dtypes = list(dict.fromkeys([*first, *WIDTHS]))
    for flags, wide in ((False, False), (False, True), (True, False)):
        for dtype in dtypes if sizes.wide or not wide else ():
            terms = _in_dtype(sizes, total, WIDTHS[dtype], flags=flags, wide=wide)
            if terms is not None:
                return Sum(dtype, terms)
    return None


def _in_dtype(
    sizes: IndexSizes, total: float, width: int, *, flags: bool, wide: bool
) -> tuple[WidthTerm, ...] | None:
    wide_groups = sizes.wide if wide else ()
    wide_choices = ((group, (_WIDE, width)) for group in wide_groups)
    groups = (*_choices(sizes, width, flags=flags), *wide_choices)
    learned = sizes.learned - sum(group.elements for group in wide_groups)
    counts = accumulate((len(bits) for _, bits in groups), mul)
    most = sum(count <= _MOST_SUMS for count in counts)
    many = (WidthTerm(*group, bits[0]) for group, bits in groups[most:])
    read = (WidthTerm("tensors that were read", sizes.read, 8),) if sizes.read else ()
    fixed = (WidthTerm("parameters", learned, width), *read, *many)
    packed = sizes.packed * 8
    bits_left = total * 8 - packed - sum(part.elements * part.bits for part in fixed)
    tried = groups[:most]
    for bits in product(*(choice for _, choice in tried)):
        own = zip(tried, bits, strict=True)
        parts = tuple(WidthTerm(*group, width_of_group) for (group, _), width_of_group in own)
        over = sum(part.elements * part.bits for part in parts) - bits_left
        if 0 <= over <= 8 * sizes.fewer:
            inside = (packed - int(over)) // 8
            packed_term = (WidthTerm("what is packed", inside, 8),) if packed else ()
            return (*packed_term, *fixed, *parts)
    return None


def _choices(
    sizes: IndexSizes, width: int, *, flags: bool
) -> tuple[tuple[WidthGroup, tuple[int, ...]], ...]:
    """Return each group of scales, copies or buffers with the widths that it may have."""
    buffer = tuple(dict.fromkeys((width, *_BUFFER_BITS, *((_FLAG_BITS,) * flags))))
    return (
        *((WidthGroup(scale.what, scale.elements), scale.widths) for scale in sizes.scales),
        *((group, (width, 0)) for group in sizes.copies),
        *((group, buffer) for group in sizes.buffers),
    )


def groups_that_make_up(
    difference: float, groups: tuple[WidthGroup, ...]
) -> tuple[WidthGroup, ...]:
    """Return the fewest groups, at most three, whose elements add up to the difference, else ()."""
    first_groups = groups[:_MOST_PIECES]
    picks = chain.from_iterable(combinations(first_groups, count) for count in (1, 2, 3))
    return next((pick for pick in picks if sum(group.elements for group in pick) == difference), ())

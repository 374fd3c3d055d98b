"""The possible totals of an index without its shards, from the expected shapes.

An index names tensors and states the sum of their bytes, but no shapes or dtypes. The expected
shapes give the number of elements, and a packed layout the bytes of packed tensors. Each group of
tensors has one width, the bits of an element. For some choice of widths, the sum has to equal the
total to the byte.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate, chain, product
from math import prod
from operator import mul
from typing import NamedTuple

from msgspec import Struct

from auditor.layouts.packing import WrittenTensor
from auditor.messages import named
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import NameWithoutHeader, Reconciled
from auditor.tensors import DTYPE_BITS

WIDTHS = {"F32": 32, "BF16": 16, "F16": 16, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8}  # bits

# The bits that an element of a group may have, the usual ones first; 0 if the total does not count
# the group, `_OWN` for the width of the parameters.
_OWN = -1
_PARAMETER = (_OWN,)
_WIDE = (_OWN, 32)  # parameters that stay as they are if the model is cast to 16 bits
_COPY = (_OWN, 0)
_BUFFER = (_OWN, 64, 32, 16, 8)  # I64 position_ids, F32 inv_freq, F16 of a cast model, BOOL masks

_MOST_SUMS = 3125  # the most sums that are tried: five groups of 5 widths each, or eleven of 2
_UNCOUNTED = frozenset({Fate.BUFFER, Fate.DUPLICATE, Fate.QUANTIZATION_DATA})


class WidthGroup(NamedTuple):
    """Tensors whose elements have one width, and the widths that are possible."""

    what: str
    elements: int
    bits: tuple[int, ...] = _COPY

    def widths(self, own: int) -> tuple[int, ...]:
        """Return the possible widths if a parameter has `own` bits."""
        return tuple(dict.fromkeys(own if bits == _OWN else bits for bits in self.bits))


class IndexSizes(Struct, frozen=True, kw_only=True):
    """The sizes of the tensors that an index names, by expected shapes and available headers."""

    groups: tuple[WidthGroup, ...]  # of tensors without a header; first the parameters
    tied: tuple[WidthGroup, ...] = ()  # tied tensors that are not stored
    parameters: int = 0  # number of parameters of all tensors, also packed ones
    read: int = 0  # bytes of the tensors that were read
    packed: int = 0  # bytes of packed tensors, and of quantization data with one possible dtype
    fewer: int = 0  # bytes by which `packed` may be too high
    unexpected: int = 0  # number of unexpected tensors; the other fields exclude them
    unsized: int = 0  # number of packed tensors of unknown size; the other fields exclude them

    @property
    def disputed(self) -> tuple[WidthGroup, ...]:
        """The tensors that writers count or leave out: ties, copies and buffers."""
        return (*self.tied, *self.groups[1:])


def index_sizes(
    reconciled: Reconciled,
    names: int,
    wide_names: re.Pattern[str],
    written: Mapping[str, WrittenTensor],
) -> IndexSizes | None:
    """Sum up an index of `names` names; return None if some of its names are unknown.

    Parameters whose names match `wide_names` may stay in 32 bits; `written` are the packed tensors
    that the layout stores under names without a header.
    """
    without_header = _without_header(reconciled)
    read = [item for item in reconciled.counted if item[0].span]
    if len(read) + len(without_header) != names:
        return None
    elements = Counter[tuple[str, tuple[int, ...]]]()
    packed = fewer = unexpected = unsized = 0
    for name, item in without_header.items():
        last = name.rpartition(".")[2]
        stored = written.get(name)
        if stored is not None:
            widths = tuple(dict.fromkeys(DTYPE_BITS[dtype] for dtype in stored.dtypes))
            if len(widths) > 1:
                elements[last, widths] += prod(stored.shape)
            else:
                packed += prod(stored.shape) * widths[0] // 8
                fewer += stored.fewer * widths[0] // 8
        elif item.packed:
            unsized += 1
        elif item.elements is None:
            unexpected += 1
        elif item.fate == Fate.BUFFER:
            elements[last, _BUFFER] += item.elements
        elif item.fate == Fate.DUPLICATE:
            elements[name, _COPY] += item.elements
        elif wide_names.search(name):
            elements[last_two_parts(name), _WIDE] += item.elements
        else:
            elements["parameters", _PARAMETER] += item.elements
    parameters = sum(count for _, count, _ in read) + sum(
        item.elements or 0 for item in without_header.values() if item.fate not in _UNCOUNTED
    )
    learned = elements.pop(("parameters", _PARAMETER), 0)
    others = (WidthGroup(named(what), count, bits) for (what, bits), count in elements.items())
    return IndexSizes(
        groups=(WidthGroup("parameters", learned, _PARAMETER), *sorted(others)),
        tied=tied_not_stored(reconciled),
        parameters=parameters,
        read=sum(tensor.span.length for tensor, *_ in read if tensor.span),
        packed=packed,
        fewer=fewer,
        unexpected=unexpected,
        unsized=unsized,
    )


def last_two_parts(name: str) -> str:
    """Return `q_proj.weight` for `model.layers.0.self_attn.q_proj.weight`."""
    return ".".join(name.rsplit(".", 2)[-2:])


def _without_header(reconciled: Reconciled) -> dict[str, NameWithoutHeader]:
    """Return the facts about each name without a header; elements of equal names are added."""
    by_name: dict[str, NameWithoutHeader] = {}
    for name, item in chain(_stored_without_header(reconciled), reconciled.without_header):
        other = by_name.get(name)
        if other and other.elements is not None and item.elements is not None:
            by_name[name] = item._replace(elements=other.elements + item.elements)
        else:
            by_name[name] = item
    return by_name


def _stored_without_header(reconciled: Reconciled) -> Iterator[tuple[str, NameWithoutHeader]]:
    equal, buffer, duplicate = Fate.EQUAL.value, Fate.BUFFER.value, Fate.DUPLICATE.value
    hits = chain(
        ((hit, equal if hit.expected.role.learned else buffer) for hit in reconciled.answered),
        ((hit, duplicate) for hit in reconciled.copies),
    )
    matched = ((hit.stored, hit.expected.elements, fate) for hit, fate in hits)
    unexpected = ((item.tensor, item.implied, item.fate) for item in reconciled.unexpected)
    packed = {name for name, _ in reconciled.packed}
    for tensor, elements, fate in chain(matched, unexpected):
        if tensor.span is None:
            yield tensor.name, NameWithoutHeader(elements, fate, tensor.name in packed)
    for tensor, _, fate in reconciled.counted:
        if tensor.span is None and fate == Fate.QUANTIZATION_DATA:
            yield tensor.name, NameWithoutHeader(None, fate, packed=True)


def tied_not_stored(reconciled: Reconciled) -> tuple[WidthGroup, ...]:
    """Return the tied tensors that are not stored; some writers count them in the totals."""
    tied = (item.tensor for item in reconciled.absent if item.fate == Fate.TIED)
    return tuple(
        WidthGroup(f"{named(one.name)} ({' x '.join(map(str, one.shape))})", one.elements)
        for one in tied
    )


# --- the sum ----------------------------------------------------------------------------------


class Sum(NamedTuple):
    """The sizes of groups of tensors that add up to a total."""

    dtype: str  # dtype of the parameters, or another one of equal width
    text: str  # "88 of parameters (44 x 2) + 4 of inv_freq (1 x 4)"


def plain_sum(sizes: IndexSizes, dtype: str) -> int:
    """Return the bytes of the index's tensors if each group has its usual width."""
    bits = sum(group.elements * group.widths(WIDTHS[dtype])[0] for group in sizes.groups)
    return sizes.read + sizes.packed + bits // 8


def least_sum(sizes: IndexSizes, dtype: str) -> int:
    """Return the fewest bytes that the expected tensors can take if parameters have `dtype`."""
    bits = sum(group.elements * min(group.widths(WIDTHS[dtype])) for group in sizes.groups)
    return sizes.read + sizes.packed - sizes.fewer + bits // 8


def find_sum(sizes: IndexSizes, total: float, declared: str | None) -> Sum | None:
    """Return widths for which the tensors take exactly `total` bytes; None if no widths fit.

    The declared dtype is tried first.
    """
    dtypes = [declared] if declared in WIDTHS else []
    for dtype in dict.fromkeys([*dtypes, *WIDTHS]):
        choices = [group.widths(WIDTHS[dtype]) for group in sizes.groups]
        counts = accumulate(map(len, choices), mul)
        most = sum(count <= _MOST_SUMS for count in counts)
        choices = [*choices[:most], *((widths[0],) for widths in choices[most:])]
        for widths in product(*choices):
            sized = zip(sizes.groups, widths, strict=True)
            taken = sum(group.elements * bits for group, bits in sized) // 8
            over = sizes.read + sizes.packed + taken - total
            if 0 <= over <= sizes.fewer:
                return Sum(dtype, " + ".join(_terms(sizes, widths, sizes.packed - int(over))))
    return None


def _terms(sizes: IndexSizes, widths: tuple[int, ...], packed: int) -> Iterator[str]:
    if packed:
        yield f"{packed:,} of what is packed ({packed:,} x 1)"
    terms = [
        f"{group.elements * bits // 8:,} of {group.what} ({group.elements:,} x {bits / 8:g})"
        for group, bits in zip(sizes.groups, widths, strict=True)
        if bits
    ]
    yield terms[0]
    if sizes.read:
        yield f"{sizes.read:,} of tensors that were read ({sizes.read:,} x 1)"
    yield from terms[1:]

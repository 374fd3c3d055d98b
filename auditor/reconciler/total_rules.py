"""Rules for the totals of an index, by its shards or by the expected shapes."""

from collections.abc import Iterator

from auditor.containers.index import Index
from auditor.reconciler import index_totals
from auditor.reconciler.findings import BadIndex, Finding, WrongDtype, WrongTotal, by_name
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import Reconciled
from auditor.tensors import StoredTensor
from auditor.walker import Tally


def parameters_rule(index: Index, whole: Tally, reconciled: Reconciled) -> Iterator[Finding]:
    """Check that the index states the number of parameters in its shards, which were all read."""
    tied = index_totals.tied_not_stored(reconciled)
    yield from _parameters_rule(index, whole.parameters, "the shards hold", tied)


def implied_rules(
    index: Index,
    held: index_totals.Holdings,
    reconciled: Reconciled,
    declared: str | None,
    *,
    parameters: int = 0,
) -> Iterator[Finding]:
    """Check that the totals equal the expected shapes in the declared dtype, else in any dtype.

    Packed tensors take the bytes that their layout implies. If some have unknown sizes, or some are
    unexpected, the totals only have to leave room for them; each of the `parameters` that the
    config implies takes at least a bit, however it is packed.
    """
    if held.unexpected or held.unsized:
        room = tuple(_room_rule(index, held, declared))
        yield from room or (_bit_rule(index, parameters) if held.unsized else ())
        return
    if index.total_size is not None:
        yield from _size_rule(index, index.total_size, held, reconciled, declared)
    groups = (*held.tied, *held.copies, *held.buffers)
    yield from _parameters_rule(index, held.parameters, "the expected shapes have", groups)


def _bit_rule(index: Index, parameters: int) -> Iterator[Finding]:
    least = parameters // 8
    if index.total_size is not None and index.total_size < least:
        reason = (
            f"total_size is {index.total_size:,}, and {parameters:,} parameters take "
            f"{least:,} bytes at one bit each: {_over(index.total_size, least):+,}"
        )
        yield BadIndex(file=index.file, reason=reason)


def implied_note(index: Index, held: index_totals.Holdings, declared: str | None) -> str | None:
    """Note the arithmetic of the total size, or the bytes that it leaves for unexpected tensors."""
    total = index.total_size
    if total is None or held.unsized:
        return None
    if held.unexpected:
        return _room_note(held, total, declared)
    found = index_totals.find_sum(held, total, declared)
    return f"total_size {total:,} = {found}" if found else None


def _room_note(held: index_totals.Holdings, total: float, declared: str | None) -> str | None:
    """Note the bytes that all other tensors leave for unexpected ones."""
    least = _least(held, declared)
    if least is None:
        return None
    copies = sum(one.elements for one in held.copies) * index_totals.WIDTHS[declared or ""] // 8
    left = _over(total, least + copies)
    and_buffers = " and the buffers" if held.buffers else ""
    tensors = "tensor" if held.unexpected == 1 else f"{held.unexpected:,} tensors"
    what = f"for the {tensors} of which nothing is expected{and_buffers}"
    return f"total_size {total:,} leaves {left:,} bytes {what}" if left >= 0 else None


def _room_rule(
    index: Index, held: index_totals.Holdings, declared: str | None
) -> Iterator[Finding]:
    total, least = index.total_size, _least(held, declared)
    if total is not None and least is not None and total < least:
        reason = (
            f"total_size is {total:,}, the parameters that the config implies alone take "
            f"{least:,} bytes in {declared}: {_over(total, least):+,}"
        )
        yield BadIndex(file=index.file, reason=reason)


def _least(held: index_totals.Holdings, declared: str | None) -> int | None:
    """The bytes of the stored parameters with an expected shape; None without a declared dtype."""
    return index_totals.least_sum(held, declared) if declared in index_totals.WIDTHS else None


def _size_rule(
    index: Index,
    total: float,
    held: index_totals.Holdings,
    reconciled: Reconciled,
    declared: str | None,
) -> Iterator[Finding]:
    found = index_totals.find_sum(held, total, declared)
    if found is None:
        yield BadIndex(file=index.file, reason=_unexplained(total, held, declared))
        return
    for part in found.flags:
        short = part.elements - part.elements * part.bits // 8
        reason = (
            f"total_size is {total:,}, which counts the {part.elements:,} elements of "
            f"{part.what} at 1/8 byte; a mask takes a byte for each: {-short:+,}"
        )
        yield BadIndex(file=index.file, reason=reason)
    if (
        declared is not None
        and index_totals.WIDTHS.get(declared) != index_totals.WIDTHS[found.dtype]
    ):
        each = index_totals.WIDTHS[found.dtype] // 8
        how = (
            f"has {each} bytes for a parameter that is not packed"
            if held.packed
            else (f"is exactly {each} bytes a parameter")
        )
        reason = f"total_size {total:,} {how}, the config declares {declared}"
        stored = by_name(_of_unknown_dtype(index, reconciled))
        yield WrongDtype(tensors=stored, declared=declared, reason=reason)


def _of_unknown_dtype(index: Index, reconciled: Reconciled) -> Iterator[StoredTensor]:
    """Yield the parameters that the index names and no header shows."""
    packed = {name for name, _ in reconciled.packed}
    for hit in reconciled.answered:
        if hit.expected.role.learned and hit.stored.span is None and hit.stored.name not in packed:
            yield hit.stored
    for item in reconciled.absent:
        name = item.tensor.name
        if item.fate == Fate.UNREADABLE and item.tensor.role.learned and name in index.weight_map:
            yield StoredTensor(name, None, None, None, index.weight_map[name], None)


def _unexplained(total: float, held: index_totals.Holdings, declared: str | None) -> str:
    dtype = declared if declared in index_totals.WIDTHS else "F32"
    implied = index_totals.plain_sum(held, dtype)
    over = _over(total, implied)
    width = index_totals.WIDTHS[dtype] // 8
    groups = (*held.tied, *held.copies, *held.buffers)
    why = _why(over / width, groups)
    packed = f", packed and the rest in {dtype}" if held.packed else f" in {dtype}"
    takes = f"the expected shapes take {implied:,} bytes{packed}"
    return f"total_size is {total:,}, {takes}: {over:+,}{why}"


def _parameters_rule(
    index: Index, stored: int, counted_by: str, groups: tuple[index_totals.WidthGroup, ...]
) -> Iterator[Finding]:
    total = index.total_parameters
    if total is not None and total != stored:
        over = _over(total, stored)
        reason = f"total_parameters is {total:,}, {counted_by} {stored:,} parameters: {over:+,}"
        yield WrongTotal(file=index.file, reason=reason + _why(over, groups))


def _why(over: float, groups: tuple[index_totals.WidthGroup, ...]) -> str:
    """Name the tensors whose elements add up to a difference, if there are any."""
    found = index_totals.groups_that_make_up(abs(over), groups)
    if not found:
        return ""
    listed = " and ".join(group.what for group in found)
    return f", which is {listed}, {'counted a second time' if over > 0 else 'not counted'}"


def _over(total: float, stored: int) -> float:
    """The difference, as an integer if it is one: some write a total of 1e9 as a float."""
    over = total - stored
    return int(over) if over == int(over) else over

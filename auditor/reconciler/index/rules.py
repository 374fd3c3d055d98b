"""The comparison of an index with its files and with the expectation.

Its totals are compared with the best source only: the headers if every shard has one; else the
expected shapes, to the byte; else the sizes of the files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq, itemgetter
from typing import NamedTuple

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.containers.weight_formats import parser
from auditor.findings import BadIndex, Finding, WrongDtype, WrongTotal, by_name
from auditor.layouts.packing import WrittenTensor
from auditor.reconciler.contents import Contents, names_by_shard
from auditor.reconciler.index import sums
from auditor.reconciler.matching import Fate
from auditor.reconciler.reconcile import Reconciled
from auditor.tensors import StoredTensor, natural_key
from auditor.walker import Tally


class IndexJudgement(NamedTuple):
    """The findings and notes about an index."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()  # the arithmetic of the total size
    unchecked: tuple[str, ...] = ()  # sentences


def by_files(found: Contents, snapshot: Snapshot, whole: Tally) -> Iterator[Finding]:
    """Check by files alone that the index names the tensors of its shards and states their bytes.

    `whole` is the tally of all tensors.
    """
    index = found.index
    if index is not None:
        yield from _names(index, found)
        if found.opened.issuperset(index.shards):
            yield from _read_size_rule(index, whole)
        else:
            yield from stated_size_rule(index, found, snapshot)


def index_judgement(  # noqa: PLR0913 - what is stored, what is expected, and what the config declares
    found: Contents,
    snapshot: Snapshot,
    whole: Tally,
    reconciled: Reconciled,
    *,
    written: Mapping[str, WrittenTensor],
    declared: str | None,
    wide_names: re.Pattern[str],
    parameters: int,
) -> IndexJudgement:
    """Check an index by its files, and its totals by the expectation.

    `written` are the packed tensors that the layout stores under a name, `declared` the dtype of
    the config. `wide_names` is found in the names of parameters that may be stored in 32 bits.
    `parameters` is the number of parameters that the config implies.
    """
    index = found.index
    if index is None:
        return IndexJudgement()
    names = tuple(_names(index, found))
    if found.opened.issuperset(index.shards):
        totals = (*_read_size_rule(index, whole), *parameters_rule(index, whole, reconciled))
        return IndexJudgement((*names, *totals))
    held = None
    if not found.unnamed:  # the index sums up other files than these
        held = sums.holdings(reconciled, len(index.weight_map), wide_names, written)
    implied: tuple[Finding, ...] = ()
    if held is not None:
        implied = tuple(implied_rules(index, held, reconciled, declared, parameters=parameters))
    wrong = any(isinstance(one, BadIndex) for one in implied)
    beyond = () if wrong else tuple(stated_size_rule(index, found, snapshot))
    if beyond:  # then no dtype explains the total
        implied = tuple(one for one in implied if not isinstance(one, WrongDtype))
    note = None if beyond or held is None else implied_note(index, held, declared)
    return IndexJudgement(
        findings=(*names, *implied, *beyond),
        notes=() if note is None else (note,),
        unchecked=tuple(_unchecked(index, held, found)),
    )


_NAME, _FILE = (itemgetter(StoredTensor._fields.index(field)) for field in ("name", "file"))


def _names(index: Index, found: Contents) -> Iterator[Finding]:
    for fault in index.faults:
        yield BadIndex(file=index.file, reason=fault)
    yield from _name_rules(index, found.tensors, found.opened)


def _read_size_rule(index: Index, whole: Tally) -> Iterator[Finding]:
    total = index.total_size
    if total is not None and total != whole.bytes:
        over = total - whole.bytes
        over = int(over) if over == int(over) else over
        holds = f"the shards hold {whole.bytes:,} bytes of tensors"
        reason = f"total_size is {total:,}, {holds}: {over:+,}"
        yield BadIndex(file=index.file, reason=reason)


def _name_rules(
    index: Index, tensors: Sequence[StoredTensor], opened: frozenset[str]
) -> Iterator[Finding]:
    named = index.weight_map
    files = map(named.get, map(_NAME, tensors))
    if len(tensors) == len(named) and all(map(eq, files, map(_FILE, tensors))):
        return  # a name in two files is in another file than the index says
    where: dict[str, str] = {tensor.name: tensor.file for tensor in tensors}
    held = {(tensor.name, tensor.file) for tensor in tensors}
    lacking: dict[tuple[str, str | None], list[str]] = {}
    for name, shard in index.weight_map.items():
        if shard in opened and (name, shard) not in held:
            lacking.setdefault((shard, where.get(name)), []).append(name)
    for (shard, other), names in sorted(lacking.items(), key=lambda item: item[0][0]):
        place = f"it is in {other}" if other else "no shard holds it"
        reason = f"the index places it in {shard}, which does not hold it; {place}"
        yield BadIndex(file=index.file, reason=reason, tensors=_sorted(names))
    unnamed: dict[str, list[str]] = {}
    for name, file in where.items():
        if name not in index.weight_map:
            unnamed.setdefault(file, []).append(name)
    for file in sorted(unnamed):
        reason = f"{file} holds it and the index does not name it"
        yield BadIndex(file=index.file, reason=reason, tensors=_sorted(unnamed[file]))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=natural_key))


def _unchecked(index: Index, held: sums.Holdings | None, found: Contents) -> Iterator[str]:
    """Yield why the total size follows neither from headers nor from expected shapes."""
    if found.unnamed:
        yield "the totals of the index: it is of other files than those that were read"
    elif index.total_size is None:
        yield "the total size: the index does not say it"
    elif held is None:
        yield "the total size to the byte: not every name of the index is in a shard"
    elif held.unsized:
        what = f"{held.unsized:,} of the packed tensors"
        yield f"the total size to the byte: only their headers say what {what} take"
    elif held.fewer:
        what = f"{held.fewer:,} bytes of what is packed"
        yield f"the total size to the byte: {what} have no fixed length"


# --- the possible total sizes without an architecture ------------------------------------------


# Bytes of a file beside a tensor's data. The shortest entry of a safetensors header has 49 bytes
# plus the name; real entries take 110 to 140 with it, and records of torch's zip files 285 to 360.
_LEAST_ENTRY = len('"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}')
_MOST_ENTRY = 1024
_LENGTH = 8
# Beside the entries: __metadata__, usually {"format": "pt"}; the pickle of torch files.
_MOST_REST = 64 * 1024

# torch.save writes a storage that two tensors share once, and a total may count it for both: it is
# below twice the file, because no model shares all. Some writers count an element of a mask as 1/8.
_SHARED = 2
_FLAGS = 8


class Room(NamedTuple):
    """The possible bytes of tensors in files."""

    least: int
    most: int | None  # None if nothing bounds them


def stated_size_rule(index: Index, found: Contents, snapshot: Snapshot) -> Iterator[BadIndex]:
    """Check that the shards can have the total size."""
    total = index.total_size
    if total is None:
        return
    sizes = _sizes(snapshot)
    room = _room(index, found, sizes)
    if total < room.least:
        over, holds = total - room.least, f"at least {room.least:,}"
    elif room.most is not None and total > room.most:
        over, holds = total - room.most, f"at most {room.most:,}"
    else:
        return
    by = _known_by(index, found, sizes)
    over = int(over) if over == int(over) else over
    reason = f"total_size is {total:,}, the shards hold {holds} bytes of tensors, {by}: {over:+,}"
    yield BadIndex(file=index.file, reason=reason)


def _known_by(index: Index, found: Contents, sizes: Mapping[str, int]) -> str:
    """The source of the number of bytes in the shards, in words."""
    read = sum(shard in found.opened for shard in index.shards)
    sized = sum(shard in sizes and shard not in found.opened for shard in index.shards)
    ways = ((read, "the headers of {}"), (sized, "the sizes of {}"))
    said = [how.format(f"{count:,}") for count, how in ways if count]
    if not said:
        return "a byte for each of the names"
    return f"by {' and '.join(said)} of {len(index.shards):,} files"


def _room(index: Index, found: Contents, sizes: Mapping[str, int]) -> Room:
    read = dict.fromkeys(found.opened, 0)
    for tensor in found.tensors:
        if tensor.span is not None and tensor.name not in found.shared:
            read[tensor.file] = read.get(tensor.file, 0) + tensor.span.length
    rooms = [
        Room(read[shard], read[shard]) if shard in read else _closed(shard, names, sizes.get(shard))
        for shard, names in names_by_shard(index).items()
    ]
    bounds = [room.most for room in rooms if room.most is not None]
    return Room(
        sum(room.least for room in rooms), sum(bounds) if len(bounds) == len(rooms) else None
    )


def _sizes(snapshot: Snapshot) -> Mapping[str, int]:
    """The sizes of files: from their Git LFS pointers, else from the listing."""
    sizes = {file.name: file.size for file in snapshot.files}
    sizes.update((head.name, head.pointed) for head in snapshot.headers)
    return {name: size for name, size in sizes.items() if size}


def _closed(shard: str, names: Sequence[str], size: int | None) -> Room:
    """The possible bytes of tensors in a file whose header was not read."""
    if size is None:
        return Room(len(names), None)
    inside = max(size - _MOST_ENTRY * len(names) - _MOST_REST, 0)
    if parser(shard) is not None:
        whole = inside if 100 * inside > 99 * size else size
        return Room(max(inside // _FLAGS, len(names)), _SHARED * whole)
    around = _LENGTH + sum(_LEAST_ENTRY + _bytes(name) for name in names)
    most = max(size - around, 0)
    return Room(min(max(inside, len(names)), most), most)


def _bytes(name: str) -> int:
    return len(name.encode(errors="surrogatepass"))


# --- the totals, by the shards or by the expected shapes ----------------------------------------


def parameters_rule(index: Index, whole: Tally, reconciled: Reconciled) -> Iterator[Finding]:
    """Check that the index states the number of parameters in its shards, which were all read."""
    tied = sums.tied_not_stored(reconciled)
    yield from _parameters_rule(index, whole.parameters, "the shards hold", tied)


def implied_rules(
    index: Index,
    held: sums.Holdings,
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


def implied_note(index: Index, held: sums.Holdings, declared: str | None) -> str | None:
    """Note the arithmetic of the total size, or the bytes that it leaves for unexpected tensors."""
    total = index.total_size
    if total is None or held.unsized:
        return None
    if held.unexpected:
        return _room_note(held, total, declared)
    found = sums.find_sum(held, total, declared)
    return f"total_size {total:,} = {found}" if found else None


def _room_note(held: sums.Holdings, total: float, declared: str | None) -> str | None:
    """Note the bytes that all other tensors leave for unexpected ones."""
    least = _least(held, declared)
    if least is None:
        return None
    copies = sum(one.elements for one in held.copies) * sums.WIDTHS[declared or ""] // 8
    left = _over(total, least + copies)
    and_buffers = " and the buffers" if held.buffers else ""
    tensors = "tensor" if held.unexpected == 1 else f"{held.unexpected:,} tensors"
    what = f"for the {tensors} of which nothing is expected{and_buffers}"
    return f"total_size {total:,} leaves {left:,} bytes {what}" if left >= 0 else None


def _room_rule(index: Index, held: sums.Holdings, declared: str | None) -> Iterator[Finding]:
    total, least = index.total_size, _least(held, declared)
    if total is not None and least is not None and total < least:
        reason = (
            f"total_size is {total:,}, the parameters that the config implies alone take "
            f"{least:,} bytes in {declared}: {_over(total, least):+,}"
        )
        yield BadIndex(file=index.file, reason=reason)


def _least(held: sums.Holdings, declared: str | None) -> int | None:
    """The bytes of the stored parameters with an expected shape; None without a declared dtype."""
    return sums.least_sum(held, declared) if declared in sums.WIDTHS else None


def _size_rule(
    index: Index,
    total: float,
    held: sums.Holdings,
    reconciled: Reconciled,
    declared: str | None,
) -> Iterator[Finding]:
    found = sums.find_sum(held, total, declared)
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
    if declared is not None and sums.WIDTHS.get(declared) != sums.WIDTHS[found.dtype]:
        each = sums.WIDTHS[found.dtype] // 8
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


def _unexplained(total: float, held: sums.Holdings, declared: str | None) -> str:
    dtype = declared if declared in sums.WIDTHS else "F32"
    implied = sums.plain_sum(held, dtype)
    over = _over(total, implied)
    width = sums.WIDTHS[dtype] // 8
    groups = (*held.tied, *held.copies, *held.buffers)
    why = _why(over / width, groups)
    packed = f", packed and the rest in {dtype}" if held.packed else f" in {dtype}"
    takes = f"the expected shapes take {implied:,} bytes{packed}"
    return f"total_size is {total:,}, {takes}: {over:+,}{why}"


def _parameters_rule(
    index: Index, stored: int, counted_by: str, groups: tuple[sums.WidthGroup, ...]
) -> Iterator[Finding]:
    total = index.total_parameters
    if total is not None and total != stored:
        over = _over(total, stored)
        reason = f"total_parameters is {total:,}, {counted_by} {stored:,} parameters: {over:+,}"
        yield WrongTotal(file=index.file, reason=reason + _why(over, groups))


def _why(over: float, groups: tuple[sums.WidthGroup, ...]) -> str:
    """Name the tensors whose elements add up to a difference, if there are any."""
    found = sums.groups_that_make_up(abs(over), groups)
    if not found:
        return ""
    listed = " and ".join(group.what for group in found)
    return f", which is {listed}, {'counted a second time' if over > 0 else 'not counted'}"


def _over(total: float, stored: int) -> float:
    """Return the difference, as an integer if possible: some writers store 1e9 as a float."""
    over = total - stored
    return int(over) if over == int(over) else over

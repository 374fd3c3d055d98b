"""The comparison of an index with its files and with the expected tensors.

The totals that the index states are compared with one source only, the best: the headers if every
shard has one; else the expected shapes, to the byte; else the sizes of the files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq, itemgetter
from typing import NamedTuple

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.containers.weight_formats import parser
from auditor.findings import BadIndex, Finding, OfFile, WrongDtype, WrongTotal, by_name
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
    notes: tuple[str, ...] = ()  # how the total size is made up
    unchecked: tuple[str, ...] = ()  # sentences about what was not compared


def by_files(contents: Contents, snapshot: Snapshot, tally: Tally) -> Iterator[Finding]:
    """Check, without a config, the names and the total bytes of an index against its files.

    `tally` counts all stored tensors.
    """
    index = contents.index
    if index is not None:
        yield from _names(index, contents)
        if contents.opened.issuperset(index.shards):
            yield from _read_size_rule(index, tally)
        else:
            yield from stated_size_rule(index, contents, snapshot)


def index_judgement(  # noqa: PLR0913 - what is stored, what is expected, and what the config declares
    contents: Contents,
    snapshot: Snapshot,
    tally: Tally,
    reconciled: Reconciled,
    *,
    written: Mapping[str, WrittenTensor],
    declared: str | None,
    wide_names: re.Pattern[str],
    parameters: int,
) -> IndexJudgement:
    """Check an index against its files, and its totals against the expectation.

    `written` are the packed tensors that the layout stores under a name, `declared` is the dtype of
    the config. Tensors whose names match `wide_names` may take 32 bits. `parameters` is the
    number of parameters that the config implies.
    """
    index = contents.index
    if index is None:
        return IndexJudgement()
    names = tuple(_names(index, contents))
    if contents.opened.issuperset(index.shards):
        totals = (*_read_size_rule(index, tally), *parameters_rule(index, tally, reconciled))
        return IndexJudgement((*names, *totals))
    sizes = None
    if not contents.unnamed:  # else the index's totals are those of other files
        sizes = sums.index_sizes(reconciled, len(index.weight_map), wide_names, written)
    implied: tuple[Finding, ...] = ()
    if sizes is not None:
        implied = tuple(implied_rules(index, sizes, reconciled, declared, parameters=parameters))
    wrong = any(BadIndex.describes(finding) for finding in implied)
    beyond = () if wrong else tuple(stated_size_rule(index, contents, snapshot))
    if beyond:  # no dtype explains a total outside the possible range
        implied = tuple(finding for finding in implied if not WrongDtype.describes(finding))
    note = None if beyond or sizes is None else implied_note(index, sizes, declared)
    return IndexJudgement(
        findings=(*names, *implied, *beyond),
        notes=() if note is None else (note,),
        unchecked=tuple(_unchecked(index, sizes, contents)),
    )


_NAME, _FILE = (itemgetter(StoredTensor._fields.index(field)) for field in ("name", "file"))


def _names(index: Index, contents: Contents) -> Iterator[Finding]:
    for fault in index.faults:
        yield BadIndex(file=index.file, reason=fault)
    yield from _name_rules(index, contents.tensors, contents.opened)


def _read_size_rule(index: Index, tally: Tally) -> Iterator[Finding]:
    total = index.total_size
    if total is not None and total != tally.bytes:
        over = total - tally.bytes
        over = int(over) if over == int(over) else over
        holds = f"the shards hold {tally.bytes:,} bytes of tensors"
        reason = f"total_size is {total:,}, {holds}: {over:+,}"
        yield BadIndex(file=index.file, reason=reason)


def _name_rules(
    index: Index, tensors: Sequence[StoredTensor], opened: frozenset[str]
) -> Iterator[Finding]:
    named = index.weight_map
    files = map(named.get, map(_NAME, tensors))
    if len(tensors) == len(named) and all(map(eq, files, map(_FILE, tensors))):
        return  # as the index says, so no name is in two files
    where: dict[str, str] = {tensor.name: tensor.file for tensor in tensors}
    stored = {(tensor.name, tensor.file) for tensor in tensors}
    lacking: dict[tuple[str, str | None], list[str]] = {}
    for name, shard in index.weight_map.items():
        if shard in opened and (name, shard) not in stored:
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


def _unchecked(index: Index, sizes: sums.IndexSizes | None, contents: Contents) -> Iterator[str]:
    """Yield the reasons why the total size is not compared exactly."""
    if contents.unnamed:
        yield "the totals of the index: it belongs to other files than those that were read"
    elif index.total_size is None:
        yield "the total size: the index does not state it"
    elif sizes is None:
        yield "the total size to the byte: not every name of the index is in a shard"
    elif sizes.unsized:
        what = f"{sizes.unsized:,} of the packed tensors"
        yield f"the total size to the byte: only their headers say what {what} take"
    elif sizes.fewer:
        what = f"{sizes.fewer:,} bytes of what is packed"
        yield f"the total size to the byte: {what} have no fixed length"


# --- the possible total sizes without an architecture ------------------------------------------


# Bytes of a file's header for each tensor. The shortest entry of a safetensors header has 49 bytes
# plus the name; real entries have 110 to 140 bytes in all, entries in torch's zip files 285 to
# 360.
_LEAST_ENTRY = len('"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}')
_MOST_ENTRY = 1024
_LENGTH = 8
# The rest of a header: __metadata__, usually {"format": "pt"}; the pickle of torch files.
_MOST_REST = 64 * 1024

# torch.save writes a storage that two tensors share once, and a total may count it twice. It is
# less than twice the file's size, because no model shares all tensors. Some writers count an
# element of a mask as 1/8 byte.
_SHARED = 2
_FLAGS = 8


class Room(NamedTuple):
    """The least and the most bytes that the tensors in the files can take."""

    least: int
    most: int | None  # None without an upper bound


def stated_size_rule(index: Index, contents: Contents, snapshot: Snapshot) -> Iterator[OfFile]:
    """Check that the total size is possible for the shards' tensors."""
    total = index.total_size
    if total is None:
        return
    sizes = _sizes(snapshot)
    room = _room(index, contents, sizes)
    if total < room.least:
        over, holds = total - room.least, f"at least {room.least:,}"
    elif room.most is not None and total > room.most:
        over, holds = total - room.most, f"at most {room.most:,}"
    else:
        return
    by = _source_of_sizes(index, contents, sizes)
    over = int(over) if over == int(over) else over
    reason = f"total_size is {total:,}, the shards hold {holds} bytes of tensors, {by}: {over:+,}"
    yield BadIndex(file=index.file, reason=reason)


def _source_of_sizes(index: Index, contents: Contents, sizes: Mapping[str, int]) -> str:
    """Return a text that names the sources of the number of bytes in the shards."""
    read = sum(shard in contents.opened for shard in index.shards)
    sized = sum(shard in sizes and shard not in contents.opened for shard in index.shards)
    ways = ((read, "the headers of {}"), (sized, "the sizes of {}"))
    sources = [how.format(f"{count:,}") for count, how in ways if count]
    if not sources:
        return "a byte for each of the names"
    return f"by {' and '.join(sources)} of {len(index.shards):,} files"


def _room(index: Index, contents: Contents, sizes: Mapping[str, int]) -> Room:
    read = dict.fromkeys(contents.opened, 0)
    for tensor in contents.tensors:
        if tensor.span is not None and tensor.name not in contents.shared:
            read[tensor.file] = read.get(tensor.file, 0) + tensor.span.length
    rooms = [
        Room(read[shard], read[shard]) if shard in read else _bounds(shard, names, sizes.get(shard))
        for shard, names in names_by_shard(index).items()
    ]
    bounds = [room.most for room in rooms if room.most is not None]
    return Room(
        sum(room.least for room in rooms), sum(bounds) if len(bounds) == len(rooms) else None
    )


def _sizes(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the sizes of files, from their Git LFS pointers or else from the listing."""
    sizes = {file.name: file.size for file in snapshot.files}
    sizes.update((file.name, file.pointed) for file in snapshot.headers)
    return {name: size for name, size in sizes.items() if size}


def _bounds(shard: str, names: Sequence[str], size: int | None) -> Room:
    """Return the least and the most bytes of the tensors in a file whose header was not read."""
    if size is None:
        return Room(len(names), None)
    inside = max(size - _MOST_ENTRY * len(names) - _MOST_REST, 0)
    if parser(shard) is not None:
        bytes_of_data = inside if 100 * inside > 99 * size else size
        return Room(max(inside // _FLAGS, len(names)), _SHARED * bytes_of_data)
    around = _LENGTH + sum(
        _LEAST_ENTRY + len(name.encode(errors="surrogatepass")) for name in names
    )
    most = max(size - around, 0)
    return Room(min(max(inside, len(names)), most), most)


# --- the totals, by the shards or by the expected shapes ----------------------------------------


def parameters_rule(index: Index, tally: Tally, reconciled: Reconciled) -> Iterator[Finding]:
    """Check the index's number of parameters against the shards, all of which were read."""
    tied = sums.tied_not_stored(reconciled)
    yield from _parameters_rule(index, tally.parameters, "the shards hold", tied)


def implied_rules(
    index: Index,
    sizes: sums.IndexSizes,
    reconciled: Reconciled,
    declared: str | None,
    *,
    parameters: int = 0,
) -> Iterator[Finding]:
    """Check that the totals equal the expected shapes in the declared dtype, else in any dtype.

    Packed tensors take the bytes that their layout implies. If some tensors have unknown sizes, or
    some are unexpected, the totals are only a bound: they have to leave enough bytes for these
    tensors. Each of the `parameters` that the config implies takes at least a bit, even if packed.
    """
    if sizes.unexpected or sizes.unsized:
        room = tuple(_room_rule(index, sizes, declared))
        yield from room or (_bit_rule(index, parameters) if sizes.unsized else ())
        return
    if index.total_size is not None:
        yield from _size_rule(index, index.total_size, sizes, reconciled, declared)
    groups = (*sizes.tied, *sizes.copies, *sizes.buffers)
    yield from _parameters_rule(index, sizes.parameters, "the expected shapes have", groups)


def _bit_rule(index: Index, parameters: int) -> Iterator[Finding]:
    least = parameters // 8
    if index.total_size is not None and index.total_size < least:
        reason = (
            f"total_size is {index.total_size:,}, and {parameters:,} parameters take "
            f"{least:,} bytes at one bit each: {_over(index.total_size, least):+,}"
        )
        yield BadIndex(file=index.file, reason=reason)


def implied_note(index: Index, sizes: sums.IndexSizes, declared: str | None) -> str | None:
    """Return a sentence with the total size as a sum, or the bytes left for unexpected tensors.

    Return None if there is no total, or if it cannot be split up.
    """
    total = index.total_size
    if total is None or sizes.unsized:
        return None
    if sizes.unexpected:
        return _room_note(sizes, total, declared)
    terms = sums.find_sum(sizes, total, declared)
    return f"total_size {total:,} = {terms}" if terms else None


def _room_note(sizes: sums.IndexSizes, total: float, declared: str | None) -> str | None:
    """Return a sentence with the bytes that are left for unexpected tensors; None if unknown."""
    least = _least(sizes, declared)
    if least is None:
        return None
    copies = sum(group.elements for group in sizes.copies) * sums.WIDTHS[declared or ""] // 8
    room = _over(total, least + copies)
    and_buffers = " and the buffers" if sizes.buffers else ""
    tensors = "tensor" if sizes.unexpected == 1 else f"{sizes.unexpected:,} tensors"
    what = f"for the {tensors} of which nothing is expected{and_buffers}"
    return f"total_size {total:,} leaves {room:,} bytes {what}" if room >= 0 else None


def _room_rule(index: Index, sizes: sums.IndexSizes, declared: str | None) -> Iterator[Finding]:
    total, least = index.total_size, _least(sizes, declared)
    if total is not None and least is not None and total < least:
        reason = (
            f"total_size is {total:,}, the parameters that the config implies alone take "
            f"{least:,} bytes in {declared}: {_over(total, least):+,}"
        )
        yield BadIndex(file=index.file, reason=reason)


def _least(sizes: sums.IndexSizes, declared: str | None) -> int | None:
    """Return the fewest bytes that the expected tensors can take; None without a known dtype."""
    return sums.least_sum(sizes, declared) if declared in sums.WIDTHS else None


def _size_rule(
    index: Index,
    total: float,
    sizes: sums.IndexSizes,
    reconciled: Reconciled,
    declared: str | None,
) -> Iterator[Finding]:
    terms = sums.find_sum(sizes, total, declared)
    if terms is None:
        yield BadIndex(file=index.file, reason=_unexplained(total, sizes, declared))
        return
    for part in terms.flags:
        short = part.elements - part.elements * part.bits // 8
        reason = (
            f"total_size is {total:,}, which counts the {part.elements:,} elements of "
            f"{part.what} at 1/8 byte; a mask takes a byte for each: {-short:+,}"
        )
        yield BadIndex(file=index.file, reason=reason)
    if declared is not None and sums.WIDTHS.get(declared) != sums.WIDTHS[terms.dtype]:
        width = sums.WIDTHS[terms.dtype] // 8
        how = (
            f"has {width} bytes for a parameter that is not packed"
            if sizes.packed
            else (f"is exactly {width} bytes a parameter")
        )
        reason = f"total_size {total:,} {how}, the config declares {declared}"
        stored = by_name(_of_unknown_dtype(index, reconciled))
        yield WrongDtype(tensors=stored, declared=declared, reason=reason)


def _of_unknown_dtype(index: Index, reconciled: Reconciled) -> Iterator[StoredTensor]:
    """Yield the parameters that the index names and whose header was not read."""
    packed = {name for name, _ in reconciled.packed}
    for hit in reconciled.answered:
        if hit.expected.role.learned and hit.stored.span is None and hit.stored.name not in packed:
            yield hit.stored
    for item in reconciled.absent:
        name = item.tensor.name
        if item.fate == Fate.UNREADABLE and item.tensor.role.learned and name in index.weight_map:
            yield StoredTensor(name, None, None, None, index.weight_map[name], None)


def _unexplained(total: float, sizes: sums.IndexSizes, declared: str | None) -> str:
    dtype = declared if declared in sums.WIDTHS else "F32"
    implied = sums.plain_sum(sizes, dtype)
    over = _over(total, implied)
    width = sums.WIDTHS[dtype] // 8
    groups = (*sizes.tied, *sizes.copies, *sizes.buffers)
    why = _why(over / width, groups)
    packed = f", packed and the rest in {dtype}" if sizes.packed else f" in {dtype}"
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
    """Return a clause that names tensors whose elements add up to a difference, else ""."""
    explaining = sums.groups_that_make_up(abs(over), groups)
    if not explaining:
        return ""
    listed = " and ".join(group.what for group in explaining)
    return f", which is {listed}, {'counted a second time' if over > 0 else 'not counted'}"


def _over(total: float, stored: int) -> float:
    """Return the index's total minus the stored total, as an integer if it has no fraction.

    Some writers store 1e9 as a float.
    """
    over = total - stored
    return int(over) if over == int(over) else over

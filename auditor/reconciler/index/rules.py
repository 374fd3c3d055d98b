"""The comparison of an index with its files and with the expected tensors.

The totals that the index states are compared with one source only, the best: the headers if every
shard has one; else the expected shapes, to the byte; else the sizes of the files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from operator import eq, itemgetter
from typing import NamedTuple

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.containers.weight_formats import parser
from auditor.findings import (
    BadIndex,
    Finding,
    OfFile,
    ShardsNotLoaded,
    WrongDtype,
    WrongTotal,
    by_name,
)
from auditor.layouts.packing import WrittenTensor
from auditor.names.parts import file_name
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
) -> IndexJudgement:
    """Check an index against its files, and its totals against the expectation.

    `written` are the packed tensors that the layout stores under a name, `declared` is the dtype of
    the config. Tensors whose names match `wide_names` may take 32 bits.
    """
    index = contents.index
    if index is None:
        return IndexJudgement()
    names = tuple(_names(index, contents))
    if contents.opened.issuperset(index.shards):
        tied = sums.tied_not_stored(reconciled)
        parameters = _parameters_rule(index, tally.parameters, "the shards hold", tied)
        return IndexJudgement((*names, *_read_size_rule(index, tally), *parameters))
    sizes = None
    if not contents.unnamed:  # else the index's totals are those of other files
        sizes = sums.index_sizes(reconciled, len(index.weight_map), wide_names, written)
    implied: tuple[Finding, ...] = ()
    note = None
    if sizes is not None:
        implied = tuple(implied_rules(index, sizes, reconciled, declared))
        note = implied_note(index, sizes, declared)
    if not any(BadIndex.describes(finding) for finding in implied):
        beyond = tuple(stated_size_rule(index, contents, snapshot))
        if beyond:  # no dtype explains a total outside the possible range
            implied = tuple(one for one in implied if not WrongDtype.describes(one))
            implied, note = (*implied, *beyond), None
    return IndexJudgement(
        findings=(*names, *implied),
        notes=() if note is None else (note,),
        unchecked=tuple(_unchecked(index, sizes, contents)),
    )


# --- the names ----------------------------------------------------------------------------------


# By default from_pretrained of diffusers 0.42 finds the index of safetensors, or a single file.
_REFUSED = re.compile(r"diffusion_pytorch_model\b.*\.bin\.index\.", re.ASCII)
_NAME, _FILE = (itemgetter(StoredTensor._fields.index(field)) for field in ("name", "file"))


def _names(index: Index, contents: Contents) -> Iterator[Finding]:
    for fault in index.faults:
        yield BadIndex(file=index.file, reason=fault)
    if _REFUSED.match(file_name(index.file)):
        reason = "from_pretrained of diffusers looks for torch shards only with "
        yield ShardsNotLoaded(file=index.file, reason=f"{reason}use_safetensors=False")
    named, tensors = index.weight_map, contents.tensors
    files = map(named.get, map(_NAME, tensors))
    if len(tensors) == len(named) and all(map(eq, files, map(_FILE, tensors))):
        return  # as the index says, so no name is in two files
    where: dict[str, str] = {tensor.name: tensor.file for tensor in tensors}
    stored = {(tensor.name, tensor.file) for tensor in tensors}
    lacking: dict[tuple[str, str | None], list[str]] = {}
    for name, shard in named.items():
        if shard in contents.opened and (name, shard) not in stored:
            lacking.setdefault((shard, where.get(name)), []).append(name)
    for (shard, other), names in sorted(lacking.items(), key=lambda item: item[0][0]):
        place = f"it is in {other}" if other else "no shard holds it"
        reason = f"the index places it in {shard}, which does not hold it; {place}"
        yield BadIndex(file=index.file, reason=reason, tensors=_sorted(names))
    unnamed: dict[str, list[str]] = {}
    for name, file in where.items():
        if name not in named:
            unnamed.setdefault(file, []).append(name)
    for file in sorted(unnamed):
        reason = f"{file} holds it and the index does not name it"
        yield BadIndex(file=index.file, reason=reason, tensors=_sorted(unnamed[file]))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=natural_key))


# --- the total size, by headers or by the sizes of files ----------------------------------------


def _read_size_rule(index: Index, tally: Tally) -> Iterator[Finding]:
    total = index.total_size
    if total is not None and total != tally.bytes:
        holds = f"the shards hold {tally.bytes:,} bytes of tensors"
        reason = f"total_size is {total:,}, {holds}: {_over(total, tally.bytes):+,}"
        yield BadIndex(file=index.file, reason=reason)


# The least and most bytes of a file's header for each tensor, without its name: real entries have
# 110 to 140 bytes in safetensors, 285 to 360 in torch's zip files.
_LEAST_ENTRY = len('"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}')
_MOST_ENTRY = 1024
# The rest of a header: __metadata__, usually {"format": "pt"}; the pickle of torch files.
_MOST_REST = 64 * 1024
# torch.save writes a storage that two tensors share once, and a total may count it twice. Some
# writers count an element of a mask as 1/8 byte.
_SHARED = 2
_FLAGS = 8


def stated_size_rule(index: Index, contents: Contents, snapshot: Snapshot) -> Iterator[OfFile]:
    """Check that the total size is possible for the shards' tensors, by headers or file sizes."""
    total = index.total_size
    if total is None:
        return
    sizes = {file.name: file.size for file in snapshot.files}
    sizes.update((file.name, file.pointed) for file in snapshot.headers)
    read = dict.fromkeys(contents.opened, 0)
    for tensor in contents.tensors:
        if tensor.span is not None and tensor.name not in contents.shared:
            read[tensor.file] = read.get(tensor.file, 0) + tensor.span.length
    least, most, counted, sized = 0, 0.0, 0, 0
    for shard, names in names_by_shard(index).items():
        if shard in read:
            least, most, counted = least + read[shard], most + read[shard], counted + 1
        elif size := sizes.get(shard):
            sized += 1
            inside = size - _MOST_ENTRY * len(names) - _MOST_REST
            if parser(shard) is None:  # safetensors
                least += min(size, max(inside, len(names)))
                most += max(size - sum(_LEAST_ENTRY + len(name) for name in names), 0)
            else:
                least += max(inside // _FLAGS, len(names))
                most += _SHARED * size
        else:
            least, most = least + len(names), inf
    if least <= total <= most:
        return
    bound, holds = (least, "at least") if total < least else (int(most), "at most")
    ways = ((counted, "the headers of {:,}"), (sized, "the sizes of {:,}"))
    sources = " and ".join(way.format(count) for count, way in ways if count)
    by = f"by {sources} of {len(index.shards):,} files" if sources else "a byte for each name"
    reason = (
        f"total_size is {total:,}, the shards hold {holds} {bound:,} bytes of tensors, {by}: "
        f"{_over(total, bound):+,}"
    )
    yield BadIndex(file=index.file, reason=reason)


# --- the totals, by the expected shapes ---------------------------------------------------------


def implied_rules(
    index: Index, sizes: sums.IndexSizes, reconciled: Reconciled, declared: str | None
) -> Iterator[Finding]:
    """Check that the totals equal the expected shapes in the declared dtype, else in any dtype.

    Packed tensors take the bytes that their layout implies. If some tensors have unknown sizes, or
    some are unexpected, the total size only has to be enough for the other tensors.
    """
    total = index.total_size
    if sizes.unexpected or sizes.unsized:
        least = sums.least_sum(sizes, declared) if declared in sums.WIDTHS else 0
        if total is not None and total < least:
            reason = (
                f"total_size is {total:,}, the parameters that the config implies alone take "
                f"{least:,} bytes in {declared}: {_over(total, least):+,}"
            )
            yield BadIndex(file=index.file, reason=reason)
        return
    if total is not None:
        yield from _size_rule(index, sizes, reconciled, declared)
    counted_by = "the expected shapes have"
    yield from _parameters_rule(index, sizes.parameters, counted_by, sizes.disputed)


def implied_note(index: Index, sizes: sums.IndexSizes, declared: str | None) -> str | None:
    """Return a sentence with the total size as a sum; None if it cannot be split up."""
    total = index.total_size
    if total is None or sizes.unsized or sizes.unexpected:
        return None
    found = sums.find_sum(sizes, total, declared)
    return f"total_size {total:,} = {found.text}" if found else None


def _size_rule(
    index: Index, sizes: sums.IndexSizes, reconciled: Reconciled, declared: str | None
) -> Iterator[Finding]:
    total = index.total_size or 0
    found = sums.find_sum(sizes, total, declared)
    if found is None:
        dtype = declared if declared in sums.WIDTHS else "F32"
        implied = sums.plain_sum(sizes, dtype)
        over = _over(total, implied)
        packed = f", packed and the rest in {dtype}" if sizes.packed else f" in {dtype}"
        takes = f"the expected shapes take {implied:,} bytes{packed}"
        why = _why(8 * over / sums.WIDTHS[dtype], sizes.disputed)
        reason = f"total_size is {total:,}, {takes}: {over:+,}{why}"
        yield BadIndex(file=index.file, reason=reason)
    elif declared is not None and sums.WIDTHS.get(declared) != sums.WIDTHS[found.dtype]:
        width = sums.WIDTHS[found.dtype] // 8
        how = f"is exactly {width} bytes a parameter"
        if sizes.packed:
            how = f"has {width} bytes for a parameter that is not packed"
        reason = f"total_size {total:,} {how}, the config declares {declared}"
        stored = by_name(_of_unknown_dtype(index, reconciled))
        yield WrongDtype(tensors=stored, declared=declared, reason=reason)


def _of_unknown_dtype(index: Index, reconciled: Reconciled) -> Iterator[StoredTensor]:
    """Yield the parameters that the index names and whose header was not read."""
    packed = {name for name, _ in reconciled.packed}
    for hit in reconciled.answered:
        if hit.expected.role.learned and hit.stored.span is None and hit.stored.name not in packed:
            yield hit.stored
    for tensor, fate in reconciled.absent:
        file = index.weight_map.get(tensor.name)
        if fate == Fate.UNREADABLE and tensor.role.learned and file is not None:
            yield StoredTensor(tensor.name, None, None, None, file, None)


def _parameters_rule(
    index: Index, stored: int, counted_by: str, groups: tuple[sums.WidthGroup, ...]
) -> Iterator[Finding]:
    total = index.total_parameters
    if total is not None and total != stored:
        over = _over(total, stored)
        reason = f"total_parameters is {total:,}, {counted_by} {stored:,} parameters: {over:+,}"
        yield WrongTotal(file=index.file, reason=reason + _why(over, groups))


def _why(over: float, groups: tuple[sums.WidthGroup, ...]) -> str:
    """Return a clause that names tensors with as many elements as a difference, else ""."""
    what = next((group.what for group in groups if group.elements == abs(over)), None)
    how = "counted a second time" if over > 0 else "not counted"
    return f", which is {what}, {how}" if what else ""


def _over(total: float, stored: int) -> float:
    """Return the index's total minus the stored total, as an integer if it has no fraction.

    Some writers store 1e9 as a float.
    """
    over = total - stored
    return int(over) if over == int(over) else over


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

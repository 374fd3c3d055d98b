"""What the total_size of an index can be, by headers, sizes of files and names alone.

No architecture is needed. A shard whose header was read holds what the header says. One of which
only the size is known (its Git LFS pointer states it, or the listing does) holds that size less a
header, whose length its tensors bound. Of any other shard only the names are known, and a tensor
takes a byte at the least.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.index import Index
from auditor.containers.weight_formats import parser
from auditor.reconciler.contents import Contents, names_by_shard
from auditor.reconciler.findings import BadIndex

# Bytes of a file beside a tensor's data. The shortest entry of a safetensors header has 49 and the
# name; real ones take 110 to 140 with it, and the records of torch's zip files 285 to 360.
_LEAST_ENTRY = len('"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}')
_MOST_ENTRY = 1024
_LENGTH = 8
# Beside the entries: __metadata__, which of shards is {"format": "pt"}; the pickle of torch files.
_MOST_REST = 64 * 1024

# torch.save writes a storage once that two tensors share, and a total may count it for both: it is
# below twice the file, for no model shares all. Some writers counted an element of a mask as 1/8.
_SHARED = 2
_FLAGS = 8


class Room(NamedTuple):
    """Bytes of tensors that files hold."""

    least: int
    most: int | None  # None: nothing bounds them


def stated_size_rule(index: Index, found: Contents, snapshot: Snapshot) -> Iterator[BadIndex]:
    """The total size is one that the shards can have."""
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
    """Where the number of bytes in the shards is known from."""
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
    """True sizes of files: as their Git LFS pointers state them, or else the listing."""
    sizes = {file.name: file.size for file in snapshot.files}
    sizes.update((head.name, head.pointed) for head in snapshot.headers)
    return {name: size for name, size in sizes.items() if size}


def _closed(shard: str, names: Sequence[str], size: int | None) -> Room:
    """Of a file whose header was not read."""
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

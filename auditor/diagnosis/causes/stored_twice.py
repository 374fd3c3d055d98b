"""stored-twice: some tensors of one save are in two files.

To do: Remove the copies that the index does not name, after checking that both have equal values;
or write the files again.
"""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from auditor.checkpoint.changes import of_files
from auditor.checkpoint.snapshot import WeightHeader, read_index
from auditor.containers.index import indexed_files
from auditor.diagnosis.case import Case, Undoing
from auditor.errors import CheckpointError
from auditor.messages import listed

CAUSE = "stored-twice"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with one copy of each tensor: the copy in the index, or the first."""
    files: dict[str, list[str]] = {}
    for tensor in case.stored:
        files.setdefault(tensor.name, []).append(tensor.file)
    twice = {name: places for name, places in files.items() if len(places) > 1}
    if not twice or len(twice) == len(files):
        return
    named = indexed_files(read_index(case.snapshot))
    kept = {
        name: named[name] if named.get(name) in places else places[0]
        for name, places in twice.items()
    }
    both = " and ".join(sorted({file for places in twice.values() for file in places})[:3])
    takes = f"; the index takes them from {listed(sorted(set(kept.values())))}" if named else ""
    count = "1 tensor is" if len(twice) == 1 else f"{len(twice):,} tensors are"
    yield Undoing(
        cause=CAUSE,
        snapshot=of_files(
            case.snapshot, map(partial(_without_copies, kept), case.snapshot.headers)
        ),
        summary=f"{count} in two files, {both}{takes}",
        fix="write the files again, each tensor once; or compare the copies (audit --values) and "
        "remove those that the index does not name",
        evidence=tuple(sorted(twice)[:3]),
    )


def _without_copies(kept: dict[str, str], head: WeightHeader) -> WeightHeader:
    table = head.parsed
    if isinstance(table, CheckpointError):
        return head
    tensors = tuple(one for one in table.tensors if kept.get(one.name, head.name) == head.name)
    return replace(head, known=replace(table, tensors=tensors))

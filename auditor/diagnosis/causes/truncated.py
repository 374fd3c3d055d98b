"""truncated: a weight file is empty, ends within its header, or ends before its header declares.

To do: Upload the file again, and compare its size with that of the original.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.weight_formats import Table
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import as_proven, restored
from auditor.errors import CheckpointError
from auditor.messages import listed, named

CAUSE = "truncated"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint as if the files were complete; an incomplete header is replaced."""
    heads = {head.name: how for head in case.snapshot.headers if (how := head.cut_off)}
    if not heads:
        return
    files = listed(tuple(heads))
    faults = [f"{named(name)} {how}" for name, how in heads.items()]
    cut = (one for one in case.snapshot.headers if isinstance(one.parsed, CheckpointError))
    unread = {head.name for head in cut} & heads.keys()
    whole = restored(case, unread) if unread else case.snapshot
    known = tuple(_of_any_size(one) if one.name in heads else one for one in whole.headers)
    undoing = Undoing(
        cause=CAUSE,
        snapshot=replace(whole, headers=known),
        summary=faults[0] if len(heads) == 1 else f"{files} are cut off: {faults[0]}",
        fix=f"upload {files} again, and compare the sizes with those of the originals",
        evidence=tuple(faults[:3]),
    )
    yield undoing
    yield from as_proven(case, undoing, heads)


def _of_any_size(head: WeightHeader) -> WeightHeader:
    table = head.parsed
    known = replace(table, size_faults=()) if isinstance(table, Table) else head.known
    return replace(head, size=None, known=known)

"""partial-upload: shards are not there although the index, or the numbers of the others, name them.

To do: Upload the files that are not there; without an index, upload that too.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import as_indexed, holding, of_files
from auditor.diagnosis.weight_files import dtype_of_weights, read_index, split_of, splits
from auditor.findings import Missing
from auditor.messages import listed

CAUSE = "partial-upload"
_INDEX = "model.safetensors.index.json"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with its absent shards, filled by the index or the missing tensors."""
    snapshot, index = case.snapshot, read_index(case.snapshot)
    if index is not None and snapshot.unopened:
        absent = snapshot.unopened
        yield Undoing(
            cause=CAUSE,
            snapshot=as_indexed(snapshot, frozenset(absent)),
            summary=f"{len(absent):,} of the {len(index.shards):,} files that {index.file} names "
            f"{'is' if len(absent) == 1 else 'are'} not there: {listed(absent)}",
            fix=f"upload {listed(absent)}",
            evidence=("with what the index places in them nothing is missing",),
        )
    if snapshot.index is None and len(splits(case)) == 1:
        yield from _by_numbers(case)


def _by_numbers(case: Case) -> Iterator[Undoing]:
    """Yield the missing tensors in the absent shards of a save without an index."""
    ((split, heads),) = splits(case).items()
    there = {shard.number for head in heads if (shard := split_of(head.name))}
    absent = [number for number in range(1, split.total + 1) if number not in there]
    if len(heads) != len(case.snapshot.headers) or (not absent and len(heads) == 1):
        return
    files = [split.named(number) for number in absent]
    lacking = [
        (tensor.name, tensor.shape)
        for one in case.report.findings
        if isinstance(one, Missing)
        for tensor in one.tensors
    ]
    stand_ins = [holding(files[0], lacking, dtype_of_weights(case))] if files and lacking else []
    if bool(files) != bool(lacking):
        return
    what = (
        f"{len(there):,} of the {split.total:,} files are there: {listed(files)} "
        f"{'is' if len(files) == 1 else 'are'} not, and neither is their index"
        if files
        else f"the {split.total:,} files are there, and their index is not"
    )
    yield Undoing(
        cause=CAUSE,
        snapshot=of_files(case.snapshot, (*heads, *stand_ins)),
        summary=what,
        fix=f"upload {listed([*files, _INDEX])}",
        evidence=(f"the files are numbered up to {split.total:,}",),
    )

"""pointer-file: a Git LFS pointer is stored instead of a weight file, the config or the index.

To do: Run `git lfs pull` where the repository was cloned, or push the files that the pointers refer
to.

truncated: a weight file is empty, ends within its header, or ends before its header declares.

To do: Upload the file again, and compare its size with that of the original.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from auditor.bounded.json_text import lfs_pointer_size
from auditor.checkpoint.change import Change, header_of
from auditor.checkpoint.snapshot import WeightHeader, read_index
from auditor.containers.weight_formats import Table
from auditor.diagnosis.case import Case, Proposal
from auditor.errors import CheckpointError
from auditor.findings.evidence import OfFile
from auditor.messages import listed, named


def pointers(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with stand-ins for weight pointers; other pointers are not replaced."""
    snapshot = case.snapshot
    texts = (snapshot.config, snapshot.index, snapshot.packing, snapshot.settings)
    of_texts = sorted(
        text.name for text in texts if text and lfs_pointer_size(text.content) is not None
    )
    of_weights = tuple(head.name for head in snapshot.headers if head.pointed is not None)
    files = (*of_texts, *of_weights)
    if not files:
        return
    are = "is a Git LFS pointer" if len(files) == 1 else "are Git LFS pointers"
    proposal = Proposal(
        cause="pointer-file",
        change=_completed(case, of_weights),
        summary=f"{listed(files)} {are}",
        fix="run `git lfs pull` where it was cloned, or push the files that the pointers are for: "
        "`git lfs push --all`, or upload them with `hf upload`",
        evidence=tuple(f"{name} begins with version https://git-lfs" for name in files[:3]),
    )
    if of_weights and not of_texts:
        yield proposal
    yield from _as_proven(case, proposal, files)


def truncated(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint as if the files were complete; an incomplete header is replaced."""
    cut = {head.name: how for head in case.snapshot.headers if (how := head.cut_off)}
    if not cut:
        return
    files = listed(tuple(cut))
    faults = [f"{named(name)} {how}" for name, how in cut.items()]
    heads = [head for head in case.snapshot.headers if head.name in cut]
    unread = {head.name for head in heads if isinstance(head.parsed, CheckpointError)}
    change = _completed(case, unread) if unread else Change()
    new = {
        head.name: _of_any_size(change.files.get(head.name) or head)
        for head in heads
        if head.name not in change.listed
    }
    proposal = Proposal(
        cause="truncated",
        change=replace(change, files={**change.files, **new}),
        summary=faults[0] if len(cut) == 1 else f"{files} are cut off: {faults[0]}",
        fix=f"upload {files} again, and compare the sizes with those of the originals",
        evidence=tuple(faults[:3]),
    )
    yield proposal
    yield from _as_proven(case, proposal, cut)


def _of_any_size(head: WeightHeader) -> WeightHeader:
    table = head.parsed
    known = replace(table, size_faults=()) if isinstance(table, Table) else head.known
    return replace(head, size=None, known=known)


def _completed(case: Case, files: Collection[str]) -> Change:
    """Return the change that completes these files with the tensors that the index lists.

    Without an index, a file gets the expected tensors that its finding lists as hidden.
    """
    if read_index(case.snapshot) is not None:
        return Change(listed=frozenset(files))
    found = (one for one in case.report.findings if isinstance(one, OfFile))
    hidden = {one.file: one.hidden for one in found}
    shapes = {name: [(one.name, one.shape) for one in hidden.get(name, ())] for name in files}
    dtype = case.dtype_of_weights
    return Change(files={name: header_of(name, shapes[name], dtype) for name in files})


def _as_proven(case: Case, proposal: Proposal, files: Collection[str]) -> Iterator[Proposal]:
    """Yield the proposal with the findings about broken files, and without a change."""
    about = tuple(one for one in case.alarms if isinstance(one, OfFile) and one.file in files)
    if about:
        yield replace(proposal, change=Change(), proven=about)

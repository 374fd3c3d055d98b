"""pointer-file: a Git LFS pointer is stored instead of a weight file, the config or the index.

To do: Run `git lfs pull` where the repository was cloned, or push the files that the pointers refer
to.
"""

from collections.abc import Iterator

from auditor.bounded.json_text import lfs_pointer_size
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import as_proven, restored
from auditor.messages import listed

CAUSE = "pointer-file"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with stand-ins for weight pointers; other pointers are not replaced."""
    snapshot = case.snapshot
    texts = (snapshot.config, snapshot.index, snapshot.packing, snapshot.settings)
    pointers = sorted(
        text.name for text in texts if text and lfs_pointer_size(text.content) is not None
    )
    weights = tuple(head.name for head in snapshot.headers if head.pointed is not None)
    files = (*pointers, *weights)
    if not files:
        return
    are = "is a Git LFS pointer" if len(files) == 1 else "are Git LFS pointers"
    undoing = Undoing(
        cause=CAUSE,
        snapshot=restored(case, weights),
        summary=f"{listed(files)} {are}",
        fix="run `git lfs pull` where it was cloned, or push the files that the pointers are for: "
        "`git lfs push --all`, or upload them with `hf upload`",
        evidence=tuple(f"{name} begins with version https://git-lfs" for name in files[:3]),
    )
    if weights and not pointers:
        yield undoing
    yield from as_proven(case, undoing, files)

"""pointer-file: a Git LFS pointer is stored instead of a weight file, the config or the index.

To do: Run `git lfs pull` where the repository was cloned, or push the files that the pointers refer
to.
"""

from collections.abc import Iterator

from auditor.bounded.json_text import lfs_pointer_size
from auditor.checkpoint.snapshot import TextFile
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.weight_files import restored
from auditor.findings.evidence import OfFile
from auditor.messages import listed

CAUSE = "pointer-file"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with stand-ins for weight pointers; other pointers are not replaced."""
    snapshot = case.snapshot
    texts = (snapshot.config, snapshot.index, snapshot.packing, snapshot.settings)
    pointers = tuple(sorted(text.name for text in texts if text and _is_pointer(text)))
    weights = tuple(head.name for head in snapshot.headers if head.pointed is not None)
    files = (*pointers, *weights)
    if not files:
        return
    about = (one for one in case.alarms if isinstance(one, OfFile) and one.file in files)
    proven = Undoing(
        cause=CAUSE,
        snapshot=snapshot,
        proven=tuple(about),
        summary=f"{listed(files)} {'is a Git LFS pointer' if len(files) == 1 else _SEVERAL}",
        fix="run `git lfs pull` where it was cloned, or push the files that the pointers are for: "
        "`git lfs push --all`, or upload them with `hf upload`",
        evidence=tuple(f"{name} begins with version https://git-lfs" for name in files[:3]),
    )
    if weights and not pointers:
        yield proven.on(restored(case, weights))
    if proven.proven:
        yield proven


_SEVERAL = "are Git LFS pointers"


def _is_pointer(text: TextFile) -> bool:
    return lfs_pointer_size(text.content) is not None

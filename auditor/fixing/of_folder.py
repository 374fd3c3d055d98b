"""The fix of one folder: read it, plan, see if its files may be replaced, do it, read it again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader import fetch
from auditor.errors import FixError, UsageError
from auditor.fixing.carrying_out import carry_out
from auditor.fixing.local_files import FileState, require_replaceable, states_in
from auditor.fixing.plan import Plan, plan_fix
from auditor.messages import quoted

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class FolderPlan:
    """A plan for the files as they were when the folder was read."""

    folder: Path
    plan: Plan
    seen: dict[str, FileState]
    refused: str | None  # why its files are not to be replaced, whatever the plan


def plan_for_folder(requested: str, target: str | None, say: Say) -> FolderPlan:
    """What would be done. Raises UsageError for what is no folder, SourceError and OSError."""
    folder = Path(requested)
    if not folder.is_dir():
        raise UsageError(
            f"audit fix takes a folder on this machine, and {quoted(requested)} is none"
        )
    seen = states_in(folder)  # before anything is read: what changes from now on is refused
    snapshot = fetch(requested, say=say)
    if snapshot.manifest or snapshot.components:
        raise FixError(
            f"{quoted(requested)} holds several models: audit fix takes the folder of one of them"
        )
    plan = plan_fix(snapshot, Options(requested=requested, target=target))
    return FolderPlan(folder=folder, plan=plan, seen=seen, refused=_refused(folder, plan, seen))


def _refused(folder: Path, plan: Plan, seen: dict[str, FileState]) -> str | None:
    try:
        if plan.changes:
            there = {change.file: change.before is not None for change in plan.changes}
            require_replaceable(folder, there, seen)
    except FixError as why:
        return str(why)
    return None


def fix_folder(made: FolderPlan, *, in_place: bool, say: Say) -> tuple[str, ...]:
    """Do it, and read the folder again; the names under which the old files stay.

    Raises FixError where that is refused or fails; the old files are there then.
    """
    if made.refused is not None:
        raise FixError(made.refused)
    try:
        kept = carry_out(made.folder, made.plan.changes, made.seen, in_place=in_place)
    except OSError as error:
        where = error.filename or str(made.folder)
        hint = "" if in_place or not _weights(made.plan) else _HINT
        raise FixError(
            f"cannot write in {quoted(str(where))}: {error.strerror or error}; the old files are "
            f"as they were{hint}"
        ) from None
    _require_as_planned(made.plan.planned, fetch(made.plan.before.requested, say=say))
    return kept


_HINT = " (--in-place needs no space for a second copy of the weights)"


def _weights(plan: Plan) -> bool:
    return any(change.renames for change in plan.changes)


def _require_as_planned(planned: Snapshot, found: Snapshot) -> None:
    """Raises FixError unless what is read now is what was audited before it was written."""
    heads = [(head.name, head.size, _header(head.prefix)) for head in found.headers]
    same = heads == [(head.name, head.size, _header(head.prefix)) for head in planned.headers]
    texts = ("config", "index", "packing")
    if not same or any(getattr(found, one) != getattr(planned, one) for one in texts):
        raise FixError("the files are not as they were planned: somebody else writes to the folder")


def _header(prefix: bytes) -> bytes:
    length = int.from_bytes(prefix[:8], "little")
    return prefix[: 8 + length]

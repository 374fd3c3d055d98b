"""The fix of one folder: read it, plan, check that its files may be replaced, write, read again."""

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from auditor.audit.options import Options
from auditor.audit.repository import only_model
from auditor.checkpoint.filenames import FileSelection
from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.snapshot import FileState, Snapshot
from auditor.containers.index import MAX_SHARDS
from auditor.downloader import local_folder
from auditor.downloader.fetching import fetch
from auditor.errors import FixError, UsageError
from auditor.fixing.carrying_out import carry_out, is_interrupted
from auditor.fixing.local_files import require_replaceable, states_in
from auditor.fixing.permissions import Allow
from auditor.fixing.plan import Plan, plan_fix
from auditor.fixing.tied_copies import copies_are_equal
from auditor.messages import quoted

Say = Callable[[str], None]
_SHARD = re.compile(r"(?P<stem>[^/]+)-\d{5}-of-(?P<count>\d{5})\.safetensors", re.ASCII)


class FolderPlan(Struct, frozen=True, kw_only=True):
    """A plan for the files as they were when the folder was read."""

    folder: Path
    plan: Plan
    seen: dict[str, FileState]
    refused: str | None  # why its files must not be replaced; None: they may be


def plan_for_folder(
    requested: str, target: str | None, allowed: Collection[Allow], say: Say
) -> FolderPlan:
    """Plan the fix of a folder; `allowed` has the changes that the user allows.

    Raises UsageError if it is not a folder, SourceError and OSError if it cannot be read.
    """
    folder = Path(requested)
    if not folder.is_dir():
        raise UsageError(
            f"audit fix takes a folder on this machine, and {quoted(requested)} is not a folder"
        )
    seen = states_in(folder)  # before anything is read: what changes from now on is refused
    snapshot = _read(requested, say)
    entry = None
    if snapshot.manifest or snapshot.components:
        only = only_model(snapshot)
        if only is None:
            detail = "holds several models: audit fix takes the folder of one of them"
            raise FixError(f"{quoted(requested)} {detail}")
        snapshot, entry = only.snapshot, only.entry
    options = Options(requested=requested, target=target)
    planned = partial(
        plan_fix,
        options=options,
        entry=entry,
        allowed=allowed,
        equal_copies=partial(copies_are_equal, snapshot, folder),
    )
    plan = planned(snapshot)
    if plan.after.verdict != "clean" and (others := _shards_beside(snapshot)):
        wider = planned(_with_shards(requested, snapshot, others))
        plan = wider if wider.changes else plan
    return FolderPlan(folder=folder, plan=plan, seen=seen, refused=_refused(folder, plan, seen))


def _read(requested: str, say: Say) -> Snapshot:
    """The folder as `audit` reads it: the weights, and the files beside them."""
    return fetch(requested, say=say, choose=with_companions)


def _shards_beside(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the shards in the folder that belong to the index's split and are not in the index."""
    if snapshot.index is None or snapshot.unopened:
        return ()
    opened = {head.name for head in snapshot.headers}
    splits = {split.group("stem", "count") for name in opened if (split := _SHARD.fullmatch(name))}
    found = ((file.name, _SHARD.fullmatch(file.name)) for file in snapshot.files)
    others = tuple(
        name
        for name, split in found
        if split and name not in opened and split.group("stem", "count") in splits
    )
    return others if len(others) <= MAX_SHARDS else ()


def _with_shards(requested: str, snapshot: Snapshot, others: tuple[str, ...]) -> Snapshot:
    """Return the checkpoint as it would be if its index named these files too."""
    names = tuple(sorted((*others, *(head.name for head in snapshot.headers))))
    selection = FileSelection(
        config=snapshot.config.name if snapshot.config else None,
        shards=names,
        packing=snapshot.packing.name if snapshot.packing else None,
    )
    found = local_folder.read(Path(requested), requested, lambda _names, _where: selection)
    return replace(
        found,
        index=snapshot.index,
        base=snapshot.base,
        settings=snapshot.settings,
        companions=snapshot.companions,
    )


def _refused(folder: Path, plan: Plan, seen: dict[str, FileState]) -> str | None:
    try:
        if plan.changes:
            there = {change.file: change.before is not None for change in plan.changes}
            require_replaceable(folder, there, seen)
    except FixError as why:
        return str(why)
    return None


def fix_folder(made: FolderPlan, *, in_place: bool, say: Say) -> tuple[str, ...]:
    """Carry out the plan, read the folder again, and return the names of the kept old files.

    Raise FixError if the plan is refused or fails; the old files are there then.
    """
    if made.refused is not None:
        raise FixError(made.refused)
    try:
        kept = carry_out(made.folder, made.plan.changes, made.seen, in_place=in_place)
    except OSError as error:
        begun = is_interrupted(made.folder)
        left = "begun, and the next --apply ends it" if begun else "the old files are as they were"
        raise FixError(
            f"cannot write in {quoted(str(made.folder))}: {error.strerror or error}; {left}"
        ) from None
    _require_as_planned(made.plan.planned, _read(made.plan.before.requested, say))
    return kept


def _require_as_planned(planned: Snapshot, found: Snapshot) -> None:
    """Raise FixError unless the folder holds what was audited before it was written."""
    heads = [(head.name, head.size, _header(head.prefix)) for head in found.headers]
    same = heads == [(head.name, head.size, _header(head.prefix)) for head in planned.headers]
    texts = ("config", "index", "packing")
    if not same or any(getattr(found, one) != getattr(planned, one) for one in texts):
        raise FixError("the files are not as they were planned: somebody else writes to the folder")


def _header(prefix: bytes) -> bytes:
    length = int.from_bytes(prefix[:8], "little")
    return prefix[: 8 + length]

"""Fix one folder: read it, plan, check that files may be replaced, write them, read again."""

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
from auditor.diagnosis.permissions import Allow
from auditor.downloader import local_folder
from auditor.downloader.fetching import fetch
from auditor.errors import FixError, UsageError
from auditor.fixing.carrying_out import carry_out, is_interrupted
from auditor.fixing.end_tokens import generation_file
from auditor.fixing.local_files import require_replaceable, states_in
from auditor.fixing.plan import Plan, plan_fix
from auditor.messages import quoted

Say = Callable[[str], None]
_SHARD = re.compile(r"(?P<stem>[^/]+)-\d{5}-of-(?P<count>\d{5})\.safetensors", re.ASCII)


class FolderPlan(Struct, frozen=True, kw_only=True):
    """A plan for a folder, with the states of the files when the folder was read."""

    folder: Path
    plan: Plan
    seen: dict[str, FileState]
    refused: str | None  # why the files must not be replaced, else None


def plan_for_folder(
    requested: str,
    target: str | None,
    allowed: Collection[Allow],
    say: Say,
    engines: tuple[str, ...] = (),
) -> FolderPlan:
    """Plan the fix of a folder; `allowed` are the changes that the user allows.

    The plan also adds the config keys that the named engines need.

    Raise UsageError if the path is not a folder, FixError if it contains several models, and
    SourceError or OSError if it cannot be read.
    """
    folder = Path(requested)
    if not folder.is_dir():
        raise UsageError(
            f"audit fix takes a folder on this machine, and {quoted(requested)} is not a folder"
        )
    seen = states_in(folder)  # before the first read, so that every later change is noticed
    snapshot = _read(requested, say)
    entry = None
    if snapshot.manifest or snapshot.components:
        only = only_model(snapshot)
        if only is None:
            detail = "holds several models: audit fix takes the folder of one of them"
            raise FixError(f"{quoted(requested)} {detail}")
        snapshot, entry = only.snapshot, only.entry
    options = Options(requested=requested, target=target)
    planned = partial(plan_fix, options=options, entry=entry, allowed=allowed)
    plan = planned(snapshot)
    if plan.after.verdict != "clean" and (others := _shards_beside(snapshot)):
        wider = planned(_with_shards(requested, snapshot, others))
        plan = wider if wider.changes else plan
    if engines:
        from auditor.fixing.for_engines import with_engine_keys  # noqa: PLC0415 - few fixes ask

        plan = with_engine_keys(plan, snapshot, replace(options, engines=engines), entry)
    return FolderPlan(folder=folder, plan=plan, seen=seen, refused=_refused(folder, plan, seen))


def _read(requested: str, say: Say) -> Snapshot:
    """Read the folder as `audit` does: the weights and the companion files."""
    return fetch(requested, say=say, choose=with_companions)


def _shards_beside(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the unopened shards whose names have the stem and `-of-M` of an opened shard."""
    if snapshot.index is None or snapshot.unopened:
        return ()
    opened = {head.name for head in snapshot.headers}
    splits = {split.group("stem", "count") for name in opened if (split := _SHARD.fullmatch(name))}
    split_by_name = {file.name: _SHARD.fullmatch(file.name) for file in snapshot.files}
    others = tuple(
        name
        for name, split in split_by_name.items()
        if split and name not in opened and split.group("stem", "count") in splits
    )
    return others if len(others) <= MAX_SHARDS else ()


def _with_shards(requested: str, snapshot: Snapshot, others: tuple[str, ...]) -> Snapshot:
    """Read the checkpoint again as if its index also named the files `others`."""
    names = tuple(sorted((*others, *(head.name for head in snapshot.headers))))
    selection = FileSelection(
        config=snapshot.config.name if snapshot.config else None,
        shards=names,
        packing=snapshot.packing.name if snapshot.packing else None,
    )
    wider = local_folder.read(Path(requested), requested, lambda _names, _where: selection)
    return replace(
        wider,
        index=snapshot.index,
        base=snapshot.base,
        settings=snapshot.settings,
        companions=snapshot.companions,
    )


def _refused(folder: Path, plan: Plan, seen: dict[str, FileState]) -> str | None:
    try:
        if plan.changes:
            existed_by_name = {change.file: change.before is not None for change in plan.changes}
            require_replaceable(folder, existed_by_name, seen)
    except FixError as why:
        return str(why)
    return None


def fix_folder(folder_plan: FolderPlan, *, in_place: bool, say: Say) -> tuple[str, ...]:
    """Carry out the plan, read the folder again, and return the names of the kept old files.

    Raise FixError if the plan is refused or fails; the old files still exist then.
    """
    if folder_plan.refused is not None:
        raise FixError(folder_plan.refused)
    try:
        kept_names = carry_out(
            folder_plan.folder, folder_plan.plan.changes, folder_plan.seen, in_place=in_place
        )
    except OSError as error:
        is_begun = is_interrupted(folder_plan.folder)
        state = (
            "begun, and the next --apply ends it" if is_begun else "the old files are as they were"
        )
        raise FixError(
            f"cannot write in {quoted(str(folder_plan.folder))}: {error.strerror or error}; {state}"
        ) from None
    _require_as_planned(folder_plan.plan.planned, _read(folder_plan.plan.before.requested, say))
    return kept_names


def _require_as_planned(planned: Snapshot, written: Snapshot) -> None:
    """Raise FixError unless the written folder has the content that was planned and audited."""
    if _contents(written) != _contents(planned):
        raise FixError("the files are not as they were planned: somebody else writes to the folder")


def _contents(snapshot: Snapshot) -> tuple[object, ...]:
    heads = [
        (head.name, head.size, head.prefix[: 8 + int.from_bytes(head.prefix[:8], "little")])
        for head in snapshot.headers
    ]
    return heads, snapshot.config, snapshot.index, snapshot.packing, generation_file(snapshot)

"""Fix one folder: read it, plan, and write a new folder that is read again."""

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
from auditor.checkpoint.skipped import SkippedEntry
from auditor.checkpoint.snapshot import RepoFile, Snapshot
from auditor.containers.index import MAX_SHARDS
from auditor.containers.manifest import ManifestEntry
from auditor.diagnosis.permissions import Allow
from auditor.downloader import local_folder
from auditor.downloader.fetching import fetch
from auditor.downloader.local_folder import is_in_cache
from auditor.errors import FixError, UsageError
from auditor.fixing.new_folder import write_folder
from auditor.fixing.plan import Plan, plan_fix
from auditor.fixing.steps import generation_file
from auditor.messages import quoted

Say = Callable[[str], None]
_SHARD = re.compile(r"(?P<stem>[^/]+)-\d{5}-of-(?P<count>\d{5})\.safetensors", re.ASCII)


class FolderPlan(Struct, frozen=True, kw_only=True):
    """A plan for a folder, with the listing of the folder's files."""

    folder: Path
    plan: Plan
    files: tuple[RepoFile, ...]
    skipped: tuple[SkippedEntry, ...]  # entries that are not copied


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
    snapshot = _read(requested, say)
    files, skipped = snapshot.files, snapshot.skipped
    snapshot, entry = _only(snapshot)
    options = Options(requested=requested, target=target)
    planned = partial(plan_fix, options=options, entry=entry, allowed=allowed)
    plan = planned(snapshot)
    if plan.after.verdict != "clean" and (others := _shards_beside(snapshot)):
        wider = planned(_with_shards(requested, snapshot, others))
        plan = wider if wider.changes else plan
    if engines:
        from auditor.fixing.for_engines import with_engine_keys  # noqa: PLC0415 - few fixes ask

        plan = with_engine_keys(plan, snapshot, replace(options, engines=engines), entry)
    return FolderPlan(folder=folder, plan=plan, files=files, skipped=skipped)


def _only(snapshot: Snapshot) -> tuple[Snapshot, ManifestEntry | None]:
    """Return the folder's only model and its entry in a manifest; raise FixError for several."""
    if not (snapshot.manifest or snapshot.components):
        return snapshot, None
    only = only_model(snapshot)
    if only is None:
        detail = "holds several models: audit fix takes the folder of one of them"
        raise FixError(f"{quoted(snapshot.model)} {detail}")
    return only.snapshot, only.entry


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


def fix_folder(
    folder_plan: FolderPlan, to: Path | None = None, *, link: bool = False, say: Say
) -> Path:
    """Write the fixed folder, and return its path: `to`, or FOLDER.fixed.

    With `link`, unchanged files are hard links. Raise FixError if the folder cannot be written;
    then nothing is left of it.
    """
    folder = folder_plan.folder
    if folder.name in {"", ".."}:
        folder = folder.resolve()
    place = folder.with_name(f"{folder.name}.fixed") if to is None else to
    if is_in_cache(place):
        raise FixError("the Hugging Face cache has no other folders: name one by --to")
    if place.resolve().is_relative_to(folder.resolve()):
        raise FixError(f"{quoted(str(place))} is in the folder itself: name another by --to")
    plan = folder_plan.plan
    try:
        write_folder(
            folder,
            folder_plan.files,
            {change.file: change for change in plan.changes},
            place,
            link=link,
            check=partial(_require_as_planned, plan, say),
        )
    except OSError as error:
        raise FixError(
            f"{quoted(str(place))} cannot be written: {error.strerror or error}; "
            "nothing is left of it"
        ) from None
    return place


def _require_as_planned(plan: Plan, say: Say, written: Path) -> None:
    """Raise FixError unless the written folder has the content that was planned and audited."""
    observed, _ = _only(_read(str(written), say))
    if _contents(observed) != _contents(plan.planned):
        raise FixError("the files are not as they were planned: somebody else writes to the folder")


def _contents(snapshot: Snapshot) -> tuple[object, ...]:
    heads = [
        (head.name, head.size, head.prefix[: 8 + int.from_bytes(head.prefix[:8], "little")])
        for head in snapshot.headers
    ]
    return heads, snapshot.config, snapshot.index, snapshot.packing, generation_file(snapshot)

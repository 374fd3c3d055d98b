"""Read a checkpoint on this machine: a folder, one file, or a path in the Hugging Face cache."""

import os
import re
import stat
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Never

from msgspec.structs import replace

from auditor.checkpoint.filenames import CONFIG, GGUF_ENDING, Chooser, FileSelection
from auditor.checkpoint.hub_listing import id_fault
from auditor.checkpoint.selecting import (
    ADAPTER_CONFIG,
    INDEX,
    OPEN_CLIP,
    PIECES,
    TORCH_INDEX,
    TORCH_WEIGHTS,
    WEIGHTS,
    config_of,
    is_weights,
    select,
    select_place,
    what_to_do,
    with_torch_copies,
)
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.checkpoint.snapshot_reader import MAX_SNAPSHOT, is_snapshot, load
from auditor.companions.companion_files import CompanionBounds
from auditor.containers.manifest import MANIFESTS
from auditor.containers.weight_formats import parser
from auditor.downloader.assemble import assemble, examine_files
from auditor.downloader.headers import FIRST_READ, read_header
from auditor.downloader.local_file import open_regular_file, read_all, unreadable_file
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import AT_HAND, do_nothing, threads
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.tensors import Span

# The folder and the journal of `audit fix`, which are not part of the model.
FIX_FOLDER = ".audit-fix"
FIX_JOURNAL = "journal.json"

# Files of one folder: a training run leaves a few thousand, and a home folder has more.
_MOST_FILES = 100_000

_FOREIGN = {"node_modules", "__pycache__", "site-packages"}
_SHARD = re.compile(r"-(\d+)-of-0*(\d+)\.\w+$", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_IN_CACHE = re.compile(rf"(?:.*/)?models--([^/]+)/snapshots/({_COMMIT.pattern})", re.DOTALL)
_LONGEST_REF = 256  # bytes of refs/main: 40 digits, perhaps with an end of line


def read(path: Path, requested: str, choose: Chooser = select) -> Snapshot:
    """Return the snapshot of a folder, a file or a path in the Hugging Face cache."""
    try:
        snapshot = _folder(_in_cache(path), choose) if _is_folder(path) else _file(path)
    except OSError as error:
        failed_path = Path(os.fsdecode(error.filename)) if error.filename else path
        raise unreadable_file(failed_path, f"cannot be read: {error.strerror or error}") from None
    is_local = snapshot.source in {Source.FOLDER, Source.FILE}
    return replace(snapshot, model=requested) if is_local else snapshot


def _is_folder(path: Path) -> bool:
    """Whether the path is a folder; false for a broken link. Raise OSError without permission."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _folder(folder: Path, choose: Chooser) -> Snapshot:
    files = _listing(folder)
    names, where = {file.name for file in files}, f"the folder {quoted(str(folder))}"
    model, commit = _cached_as(folder)
    place = "the Hugging Face cache" if model else "the folder"
    snapshot = Snapshot(
        model=model or str(folder),
        commit=commit,
        source=Source.CACHE if model else Source.FOLDER,
        origin=f"read from {place}, {quoted(str(folder))}{_interrupted(folder)}",
        files=files,
        folder=folder,
        partial=True,
    )
    count = sum(is_weights(file.name) for file in files)
    try:
        selection = with_torch_copies(names, where, choose)  # a disk reads copies fast
        with threads(0 if count <= AT_HAND else AT_HAND, do_nothing) as scheduler:
            snapshot = assemble(snapshot, _Files(folder), selection, scheduler)
    except SourceError as error:
        examined = examine_files(snapshot, _Files(folder))
        if error.reason is Reason.NO_WEIGHTS and CONFIG in names and not model:
            fields = {name: getattr(examined, name) for name in ("files", "pickles", "unexamined")}
            return replace(_file(folder / CONFIG), **fields)
        error.snapshot = examined
        raise
    for name in chain(snapshot.unopened, *(part.unopened for part in snapshot.components)):
        _require_file(folder / name)
    return snapshot


def _interrupted(folder: Path) -> str:
    """Return a clause about an interrupted `audit fix`; "" if the folder has no fix journal."""
    if not os.path.lexists(folder / FIX_FOLDER / FIX_JOURNAL):
        return ""
    return ", in which an audit fix was interrupted: run it again, with --apply or --undo"


def _file(path: Path) -> Snapshot:
    name = path.name.lower()
    if path.name in MANIFESTS:
        return _folder(path.parent, select)
    if name.endswith(".safetensors") or parser(name) is not None:
        return _weight_file(path)
    if name.endswith(".index.json"):
        _require_file(path)
        indexed = FileSelection(config=_neighbour(path, CONFIG), index=path.name)
        return _folder(path.parent, lambda _names, _where: indexed)
    if is_weights(name):
        detail = f"{quoted(str(path))} has a format that is not supported; {what_to_do((name,))}"
        raise SourceError(Reason.NO_SAFETENSORS, detail)
    content = read_all(path, MAX_SNAPSHOT)
    if is_snapshot(content):
        return load(content, str(path))
    if not name.endswith(".json"):
        kinds = "(.safetensors, .bin, .pt, .pth, .ckpt, .gguf)"
        detail = f"is not a config (.json), weights {kinds}, an index or a snapshot"
        raise UsageError(f"{quoted(str(path))} {detail}")
    return _single_file(path, FileSelection(config=path.name))


def _weight_file(path: Path) -> Snapshot:
    shard = _SHARD.search(path.name)
    if shard and path.name.lower().endswith(GGUF_ENDING):
        return _folder(path.parent, partial(select_place, place=path.name))
    if shard and shard[2] != "1":
        detail = f"is one shard of {shard[2][:20]}: give the folder that holds them all"
        raise UsageError(f"{quoted(str(path))} {detail}")
    config = _neighbour(path, config_of(path.name))
    return _single_file(path, FileSelection(config=config, weights=path.name))


def _neighbour(path: Path, name: str) -> str | None:
    """Return `name` if a file of this name is next to `path`, else None."""
    return name if os.path.lexists(path.parent / name) else None


def _single_file(path: Path, selection: FileSelection) -> Snapshot:
    """Return the snapshot of one weight file, with the config if the selection has one."""
    names = sorted(name for name in (selection.config, selection.weights) if name)
    snapshot = Snapshot(
        model=str(path),
        commit=None,
        source=Source.FILE,
        origin=f"read from the file {quoted(str(path))}",
        files=tuple(_entry(path.parent, path.parent / name) for name in names),
        folder=path.parent,
    )
    with threads(0, do_nothing) as scheduler:
        return assemble(snapshot, _Files(path.parent), selection, scheduler)


class _Files:
    """The files of one folder."""

    bounds: CompanionBounds | None = None
    patient = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, file: RepoFile, limit: int) -> TextFile:
        return TextFile(name=file.name, content=read_all(self._folder / file.name, limit))

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        with open_regular_file(self._folder / file.name) as part:
            head = read_header(file.name, part.size, lambda span, _: part.read(span), first)
            return replace(head, state=part.state)

    def part(self, file: RepoFile, span: Span) -> bytes:
        with open_regular_file(self._folder / file.name) as part:
            return part.read(span).data


def _listing(folder: Path) -> tuple[RepoFile, ...]:
    """List every regular file below the folder, and links to files, sorted by name."""
    for name in (CONFIG, WEIGHTS, INDEX):
        _require_file(folder / name)
    files: list[RepoFile] = []
    for path, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not _is_foreign(path, name)]
        paths = (Path(path, name) for name in names)
        files.extend(_entry(folder, path) for path in paths if _is_file(path))
        if len(files) > _MOST_FILES:
            detail = f"{quoted(str(folder))} has more than {_MOST_FILES:,} files"
            raise SourceError(Reason.TOO_LARGE, f"{detail}: it is not a model's folder")
    return tuple(sorted(files, key=lambda file: file.name))


def _is_foreign(path: str, name: str) -> bool:
    """Whether a folder does not belong to a model: it is hidden, or made by Python or node."""
    if name.startswith(".") or name in _FOREIGN:
        return True
    return os.path.lexists(os.path.join(path, name, "pyvenv.cfg"))  # noqa: PTH118 - os.path is faster, and this runs for each folder


def _is_file(path: Path) -> bool:
    """Whether the path, or the target of its link, is a regular file.

    Raise PermissionError if it is named like a model's file and its folder may not be searched.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except PermissionError:
        if is_weights(path.name) or path.name.endswith(".json"):
            raise
        return False
    except OSError:  # a broken or circular link
        return False


def _entry(folder: Path, path: Path) -> RepoFile:
    name = path.relative_to(folder).as_posix()
    # A name that is not UTF-8 cannot be printed; such a file is never opened.
    return RepoFile(name=os.fsencode(name).decode(errors="replace"), size=path.stat().st_size)


def _raise(error: OSError) -> Never:
    raise error


def _require_file(path: Path) -> None:
    """Raise SourceError if the path exists and is not a readable regular file."""
    if os.path.lexists(path):
        with open_regular_file(path):
            pass


def _in_cache(path: Path) -> Path:
    """Return the snapshot folder if the path is a model's folder in the cache, else the path."""
    snapshots = path / "snapshots"
    if not (path.absolute().name.startswith("models--") and snapshots.is_dir()):
        return path
    main = path / "refs" / "main"
    if main.is_file():
        commit = read_all(main, _LONGEST_REF).decode(errors="replace").strip()
        if not _COMMIT.fullmatch(commit) or not (snapshots / commit).is_dir():
            raise unreadable_file(main, f"names {quoted(commit)}, which is not in the cache")
        return snapshots / commit
    commits = sorted(folder.name for folder in snapshots.iterdir() if folder.is_dir())
    if len(commits) != 1:
        detail = f"has {len(commits)} snapshots and no refs/main: give the folder of one"
        raise UsageError(f"{quoted(str(path))} {detail}")
    return snapshots / commits[0]


def _cached_as(folder: Path) -> tuple[str | None, str | None]:
    """Return id and commit for .../models--org--name/snapshots/<commit>, else (None, None)."""
    cached = _IN_CACHE.fullmatch(folder.absolute().as_posix())
    model_id = cached[1].replace("--", "/") if cached else ""
    return (model_id, cached[2]) if cached and not id_fault(model_id) else (None, None)


# --- the Hugging Face cache -----------------------------------------------------------------------


# Files enter the cache one by one: a file that is not cached may be in the repository.
_INCOMPLETE = frozenset((Reason.EMPTY_REPO, Reason.NO_WEIGHTS, Reason.NO_SAFETENSORS))

# A model's folder in the cache has at least one of these.
_MODEL_FILES = (
    *(WEIGHTS, INDEX, TORCH_WEIGHTS, TORCH_INDEX, CONFIG, ADAPTER_CONFIG, OPEN_CLIP),
    *MANIFESTS,
    *PIECES,
)


def read_cached(model: HubModel, choose: Chooser = select) -> Snapshot:
    """Return the cached snapshot of a model; raise SourceError if the cache does not have it."""
    from huggingface_hub import (  # noqa: PLC0415 - 0.1 s, few need it
        constants,
        try_to_load_from_cache,
    )

    places = product(model.aliases, _MODEL_FILES)
    paths = (try_to_load_from_cache(*place, revision=model.revision) for place in places)
    folder = next((Path(path).parent for path in paths if isinstance(path, str)), None)
    if folder is None:
        revision = f" at {quoted(model.revision)}" if model.revision else ""
        where = quoted(str(constants.HF_HUB_CACHE))
        raise SourceError(Reason.NOT_CACHED, f"{model.id}{revision} is not in the cache, {where}")
    try:
        return read(folder, str(folder), choose)
    except SourceError as error:
        if error.reason not in _INCOMPLETE:
            raise
        detail = f"{model.id} is in the cache without its weights: {error}"
        raise SourceError(Reason.NOT_CACHED, detail) from None


def is_in_cache(folder: Path) -> bool:
    """Return whether the folder is in the Hugging Face cache, after links are followed."""
    from huggingface_hub import constants  # noqa: PLC0415 - as above

    caches = {constants.HF_HUB_CACHE, os.path.join(constants.HF_HOME, "hub")}  # noqa: PTH118 - text
    place = Path(os.path.realpath(folder))
    return any(place.is_relative_to(os.path.realpath(cache)) for cache in caches)

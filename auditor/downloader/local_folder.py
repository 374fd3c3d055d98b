"""Read a checkpoint on this machine: a folder, one file, or a path in the Hugging Face cache."""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, product
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.filenames import CONFIG, Chooser, FileSelection
from auditor.checkpoint.hub_listing import id_fault
from auditor.checkpoint.other_formats import formats_in, needed_files
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
    with_flax,
    with_torch_copies,
)
from auditor.checkpoint.shard_names import GGUF_ENDING, split_of
from auditor.checkpoint.skipped import SkipReason, skipped_lines
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.checkpoint.snapshot_reader import MAX_SNAPSHOT, is_snapshot, load
from auditor.companions.companion_files import (
    MAX_TEXT,
    PROCESSORS,
    TOKENIZER_CONFIG,
    CompanionBounds,
    CompanionFile,
)
from auditor.containers.manifest import MANIFESTS
from auditor.containers.weight_formats import METADATA, PART, parser
from auditor.downloader.assemble import assemble, examine_files
from auditor.downloader.folder_listing import (
    FolderListing,
    is_utf8,
    list_folder,
    state_within,
)
from auditor.downloader.headers import FIRST_READ, read_header
from auditor.downloader.local_file import open_regular_file, read_all, state_of, unreadable_file
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import AT_HAND, do_nothing, threads
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.tensors import Span

_COMMIT = re.compile(r"[0-9a-f]{40}")
_IN_CACHE = re.compile(rf"(?:.*/)?models--([^/]+)/snapshots/({_COMMIT.pattern})", re.DOTALL)
_LONGEST_REF = 256  # bytes of refs/main: 40 digits, perhaps with an end of line


def read(path: Path, requested: str, choose: Chooser = select) -> Snapshot:
    """Return the snapshot of a folder, a file or a path in the Hugging Face cache."""
    try:
        snapshot = _folder(_in_cache(path), choose) if _is_folder(path) else _file(path)
    except OSError as error:
        failed_path = Path(os.fsdecode(error.filename)) if error.filename else path
        fault = f"cannot be read: {error.strerror or error}"
        if isinstance(error, FileNotFoundError) and failed_path.is_symlink():
            fault = "is a broken link"
        raise unreadable_file(failed_path, fault) from None
    is_local = snapshot.source in {Source.FOLDER, Source.FILE}
    return replace(snapshot, model=requested) if is_local else snapshot


def _is_folder(path: Path) -> bool:
    """Whether the path is a folder; false for a broken link. Raise OSError without permission."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _folder(folder: Path, choose: Chooser, *required: str) -> Snapshot:
    listing = list_folder(folder)
    skipped = {entry.name: entry.reason for entry in listing.skipped}
    model, commit = _cached_as(folder)
    place = "the Hugging Face cache" if model else "the folder"
    files = Snapshot(
        model=model or str(folder),
        commit=commit,
        source=Source.CACHE if model else Source.FOLDER,
        origin=f"read from {place}, {quoted(str(folder))}",
        files=listing.files,
        skipped=listing.skipped,
        folder=folder,
        partial=True,
    )
    try:
        for name in (CONFIG, WEIGHTS, INDEX, *required, *_needed_links(folder, listing, choose)):
            _require_file(folder, name, skipped)
        snapshot = _with_weights(files, folder, choose)
        for name in chain(snapshot.unopened, *(part.unopened for part in snapshot.components)):
            _require_file(folder, name, skipped)
    except SourceError as error:
        lines = "; ".join(skipped_lines(listing.skipped))
        is_incomplete = error.reason in _INCOMPLETE and lines
        fault = f"{error}; not looked at: {lines}" if is_incomplete else str(error)
        examined = replace(examine_files(files, _Files(folder)), companions=_settings(files))
        raise SourceError(error.reason, fault, snapshot=examined) from None
    return snapshot


def _settings(files: Snapshot) -> tuple[CompanionFile, ...]:
    """Return the settings of the tokenizer and the processor of a folder without weights."""
    folder = files.folder or Path()
    return tuple(
        CompanionFile(file.name, read_all(folder / file.name, MAX_TEXT, file.state))
        for file in files.files
        if file.name in {TOKENIZER_CONFIG, *PROCESSORS} and (file.size or 0) <= MAX_TEXT
    )


def _needed_links(folder: Path, listing: FolderListing, choose: Chooser) -> Iterator[str]:
    """Yield the links out of the folder that would be read if they were files of the model."""
    links = {entry.name for entry in listing.skipped if entry.reason is SkipReason.OUTSIDE}
    if not links:
        return
    try:
        selection = choose({*links, *(file.name for file in listing.files)}, str(folder))
    except SourceError:
        return
    for one in (selection, selection.otherwise, *(part.selection for part in selection.parts)):
        if isinstance(one, FileSelection):
            yield from links & {one.config, one.index, one.weights, *one.shards}


def _with_weights(files: Snapshot, folder: Path, choose: Chooser) -> Snapshot:
    """Read the weights and texts that are chosen among the listed files; else the config alone."""
    names, where = {file.name for file in files.files}, f"the folder {quoted(str(folder))}"
    try:
        selection = with_flax(names, where, partial(with_torch_copies, choose=choose))
    except SourceError as error:
        is_config_alone = error.reason is Reason.NO_WEIGHTS and CONFIG in names
        if not is_config_alone or files.source is Source.CACHE:
            raise
        examined = examine_files(files, _Files(folder))
        if formats_in(examined):
            raise
        alone = _config_alone(folder / CONFIG, FolderListing(files.files, files.skipped))
        return replace(
            alone, files=files.files, pickles=examined.pickles, unexamined=examined.unexamined
        )
    count = sum(is_weights(name) for name in names)
    with threads(0 if count <= AT_HAND else AT_HAND, do_nothing) as scheduler:
        return assemble(files, _Files(folder), selection, scheduler)


def _file(path: Path) -> Snapshot:
    if not is_utf8(path.name):
        raise unreadable_file(path, "has a name that is not UTF-8; rename it")
    name = path.name.lower()
    if path.name in {*MANIFESTS, METADATA} or name.endswith(PART):
        return _folder(path.parent, select)
    if name.endswith(".safetensors") or parser(name) is not None:
        return _weight_file(path)
    if name.endswith(".index.json"):
        indexed = FileSelection(config=_neighbour(path, CONFIG), index=path.name)
        return _folder(path.parent, lambda _names, _where: indexed, path.name)
    examined = None if name.endswith(".json") else _of_other_format(path)
    if examined is not None or is_weights(name):
        detail = f"{quoted(str(path))} has a format that is not supported; {what_to_do((name,))}"
        raise SourceError(Reason.NO_SAFETENSORS, detail, snapshot=examined)
    return _config_alone(path, _named_files(path, None))


def _of_other_format(path: Path) -> Snapshot | None:
    """Return a file of a format that is not audited, with the files that it needs; else None."""
    snapshot = _of_file(path, _named_files(path, None))
    examined = examine_files(snapshot, _Files(path.parent))
    if not formats_in(examined):
        return None
    needed = needed_files(examined) | {path.name}
    listed = list_folder(path.parent).files
    return replace(examined, files=tuple(one for one in listed if one.name in needed))


def _config_alone(path: Path, listing: FolderListing) -> Snapshot:
    """Return the snapshot in a snapshot file, or that of a config without weights."""
    state = next(file.state for file in listing.files if file.name == path.name)
    content = read_all(path, MAX_SNAPSHOT, state)
    if is_snapshot(content):
        return load(content, str(path))
    if not path.name.lower().endswith(".json"):
        kinds = "(.safetensors, .bin, .pt, .pth, .ckpt, .gguf)"
        detail = f"is not a config (.json), weights {kinds}, an index or a snapshot"
        raise UsageError(f"{quoted(str(path))} {detail}")
    return _single_file(path, FileSelection(config=path.name), listing)


def _weight_file(path: Path) -> Snapshot:
    split = split_of(path.name)
    if split and path.name.lower().endswith(GGUF_ENDING):
        return _folder(path.parent, partial(select_place, place=path.name))
    if split and split.total != 1:
        detail = f"is one shard of {split.total}: give the folder that holds them all"
        raise UsageError(f"{quoted(str(path))} {detail}")
    config = _neighbour(path, config_of(path.name))
    selection = FileSelection(config=config, weights=path.name)
    return _single_file(path, selection, _named_files(path, config))


def _neighbour(path: Path, name: str) -> str | None:
    """Return `name` if a file of this name is next to `path`, else None."""
    return name if os.path.lexists(path.parent / name) else None


def _named_files(path: Path, config: str | None) -> FolderListing:
    """List a file that the user names, whatever it links to, and the config next to it."""
    states = {path.name: state_of(path.stat())}
    if config is not None and config != path.name:
        beside, root = path.parent / config, os.path.realpath(path.parent)
        state = state_within(str(beside), root, is_link=beside.is_symlink())
        if isinstance(state, SkipReason):
            _require_file(path.parent, config, {config: state})
        else:
            states[config] = state
    files = (RepoFile(name=name, size=state.size, state=state) for name, state in states.items())
    return FolderListing(tuple(sorted(files, key=lambda file: file.name)), ())


def _single_file(path: Path, selection: FileSelection, listing: FolderListing) -> Snapshot:
    """Return the snapshot of one weight file, with the config if the selection has one."""
    with threads(0, do_nothing) as scheduler:
        return assemble(_of_file(path, listing), _Files(path.parent), selection, scheduler)


def _of_file(path: Path, listing: FolderListing) -> Snapshot:
    """Return the snapshot of a file, before anything in it is read."""
    return Snapshot(
        model=str(path),
        commit=None,
        source=Source.FILE,
        origin=f"read from the file {quoted(str(path))}",
        files=listing.files,
        skipped=listing.skipped,
        folder=path.parent,
    )


class _Files:
    """The files of one folder, each read only in the state in which it was listed."""

    bounds: CompanionBounds | None = None
    patient = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, file: RepoFile, limit: int) -> TextFile:
        content = read_all(self._folder / file.name, limit, file.state)
        return TextFile(name=file.name, content=content)

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        with open_regular_file(self._folder / file.name, file.state) as part:

            def near(span: Span) -> bytes:
                return part.read(span).data

            head = read_header(
                file.name, part.size, lambda span, _: part.read(span), first, nearby=near
            )
            return replace(head, state=part.state)

    def part(self, file: RepoFile, span: Span) -> bytes:
        with open_regular_file(self._folder / file.name, file.state) as part:
            return part.read(span).data


def _require_file(folder: Path, name: str, skipped: Mapping[str, SkipReason]) -> None:
    """Raise SourceError if the name exists and is not a readable regular file of the folder."""
    path = folder / name
    if skipped.get(name) is SkipReason.OUTSIDE:
        detail = "is a link out of the folder, expected a file in it"
        advice = "copy the file (cp -L), or name the folder that holds it"
        raise unreadable_file(path, f"{detail}; {advice}")
    if skipped.get(name) is SkipReason.NO_ACCESS:
        raise unreadable_file(path, f"cannot be read: {os.strerror(errno.EACCES)}")
    if os.path.lexists(path):
        with open_regular_file(path):
            pass


def _in_cache(path: Path) -> Path:
    """Return the snapshot folder if the path is a model's folder in the cache, else the path."""
    snapshots = path / "snapshots"
    if not (path.absolute().name.startswith("models--") and snapshots.is_dir()):
        return path
    main = path / "refs" / "main"
    for place in (main.parent, main, snapshots, *snapshots.iterdir()):
        if place.is_symlink():  # a cache has none, and another folder is not the model's
            raise unreadable_file(place, "is a link, expected what huggingface_hub writes")
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

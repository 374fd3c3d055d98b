"""Read the selected config, index and headers concurrently, through the reader of any source."""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from auditor.bounded.json_text import JsonFile
from auditor.checkpoint.filenames import (
    FileSelection,
    SelectedComponent,
    based_weights,
    named_weights,
    variant_of,
)
from auditor.checkpoint.snapshot import Component, RepoFile, Snapshot, TextFile, WeightHeader
from auditor.checkpoint.unindexed_files import files_not_in_index, named_as_model
from auditor.companions.companion_files import (
    MAX_TEXT,
    SPECIAL,
    TEMPLATE,
    TOKENIZER_CONFIG,
    CompanionBounds,
    CompanionFile,
    PlannedRead,
    has_template,
    import_readers,
    is_vocabulary,
    planned,
    read_companion,
)
from auditor.containers.index import MAX_INDEX
from auditor.containers.manifest import MAX_COMPONENTS, MAX_MANIFEST
from auditor.containers.safetensors import Header
from auditor.containers.weight_formats import PICKLED, Table, UnfollowedError, UnsafeFileError
from auditor.downloader.headers import (
    ENTRY,
    FIRST_READ,
    ROOM,
    read_by_content,
    within_bound,
)
from auditor.downloader.parallel import Scheduler, as_they_end, awaited, results
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.names.parts import folder_of
from auditor.tensors import Span

# Bytes of config.json. The configs of the corpus and of the Hub's usual models have a few kB; a
# map of 22,000 class names (ImageNet) has 1.5 MB.
MAX_CONFIG = 16 * 1024 * 1024

# Local pickles next to the weights: a checkpoint of the Trainer has four. Reading a thousand small
# ones takes a second, and so does looking at the first bytes of ten thousand other files; the
# report names the others as not checked.
_MOST_PICKLES, _MOST_OTHERS = 1000, 10_000


_NETWORK_REASONS = frozenset(
    {
        Reason.OFFLINE,
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.RATE_LIMITED,
        Reason.SERVER_ERROR,
    }
)


class FileReader(Protocol):
    """The interface of a source: functions that read one listed file, called by several threads."""

    bounds: CompanionBounds | None  # limits for companion files; None: no limits
    patient: bool  # whether a network failure at a companion file ends the audit

    def text(self, file: RepoFile, limit: int) -> TextFile: ...

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader: ...

    def part(self, file: RepoFile, span: Span) -> bytes: ...


class _Reads(Struct, frozen=True):
    """The reads of one checkpoint, with the scheduler, the file reader and the listing they use."""

    scheduler: Scheduler
    reader: FileReader
    listing: Mapping[str, RepoFile]
    _texts: dict[str | None, Future[TextFile | None]] = field(default_factory=dict)

    def text(self, name: str | None, limit: int) -> Future[TextFile | None]:
        """Start to read a file, once for all calls; the result is None if `name` is None."""

        def read() -> TextFile | None:
            return None if name is None else self.reader.text(self.listing[name], limit)

        if name not in self._texts:
            self._texts[name] = self.scheduler.submit(read)
        return self._texts[name]

    def parsed(self, name: str, first: int = FIRST_READ) -> WeightHeader:
        """Read and parse a header in the calling thread, while other threads read."""
        [head] = within_bound([self.reader.header(self.listing[name], first)])
        _ = head.parsed
        return head

    def torch_copy(self, name: str) -> WeightHeader | None:
        """Read the header of a torch copy of the weights; return None if it cannot be read."""
        with suppress(SourceError):
            return self.parsed(name)
        return None


def assemble(
    snapshot: Snapshot,
    reader: FileReader,
    selection: FileSelection,
    scheduler: Scheduler,
    progress: Callable[[int, int], None] = lambda _count, _total: None,
) -> Snapshot:
    """Read the selected files of a snapshot and return the snapshot with their contents.

    The snapshot already has its list of files. The config and the weight file or index are read
    concurrently, then all shards. If there are several models, the models that the manifest names
    are read concurrently. `progress` is called with (headers read, headers in total) several times
    a second. If the index is broken, no shards are opened, and the audit reports it.
    """

    def nothing_read() -> None:
        progress(0, 1)

    reads = _Reads(scheduler, reader, {file.name: file for file in snapshot.files})
    companions = _companions(reads, selection.companions)
    selection = _resolve_hints(reads, selection)
    models = [_begin(reads, selection)]
    packing = reads.text(selection.packing, MAX_CONFIG)
    manifest = awaited(reads.text(selection.manifest, MAX_MANIFEST))
    parts = _named_parts(selection.parts, manifest)
    models += [_begin(reads, part.selection) for part in parts]
    results([read for model in models for read in model.first], nothing_read)
    models = [_with_shards(reads, model) for model in models]
    headers = [read for model in models for read in model.headers]
    for count, _ in enumerate(within_bound(read.result() for read in as_they_end(headers)), 1):
        progress(count, len(headers))
    companion_files = None if companions is None else results(companions, nothing_read)
    progress(0, 0)
    root, *components = map(_contents, models)
    return replace(
        snapshot,
        **root,
        **_code_in_files(reader, snapshot.files, [root, *components]),
        packing=awaited(packing),
        manifest=manifest,
        components=tuple(
            Component(folder=part.folder, **fields)
            for part, fields in zip(parts, components, strict=True)
        ),
        companions=None if companion_files is None else tuple(sorted(companion_files)),
    )


def _companions(reads: _Reads, names: tuple[str, ...] | None) -> list[Future[CompanionFile]] | None:
    """Start to read the companion files; return None if `names` is None."""
    if names is None:
        return None
    sizes = {name: reads.listing[name].size for name in names}
    plans = planned(names, sizes, reads.reader.bounds)
    if any(map(is_vocabulary, names)):
        reads.scheduler.submit(import_readers)
    if TEMPLATE in names:
        reads.scheduler.submit(_import_parser)
    return [reads.scheduler.submit(_companion, reads, plan) for plan in plans]


def _companion(reads: _Reads, plan: PlannedRead) -> CompanionFile:
    """Return the companion file, or the reason why it was not read.

    Raise SourceError if the network fails and `reader.patient` is set.
    """
    try:
        read = partial(reads.reader.part, reads.listing[plan.name])
        tokens = _named_tokens(reads, folder_of(plan.name)) if is_vocabulary(plan.name) else ()
        companion = read_companion(plan, read, tokens)
    except SourceError as error:
        if reads.reader.patient and error.reason in _NETWORK_REASONS:
            raise
        return CompanionFile(plan.name, None, str(error))
    if has_template(companion):
        _import_parser()
    return companion


def _named_tokens(reads: _Reads, folder: str) -> tuple[str, ...]:
    """Return the special tokens that a folder's tokenizer files name; () for a model on the Hub."""
    from auditor.companions.reading import (  # noqa: PLC0415 - few models have one
        loaded_settings,
        named_tokens,
    )

    if reads.reader.bounds is not None:
        return ()
    return named_tokens(loaded_settings(*(_object(reads, folder + name) for name in _NAMING)))


_NAMING = (TOKENIZER_CONFIG, SPECIAL)


def _object(reads: _Reads, name: str) -> Mapping[str, Any] | None:
    """Return the JSON object in a small file; None if it is absent or not a JSON object."""
    file = reads.listing.get(name)
    if not file or not 0 < (file.size or 0) <= MAX_TEXT:
        return None
    try:
        return JsonFile(name, reads.reader.part(file, Span(0, file.size or 0))).object
    except (SourceError, CheckpointError):
        return None


def _import_parser() -> None:
    """Import the template parser in a reading thread, while other reads wait for the network."""
    from auditor.companions.chat_template import import_parser  # noqa: PLC0415 - few need it

    import_parser()


def _named_parts(
    parts: tuple[SelectedComponent, ...], manifest: TextFile | None
) -> tuple[SelectedComponent, ...]:
    """Return the components that the manifest names, or all if the manifest cannot be read."""
    if manifest is not None:
        with suppress(CheckpointError):  # the audit reports the fault
            folders = {entry.folder for entry in manifest.as_manifest.entries}
            parts = tuple(part for part in parts if part.folder in folders)
    if len(parts) > MAX_COMPONENTS:
        detail = f"{len(parts):,} folders hold models, expected at most {MAX_COMPONENTS}"
        raise SourceError(Reason.TOO_LARGE, detail)
    return parts


class _Model(Struct, frozen=True, kw_only=True):
    """The reads of one model, which run in other threads, as futures."""

    selection: FileSelection
    config: Future[TextFile | None]
    index: Future[TextFile | None]
    settings: Future[TextFile | None]
    headers: tuple[Future[WeightHeader], ...]
    torch_copies: tuple[Future[WeightHeader | None], ...]
    absent: tuple[str, ...] = ()  # shards that are not in the listing
    # Files that belong to the model only if the index names one of their tensors.
    doubtful: frozenset[str] = frozenset()

    @property
    def first(self) -> tuple[Future[Any], ...]:
        """The reads (futures) whose results decide which other files are read."""
        return (self.config, self.index, self.settings, *self.headers)


def _begin(reads: _Reads, selection: FileSelection) -> _Model:
    """Start to read the selected config, index, weight files and torch copies, all at once."""
    submit, weights = reads.scheduler.submit, selection.weights
    return _Model(
        selection=selection,
        torch_copies=tuple(submit(reads.torch_copy, name) for name in selection.torch_copies),
        config=reads.text(selection.config, MAX_CONFIG),
        index=reads.text(selection.index, MAX_INDEX),
        settings=reads.text(selection.settings, MAX_CONFIG),
        headers=(
            *(submit(reads.reader.header, reads.listing[name]) for name in (weights,) if name),
            *(submit(reads.parsed, name) for name in selection.shards),
        ),
    )


def _with_shards(reads: _Reads, model: _Model) -> _Model:
    """Start to read the shards that the index names, and files that look like forgotten shards."""
    selection = _with_named_weights(model.selection, model.config.result(), reads.listing)
    if selection is not model.selection:
        model = _begin(reads, selection)
    index = awaited(model.index)
    if index is None:
        return model
    length_by_shard = _first_reads(index)
    unindexed = files_not_in_index(index.name, length_by_shard, reads.listing)
    length_by_file = {**length_by_shard, **dict.fromkeys(unindexed, FIRST_READ)}
    headers = (
        reads.scheduler.submit(reads.parsed, name, length)
        for name, length in length_by_file.items()
        if name in reads.listing
    )
    return replace(
        model,
        headers=(*model.headers, *headers),
        absent=tuple(shard for shard in length_by_shard if shard not in reads.listing),
        doubtful=frozenset(
            name for name in unindexed if not named_as_model(index.name, length_by_shard, name)
        ),
    )


def _with_named_weights(
    selection: FileSelection, config: TextFile | None, names: Collection[str]
) -> FileSelection:
    """Select the weight file that the config names, if it names one."""
    weights = named_weights(config, names)
    selected = {selection.weights, selection.index, *selection.shards}
    is_variant = any(name and variant_of(name) for name in selected)
    if weights is None or is_variant or (weights.weights or weights.index) in selected:
        return selection
    return replace(selection, **asdict(weights), shards=(), torch_copies=())


def _resolve_hints(reads: _Reads, selection: FileSelection) -> FileSelection:
    """Select the weights that the hint files name; raise SourceError if no weights are found."""
    if not selection.hints:
        return selection
    names = frozenset(name for name in reads.listing if "/" not in name)
    for text in map(awaited, [reads.text(name, MAX_CONFIG) for name in selection.hints]):
        weights = text and (named_weights(text, reads.listing) or based_weights(text, names))
        if weights:
            return replace(selection, **asdict(weights), hints=(), otherwise=None)
    if isinstance(selection.otherwise, FileSelection):
        return selection.otherwise
    raise selection.otherwise or SourceError(Reason.NO_WEIGHTS, "the repository has no weights")


def _contents(model: _Model) -> dict[str, Any]:
    """Wait for a model's reads; return the results as fields of a Snapshot or a Component."""
    index = model.index.result()
    heads = [future.result() for future in model.headers]
    heads = [head for head in heads if head.name not in model.doubtful or _shares(head, index)]
    torch_copies = map(awaited, model.torch_copies)
    read_names = {head.name for head in heads}
    return {
        "config": model.config.result(),
        "index": index,
        "settings": model.settings.result(),
        "headers": tuple(sorted(heads, key=lambda head: head.name)),
        "torch_copies": tuple(
            head for head in torch_copies if head is not None and head.name not in read_names
        ),
        "unopened": model.absent,
    }


def examine_files(snapshot: Snapshot, reader: FileReader) -> Snapshot:
    """Look for code in the files of a folder whose weights could not be selected or read."""
    return replace(snapshot, **_code_in_files(reader, snapshot.files, ()))


def _code_in_files(
    reader: FileReader, files: tuple[RepoFile, ...], models: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Look for code in local files that were not read as weights; return fields of a Snapshot."""
    if reader.bounds is not None:
        return {}
    read_heads = [head for one in models for head in (*one["headers"], *one["torch_copies"])]
    is_known = {head.name: isinstance(head.parsed, _FOLLOWED) for head in read_heads}
    by_name: dict[bool, list[RepoFile]] = {True: [], False: []}
    for file in sorted(files, key=lambda file: file.name):
        if not is_known.get(file.name):
            by_name[file.name.lower().endswith(PICKLED)].append(file)
    most_others = by_name[False][:_MOST_OTHERS]
    heads: list[WeightHeader] = []
    unexamined = {file.name for some in by_name.values() for file in some}
    for file in (*by_name[True][:_MOST_PICKLES], *most_others):
        if len(heads) >= _MOST_PICKLES:
            break
        with suppress(SourceError):
            head = read_by_content(file.name, file.size or 0, partial(reader.part, file))
            unexamined.discard(file.name)
            is_pickle = file.name.lower().endswith(PICKLED) and file.name not in is_known
            if is_pickle or isinstance(head.parsed, (*_FOLLOWED, UnfollowedError)):
                heads.append(head)
    heads.sort(key=lambda head: head.name)
    return {"pickles": tuple(heads), "unexamined": tuple(sorted(unexamined))}


_FOLLOWED = (Header, Table, UnsafeFileError)


def _shares(head: WeightHeader, index: TextFile | None) -> bool:
    """Whether the file may store a tensor that the index names; True for a Git LFS pointer."""
    if index is None or isinstance(head.parsed, CheckpointError):
        return head.pointed is not None
    names = index.as_index.weight_map
    return any(tensor.name in names for tensor in head.parsed.tensors)


def _first_reads(index: TextFile) -> dict[str, int]:
    """Map each shard's path, sorted, to the number of bytes to read in the first request.

    Shard names in an index are relative to the folder of the index.
    """
    try:
        weight_map = index.as_index.weight_map
    except CheckpointError:
        return {}
    entries = dict.fromkeys(weight_map.values(), 0)
    for tensor, shard in weight_map.items():
        entries[shard] += len(tensor) + ENTRY
    folder = PurePosixPath(index.name).parent
    return {str(folder / shard): ROOM + entries[shard] for shard in sorted(entries)}

"""Config, index and headers of one selection, read side by side from any reader."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import PurePosixPath
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from auditor.checkpoint.filenames import (
    FileSelection,
    SelectedComponent,
    based_weights,
    named_weights,
    variant_of,
)
from auditor.checkpoint.snapshot import Component, RepoFile, TextFile, WeightHeader
from auditor.checkpoint.unindexed_files import files_not_in_index, named_as_model
from auditor.companions.companion_files import (
    TEMPLATE,
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
from auditor.containers.manifest import MAX_COMPONENTS, MAX_MANIFEST, parse_manifest
from auditor.downloader.headers import ENTRY, FIRST_READ, ROOM, within_bound
from auditor.downloader.parallel import as_they_end, own_pool, share_of_pool
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.tensors import Span

# Bytes of config.json. Those of the corpus and of the Hub's usual models have a few kB; a map
# of 22,000 class names (ImageNet) has 1.5 MB.
MAX_CONFIG = 16 * 1024 * 1024


class FileReader(Protocol):
    """What a source can do with one file of its listing; called from several threads."""

    bounds: CompanionBounds | None  # of what stands beside the weights; None: it costs nothing

    def text(self, file: RepoFile, limit: int) -> TextFile: ...

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader: ...

    def part(self, file: RepoFile, span: Span) -> bytes: ...

    def stop(self) -> None:
        """Another read has failed for good: end the waits of those under way."""


class ReadFiles(Struct, frozen=True, kw_only=True):
    """What was read: the middle of a Snapshot."""

    config: TextFile | None
    index: TextFile | None = None
    headers: tuple[WeightHeader, ...] = ()
    torch_copies: tuple[WeightHeader, ...] = ()
    unopened: tuple[str, ...] = ()
    packing: TextFile | None = None
    settings: TextFile | None = None
    manifest: TextFile | None = None
    components: tuple[Component, ...] = ()
    companions: tuple[CompanionFile, ...] | None = None


def assemble(
    reader: FileReader,
    files: Sequence[RepoFile],
    selection: FileSelection,
    pool: Executor | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> ReadFiles:
    """Read the selection: config beside the weight file or the index, then all shards.

    Of several models that is done side by side, of those that the manifest names. The reads are of
    the `pool`, which several checkpoints may share, or of threads of their own; `progress` gets
    how many headers of how many are read. A broken index is handed on as it is, with no shards
    opened: the audit says what is wrong.
    """
    listing = {file.name: file for file in files}
    with own_pool(reader) if pool is None else share_of_pool(pool, reader) as reads:
        companions = _companions(reads, reader, listing, selection.companions)
        if selection.hints:
            reader = _Knowing(reader)
            selection = _as_hinted(reads, reader, listing, selection)
        begun = [_begin(reads, reader, listing, selection)]
        packing = reads.submit(_text, reader, listing, selection.packing, MAX_CONFIG)
        manifest = reads.submit(_text, reader, listing, selection.manifest, MAX_MANIFEST).result()
        parts = _meant(selection.parts, manifest)
        begun += [_begin(reads, reader, listing, part.selection) for part in parts]
        for future in as_they_end([future for one in begun for future in one.first]):
            future.result()  # the first to fail is raised, not the first in order
        models = [_with_shards(reads, reader, listing, one) for one in begun]
        heads = [future for one in models for future in one.headers]
        read = within_bound(future.result() for future in as_they_end(heads))
        for count, _ in enumerate(read, 1):
            progress(count, len(heads))
        found = [_contents(one) for one in models]
        components = (
            Component(folder=part.folder, **fields)
            for part, fields in zip(parts, found[1:], strict=True)
        )
        return ReadFiles(
            **found[0],
            packing=packing.result(),
            manifest=manifest,
            components=tuple(components),
            companions=None if companions is None else _in_order(companions),
        )


def _companions(
    reads: Executor,
    reader: FileReader,
    listing: dict[str, RepoFile],
    names: tuple[str, ...] | None,
) -> list[Future[CompanionFile]] | None:
    """What stands beside the weights, asked for beside them; None: it is not asked for."""
    if names is None:
        return None
    sizes = {name: listing[name].size for name in names}
    plans = planned(names, sizes, reader.bounds)
    if any(map(is_vocabulary, names)):
        reads.submit(import_readers)
    if TEMPLATE in names:
        reads.submit(_import_parser)
    return [reads.submit(_companion, reader, listing[plan.name], plan) for plan in plans]


def _companion(reader: FileReader, file: RepoFile, plan: PlannedRead) -> CompanionFile:
    """The file, or why it was not read, which is no reason to end the audit."""
    try:
        found = read_companion(plan, lambda span: reader.part(file, span))
    except SourceError as error:
        return CompanionFile(file.name, None, str(error))
    if has_template(found):
        _import_parser()
    return found


def _import_parser() -> None:
    """Of templates, in a thread that reads, while the other reads wait for the network."""
    from auditor.companions.chat_template import import_parser  # noqa: PLC0415 - few need it

    import_parser()


def _in_order(companions: list[Future[CompanionFile]]) -> tuple[CompanionFile, ...]:
    return tuple(sorted(future.result() for future in as_they_end(companions)))


def _meant(
    parts: tuple[SelectedComponent, ...], manifest: TextFile | None
) -> tuple[SelectedComponent, ...]:
    """The parts that the manifest names; all parts if there is no manifest that can be read."""
    if manifest is not None:
        try:
            entries = parse_manifest(manifest.name, manifest.content).entries
        except CheckpointError:
            pass  # the audit says what is wrong with it
        else:
            named = {entry.folder for entry in entries}
            parts = tuple(part for part in parts if part.folder in named)
    if len(parts) > MAX_COMPONENTS:
        detail = f"there are {len(parts):,} models in folders; {MAX_COMPONENTS} are the most read"
        raise SourceError(Reason.TOO_LARGE, detail)
    return parts


class _Begun(Struct, frozen=True, kw_only=True):
    """The reads of one model that are under way."""

    config: Future[TextFile | None]
    index: Future[TextFile | None]
    settings: Future[TextFile | None]
    headers: tuple[Future[WeightHeader], ...]
    torch_copies: tuple[Future[WeightHeader | None], ...]
    absent: tuple[str, ...] = ()  # shards that are not in the listing
    # Files that only their names in the index show to be the model's.
    doubtful: tuple[Future[WeightHeader], ...] = ()

    @property
    def first(self) -> tuple[Future[Any], ...]:
        """What says what else there is to read."""
        return (self.config, self.index, self.settings, *self.headers)


def _begin(
    reads: Executor, reader: FileReader, listing: dict[str, RepoFile], selection: FileSelection
) -> _Begun:
    """Config, index, weight files, copies in torch files: whichever are selected, all at once."""
    weights = () if selection.weights is None else (selection.weights,)
    return _Begun(
        torch_copies=tuple(
            reads.submit(_torch_copy, reader, listing[name]) for name in selection.torch_copies
        ),
        config=reads.submit(_text, reader, listing, selection.config, MAX_CONFIG),
        index=reads.submit(_text, reader, listing, selection.index, MAX_INDEX),
        settings=reads.submit(_text, reader, listing, selection.settings, MAX_CONFIG),
        headers=(
            *(reads.submit(reader.header, listing[name]) for name in weights),
            *(reads.submit(_head, reader, listing[name]) for name in selection.shards),
        ),
    )


def _text(
    reader: FileReader, listing: dict[str, RepoFile], name: str | None, limit: int
) -> TextFile | None:
    return None if name is None else reader.text(listing[name], limit)


def _with_shards(
    reads: Executor, reader: FileReader, listing: dict[str, RepoFile], begun: _Begun
) -> _Begun:
    """The shards that an index names are read as well."""
    begun = _as_configured(reads, reader, listing, begun)
    index = begun.index.result()
    if index is None:
        return begun
    first = _first_reads(index)
    shards = (
        reads.submit(_head, reader, listing[shard], length)
        for shard, length in first.items()
        if shard in listing
    )
    absent = tuple(shard for shard in first if shard not in listing)
    others = files_not_in_index(index.name, first, listing) if absent else ()
    extra = {name: reads.submit(_head, reader, listing[name]) for name in others}
    doubtful = (extra[name] for name in others if not named_as_model(index.name, first, name))
    return replace(
        begun,
        headers=(*begun.headers, *shards, *extra.values()),
        absent=absent,
        doubtful=tuple(doubtful),
    )


def _as_configured(
    reads: Executor, reader: FileReader, listing: dict[str, RepoFile], begun: _Begun
) -> _Begun:
    """The file that the config itself names, instead of the usual one."""
    found = named_weights(begun.config.result(), listing)
    chosen = {future.result().name for future in begun.headers}
    index = begun.index.result()
    chosen |= {index.name} if index else set()
    if found is None or any(map(variant_of, chosen)) or {found.weights, found.index} & chosen:
        return begun
    weights = () if found.weights is None else (found.weights,)
    return replace(
        begun,
        index=reads.submit(_text, reader, listing, found.index, MAX_INDEX),
        headers=tuple(reads.submit(_head, reader, listing[name]) for name in weights),
        torch_copies=(),
    )


def _as_hinted(
    reads: Executor, reader: FileReader, listing: dict[str, RepoFile], selection: FileSelection
) -> FileSelection:
    """The selection that the hints come to; raises SourceError where there is nothing to read."""
    read = [reads.submit(_text, reader, listing, name, MAX_CONFIG) for name in selection.hints]
    names = frozenset(name for name in listing if "/" not in name)
    for text in [future.result() for future in read]:  # all of them, so that none is read twice
        found = text and (named_weights(text, listing) or based_weights(text, names))
        if found:
            return replace(selection, **asdict(found), hints=(), otherwise=None)
    if isinstance(selection.otherwise, FileSelection):
        return selection.otherwise
    raise selection.otherwise or SourceError(Reason.NO_WEIGHTS, "no weights are there")


class _Knowing:
    """A reader that reads no text twice."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._texts: dict[str, TextFile] = {}
        self.bounds = reader.bounds
        self.header, self.part, self.stop = reader.header, reader.part, reader.stop

    def text(self, file: RepoFile, limit: int) -> TextFile:
        if file.name not in self._texts:
            self._texts[file.name] = self._reader.text(file, limit)
        return self._texts[file.name]


def _contents(begun: _Begun) -> dict[str, Any]:
    """What came of the reads: the fields that a Snapshot and a Component share."""
    index = begun.index.result()
    strange = [future for future in begun.doubtful if not _shares(future.result(), index)]
    heads = [future.result() for future in begun.headers if future not in strange]
    torch_copies = (future.result() for future in begun.torch_copies)
    read = {head.name for head in heads}
    return {
        "config": begun.config.result(),
        "index": index,
        "settings": begun.settings.result(),
        "headers": tuple(sorted(heads, key=lambda head: head.name)),
        "torch_copies": tuple(
            head for head in torch_copies if head is not None and head.name not in read
        ),
        "unopened": begun.absent,
    }


def _shares(head: WeightHeader, index: TextFile | None) -> bool:
    """Whether a file holds a tensor that the index names; what a pointer stands for may."""
    if index is None or isinstance(head.parsed, CheckpointError):
        return head.pointed is not None
    names = index.as_index.weight_map
    return any(tensor.name in names for tensor in head.parsed.tensors)


def _first_reads(index: TextFile) -> dict[str, int]:
    """How many bytes to ask for first of each shard, by its path in the repository, sorted.

    The index names shards from its own folder.
    """
    try:
        weight_map = index.as_index.weight_map
    except CheckpointError:
        return {}
    entries = dict.fromkeys(weight_map.values(), 0)
    for tensor, shard in weight_map.items():
        entries[shard] += len(tensor) + ENTRY
    folder = PurePosixPath(index.name).parent
    paths = {str(folder / shard): ROOM + length for shard, length in entries.items()}
    return {path: paths[path] for path in sorted(paths)}


def _head(reader: FileReader, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
    """A header, parsed while others are still on their way."""
    [head] = within_bound([reader.header(file, first)])
    _ = head.parsed
    return head


def _torch_copy(reader: FileReader, file: RepoFile) -> WeightHeader | None:
    """The head of a file that is not audited; None where it cannot be had, which is no matter."""
    try:
        return _head(reader, file)
    except SourceError:
        return None

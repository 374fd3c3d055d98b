"""Config, index and headers of one selection, read side by side from any reader."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

from auditor.containers.index import MAX_INDEX, parse_index
from auditor.containers.manifest import MAX_COMPONENTS, MAX_MANIFEST, parse_manifest
from auditor.downloader.heads import ENTRY, FIRST_READ, ROOM
from auditor.downloader.pools import threads
from auditor.downloader.selection import Part, Selection
from auditor.downloader.snapshot import Component, FileHead, RepoFile, TextFile
from auditor.errors import CheckpointError, Reason, SourceError

T = TypeVar("T")

# Bytes of config.json. Those of the corpus and of the Hub's usual models have a few kB; a map
# of 22,000 class names (ImageNet) has 1.5 MB.
MAX_CONFIG = 16 * 1024 * 1024

# Bytes of all headers of one checkpoint, of several models together. The largest known
# (DeepSeek-V3, 163 shards) have 11 MB; one file alone may have 100 MB.
MAX_HEADS = 512 * 1024 * 1024

# Reads at a time: enough to hide the round trips of a few hundred shards, few enough that a
# mirror does not take it for an attack.
_AT_ONCE = 8


class Reader(Protocol):
    """What a source can do with one file of its listing; called from several threads."""

    def text(self, file: RepoFile, limit: int) -> TextFile: ...

    def head(self, file: RepoFile, first: int = FIRST_READ) -> FileHead: ...

    def stop(self) -> None:
        """Another read has failed for good: end the waits of those under way."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What was read: the middle of a Snapshot."""

    config: TextFile | None
    index: TextFile | None = None
    heads: tuple[FileHead, ...] = ()
    twins: tuple[FileHead, ...] = ()
    unopened: tuple[str, ...] = ()
    packing: TextFile | None = None
    settings: TextFile | None = None
    manifest: TextFile | None = None
    components: tuple[Component, ...] = ()


def assemble(
    reader: Reader,
    files: Sequence[RepoFile],
    selection: Selection,
    pool: Executor | None = None,
) -> Contents:
    """Read the selection: config beside the weight file or the index, then all shards.

    Of several models that is done side by side, of those that the manifest names. The reads are of
    the `pool`, which several checkpoints may share, or of threads of their own. A broken index is
    handed on as it is, with no shards opened: the audit says what is wrong.
    """
    listing = {file.name: file for file in files}
    with threads(_AT_ONCE, reader.stop) if pool is None else _part_of(pool, reader) as reads:
        begun = [_begin(reads, reader, listing, selection)]
        packing = reads.submit(_text, reader, listing, selection.packing, MAX_CONFIG)
        manifest = reads.submit(_text, reader, listing, selection.manifest, MAX_MANIFEST).result()
        parts = _meant(selection.parts, manifest)
        begun += [_begin(reads, reader, listing, part.selection) for part in parts]
        for future in _as_they_end([future for one in begun for future in one.first]):
            future.result()  # the first to fail speaks, not the first in order
        models = [_with_shards(reads, reader, listing, one) for one in begun]
        _bounded([future for one in models for future in one.heads])
        found = [_contents(one) for one in models]
        components = (
            Component(folder=part.folder, **fields)
            for part, fields in zip(parts, found[1:], strict=True)
        )
        return Contents(
            **found[0],
            packing=packing.result(),
            manifest=manifest,
            components=tuple(components),
        )


def _meant(parts: tuple[Part, ...], manifest: TextFile | None) -> tuple[Part, ...]:
    """The parts that the manifest names; all where there is none, or none that can be read."""
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


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """The reads of one model that are under way."""

    config: Future[TextFile | None]
    index: Future[TextFile | None]
    settings: Future[TextFile | None]
    heads: tuple[Future[FileHead], ...]
    twins: tuple[Future[FileHead | None], ...]
    absent: tuple[str, ...] = ()  # shards that are not in the listing

    @property
    def first(self) -> tuple[Future[Any], ...]:
        """What says what else there is to read."""
        return (self.config, self.index, self.settings, *self.heads)


def _begin(
    reads: Executor, reader: Reader, listing: dict[str, RepoFile], selection: Selection
) -> _Begun:
    """Config, index, weight files and twins: whichever are selected, all at once."""
    weights = () if selection.weights is None else (selection.weights,)
    return _Begun(
        twins=tuple(reads.submit(_twin, reader, listing[name]) for name in selection.twins),
        config=reads.submit(_text, reader, listing, selection.config, MAX_CONFIG),
        index=reads.submit(_text, reader, listing, selection.index, MAX_INDEX),
        settings=reads.submit(_text, reader, listing, selection.settings, MAX_CONFIG),
        heads=(
            *(reads.submit(reader.head, listing[name]) for name in weights),
            *(reads.submit(_head, reader, listing[name]) for name in selection.shards),
        ),
    )


def _text(
    reader: Reader, listing: dict[str, RepoFile], name: str | None, limit: int
) -> TextFile | None:
    return None if name is None else reader.text(listing[name], limit)


def _with_shards(
    reads: Executor, reader: Reader, listing: dict[str, RepoFile], begun: _Begun
) -> _Begun:
    """The shards that an index names are read as well."""
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
    return replace(begun, heads=(*begun.heads, *shards), absent=absent)


def _contents(begun: _Begun) -> dict[str, Any]:
    """What came of the reads: the fields that a Snapshot and a Component share."""
    twins = (future.result() for future in begun.twins)
    return {
        "config": begun.config.result(),
        "index": begun.index.result(),
        "settings": begun.settings.result(),
        "heads": tuple(future.result() for future in begun.heads),
        "twins": tuple(head for head in twins if head is not None),
        "unopened": begun.absent,
    }


def _first_reads(index: TextFile) -> dict[str, int]:
    """How many bytes to ask for first of each shard, by its path in the repository, sorted.

    The index names shards from its own folder.
    """
    try:
        weight_map = parse_index(index.name, index.content).weight_map
    except CheckpointError:
        return {}
    entries = dict.fromkeys(weight_map.values(), 0)
    for tensor, shard in weight_map.items():
        entries[shard] += len(tensor) + ENTRY
    folder = PurePosixPath(index.name).parent
    paths = {str(folder / shard): ROOM + length for shard, length in entries.items()}
    return {path: paths[path] for path in sorted(paths)}


def _head(reader: Reader, file: RepoFile, first: int = FIRST_READ) -> FileHead:
    """A head, parsed while others are still on their way."""
    head = reader.head(file, first)
    _ = head.parsed
    return head


def _twin(reader: Reader, file: RepoFile) -> FileHead | None:
    """The head of a file that is not audited; None where it cannot be had, which is no matter."""
    try:
        return _head(reader, file)
    except SourceError:
        return None


def _bounded(futures: Sequence[Future[FileHead]]) -> None:
    """Wait for the heads, as long as all of them together are bounded."""
    total = 0
    for future in _as_they_end(futures):
        total += future.result().length
        if total > MAX_HEADS:
            detail = f"the headers of {len(futures)} files have more than {MAX_HEADS:,} bytes"
            raise SourceError(Reason.TOO_LARGE, detail)


def _as_they_end(futures: Sequence[Future[T]]) -> Iterable[Future[T]]:
    """as_completed, which takes 17 us even where all have ended: of a pool that works at once."""
    return futures if all(future.done() for future in futures) else as_completed(futures)


class _Part(Executor):
    """One checkpoint's share of a pool: it can give up what it asked for, and nothing else."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._asked: list[Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = self._pool.submit(fn, *args, **kwargs)
        self._asked.append(future)
        return future

    def give_up(self) -> None:
        """Cancel what has not begun, and wait for what has."""
        for future in self._asked:
            future.cancel()
        wait(self._asked)


@contextmanager
def _part_of(pool: Executor, reader: Reader) -> Iterator[Executor]:
    part = _Part(pool)
    try:
        yield part
    except BaseException:
        reader.stop()
        part.give_up()
        raise

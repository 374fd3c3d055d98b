"""Config, index and headers of one selection, read side by side from any reader."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

from auditor.containers.index import MAX_INDEX, parse_index
from auditor.downloader.heads import ENTRY, FIRST_READ, ROOM
from auditor.downloader.select import Selection
from auditor.downloader.snapshot import FileHead, RepoFile, TextFile
from auditor.errors import CheckpointError, Reason, SourceError

T = TypeVar("T")

# Bytes of config.json. Those of the corpus and of the Hub's usual models have a few kB; a map
# of 22,000 class names (ImageNet) has 1.5 MB.
MAX_CONFIG = 16 * 1024 * 1024

# Bytes of all headers of one checkpoint. The largest known (DeepSeek-V3, 163 shards) have 11 MB;
# one file alone may have 100 MB.
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


def assemble(
    reader: Reader,
    files: Sequence[RepoFile],
    selection: Selection,
    pool: Executor | None = None,
) -> Contents:
    """Read the selection: config beside the weight file or the index, then all shards.

    The reads are of the `pool`, which several checkpoints may share, or of threads of their own.
    A broken index is handed on as it is, with no shards opened: the audit says what is wrong.
    """
    listing = {file.name: file for file in files}
    with _own_pool(reader) if pool is None else _part_of(pool, reader) as reads:
        beside = [reads.submit(_twin, reader, listing[name]) for name in selection.twins]
        config, index, heads = _first(reads, reader, listing, selection)
        if index is None:
            shards = [reads.submit(_head, reader, listing[name]) for name in selection.shards]
            heads = (*heads, *_bounded(shards))
            return Contents(config=config, heads=heads, twins=_read(beside))
        first = _first_reads(index)
        futures = [
            reads.submit(_head, reader, listing[shard], length)
            for shard, length in first.items()
            if shard in listing
        ]
        absent = tuple(shard for shard in first if shard not in listing)
        return Contents(
            config=config,
            index=index,
            heads=_bounded(futures),
            twins=_read(beside),
            unopened=absent,
        )


def _first(
    pool: Executor, reader: Reader, listing: dict[str, RepoFile], selection: Selection
) -> tuple[TextFile | None, TextFile | None, tuple[FileHead, ...]]:
    """Config, index and the one weight file: whichever are selected, all at once."""

    def text(name: str | None, limit: int) -> TextFile | None:
        return None if name is None else reader.text(listing[name], limit)

    def head(name: str | None) -> tuple[FileHead, ...]:
        return () if name is None else (reader.head(listing[name]),)

    config = pool.submit(text, selection.config, MAX_CONFIG)
    index = pool.submit(text, selection.index, MAX_INDEX)
    heads = pool.submit(head, selection.weights)
    for future in as_completed((config, index, heads)):
        future.result()  # the first to fail speaks, not the first in order
    return config.result(), index.result(), heads.result()


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


def _read(twins: Sequence[Future[FileHead | None]]) -> tuple[FileHead, ...]:
    return tuple(head for future in twins if (head := future.result()) is not None)


def _bounded(futures: Sequence[Future[FileHead]]) -> tuple[FileHead, ...]:
    """The heads in the order of the futures, as long as all of them together are bounded."""
    total = 0
    for future in as_completed(futures):
        total += future.result().length
        if total > MAX_HEADS:
            detail = f"the headers of {len(futures)} shards have more than {MAX_HEADS:,} bytes"
            raise SourceError(Reason.TOO_LARGE, detail)
    return tuple(future.result() for future in futures)


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


@contextmanager
def _own_pool(reader: Reader) -> Iterator[Executor]:
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield pool
    except BaseException:
        reader.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

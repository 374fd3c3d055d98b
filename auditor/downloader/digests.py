"""The sha256 of local files, which are read completely, and the front matter of README.md."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

from msgspec.structs import replace

from auditor.checkpoint.hub_listing import model_card
from auditor.checkpoint.snapshot import FileState, ModelCard, RepoFile, Snapshot, Source
from auditor.downloader.local_file import file_sha256, open_regular_file
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import STOPPED, ProgressLines, ReadingProgress, numbers_read
from auditor.errors import Reason, SourceError
from auditor.machine import cpu_count
from auditor.tensors import Span

LOCAL = {Source.FOLDER, Source.FILE, Source.CACHE}
_CARD = "README.md"
_SMALL = 64 * 1024 * 1024  # bytes of all files, below which no other thread is used
_T = TypeVar("_T")

_MAX_FRONT_MATTER = 64 * 1024  # bytes of a README.md in which the front matter must end
_DEEPEST = 20  # collections inside each other
_BLOCK = re.compile(
    rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE
)


def read_completely(
    reads: Sequence[Callable[[Callable[[int], None]], _T]], size: int, say: Callable[[str], None]
) -> tuple[_T, ...]:
    """Return the results of reads in several threads; the main thread handles Ctrl-C.

    Each read calls its argument with numbers of bytes, which add up to `size`.
    """
    over, lock, done = Event(), Lock(), 0
    lines = ProgressLines.of(say)
    progress = ReadingProgress(lines.progress, numbers_read)

    def count(read: int) -> None:
        nonlocal done
        if over.is_set():
            raise SourceError(Reason.UNREADABLE, STOPPED)
        with lock:
            done += read
            progress(done, size)

    try:
        with threads(0 if size <= _SMALL else cpu_count(), over.set) as scheduler:
            futures = [scheduler.submit(read, count) for read in reads]
            return tuple(map(awaited, futures))
    finally:
        lines.progress(None)


def read_digests(
    folder: Path, files: Sequence[RepoFile], say: Callable[[str], None]
) -> dict[str, str]:
    """Return the sha256 of each file, which is read.

    Raise SourceError if a file cannot be read, or has changed since it was listed.
    """
    size = sum(file.size or 0 for file in files)
    if size > _SMALL:
        say(f"reading {size:,} bytes for the sha256 of {len(files):,} files")
    reads = [partial(_digest, folder / file.name, file.state) for file in files]
    digests = read_completely(reads, size, say)
    return {file.name: digest for file, digest in zip(files, digests, strict=True)}


def _digest(path: Path, state: FileState | None, count: Callable[[int], None]) -> str:
    return file_sha256(path, count, state)


def with_materials(snapshot: Snapshot, say: Callable[[str], None]) -> Snapshot:
    """Return a snapshot of local files with their sha256 and the names in their model card.

    Other snapshots are returned unchanged. Raise SourceError if a file cannot be read.
    """
    folder = snapshot.folder
    if folder is None or snapshot.source not in LOCAL:
        return snapshot
    digests = read_digests(folder, snapshot.files, say)
    files = tuple(replace(file, sha256=digests[file.name]) for file in snapshot.files)
    card = next((_card(folder / _CARD, file.state) for file in files if file.name == _CARD), None)
    return replace(snapshot, files=files, card=card)


def _card(path: Path, state: FileState | None) -> ModelCard:
    with open_regular_file(path, state) as file:
        return model_card(front_matter(file.read(Span(0, _MAX_FRONT_MATTER)).data))


def front_matter(start: bytes) -> object:
    """Return the value of the front matter at the start of a README.md; None if it is not usable.

    Aliases, which can stand for gigabytes, and tags are refused, as is deep nesting.
    """
    import yaml  # noqa: PLC0415 - 40 ms, few audits read a model card

    block = _BLOCK.search(start[:_MAX_FRONT_MATTER])
    if block is None:
        return None
    depth = 0
    try:
        text = block[1].decode()
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            is_alias = isinstance(event, yaml.AliasEvent)
            if is_alias or depth > _DEEPEST or getattr(event, "tag", None) is not None:
                return None
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, ArithmeticError):  # malformed numbers and dates, too
        return None

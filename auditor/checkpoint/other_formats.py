"""The other formats that a repository's files have, and what is lost or cut of them. No I/O."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from auditor.checkpoint.selecting import is_readable
from auditor.checkpoint.shard_names import split_of
from auditor.checkpoint.snapshot import Snapshot, Source, WeightHeader
from auditor.containers.other_formats import (
    OTHER_FORMATS,
    OtherFormat,
    format_of,
    formats_by_name,
)
from auditor.containers.weight_formats import (
    NeededFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
)
from auditor.errors import CheckpointError
from auditor.messages import listed, named

_MOST_FORMATS = 3  # that one sentence names


class FormatFault(NamedTuple):
    """A fault of a file in another format; or the files that it needs and that are missing."""

    file: str
    reason: str
    lost: tuple[str, ...] = ()
    is_size: bool = False


def formats_in(snapshot: Snapshot) -> dict[OtherFormat, list[str]]:
    """Return the formats of the files that are not audited, with their main files.

    On this machine the first bytes decide, elsewhere the names.
    """
    files: dict[OtherFormat, list[str]] = {}
    if snapshot.unexamined is None and not snapshot.pickles:
        for row, file in formats_by_name(one.name for one in snapshot.files):
            files.setdefault(row, []).append(file)
        return files
    known = _names(snapshot)
    rows = {
        head.name: _format(head)
        for head in snapshot.pickles
        if not any(one.instead in known and one.path not in known for one in _needs(head))
    }
    inside = {  # the .metadata of Megatron, the engines of TensorRT-LLM
        one.path
        for head in snapshot.pickles
        for one in _needs(head)
        if rows.get(one.path) is not rows.get(head.name)
    }
    for name, found in rows.items():
        if found and name not in inside:
            files.setdefault(found, []).append(name)
    return {row: files[row] for row in OTHER_FORMATS if row in files}


def needed_files(snapshot: Snapshot) -> frozenset[str]:
    """Return the files, and folders with a slash at their end, that other formats' files need."""
    return frozenset(one.path for head in snapshot.pickles for one in _needs(head))


def _needs(head: WeightHeader) -> tuple[NeededFile, ...]:
    """Return the files that a file of another format needs, other than itself."""
    needs = head.parsed.needs if isinstance(head.parsed, Table) else ()
    return tuple(one for one in needs if one.path != head.name)


def _format(head: WeightHeader) -> OtherFormat | None:
    start = next((part.data for part in head.parts if part.start == 0), b"")
    is_known = isinstance(head.parsed, Table | UnfollowedError | UnsafeFileError)
    return format_of(head.name, start) if is_known and head.pointed is None else None


def format_faults(snapshot: Snapshot) -> Iterator[FormatFault]:
    """Yield what the files of other formats declare and the repository does not have."""
    sizes = {file.name: file.size for file in snapshot.files}
    known = _names(snapshot)
    is_cache = snapshot.partial and snapshot.commit is not None  # it is filled file by file
    for head in snapshot.pickles:
        row, parsed = _format(head), head.parsed
        table = parsed.table if isinstance(parsed, UnfollowedError) else parsed
        if row is None or not isinstance(table, Table):
            continue
        for reason in table.size_faults:
            yield FormatFault(head.name, f"{row.name}: {reason}", is_size=True)
        for _, reason in table.faults if row.module else ():  # others are not loaded with torch
            yield FormatFault(head.name, f"{row.name}: {reason}")
        lost = [one.path for one in table.needs if known.isdisjoint({one.path, one.instead})]
        lost += _lost_of_split(head.name, sizes)
        if lost and not is_cache:
            yield FormatFault(head.name, f"{row.name}: {_missing(head.name, lost)}", tuple(lost))
        for path, least, _ in table.needs:
            size = sizes.get(path)
            if size is not None and size < least:
                fault = f"{size:,} bytes, and {named(head.name)} needs {least:,}"
                reason = f"{row.name}: {named(path)} is truncated: it has {fault}"
                yield FormatFault(path, reason, is_size=True)


def _names(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of all files, and of their folders with a slash at their end."""
    names = [file.name for file in snapshot.files]
    folders = (name[: at + 1] for name in names for at, one in enumerate(name) if one == "/")
    return frozenset((*names, *folders))


def _missing(file: str, lost: list[str]) -> str:
    verb = "is" if len(lost) == 1 else "are"
    return f"{named(file)} needs {listed(lost)}, which {verb} missing"


def _lost_of_split(file: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the missing files of a numbered series, for the first of those that are there."""
    split = split_of(file)
    if split is None or file != next(name for name in split.absent(()) if name in names):
        return ()
    return split.absent(names)


def unaudited_detail(snapshot: Snapshot, where: str) -> str | None:
    """Return a sentence about the formats of weights that no audit reads; None if none is known.

    Weights that can be audited alone are left to the sentence that names them.
    """
    formats = formats_in(snapshot)
    own = {file for files in formats.values() for file in files}
    needed = needed_files(snapshot)
    refused = {
        head.name
        for head in snapshot.pickles
        if isinstance(head.parsed, CheckpointError) and not isinstance(head.parsed, UnsafeFileError)
    }
    readable = [
        file.name
        for file in snapshot.files
        if is_readable(file.name) and file.name not in own | needed | refused
    ]
    if readable and not any(row.in_parts for row in formats):
        return None
    if not formats:
        faults = [str(head.parsed) for head in snapshot.pickles if head.name in refused]
        return f"{where} holds no weights that can be read; {faults[0]}" if faults else None
    shown = list(formats.items())[:_MOST_FORMATS]
    names: dict[str, list[str]] = {}
    for row, files in shown:
        names.setdefault(row.name, []).extend(files)
    models = " and of ".join(f"{name} ({listed(sorted(files))})" for name, files in names.items())
    verb = "is" if snapshot.source is Source.FILE else "holds"
    return f"{where} {verb} a model of {models}; {shown[0][0].to_do}"

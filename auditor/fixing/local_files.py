"""Check that files of a folder may be replaced: not shared, and unchanged since they were read."""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from msgspec import UNSET, Struct
from msgspec.structs import replace

from auditor.checkpoint.snapshot import FileState
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER
from auditor.downloader.local_file import state_of
from auditor.downloader.local_folder import is_in_cache
from auditor.errors import FixError
from auditor.messages import quoted

MAX_START = LENGTH_BYTES + MAX_HEADER  # bytes of a header; a config or an index is shorter

_COPY = "copy the folder (cp -rL FOLDER COPY) and fix the copy"


class WrittenFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that a fix wrote, with properties that show whether it has changed since then."""

    size: int  # of the complete file, in bytes
    modified: int | None  # nanoseconds; None if only the header was written: data may change
    length: int  # of the header or the text that the fix wrote, in bytes
    sha256: str  # digest of this header or text

    def __post_init__(self) -> None:
        """Raise ValueError if the length is negative or exceeds the longest possible header.

        The length comes from a record, which is untrusted.
        """
        if not 0 <= self.length <= MAX_START:
            raise ValueError(f"{self.length} bytes")

    def is_still_in(self, path: Path, state: FileState) -> bool:
        """Whether the file at this path, in this state, still has the written content."""
        if not state.is_regular or state.size != self.size:
            return False
        if self.modified not in {None, state.modified}:
            return False
        with open_to_read(path) as file:
            return sha256(file.read(self.length)).hexdigest() == self.sha256


def written(state: FileState, start: bytes, *, is_header: bool) -> WrittenFile:
    """Describe a file that a fix wrote; `start` is its new header or its complete text."""
    return WrittenFile(
        size=state.size,
        modified=None if is_header else state.modified,
        length=len(start),
        sha256=sha256(start).hexdigest(),
    )


def open_to_read(path: Path) -> BinaryIO:
    """Open a file; raise OSError if it is a link and the platform can detect that."""
    return open(path, "rb", opener=no_follow)


def no_follow(path: str, flags: int) -> int:
    """Open a file without following links: an opener for `open`; new files get the usual mode."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def journal_state(status: os.stat_result) -> FileState:
    """Return the state of a file as a journal stores it."""
    return replace(state_of(status), device=UNSET, changed=UNSET)


def current_state(path: Path) -> FileState | None:
    """Return the state of the file, or of the link itself; None if the path does not exist."""
    try:
        return journal_state(path.lstat())
    except FileNotFoundError:
        return None


def states_in(folder: Path) -> dict[str, FileState]:
    """Map the names in a folder to the states of the files; subfolders are not entered.

    Each file needs its own call of lstat: on Windows, os.scandir returns neither inodes nor link
    counts.
    """
    states = {path.name: current_state(path) for path in folder.iterdir()}
    return {name: state for name, state in states.items() if state is not None}


def require_replaceable(
    folder: Path, existed_by_name: Mapping[str, bool], seen: Mapping[str, FileState]
) -> None:
    """Raise FixError if a file must not be replaced.

    A file must not be replaced if it is shared with another folder (by the cache, a link or a hard
    link), is in a subfolder, or was added or removed while the folder was read.
    """
    if is_in_cache(folder):
        raise FixError(
            f"{quoted(str(folder))} is in the Hugging Face cache, whose files are shared: {_COPY}"
        )
    for name, existed in existed_by_name.items():
        path, state = quoted(str(folder / name)), seen.get(name)
        if "/" in name or "\\" in name or name in {"", ".", ".."}:
            raise FixError(f"{path} is in a folder of its own: audit fix that folder")
        if state is None:
            if existed:
                raise FixError(f"{path} was removed while the folder was read: try again")
            continue
        if not existed:
            raise FixError(f"{path} was added while the folder was read: try again")
        if not state.is_regular:
            raise FixError(f"{path} is a link, and the file behind it may be shared: {_COPY}")
        if state.links > 1:
            raise FixError(
                f"{path} has {state.links} hard links, so it is another folder's file too: {_COPY}"
            )

"""The files of a folder that may be replaced: its own, not changed since they were read."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from auditor.downloader.huggingface_cache import is_in_cache
from auditor.errors import FixError
from auditor.messages import quoted

_COPY = "copy the folder (cp -rL FOLDER COPY) and fix the copy"


class FileState(Struct, frozen=True, kw_only=True):
    """What tells one file, as it is now, from any other and from itself after a change."""

    inode: int
    size: int  # bytes
    modified: int  # nanoseconds
    links: int = 1
    regular: bool = True  # no link to a file, and no device

    def is_same(self, other: "FileState | None") -> bool:
        """Whether nobody has replaced it, or written to it."""
        if other is None:
            return False
        mine, theirs = (
            (self.inode, self.size, self.modified),
            (other.inode, other.size, other.modified),
        )
        return mine == theirs


def state_of(status: os.stat_result) -> FileState:
    return FileState(
        inode=status.st_ino,
        size=status.st_size,
        modified=status.st_mtime_ns,
        links=status.st_nlink,
        regular=stat.S_ISREG(status.st_mode),
    )


def current_state(path: Path) -> FileState | None:
    """That of whatever has the name, links not followed; None: nothing has it."""
    try:
        return state_of(path.lstat())
    except FileNotFoundError:
        return None


def states_in(folder: Path) -> dict[str, FileState]:
    """Those of all that is in a folder, and not in folders below."""
    with os.scandir(folder) as entries:
        return {one.name: state_of(one.stat(follow_symlinks=False)) for one in entries}


def require_replaceable(
    folder: Path, names: Mapping[str, bool], seen: Mapping[str, FileState]
) -> None:
    """Raises FixError where a file is not the folder's own; `names` says which were there."""
    if is_in_cache(folder):
        raise FixError(
            f"{quoted(str(folder))} is in the Hugging Face cache, whose files are shared: {_COPY}"
        )
    for name, there in names.items():
        where, state = quoted(str(folder / name)), seen.get(name)
        if "/" in name or "\\" in name or name in {"", ".", ".."}:
            raise FixError(f"{where} is in a folder of its own: audit fix that folder")
        if state is None:
            if there:
                raise FixError(f"{where} is not there any more: try again")
            continue
        if not there:
            raise FixError(f"{where} has come since the folder was read: try again")
        if not state.regular:
            raise FixError(f"{where} is a link, and what it leads to may be shared: {_COPY}")
        if state.links > 1:
            others = f"{state.links} hard links"
            raise FixError(f"{where} has {others}: it is another's file, too; {_COPY}")

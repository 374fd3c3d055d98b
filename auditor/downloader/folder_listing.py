"""The listing of a folder: its files with their states, and the entries that are skipped.

Audits, fixes, snapshots, statements and pushes use this listing, so that they agree on what a
folder holds. A file is read only in the state in which it was listed: whatever replaces it later,
a link included, is another file.
"""

import os
import re
import stat
from itertools import count
from pathlib import Path
from typing import NamedTuple

from auditor.checkpoint.skipped import SkippedEntry, SkipReason
from auditor.checkpoint.snapshot import FileState, RepoFile
from auditor.downloader.local_file import state_of
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

# Files and folders in one folder: a training run leaves a few thousand, a home folder has more.
MAX_ENTRIES = 100_000

_DEEPEST = 64  # levels of folders

_SKIPPED_FOLDERS = {
    ".git": SkipReason.GIT,
    "node_modules": SkipReason.PACKAGES,
    "site-packages": SkipReason.PACKAGES,
}
_ENVIRONMENT = "pyvenv.cfg"  # beside the folder of a virtual environment's programs
_PROGRAMS = {"bin", "Scripts"}
# What huggingface_hub keeps about a download: texts of a hundred bytes, empty locks, listings.
_NOTES = re.compile(
    r"(?P<folder>(?:.+/)?\.cache/huggingface)/"
    r"(?:\.gitignore(?:\.lock)?|CACHEDIR\.TAG|(?:download|upload)/.+\.(?:metadata|lock)"
    r"|(?P<listing>trees/[0-9a-f]{40}\.json))",
    re.DOTALL,
)
_LARGEST_NOTE, _LARGEST_LISTING = 4096, 16 * 1024 * 1024  # bytes
_BLOB = re.compile(r"(?:.*[/\\])?models--[^/\\]+[/\\]blobs[/\\][^/\\]+", re.DOTALL)


class FolderListing(NamedTuple):
    """The files of a folder with their states, and the skipped entries, each sorted by name."""

    files: tuple[RepoFile, ...]
    skipped: tuple[SkippedEntry, ...]


def list_folder(folder: Path) -> FolderListing:
    """List every file below a folder; links are followed to files of the folder or of a cache.

    A file in the blobs of a Hugging Face cache belongs to each folder that links to it. Raise
    SourceError if there are too many entries, OSError if a folder cannot be read.
    """
    root = os.path.realpath(folder)
    files: list[RepoFile] = []
    skipped: dict[str, SkipReason] = {}
    folders, counter = [""], count(1)
    while folders:
        prefix = folders.pop()
        if prefix.count("/") > _DEEPEST:
            raise _not_a_model(folder, f"folders more than {_DEEPEST} deep")
        path = f"{folder}/{prefix}"
        has_programs = os.path.lexists(path + _ENVIRONMENT)
        listed_before, inner = len(files), []
        with os.scandir(path) as scan:
            for entry in scan:
                if next(counter) > MAX_ENTRIES:
                    raise _not_a_model(folder, f"more than {MAX_ENTRIES:,} files and folders")
                name = prefix + entry.name
                found = _looked_at(entry, root, has_programs=has_programs)
                if found is None:
                    inner.append(f"{name}/")
                elif isinstance(found, SkipReason):
                    skipped[os.fsencode(name).decode(errors="backslashreplace")] = found
                elif note_folder := _note_folder(name, found.size):
                    skipped[note_folder] = SkipReason.DOWNLOAD
                else:
                    files.append(RepoFile(name=name, size=found.size, state=found))
        if prefix and (reason := _moved(path, root, prefix)):
            del files[listed_before:]  # read through a link that was put there meanwhile
            skipped[prefix[:-1]] = reason
        else:
            folders += inner
    return FolderListing(
        tuple(sorted(files, key=lambda file: file.name)),
        tuple(sorted(SkippedEntry(name, reason) for name, reason in skipped.items())),
    )


def _not_a_model(folder: Path, content: str) -> SourceError:
    detail = f"{quoted(str(folder))} has {content}: it is not a model's folder"
    return SourceError(Reason.TOO_LARGE, detail)


def _looked_at(
    entry: "os.DirEntry[str]", root: str, *, has_programs: bool
) -> FileState | SkipReason | None:
    """Return the state of a file, why an entry is skipped, or None for a folder to look into."""
    if not is_utf8(entry.name):
        return SkipReason.NOT_UTF8
    if not entry.is_dir(follow_symlinks=False):
        return state_within(entry.path, root, is_link=entry.is_symlink())
    if has_programs and entry.name in _PROGRAMS:
        return SkipReason.ENVIRONMENT
    return _SKIPPED_FOLDERS.get(entry.name)


def _note_folder(name: str, size: int) -> str | None:
    """Return the folder of huggingface_hub's notes if the file is one of them, else None."""
    note = _NOTES.fullmatch(name)
    if note is None or size > (_LARGEST_LISTING if note["listing"] else _LARGEST_NOTE):
        return None
    return note["folder"]


def state_within(path: str, root: str, *, is_link: bool) -> FileState | SkipReason:
    """Return the state of a file, or of the file that a link leads to; else why it is skipped.

    `root` is the folder that a link must not leave, without links.
    """
    try:
        if is_link:
            target = os.path.realpath(path)
            if not (_is_inside(target, root) or _BLOB.fullmatch(target)):
                return SkipReason.OUTSIDE
            os.stat(path)  # noqa: PTH116 - raises for a circle, or more links than the system follows
            path = target
        status = os.lstat(path)
    except PermissionError:
        return SkipReason.NO_ACCESS
    except (OSError, RecursionError):  # realpath calls itself for each link
        return SkipReason.BROKEN_LINK
    if stat.S_ISREG(status.st_mode):
        return state_of(status)
    return SkipReason.FOLDER_LINK if stat.S_ISDIR(status.st_mode) else SkipReason.SPECIAL


def _moved(path: str, root: str, prefix: str) -> SkipReason | None:
    """Return how a folder that was listed is a link now (or a junction); None if it is not."""
    target = os.path.realpath(path)
    if target == os.path.normpath(f"{root}/{prefix}"):
        return None
    return SkipReason.FOLDER_LINK if _is_inside(target, root) else SkipReason.OUTSIDE


def _is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def is_utf8(name: str) -> bool:
    """Return whether a name can be written as UTF-8; other bytes of names are surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Digests of local files: sha256, and git's blob id."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from auditor.checkpoint.snapshot import FileState
from auditor.downloader.local_file import open_regular_file

_BLOCK = 1024 * 1024


def _ignore_count(_size: int) -> None:
    """Do nothing with a number of bytes that were read."""


def file_sha256(
    path: Path, count: Callable[[int], None] = _ignore_count, expected: FileState | None = None
) -> str:
    """Return the sha256 of a file, which is its name in LFS.

    Raise SourceError if the file cannot be read, if it changes meanwhile, or if its state is not
    the `expected` one. `count` gets numbers of bytes as they are read.
    """
    return _digest(path, hashlib.sha256(), count, expected)


def git_blob_id(
    path: Path, count: Callable[[int], None] = _ignore_count, expected: FileState | None = None
) -> str:
    """Return git's name of a file that is not in LFS: SHA-1 of its length and bytes; as above."""
    with open_regular_file(path, expected) as file:
        head = f"blob {file.size}\0".encode()
        expected = file.state
    return _digest(path, hashlib.sha1(head, usedforsecurity=False), count, expected)


def _digest(
    path: Path,
    digest: "hashlib._Hash",
    count: Callable[[int], None],
    expected: FileState | None,
) -> str:
    block = bytearray(_BLOCK)
    view = memoryview(block)
    with open_regular_file(path, expected) as file:
        for start in range(0, file.size, _BLOCK):
            part = view[: min(_BLOCK, file.size - start)]
            file.read_into(part, start)
            digest.update(part)
            count(len(part))
        file.require_unchanged()
    return digest.hexdigest()

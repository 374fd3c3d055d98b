"""What the bytes of local files come to: sha256, and git's blob id."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from auditor.downloader.local_file import open_regular_file

_BLOCK = 1024 * 1024


def file_sha256(path: Path, count: Callable[[int], None] = lambda _size: None) -> str:
    """Of a file in LFS its name there; SourceError where it cannot be read, or changes meanwhile.

    `count` gets numbers of bytes as they are read.
    """
    return _digest(path, hashlib.sha256(), count)


def git_blob_id(path: Path, count: Callable[[int], None] = lambda _size: None) -> str:
    """What git calls a file that is not in LFS: SHA-1 of its length and its bytes; as above."""
    with open_regular_file(path) as file:
        head = f"blob {file.size}\0".encode()
    return _digest(path, hashlib.sha1(head, usedforsecurity=False), count)


def _digest(path: Path, digest: "hashlib._Hash", count: Callable[[int], None]) -> str:
    block = bytearray(_BLOCK)
    view = memoryview(block)
    with open_regular_file(path) as file:
        for start in range(0, file.size, _BLOCK):
            part = view[: min(_BLOCK, file.size - start)]
            file.read_into(part, start)
            digest.update(part)
            count(len(part))
        file.require_unchanged()
    return digest.hexdigest()

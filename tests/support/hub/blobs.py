"""Contents of files: bytes, a file on disk, or a head with zeros behind it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK = 64 * 1024  # bytes a write
HASHED = 1024 * 1024  # bytes from the start that stand in for a large file, with its size


@dataclass(frozen=True)
class Sparse:
    """A file that starts with `head` and is zeros up to `size`; never materialised."""

    head: bytes
    size: int

    def __post_init__(self) -> None:
        if len(self.head) > self.size:
            message = f"a head of {len(self.head):,} bytes does not fit in {self.size:,}"
            raise ValueError(message)


Content = bytes | Path | Sparse


def size_of(content: Content) -> int:
    match content:
        case bytes():
            return len(content)
        case Sparse():
            return content.size
        case Path():
            return content.stat().st_size


def read(content: Content, start: int, stop: int) -> bytes:
    """The bytes [start, stop), fewer at the end of the file."""
    stop = min(stop, size_of(content))
    match content:
        case bytes():
            return content[start:stop]
        case Sparse():
            head = content.head[start:stop]
            return head + bytes(max(0, stop - start - len(head)))
        case Path():
            with content.open("rb") as file:
                file.seek(start)
                return file.read(max(0, stop - start))


def chunks(content: Content, start: int, stop: int) -> Iterator[bytes]:
    for at in range(start, stop, CHUNK):
        yield read(content, at, min(at + CHUNK, stop))


def sha256(content: Content) -> str:
    """The true digest of up to 1 MiB on disk or in memory; a stand-in for what is larger."""
    size = size_of(content)
    if isinstance(content, Sparse):
        return hashlib.sha256(content.head + f"+{size}".encode()).hexdigest()
    digest = hashlib.sha256(read(content, 0, HASHED))
    if size > HASHED:
        digest.update(f"+{size}".encode())
    return digest.hexdigest()


def git_oid(content: bytes) -> str:
    """The id that git gives to this blob."""
    prefix = f"blob {len(content)}\0".encode()
    return hashlib.sha1(prefix + content, usedforsecurity=False).hexdigest()


def pointer(digest: str, size: int) -> bytes:
    """What git holds in place of a file in LFS."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n".encode()
    )

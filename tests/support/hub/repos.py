"""The repositories that the server serves: files, commits, refs, names."""

import hashlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from .blobs import Content, git_oid, pointer, read, sha256, size_of

LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")
LFS_SIZE = 10 * 1000 * 1000  # bytes; above it the Hub insists on LFS
FIRST_PUSH = datetime(2024, 1, 1, tzinfo=UTC)  # each push comes one minute after the last

Files = Mapping[str, bytes | str | Path | Content]
Gate = Literal[False, "auto", "manual"]


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a commit."""

    name: str  # "/" between folders
    content: Content
    size: int
    oid: str  # git blob id; of the pointer where the file is in LFS
    pointer_size: int  # bytes; 0: not in LFS
    lfs: str | None  # sha256; None: the file is in git itself

    @property
    def etag(self) -> str:
        return f'"{self.lfs or self.oid}"'


@dataclass(frozen=True, kw_only=True)
class Commit:
    """All files of a repository at one moment."""

    sha: str  # 40 hex digits
    modified: str  # ISO 8601
    authors: tuple[str, ...] = ()
    files: tuple[File, ...]  # sorted by name

    def file(self, name: str) -> File | None:
        return next((file for file in self.files if file.name == name), None)


@dataclass(kw_only=True)
class Repo:
    """A model repository; grows by pushes."""

    id: str
    aliases: tuple[str, ...] = ()
    gated: Gate = False
    private: bool = False
    disabled: bool = False
    tags: tuple[str, ...] = ()
    downloads: int = 0
    lfs: Collection[str] | None = None  # names; None: by suffix and size
    card: Mapping[str, object] | None = None  # the front matter of its README
    refs: dict[str, str] = field(default_factory=dict)  # branch, tag or refs/pr/N -> sha
    commits: dict[str, Commit] = field(default_factory=dict)  # by sha

    def at(self, revision: str) -> Commit | None:
        return self.commits.get(self.refs.get(revision, revision))


class Shelf:
    """All repositories, by id and by former names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._repos: dict[str, Repo] = {}
        self._former: dict[str, str] = {}
        self._pushes = 0

    def add(self, repo: Repo) -> None:
        with self._lock:
            for name in (repo.id, *repo.aliases):
                if name in self._repos or name in self._former:
                    message = f"{name!r} is already on the shelf; push() adds a commit to it"
                    raise ValueError(message)
            self._repos[repo.id] = repo
            self._former.update(dict.fromkeys(repo.aliases, repo.id))

    def clear(self) -> None:
        with self._lock:
            self._repos.clear()
            self._former.clear()

    def push(
        self,
        id: str,  # noqa: A002 (the Hub's word)
        files: Files,
        revision: str,
        authors: tuple[str, ...] = (),
    ) -> str:
        """Point `revision` at a new commit with exactly these files; its sha."""
        with self._lock:
            repo = self._repos[id]
            modified = FIRST_PUSH + timedelta(minutes=self._pushes)
            self._pushes += 1
            commit = _commit(repo, files, modified.isoformat(timespec="milliseconds"))
            commit = replace(commit, authors=authors)
            repo.commits = {**repo.commits, commit.sha: commit}
            repo.refs = {**repo.refs, revision: commit.sha}
            return commit.sha

    def find(self, name: str) -> Repo | None:
        """The repository of that id or former name."""
        return self._repos.get(self._former.get(name, name))

    def all(self) -> tuple[Repo, ...]:
        """In the order they were added."""
        with self._lock:
            return tuple(self._repos.values())


def _commit(repo: Repo, files: Files, modified: str) -> Commit:
    made = tuple(_file(name, content, repo.lfs) for name, content in sorted(files.items()))
    listing = "\n".join([repo.id, modified, *(f"{file.oid} {file.name}" for file in made)])
    sha = hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()
    return Commit(sha=sha, modified=modified.replace("+00:00", "Z"), files=made)


def _file(name: str, given: bytes | str | Content, lfs: Collection[str] | None) -> File:
    content = given.encode() if isinstance(given, str) else given
    size = size_of(content)
    in_lfs = is_large(name, size) if lfs is None else name in lfs
    digest = sha256(content) if in_lfs else None
    in_git = pointer(digest, size) if digest else read(content, 0, size)
    return File(
        name=name,
        content=content,
        size=size,
        lfs=digest,
        oid=git_oid(in_git),
        pointer_size=len(in_git) if digest else 0,
    )


def is_large(name: str, size: int) -> bool:
    """Whether the Hub keeps such a file in LFS."""
    return name.endswith(LFS_SUFFIXES) or size > LFS_SIZE

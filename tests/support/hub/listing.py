"""The Hub's JSON about a model, and its list of models."""

import base64
import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any
from urllib.parse import parse_qsl, urlencode

from .blobs import read
from .repos import FIRST_PUSH, Commit, File, Repo

PAGE = 1000  # models a request, at most
SORTS = ("downloads", "createdAt", "lastModified")
BRIEF = ("private", "downloads", "tags", "createdAt", "modelId")  # of a list without expand
FULL = (*BRIEF, "author", "sha", "lastModified", "gated", "disabled", "siblings", "cardData")
CONFIG_KEYS = ("architectures", "model_type", "quantization_config")  # what the Hub repeats
HEADER_LIMIT = 100_000_000  # bytes; the safetensors format's own


def model_info(repo: Repo, commit: Commit, query: str) -> dict[str, Any]:
    """The answer to /api/models/{id}: everything, or what `expand` names."""
    params = parse_qsl(query)
    wanted = _expand(params)
    blobs = _truth(params, "blobs")
    every = (*FULL, "config", "safetensors")
    return _entry(repo, commit, wanted or every, blobs=blobs)


def model_tree(_repo: Repo, commit: Commit, query: str) -> list[dict[str, Any]]:
    """The answer to /api/models/{id}/tree/{revision}, at the top or `recursive`: files alone."""
    deep = _truth(parse_qsl(query), "recursive")
    return [_leaf(file) for file in commit.files if deep or "/" not in file.name]


def commit_list(repo: Repo, commit: Commit, query: str) -> list[dict[str, Any]]:
    """The answer to /api/models/{id}/commits/{revision}: a commit and those before it."""
    commits = [one for one in repo.commits.values() if one.modified <= commit.modified]
    return [
        {
            "id": one.sha,
            "title": "Upload model",
            "message": "",
            "authors": [{"user": name, "avatar": f"/{name}.png"} for name in one.authors],
            "date": one.modified,
        }
        for one in reversed(commits[-int(dict(parse_qsl(query)).get("limit", 50)) :])
    ]


def _leaf(file: File) -> dict[str, Any]:
    entry = {"type": "file", "path": file.name, "oid": file.oid, "size": file.size}
    if file.lfs:
        entry["lfs"] = {"oid": file.lfs, "size": file.size, "pointerSize": file.pointer_size}
    return entry


def model_list(repos: Sequence[Repo], query: str) -> tuple[list[dict[str, Any]], str | None]:
    """One page, and the query of the next one."""
    params = parse_qsl(query)
    asked = dict(params)
    size = min(int(asked.get("limit", PAGE)), PAGE)
    start = int(base64.urlsafe_b64decode(asked.get("cursor", "MA==")))
    found = _sorted([repo for repo in repos if _matches(repo, params)], asked.get("sort"))
    wanted = _expand(params) or (FULL if _truth(params, "full") else BRIEF)
    page = [_entry(repo, _head(repo), wanted, blobs=False) for repo in found[start : start + size]]
    if start + size >= len(found):
        return page, None
    cursor = base64.urlsafe_b64encode(str(start + size).encode()).decode()
    return page, urlencode([*((k, v) for k, v in params if k != "cursor"), ("cursor", cursor)])


def _matches(repo: Repo, params: Sequence[tuple[str, str]]) -> bool:
    return all(
        (key != "author" or repo.id.partition("/")[0] == value)
        and (key != "search" or value.lower() in repo.id.lower())
        and (key not in {"filter", "filter[]"} or value in repo.tags)
        and (key != "gated" or (value.lower() == "true") == bool(repo.gated))
        for key, value in params
    )


def _sorted(repos: list[Repo], key: str | None) -> list[Repo]:
    if key is None:
        return repos
    return sorted(repos, key=lambda repo: _property(repo, _head(repo), key), reverse=True)


def _head(repo: Repo) -> Commit:
    return repo.at("main") or Commit(sha="", modified=FIRST_PUSH.isoformat(), files=())


def _expand(params: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(value for key, value in params if key in {"expand", "expand[]"})


def _truth(params: Sequence[tuple[str, str]], name: str) -> bool:
    return any(key == name and value.lower() in {"true", "1"} for key, value in params)


def _entry(repo: Repo, commit: Commit, wanted: Sequence[str], *, blobs: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"_id": commit.sha[:24], "id": repo.id}
    if "siblings" in wanted:
        entry["siblings"] = _siblings(commit, blobs=blobs)
    found = {name: _property(repo, commit, name) for name in wanted}
    return entry | {name: value for name, value in found.items() if value is not None}


def _property(repo: Repo, commit: Commit, name: str) -> Any:
    make = PROPERTIES.get(name)
    return make(repo, commit) if make else None


def _created(repo: Repo, commit: Commit) -> str:
    return min(kept.modified for kept in (*repo.commits.values(), commit))


def _siblings(commit: Commit, *, blobs: bool) -> list[dict[str, Any]]:
    return [_sibling(file) if blobs else {"rfilename": file.name} for file in commit.files]


def _sibling(file: File) -> dict[str, Any]:
    entry = {"rfilename": file.name, "blobId": file.oid, "size": file.size}
    if file.lfs:
        entry["lfs"] = {"sha256": file.lfs, "size": file.size, "pointerSize": file.pointer_size}
    return entry


@lru_cache(maxsize=4096)
def _config(commit: Commit) -> dict[str, Any] | None:
    """The few keys of config.json that the Hub repeats; None where it is absent or not JSON."""
    file = commit.file("config.json")
    try:
        config = json.loads(read(file.content, 0, file.size)) if file else None
    except ValueError:
        return None
    return {k: config[k] for k in CONFIG_KEYS if k in config} if isinstance(config, dict) else None


@lru_cache(maxsize=4096)
def _safetensors(commit: Commit) -> dict[str, Any] | None:
    """Elements by dtype, as the Hub counts them; None where a header cannot be read."""
    counts: dict[str, int] = {}
    shards = [file for file in commit.files if file.name.endswith(".safetensors")]
    try:
        for tensor in (tensor for shard in shards for tensor in _tensors(shard)):
            counts[tensor["dtype"]] = counts.get(tensor["dtype"], 0) + prod(tensor["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None
    return {"parameters": counts, "total": sum(counts.values())} if counts else None


def _tensors(file: File) -> list[dict[str, Any]]:
    (length,) = struct.unpack("<Q", read(file.content, 0, 8))
    if length > min(file.size, HEADER_LIMIT):
        message = "the header passes the end"
        raise ValueError(message)
    header = json.loads(read(file.content, 8, 8 + length))
    return [tensor for name, tensor in header.items() if name != "__metadata__"]


PROPERTIES: dict[str, Callable[[Repo, Commit], Any]] = {
    "modelId": lambda repo, _: repo.id,
    "author": lambda repo, _: repo.id.partition("/")[0] if "/" in repo.id else None,
    "sha": lambda _, commit: commit.sha,
    "lastModified": lambda _, commit: commit.modified,
    "createdAt": _created,
    "gated": lambda repo, _: repo.gated,
    "private": lambda repo, _: repo.private,
    "disabled": lambda repo, _: repo.disabled,
    "downloads": lambda repo, _: repo.downloads,
    "cardData": lambda repo, _: dict(repo.card) if repo.card else None,
    "tags": lambda repo, _: list(repo.tags),
    "config": lambda _, commit: _config(commit),
    "safetensors": lambda _, commit: _safetensors(commit),
}

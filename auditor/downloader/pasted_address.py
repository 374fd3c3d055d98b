"""Addresses as people copy them from the Hub: which model they are of, which revision and file.

https://huggingface.co/org/name[/tree/REV/FOLDER | /blob/REV/FILE | /resolve/REV/FILE?download=true]
and hf://org/name[@REV][/FILE], as huggingface_hub's file system has it. Pure but for the address of
the Hub that this machine asks.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from auditor.errors import UsageError
from auditor.messages import quoted

_ADDRESS = re.compile(r"https?://|(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_HF = "hf://"
_HOSTS = frozenset(("huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co"))
_OF_A_REVISION = frozenset(
    ("tree", "blob", "resolve", "raw", "blame", "commit", "commits", "revision")
)
_OTHER_PAGES = frozenset(("discussions", "community", "settings", "edit", "upload"))
_OTHERS = {"datasets": "a dataset", "spaces": "a space", "papers": "a paper", "docs": "a document"}
_REFS = 3  # refs/pr/1: parts of a revision that is written out


class PastedAddress(NamedTuple):
    """What an address names."""

    id: str
    revision: str | None = None
    place: str | None = None  # a file or a folder of the repository


def is_address(requested: str) -> bool:
    return requested.startswith(_HF) or _ADDRESS.match(requested) is not None


def parse_address(requested: str) -> PastedAddress:
    """What it names; raises UsageError where that is no model of the Hub."""
    try:
        if requested.startswith(_HF):
            return _hf(requested)
        return _web(requested if "://" in requested else f"https://{requested}")
    except ValueError as error:
        raise UsageError(f"{quoted(requested)} names no model of the Hub: {error}") from None


def _hf(requested: str) -> PastedAddress:
    path = requested.removeprefix(_HF).removeprefix("models/").rstrip("/")
    parts = _of_a_model(path.split("/"))
    if len(parts) < 2:  # noqa: PLR2004 - namespace and name
        name, at, revision = parts[0].partition("@")
        return PastedAddress(name, unquote(revision) if at else None)
    name, at, revision = parts[1].partition("@")
    rest = parts[2:]
    if at and revision == "refs" and len(rest) >= _REFS - 1:
        revision, rest = "/".join((revision, *rest[: _REFS - 1])), rest[_REFS - 1 :]
    place = "/".join(rest) or None
    return PastedAddress(f"{parts[0]}/{name}", unquote(revision) if at else None, place)


def _web(address: str) -> PastedAddress:
    split = urlsplit(address)  # what follows a ? or a # says nothing about the model
    if split.netloc.lower() not in _HOSTS and split.netloc != _asked_host():
        raise ValueError(f"{quoted(split.netloc)} is another site")
    parts = [unquote(part) for part in split.path.split("/") if part]
    if parts[:2] == ["api", "models"]:
        parts = parts[2:]
    parts = _of_a_model(parts)
    known = _OF_A_REVISION | _OTHER_PAGES
    length = 1 if parts[1:2] and parts[1] in known else 2
    name, rest = "/".join(parts[:length]), parts[length:]
    if not rest or rest[0] in _OTHER_PAGES:
        return PastedAddress(name)
    if rest[0] not in _OF_A_REVISION:
        raise ValueError(f"{quoted(rest[0])} after {quoted(name)} is no page of a model")
    rest = rest[1:]
    if rest[:1] == ["refs"]:
        rest = ["/".join(rest[:_REFS]), *rest[_REFS:]]
    return PastedAddress(name, rest[0] if rest else None, "/".join(rest[1:]) or None)


def _of_a_model(parts: Sequence[str]) -> list[str]:
    if not parts or not parts[0]:
        raise ValueError("it ends with the site")
    if parts[0] in _OTHERS and len(parts) > 1:
        raise ValueError(f"it is the address of {_OTHERS[parts[0]]}")
    return list(parts)


def _asked_host() -> str:
    from auditor.downloader.endpoint import asked_origin, endpoint  # noqa: PLC0415 - 0.1 s

    return asked_origin(endpoint())[1]

"""The entries of a folder that are no files of the model, and the sentences that name them."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from auditor.messages import quoted


class SkipReason(StrEnum):
    """The reason why an entry of a folder is not listed as a file of the model."""

    OUTSIDE = "outside"
    FOLDER_LINK = "folder-link"
    BROKEN_LINK = "broken-link"
    NO_ACCESS = "no-access"
    NOT_UTF8 = "not-utf-8"
    SPECIAL = "special"
    GIT = "git"
    PACKAGES = "packages"
    ENVIRONMENT = "environment"
    DOWNLOAD = "download"


_MOST_NAMES = 5  # entries of one reason that have lines of their own
_CLAUSES = {
    SkipReason.GIT: "not looked into, git's own folder",
    SkipReason.PACKAGES: "not looked into, installed packages of Python or node",
    SkipReason.ENVIRONMENT: "not looked into, programs of a virtual environment",
    SkipReason.DOWNLOAD: "not looked into, notes of huggingface_hub about a download",
    SkipReason.OUTSIDE: "not read, a link out of the folder",
    SkipReason.FOLDER_LINK: "not followed, a link to a folder of the folder",
    SkipReason.BROKEN_LINK: "not read, a broken link",
    SkipReason.NO_ACCESS: "not read, access is denied",
    SkipReason.NOT_UTF8: "not read, the name is not UTF-8",
    SkipReason.SPECIAL: "not read, a pipe, a socket or a device",
}


class SkippedEntry(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """An entry of a folder that is not listed as a file of the model; a folder is one entry."""

    name: str  # path inside the folder; bytes that are not UTF-8 are escaped
    reason: SkipReason


def skipped_lines(entries: Iterable[SkippedEntry]) -> tuple[str, ...]:
    """Return a line for each of the first entries of a reason, and a line for the others."""
    names: dict[SkipReason, list[str]] = {}
    for entry in entries:
        names.setdefault(entry.reason, []).append(quoted(entry.name))
    subjects = [
        (reason, subject) for reason in SkipReason for subject in _subjects(names.get(reason, []))
    ]
    return tuple(f"{subject}: {_CLAUSES[reason]}" for reason, subject in subjects)


def _subjects(names: list[str]) -> Iterator[str]:
    yield from names[:_MOST_NAMES]
    if more := names[_MOST_NAMES:]:
        yield f"{len(more):,} more, {more[0]} among them"

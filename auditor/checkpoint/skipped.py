"""The entries of a folder that are no files of the model, and the sentences that name them."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from auditor.messages import listed


class SkipReason(StrEnum):
    """The reason why an entry of a folder is not listed as a file of the model."""

    GIT = "git"
    FIX = "fix"
    PACKAGES = "packages"
    ENVIRONMENT = "environment"
    DOWNLOAD = "download"
    OUTSIDE = "outside"
    FOLDER_LINK = "folder-link"
    BROKEN_LINK = "broken-link"
    NO_ACCESS = "no-access"
    NOT_UTF8 = "not-utf-8"
    SPECIAL = "special"


_CLAUSES = {
    SkipReason.GIT: "not looked into, git's own folder",
    SkipReason.FIX: "not looked into, the folder in which audit fix works",
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
    """Return a line for each reason, with the first names of the entries skipped for it."""
    names: dict[SkipReason, list[str]] = {}
    for entry in entries:
        names.setdefault(entry.reason, []).append(entry.name)
    return tuple(f"{listed(names[reason])}: {_CLAUSES[reason]}" for reason in sorted(names))

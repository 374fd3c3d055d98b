"""Which weight files are another model's, byte for byte, and which are each other's. Pure.

By sha256 of whole files: what the listings of the Hub say, or what local files come to.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from auditor.checkpoint.selecting import is_weights
from auditor.checkpoint.snapshot import RepoFile
from auditor.messages import listed

Digest = Callable[[RepoFile], str | None]  # None: not known


class SharedFiles(NamedTuple):
    """The audited weight files, by what is known of them beside the base's."""

    equal: tuple[str, ...]  # the very bytes of a file of the base
    other: tuple[str, ...]  # of other bytes than each of them
    unknown: tuple[str, ...]  # no digest tells


def files_of_base(
    files: Sequence[RepoFile],
    base: Sequence[RepoFile],
    *,
    digest: Digest,
    digest_of_base: Digest,
) -> SharedFiles:
    """The files beside those of the base; digests are asked for only where sizes are the same."""
    weights = [one for one in base if is_weights(one.name)]
    equal: list[str] = []
    other: list[str] = []
    unknown: list[str] = []
    for file in files:
        alike = [one for one in weights if None in {one.size, file.size} or one.size == file.size]
        known = digest(file) if alike else None
        theirs = [digest_of_base(one) for one in alike]
        if known is not None and known in theirs:
            equal.append(file.name)
        elif not alike or (known is not None and None not in theirs):
            other.append(file.name)
        else:
            unknown.append(file.name)
    return SharedFiles(tuple(equal), tuple(other), tuple(unknown))


def same_files(files: Sequence[RepoFile]) -> Iterator[str]:
    """A line for each group of weight files that hold the same bytes, by the listing."""
    groups: dict[str, list[str]] = {}
    for file in files:
        if file.sha256 is not None and is_weights(file.name):
            groups.setdefault(file.sha256, []).append(file.name)
    for names in groups.values():
        if len(names) > 1:
            yield f"{listed(names)} hold the same bytes (sha256)"

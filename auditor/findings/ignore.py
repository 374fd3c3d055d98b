"""Findings that the user removes from the verdict: `--ignore KIND[:GLOB]`."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec.structs import replace

from auditor.errors import UsageError
from auditor.findings import FINDING_KINDS, Finding, OfStored
from auditor.messages import meant, quoted

KINDS: tuple[str, ...] = tuple(sorted({kind.kind for kind in FINDING_KINDS}))


class Ignore(NamedTuple):
    """A kind of finding to ignore, and the tensors or files for which it is ignored."""

    kind: str
    glob: str

    @classmethod
    def parse(cls, text: str) -> "Ignore":
        kind, _, glob = text.partition(":")
        if kind not in KINDS:
            hint = meant(kind, KINDS) or "; audit explain-finding lists the kinds"
            raise UsageError(f"--ignore {quoted(text)}: no such kind{hint}")
        return cls(kind, glob or "*")


def split(
    findings: Iterable[Finding], ignore: tuple[Ignore, ...]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Split findings into reported and ignored ones; one finding may be split by its names.

    Only the glob `*` matches names that a finding counts without listing them.
    """
    reported: list[Finding] = []
    ignored: list[Finding] = []
    for finding in findings:
        globs = tuple(item.glob for item in ignore if item.kind == finding.kind)

        def is_ignored(name: str, globs: tuple[str, ...] = globs) -> bool:
            return any(fnmatchcase(name, glob) for glob in globs)

        if not globs or not any(map(is_ignored, finding.names)):
            reported.append(finding)
        elif all(map(is_ignored, finding.names)) and (
            "*" in globs or finding.count == len(finding.names)
        ):
            ignored.append(finding)
        else:
            ignored.append(_named(finding.only(is_ignored)))
            reported.append(finding.only(lambda name: not is_ignored(name)))
    return tuple(reported), tuple(ignored)


def _named(finding: Finding) -> Finding:
    """Restrict a finding to the names that it lists; the number of unlisted names becomes 0."""
    if isinstance(finding, OfStored):
        return replace(finding, more=0, more_parameters=0)
    return finding

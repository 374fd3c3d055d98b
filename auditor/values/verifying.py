"""`--verify`: compare local files, which are read completely, with the digests of a listing."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.selecting import select_config
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot, Source
from auditor.downloader.digests import read_completely
from auditor.downloader.fetching import fetch
from auditor.downloader.local_file import file_sha256, git_blob_id, read_all
from auditor.downloader.model_argument import HubModel, parse_model
from auditor.errors import SourceError, UsageError
from auditor.findings import BadDigest
from auditor.findings.ignore import Ignore
from auditor.messages import listed, quoted
from auditor.report import Report, Unaudited
from auditor.values.adding import with_more_findings
from auditor.values.same_bytes import listed_on_hub

_SHA256, _BLOB = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")
_METADATA = ".cache/huggingface/download"  # folder in which a download keeps commits and ETags
_LARGEST = 4096  # bytes of a metadata file
_SHOWN = 12  # digits of a digest in a reason


class ListedFiles(NamedTuple):
    """The expected files of a model by name, and the source of the list."""

    files: Mapping[str, RepoFile]
    by: str
    fetched: Fetched = Fetched()


class Verifier:
    """A comparison of the files of one audited folder with a listing."""

    def __init__(
        self, against: str | None, *, token: str | None, say: Callable[[str], None]
    ) -> None:
        self._against = against
        self._token = token
        self._say = say

    def __call__(
        self, outcome: Report | Unaudited, snapshot: Snapshot, ignore: tuple[Ignore, ...]
    ) -> Report | Unaudited:
        """Return the outcome with a finding for each file that differs; Unaudited if a read fails.

        Raise UsageError if there are no files to verify or no listing to compare them with.
        """
        if snapshot.folder is None:
            raise UsageError(
                f"--verify: the files of {quoted(snapshot.model)} are not on this machine"
            )
        try:
            listed_files = self._listing(snapshot, snapshot.folder)
            verified = compare_digests(snapshot.files, snapshot.folder, listed_files, self._say)
        except SourceError as error:
            return outcome.as_unaudited(error.reason, str(error))
        outcome = replace(outcome, fetched=outcome.fetched.plus(listed_files.fetched))
        return _with_faults(outcome, verified, listed_files, ignore)

    def _listing(self, snapshot: Snapshot, folder: Path) -> ListedFiles:
        if self._against is not None:
            return self._listing_of(self._against)
        if snapshot.source is Source.CACHE:
            try:
                return self._of_hub(HubModel(id=snapshot.model, revision=snapshot.commit))
            except SourceError:
                pass  # the cache names each file by its digest
        noted_files = (_noted_file(folder, file) for file in snapshot.files)
        files = {file.name: file for file in noted_files if file}
        if not files:
            detail = f"no digests of the files of {quoted(snapshot.model)} are known"
            raise UsageError(f"--verify: {detail}; give them by --verify-against MODEL")
        return ListedFiles(files, "the download's metadata")

    def _listing_of(self, against: str) -> ListedFiles:
        target = parse_model(against)
        if isinstance(target, HubModel):
            return self._of_hub(target)
        other = fetch(against, say=self._say, choose=select_config)
        if other.folder is not None and other.source is not Source.SNAPSHOT:
            detail = f"{quoted(against)} has no digests, expected a model of the Hub or a snapshot"
            raise UsageError(f"--verify-against: {detail}")
        return ListedFiles({file.name: file for file in other.files}, quoted(against))

    def _of_hub(self, model: HubModel) -> ListedFiles:
        model_files = listed_on_hub(model, self._token, self._say)
        files = {file.name: file for file in model_files.files}
        return ListedFiles(files, model_files.title, model_files.fetched)


class Verified(NamedTuple):
    """The number of equal files, the files that differ, and the files that are not listed."""

    same: int
    faults: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


def compare_digests(
    files: Sequence[RepoFile],
    folder: Path,
    listed_files: ListedFiles,
    say: Callable[[str], None],
) -> Verified:
    """Compare files with a listing in several threads; the main thread handles Ctrl-C.

    Raise SourceError if a file was replaced or changed since it was listed in its folder.
    """
    expected = listed_files.files
    pairs = [(file, expected[file.name]) for file in files if file.name in expected]
    pairs = [(file, entry) for file, entry in pairs if entry.sha256 or entry.blob_id]
    size = sum(file.size or 0 for file, _ in pairs)
    reads = [partial(_fault, folder, *pair) for pair in pairs]
    faults = read_completely(reads, size, say)
    names = {file.name for file, _ in pairs}
    return Verified(
        same=sum(fault is None for fault in faults),
        faults=tuple(
            (file.name, fault)
            for (file, _), fault in zip(pairs, faults, strict=True)
            if fault is not None
        ),
        unknown=tuple(file.name for file in files if file.name not in names),
    )


def _fault(
    folder: Path,
    file: RepoFile,
    entry: RepoFile,
    count: Callable[[int], None],
) -> str | None:
    """Return a clause on how a file differs from the listed one; None if it does not."""
    if entry.size is not None and file.size != entry.size:
        return f"it has {file.size:,} bytes, expected {entry.size:,} as listed"
    path, expected = folder / file.name, entry.sha256 or entry.blob_id or ""
    kind = "sha256" if entry.sha256 else "git blob id"
    digest = file_sha256 if entry.sha256 else git_blob_id
    observed = digest(path, count, file.state)
    if observed == expected:
        return None
    return f"its {kind} is {observed[:_SHOWN]}..., expected {expected[:_SHOWN]}... as listed"


def _noted_file(folder: Path, file: RepoFile) -> RepoFile | None:
    """Return the file with the digest in the ETag that huggingface_hub stored, else None.

    In the cache a file is a link to blobs/ETAG. For a download into a folder, a metadata file of
    three lines has the commit, the ETag and the time.
    """
    path = folder / file.name
    etag = ""
    if path.is_symlink():
        target = Path(os.path.realpath(path))
        etag = target.name if target.parent.name == "blobs" else ""
    note = folder / _METADATA / f"{file.name}.metadata"
    if not etag and note.is_file():
        lines = read_all(note, _LARGEST).decode(errors="replace").splitlines()
        etag = lines[1].strip() if len(lines) > 1 else ""
    if _SHA256.fullmatch(etag):
        return RepoFile(name=file.name, size=None, sha256=etag)
    return RepoFile(name=file.name, size=None, blob_id=etag) if _BLOB.fullmatch(etag) else None


def _with_faults(
    outcome: Report | Unaudited,
    verified: Verified,
    listed_files: ListedFiles,
    ignore: tuple[Ignore, ...],
) -> Report | Unaudited:
    by = listed_files.by
    new = [BadDigest(file=name, reason=f"{why} by {by}") for name, why in verified.faults]
    count = verified.same + len(verified.faults)
    note = f"{verified.same:,} of {count:,} files have the bytes that are listed by {by}"
    outcome = with_more_findings(outcome, new, ignore, notes=(note,))
    if not verified.unknown:
        return outcome
    unchecked = f"digests of {listed(verified.unknown)}: not listed by {by}"
    return replace(outcome, unchecked=(*outcome.unchecked, unchecked))

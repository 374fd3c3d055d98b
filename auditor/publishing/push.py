"""`audit push`: send a folder as one commit, and compare the commit with the folder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple, cast

from msgspec import Struct, convert

from auditor.checkpoint.skipped import SkipReason, skipped_lines
from auditor.checkpoint.snapshot import RepoFile, Sha1
from auditor.downloader.folder_listing import list_folder
from auditor.downloader.hub import read_listing
from auditor.downloader.local_file import ListedFile
from auditor.downloader.model_argument import HubModel
from auditor.downloader.waits import ProgressLines, ReadingProgress, numbers_read
from auditor.errors import PublishError, SourceError
from auditor.messages import listed, log_line, quoted
from auditor.publishing.hub_writing import hub_api, hub_errors
from auditor.publishing.statement import require_own_files
from auditor.values.verifying import ListedFiles, compare_digests


class FolderFiles(Struct, frozen=True, kw_only=True):
    """The files that a push sends, with their states, and sentences about what it leaves out."""

    files: tuple[RepoFile, ...]
    left_out: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)


class PushTarget(Struct, frozen=True, kw_only=True):
    """The place on the Hub for a commit."""

    repository: str  # ORG/NAME
    revision: str | None = None  # a branch that exists; None: main, in a repository made if needed
    create_pr: bool = False
    private: bool = False
    token: str | None = None  # None: the stored one


class Pushed(NamedTuple):
    """A commit that a push made, or found there because no file differs."""

    commit: Sha1
    revision: str  # that of the pull request, else the commit
    url: str
    is_new: bool


def files_of(folder: Path) -> FolderFiles:
    """List the files of a folder that an audit lists, without those that the Hub refuses.

    Raise PublishError if the folder cannot be read, if a link leads out of it, or if a file has a
    name that the Hub cannot have.
    """
    try:
        listing = list_folder(folder)
    except SourceError as error:
        raise PublishError(str(error)) from None
    except OSError as error:
        raise PublishError(f"{quoted(str(folder))} cannot be read: {error.strerror}") from None
    require_own_files(str(folder), listing.skipped)
    kept_back = [file.name for file in listing.files if _is_kept_back(file.name)]
    sent = tuple(file for file in listing.files if not _is_kept_back(file.name))
    wrong = [file.name for file in sent if not file.name.isprintable()]
    wrong += [one.name for one in listing.skipped if one.reason is SkipReason.NOT_UTF8]
    if wrong:
        raise PublishError(f"the Hub has no files of these names: {listed(sorted(wrong))}")
    reason = "an old file, or a folder that the Hub refuses"
    kept_lines = (f"{listed(kept_back)}: {reason}",) if kept_back else ()
    return FolderFiles(files=sent, left_out=(*kept_lines, *skipped_lines(listing.skipped)))


def _is_kept_back(name: str) -> bool:
    """Whether a file is the old version of another, or is in a folder that the Hub refuses."""
    return name.endswith(".orig") or not {".git", ".cache"}.isdisjoint(name.split("/"))


def require_unchanged(folder: Path, files: FolderFiles, audited: Sequence[RepoFile] = ()) -> None:
    """Raise PublishError if a file was added, removed or changed since the files were listed.

    `audited` are the files as an audit has listed them meanwhile; () if there was none.
    """
    states = {file.name: file.state for file in files.files}
    now = {file.name: file.state for file in files_of(folder).files}
    in_audit = {file.name: file.state for file in audited} or now
    changed = [
        name
        for name in sorted({*now, *states})
        if not now.get(name) == states.get(name) == in_audit.get(name)
    ]
    if changed:
        raise PublishError(
            f"{quoted(str(folder))} changed since its audit began, nothing is committed: "
            f"{listed(changed)}"
        )


def push(
    folder: Path, files: FolderFiles, to: PushTarget, say: Callable[[str], None] = log_line
) -> Pushed:
    """Send the files as one commit; files of the repository that the folder lacks stay there.

    Until the commit, the Hub shows nothing of them. Raise PublishError if the Hub refuses, or if
    the folder has changed since `files` were listed.

    huggingface_hub reads each file through a stream that fails once the file is not the listed one,
    so that no other bytes are hashed or sent. Xet reads the files itself, so it is switched off.
    """
    from huggingface_hub import CommitOperationAdd, constants  # noqa: PLC0415 - 0.1 s

    constants.HF_HUB_DISABLE_XET = True
    api, count = hub_api(to.token), _progress(2 * files.size, say)  # each is hashed, then sent
    with hub_errors(to.repository):
        if to.revision is None:
            api.create_repo(to.repository, private=to.private or None, exist_ok=True)
        info = api.repo_info(to.repository, revision=to.revision)
        if to.private and not info.private:
            raise PublishError(f"{to.repository} is public, expected a private repository")
        operations = [
            CommitOperationAdd(
                path_in_repo=file.name,
                path_or_fileobj=cast("BinaryIO", ListedFile(folder / file.name, file.state, count)),
            )
            for file in files.files
            if file.state
        ]
        api.preupload_lfs_files(
            to.repository, operations, revision=to.revision, create_pr=to.create_pr
        )
        require_unchanged(folder, files)
    # upload_folder makes several commits where hf_xet is installed
    with hub_errors(to.repository, "; whether the commit was made is not known"):
        made = api.create_commit(
            to.repository,
            operations,
            commit_message=f"Upload {folder.resolve().name}",
            revision=to.revision,
            create_pr=to.create_pr,
        )
        url = made.pr_url or made.commit_url
        pushed = (made.oid, made.pr_revision or made.oid, url, made.oid != info.sha)
        return convert(pushed, Pushed)


def _progress(total: int, say: Callable[[str], None]) -> Callable[[int], None]:
    """Return a function that counts bytes for a progress line; several threads call it."""
    progress = ReadingProgress(ProgressLines.of(say).progress, numbers_read)
    lock, done = Lock(), 0

    def count(read: int) -> None:
        nonlocal done
        with lock:
            done = min(done + read, total)
            progress(done, total)

    return count


def lost_files(
    folder: Path, files: FolderFiles, to: PushTarget, pushed: Pushed, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Return a sentence for each file that the Hub lists differently from the folder, or not.

    Raise SourceError if the listing or a file cannot be read, or if the commit is not listed.
    """
    model = HubModel(id=to.repository, revision=pushed.revision)
    listing, _ = read_listing(model, to.token, say)
    if listing.commit != pushed.commit:
        raise PublishError(f"{to.repository} is at {listing.commit}, expected {pushed.commit}")
    on_hub = ListedFiles({file.name: file for file in listing.files}, "the Hub")
    compared = compare_digests(files.files, folder, on_hub, say)
    absent = [name for name in compared.unknown if name not in on_hub.files]
    unhashed = [name for name in compared.unknown if name in on_hub.files]
    return (
        *(f"{quoted(name)} differs on the Hub: {why}" for name, why in compared.faults),
        *(f"{quoted(name)} is not in the commit" for name in absent),
        *(f"{quoted(name)} has no digest in the listing" for name in unhashed),
    )

"""`audit push`: send a folder as one commit, and compare the commit with the folder."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, convert

from auditor.checkpoint.selecting import is_weights
from auditor.checkpoint.snapshot import FileState, RepoFile, Sha1
from auditor.downloader.hub import read_listing
from auditor.downloader.local_file import open_regular_file, state_of
from auditor.downloader.local_folder import FIX_FOLDER
from auditor.downloader.model_argument import HubModel
from auditor.errors import PublishError, SourceError
from auditor.messages import listed, quoted
from auditor.publishing.hub_writing import hub_api, hub_errors
from auditor.tensors import Span
from auditor.values.verifying import ListedFiles, compare_digests

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

# Patterns of names: what `audit fix` keeps, and a folder that huggingface_hub refuses.
_LEFT_OUT = (f"{FIX_FOLDER}*", f"*/{FIX_FOLDER}*", "*.orig", ".cache/*", "*/.cache/*")
_IN_MEMORY = 10_000_000  # bytes; the Hub stores larger files in LFS


class FolderFiles(Struct, frozen=True, kw_only=True):
    """The files that a push sends, with their states, and the names of those that it leaves out."""

    states: dict[str, FileState]
    left_out: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(state.size for state in self.states.values())


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
    """List the files of a folder as huggingface_hub does, which leaves out `.git`.

    Raise PublishError if a file has a name that the Hub cannot have.
    """
    from huggingface_hub.utils._paths import (  # noqa: PLC0415 - 0.1 s
        DEFAULT_IGNORE_PATTERNS,
        filter_repo_objects,
    )

    try:
        found = sorted(path for path in folder.glob("**/*") if path.is_file())
        states = {path.relative_to(folder).as_posix(): state_of(path.stat()) for path in found}
    except OSError as error:
        raise PublishError(f"{quoted(str(folder))} cannot be read: {error.strerror}") from None
    patterns = [*DEFAULT_IGNORE_PATTERNS, *_LEFT_OUT]
    sent = {*filter_repo_objects(states, ignore_patterns=patterns)}
    if wrong := [name for name in sent if not name.isprintable()]:
        raise PublishError(f"the Hub has no files of these names: {listed(sorted(wrong))}")
    return FolderFiles(
        states={name: state for name, state in states.items() if name in sent},
        left_out=tuple(name for name in states if name not in sent),
    )


def require_unchanged(folder: Path, files: FolderFiles) -> None:
    """Raise PublishError if a file was added, removed or changed since the files were listed."""
    now = files_of(folder).states
    changed = [
        name for name in sorted({*now, *files.states}) if now.get(name) != files.states.get(name)
    ]
    if changed:
        raise PublishError(
            f"{quoted(str(folder))} changed since its audit began, nothing is committed: "
            f"{listed(changed)}"
        )


def push(folder: Path, files: FolderFiles, to: PushTarget) -> Pushed:
    """Send the files as one commit; files of the repository that the folder lacks stay there.

    Until the commit, the Hub shows nothing of them. Raise PublishError if the Hub refuses, or if
    the folder has changed since `files` were listed.
    """
    api = hub_api(to.token)
    with hub_errors(to.repository):
        if to.revision is None:
            api.create_repo(to.repository, private=to.private or None, exist_ok=True)
        info = api.repo_info(to.repository, revision=to.revision)
        if to.private and not info.private:
            raise PublishError(f"{to.repository} is public, expected a private repository")
        operations = [_operation(folder, name, state) for name, state in files.states.items()]
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


def _operation(folder: Path, name: str, state: FileState) -> "CommitOperationAdd":
    """Return the addition of a file; a small one is read now, so that no other bytes are sent."""
    from huggingface_hub import CommitOperationAdd  # noqa: PLC0415 - 0.1 s

    path = folder / name
    if is_weights(name) or state.size > _IN_MEMORY:
        return CommitOperationAdd(path_in_repo=name, path_or_fileobj=path)
    try:
        with open_regular_file(path, state) as file:
            content = file.read(Span(0, state.size)).data
    except SourceError as error:
        raise PublishError(f"nothing is committed: {error}") from None
    return CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)


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
    sent = [RepoFile(name=name, size=state.size) for name, state in files.states.items()]
    compared = compare_digests(sent, folder, on_hub, files.states, say)
    absent = [name for name in compared.unknown if name not in on_hub.files]
    unhashed = [name for name in compared.unknown if name in on_hub.files]
    return (
        *(f"{quoted(name)} differs on the Hub: {why}" for name, why in compared.faults),
        *(f"{quoted(name)} is not in the commit" for name in absent),
        *(f"{quoted(name)} has no digest in the listing" for name in unhashed),
    )

"""The `audit push` command."""

import warnings
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from auditor.audit.pipeline import audit
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    exit_code,
    fail,
    say,
    talk,
)
from auditor.cli.printing import Shown, counted_depth, print_outcome
from auditor.errors import SourceError, UsageError
from auditor.formats.registry import TERMINAL
from auditor.messages import quoted
from auditor.options import AuditRequest, FailOn
from auditor.publishing.hub_writing import hub_api, require_repository
from auditor.publishing.push import (
    FolderFiles,
    Pushed,
    PushTarget,
    files_of,
    lost_files,
    require_unchanged,
)
from auditor.publishing.push import (
    push as send,
)
from auditor.report import Report, Unaudited


def push(  # noqa: PLR0913 - one parameter for each option
    folder: Path,
    repository: str,
    *,
    target: str | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    private: bool = False,
    fail_on: FailOn = FailOn.ERROR,
    dry_run: bool = False,
    token: str | None = None,
    verbose: int = 0,
    quiet: bool = False,
) -> int:
    """Audit a folder, and send it to the Hub if it has no errors.

    Makes one commit, compares the sizes and hashes that the Hub lists with the folder, and audits
    the commit. Deletes nothing. Exit codes: 0 pushed; 1 findings, or a file was lost on the way; 2
    usage; 3 could not audit, or the Hub refused.
    """
    to = PushTarget(
        repository=require_repository(repository),
        revision=revision,
        create_pr=create_pr,
        private=private,
        token=token,
    )
    if not folder.is_dir():
        raise UsageError(f"{quoted(str(folder))} is not a folder on this machine")
    if not dry_run:
        hub_api(token)  # without a token it ends here
    tell = talk(quiet=quiet)
    files = files_of(folder)
    depth = counted_depth(TERMINAL, None)
    request = AuditRequest(model=str(folder), target=target, token=token, depth=depth)
    outcome = audit(request, say=tell)
    code = CLEAN if fail_on is FailOn.NEVER else exit_code(outcome, fail_on)
    shown = Shown(verbose=verbose > 0, quiet=quiet, target=target)
    print_outcome(outcome, TERMINAL, shown)
    if code != CLEAN:
        fail(code, "nothing was sent")
    _warn(outcome)
    require_unchanged(folder, files, outcome.files)
    for line in files.left_out:
        tell(f"not sent: {line}")
    amount = f"{len(files.files):,} files, {files.size:,} bytes, to {to.repository}"
    if dry_run:
        tell(f"dry run: nothing was sent; a push sends {amount}")
        return CLEAN
    tell(f"sending {amount}")
    pushed = _sent(folder, files, to, tell)
    tell(f"{'committed' if pushed.is_new else 'no file differs, no new commit'}: {pushed.url}")
    try:
        lost = lost_files(folder, files, to, pushed, tell)
    except SourceError as error:
        fail(UNAUDITED, f"the commit was not compared with the folder: {error}")
    for line in lost:
        say(line)
    if not lost:
        count = len(files.files)
        tell(f"the Hub lists all {count:,} files with the sizes and hashes of the folder")
    outcome = audit(replace(request, model=f"{to.repository}@{pushed.revision}"), say=tell)
    code = CLEAN if fail_on is FailOn.NEVER else exit_code(outcome, fail_on)
    if code != CLEAN:
        print_outcome(outcome, TERMINAL, shown)
    return FINDINGS if lost else code


def _warn(outcome: Report | Unaudited) -> None:
    """Print that a tokenizer is absent, which is no finding."""
    for absent in filter(None, (part.checked.get("tokenizer") for part in outcome.every)):
        say(f"warning: {absent.text}")


def _sent(folder: Path, files: FolderFiles, to: PushTarget, tell: Callable[[str], None]) -> Pushed:
    """Send the files, with our progress line of bytes and no bar of huggingface_hub."""
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - 0.1 s

    disable_progress_bars()
    with warnings.catch_warnings(record=True) as noted:
        pushed = send(folder, files, to, tell)
    for one in noted:
        tell(" ".join(str(one.message).split()))
    return pushed

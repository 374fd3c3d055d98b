"""The `audit comment` command."""

from auditor.audit.pipeline import audit
from auditor.cli.console import (
    exit_code,
    put,
    talk,
)
from auditor.cli.printing import Shown, rendered
from auditor.options import AuditRequest, FailOn
from auditor.publishing.comment import comment as post
from auditor.publishing.comment import revision_of
from auditor.publishing.hub_writing import require_repository

_FORMAT = "markdown"


def comment(  # noqa: PLR0913 - one parameter for each option
    repository: str,
    *,
    number: int,
    target: str | None = None,
    fail_on: FailOn = FailOn.WARNING,
    dry_run: bool = False,
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Audit a pull request of the Hub, and post the report there.

    Replaces the comment that an earlier run posted. In a discussion without files, audits the main
    branch. Exit codes: those of audit; 3 also if the Hub refused.
    """
    name, tell = require_repository(repository), talk(quiet=quiet)
    revision = revision_of(name, number, token, reads_only=dry_run)
    model = f"{name}@{revision}" if revision else name
    outcome = audit(AuditRequest(model=model, target=target, token=token), say=tell)
    [report] = rendered([outcome], _FORMAT, Shown(), date="").values()  # it may be posted again
    if dry_run:
        put(report)
    else:
        done = post(name, number, report, token)
        verb = "posted" if done.is_new else "updated"
        tell(f"{verb} a comment of {done.author} in discussion {number} of {name}")
    return exit_code(outcome, fail_on)

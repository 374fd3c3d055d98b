"""--format agent: one short line of JSON a model, for programs that act on the answer.

The `hf` command has a format of this name, whose lines are short too. --format json has everything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from auditor.findings import Severity
from auditor.formats import View, verdict
from auditor.formats.as_json import as_object
from auditor.formats.json_values import json_text
from auditor.report import Report, Unaudited


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one file, with a line for each outcome."""
    return {"report.agent": "".join(f"{json_text(_line(outcome))}\n" for outcome in outcomes)}


def _line(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the verdict with the first cause, its fix, and the command that writes it.

    `cause` and `fix` are null if no cause was found, `command` if no command mends the files.
    """
    lead = verdict.leading_part(outcome)
    cause = verdict.headline_cause(lead)
    command = as_object(lead).get("fix_command") or {}
    severities = [finding.severity for finding in outcome.alarms]
    return {
        "model": outcome.model or outcome.requested,
        "commit": outcome.commit,
        "verdict": outcome.verdict,
        "reason": outcome.reason if isinstance(outcome, Unaudited) else None,
        "errors": severities.count(Severity.ERROR),
        "warnings": severities.count(Severity.WARNING),
        "summary": verdict.sentence(outcome),
        "cause": cause and cause.cause,
        "fix": cause and cause.fix,
        "command": command.get("command"),
    }

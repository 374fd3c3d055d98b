"""--format github: workflow commands, which GitHub Actions shows as annotations of files.

With -o it is a folder of all that a step of a workflow uses: these commands, the outputs of the
step, the report as Markdown for the summary, as JSON and as tables.

The runner executes each line that begins with `::` as a command. Values are escaped as GitHub's own
toolkit does (`%`, line ends, and `:` and `,` in properties), after the escapes for all output.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from auditor.findings import Severity
from auditor.formats import View, as_csv, as_json, as_markdown, verdict
from auditor.messages import printable
from auditor.report import Report, Unaudited

_FOLDER = "folder"  # the source of a model whose files are in the repository that is annotated


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """Return lines for each outcome: causes, alarms without a cause, and last the verdict.

    Unless they are printed, also return the outputs of a step and the other reports.
    """
    lines = (f"{line}\n" for outcome in outcomes for line in _lines(outcome))
    commands = {"report.github": "".join(lines)}
    if view.printed:
        return commands
    reports = (as_markdown, as_json, as_csv)
    others = {name: text for each in reports for name, text in each.files(outcomes, view).items()}
    return {**commands, "outputs": _outputs(outcomes), **others}


def _outputs(outcomes: Sequence[Report | Unaudited]) -> str:
    """Return the worst verdict and all causes, as lines for the file GITHUB_OUTPUT."""
    verdicts = {outcome.verdict for outcome in outcomes}
    worst = next((one for one in ("findings", "unaudited") if one in verdicts), "clean")
    every = (part for outcome in outcomes for part in outcome.every)
    causes = dict.fromkeys(cause.cause for part in every for cause in part.diagnosis)
    return f"verdict={worst}\ncauses={' '.join(causes)}\n"


def _lines(outcome: Report | Unaudited) -> Iterator[str]:
    for part in outcome.every:
        for cause in part.diagnosis:
            files_of_cause = [part.findings[at].file for at in cause.findings]
            text = f"{verdict.cause_sentence(cause)} To do: {cause.fix}"
            yield _command(cause.severity, outcome, next(iter(files_of_cause), None), text)
        for at, finding in enumerate(part.findings):
            if finding.severity is not Severity.INFO and at not in part.explained:
                counts = ", ".join(verdict.counts_of(finding))
                text = f"{finding.kind}{f' ({counts})' if counts else ''}: {finding.reason}"
                yield _command(finding.severity, outcome, finding.file, text)
    word, _ = verdict.word(outcome)
    level = "error" if isinstance(outcome, Unaudited) else "notice"
    yield _command(level, outcome, None, f"{word}: {verdict.sentence(outcome)}")


def _command(level: str, outcome: Report | Unaudited, file: str | None, text: str) -> str:
    properties = {"title": f"audit {outcome.model or outcome.requested}"}
    folder = PurePosixPath(outcome.requested)
    if file is not None and outcome.source == _FOLDER and not folder.is_absolute():
        properties = {"file": str(folder / file), **properties}
    shown = ",".join(
        f"{key}={_data(value).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in properties.items()
    )
    return f"::{level} {shown}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

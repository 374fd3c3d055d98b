"""--format github: workflow commands, which GitHub Actions shows as annotations of files.

The runner executes each line that begins with `::` as a command. Values are escaped as GitHub's own
toolkit does (`%`, line ends, and `:` and `,` in properties), after the escapes for all output.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from auditor.findings import Finding, Severity
from auditor.formats import View, verdict
from auditor.messages import printable
from auditor.report import Report, Unaudited

_FOLDER = "folder"  # the source of a model whose files are in the repository that is annotated


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return lines for each outcome: causes, alarms without a cause, and last the verdict."""
    lines = (f"{line}\n" for outcome in outcomes for line in _lines(outcome))
    return {"report.github": "".join(lines)}


def _lines(outcome: Report | Unaudited) -> Iterator[str]:
    for part in outcome.every:
        explained = {at for cause in part.diagnosis for at in cause.findings}
        for cause in part.diagnosis:
            files_of_cause = [part.findings[at].file for at in cause.findings]
            text = f"{verdict.as_sentence(cause.summary)} To do: {cause.fix}"
            yield _command(cause.severity, outcome, next(iter(files_of_cause), None), text)
        for at, finding in enumerate(part.findings):
            if finding.severity is not Severity.INFO and at not in explained:
                yield _command(finding.severity, outcome, finding.file, _in_words(finding))
    word, _ = verdict.word(outcome)
    level = "error" if isinstance(outcome, Unaudited) else "notice"
    yield _command(level, outcome, None, f"{word}: {verdict.sentence(outcome)}")


def _in_words(finding: Finding) -> str:
    counts = ", ".join(verdict.counts_of(finding))
    return f"{finding.kind}{f' ({counts})' if counts else ''}: {finding.reason}"


def _command(level: str, outcome: Report | Unaudited, file: str | None, text: str) -> str:
    properties = {"title": f"audit {outcome.model or outcome.requested}"}
    folder = PurePosixPath(outcome.requested)
    if file is not None and outcome.source == _FOLDER and not folder.is_absolute():
        properties = {"file": str(folder / file), **properties}
    shown = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{level} {shown}::{_data(text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

"""--format markdown: for a comment on a pull request, or a model card."""

from collections.abc import Iterator, Mapping, Sequence

from auditor.findings import Finding, Severity
from auditor.formats import View, verdict
from auditor.formats.markdown_text import code_cell, code_span, escaped_markdown
from auditor.formats.module_table import lines
from auditor.formats.text import counted
from auditor.formats.verdict import address
from auditor.reconciler.fold import fold
from auditor.report import Diagnosis, Report, Unaudited

_MOST_ROWS = 40
_MOST_PATTERNS = 30


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """Write all models into one text."""
    return {"report.md": "\n".join("\n".join(_model(outcome, view)) for outcome in outcomes)}


def _model(outcome: Report | Unaudited, view: View) -> Iterator[str]:
    name = code_span(outcome.model or outcome.requested)
    link = address(outcome)
    commit = f" @ {code_span(outcome.commit[:12])}" if outcome.commit else ""
    yield f"### {f'[{name}]({link})' if link else name}{commit}\n"
    word, _ = verdict.word(outcome)
    yield f"**{word}** {escaped_markdown(verdict.sentence(outcome))}  "
    yield f"{escaped_markdown(verdict.account(outcome))}\n"
    for one in outcome.diagnosis:
        yield from _cause(one)
    yield from _modules(outcome, view)
    for each in outcome.every:
        ordered = sorted(each.findings, key=lambda found: list(Severity).index(found.severity))
        for finding in ordered:
            yield from _finding(finding)
    if outcome.unchecked:
        yield f"Not checked: {escaped_markdown('; '.join(outcome.unchecked))}\n"


def _cause(one: Diagnosis) -> Iterator[str]:
    yield f"> **{one.cause}** {escaped_markdown(one.summary)}  "
    yield f"> Fix: {escaped_markdown(one.fix)}\n"


def _modules(outcome: Report | Unaudited, view: View) -> Iterator[str]:
    rows = lines(outcome.modules, view.depth)
    if not rows:
        return
    yield "| module | stored | expected | share | status |\n|---|--:|--:|--:|---|"
    for one in rows[:_MOST_ROWS]:
        figures = (
            "" if figure is None else f"{one.modules * figure:,}"
            for figure in (one.row.parameters, one.row.expected)
        )
        share = "" if one.row.share is None else f"{one.modules * one.row.share:.1%}"
        name = code_cell(one.pattern) if one.row.depth else "(whole model)"
        yield f"| {name} | {' | '.join(figures)} | {share} | {one.row.status} |"
    if len(rows) > _MOST_ROWS:
        yield f"| and {len(rows) - _MOST_ROWS:,} more | | | | |"
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    about = [code_span(file)] if (file := finding.file) else []
    about += [counted(finding.count, "name")] if finding.names else []
    about += [counted(finding.parameters, "parameter")] if finding.parameters else []
    shown = "" if finding.severity is Severity.INFO else " open"
    heading = f"<b>{finding.severity}: {finding.kind}</b>"
    yield f"<details{shown}><summary>{heading}</summary>\n"
    subject = f"{', '.join(about)}: " if about else ""
    yield f"{subject}{escaped_markdown(finding.reason)}\n"
    folded = fold(finding.names)
    for pattern in folded[:_MOST_PATTERNS]:
        yield f"- {code_span(pattern)}"
    if len(folded) > _MOST_PATTERNS:
        yield f"- and {len(folded) - _MOST_PATTERNS:,} more"
    yield "\n</details>\n"

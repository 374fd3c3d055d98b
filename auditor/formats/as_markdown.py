"""--format markdown: for a comment on a pull request, or a model card."""

from collections.abc import Iterator, Mapping, Sequence

from auditor.findings import Finding, Severity
from auditor.formats import View, verdict
from auditor.formats.escapes import code_span, escaped_markdown
from auditor.formats.module_table import lines, module_table
from auditor.formats.tables import cut_table, markdown_table
from auditor.formats.verdict import address, counts_of, engine_rows, first_patterns
from auditor.report import FixCommand, Report, Unaudited

_MOST_ROWS = 40
_MOST_PATTERNS = 30


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """Return one Markdown text, with a section for each model."""
    made = " on ".join(filter(None, (f"Made by hf-audit {view.auditor}", view.date)))
    texts = ["\n".join(_model(outcome, view)) for outcome in outcomes]
    return {"report.md": "\n".join([*texts, *([f"{made}.\n"] if view.auditor else [])])}


def _model(outcome: Report | Unaudited, view: View) -> Iterator[str]:
    name = code_span(outcome.model or outcome.requested)
    link = address(outcome)
    commit = f" @ {code_span(outcome.commit[:12])}" if outcome.commit else ""
    yield f"### {f'[{name}]({link})' if link else name}{commit}\n"
    word, _ = verdict.word(outcome)
    yield f"**{word}** {escaped_markdown(verdict.sentence(outcome))}  "
    yield f"{escaped_markdown(verdict.account(outcome))}\n"
    for fix in filter(None, (part.fix_command for part in outcome.every)):
        yield from _fix(fix)
    for why, cause in verdict.causes_to_print(outcome):
        if why:
            yield f"> {escaped_markdown(why)}  "
        yield f"> **Fix** ({cause.cause}): {escaped_markdown(cause.fix)}\n"
    for engine, text in engine_rows(outcome):
        yield f"- **{engine}** {escaped_markdown(text)}"
    if outcome.engines:
        yield ""
    if modules := lines(outcome.modules, view.depth):
        table = module_table(modules, "module", "stored", "expected", "share", "status")
        yield markdown_table(cut_table(table, _MOST_ROWS))
    for part in outcome.every:
        for finding in sorted(part.findings, key=lambda finding: finding.severity.rank):
            yield from _finding(finding)
    if outcome.unchecked:
        yield f"Not checked: {escaped_markdown('; '.join(outcome.unchecked))}\n"


def _fix(fix: FixCommand) -> Iterator[str]:
    yield f"```\n{fix.command}\n```\n\nIt {escaped_markdown(fix.effect)}."
    for one in fix.allows:
        yield f"- `--allow {one.allow}`: {escaped_markdown(one.consequence)}"
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    about = [*([code_span(finding.file)] if finding.file else []), *counts_of(finding)]
    is_open = "" if finding.severity is Severity.INFO else " open"
    heading = f"<b>{finding.severity}: {finding.kind}</b>"
    yield f"<details{is_open}><summary>{heading}</summary>\n"
    subject = f"{', '.join(about)}: " if about else ""
    yield f"{subject}{escaped_markdown(finding.reason)}\n"
    patterns, more = first_patterns(finding, _MOST_PATTERNS)
    yield from (f"- {code_span(pattern)}" for pattern in patterns)
    if more:
        yield f"- {more}"
    yield "\n</details>\n"

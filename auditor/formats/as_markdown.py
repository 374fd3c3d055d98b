"""--format markdown: for a comment on a pull request, or a model card."""

import re
from collections.abc import Iterator, Mapping, Sequence

from auditor.formats import View, verdict
from auditor.formats.finding_text import file_of
from auditor.formats.module_table import lines
from auditor.formats.text import counted, printable
from auditor.formats.verdict import address
from auditor.reconciler.findings import Finding, Severity, count_of
from auditor.reconciler.fold import fold
from auditor.report import Diagnosis, Report, Unaudited

_MOST_ROWS = 40
_MOST_PATTERNS = 30
_MARKED = re.compile(r"[\\`*_{}\[\]()#+!|~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CUT = "<!-- -->"  # between characters that would make a mention or a link
_LINKED = re.compile(r"(?<=@)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_TICKS = re.compile("`+")


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """One text of all models."""
    return {"report.md": "\n".join("\n".join(_model(outcome, view)) for outcome in outcomes)}


def as_it_is(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no link, nobody mentioned."""
    shown = _LINKED.sub("\0", printable(text))
    shown = "".join(_ENTITIES.get(char, char) for char in shown)
    return _MARKED.sub(r"\\\g<0>", shown).replace("\0", _CUT)


def code_span(text: str) -> str:
    """A name as it is, between backticks of which it has no such run."""
    shown = printable(text)
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    space = " " if not shown.strip() or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _model(outcome: Report | Unaudited, view: View) -> Iterator[str]:
    name = code_span(outcome.model or outcome.requested)
    link = address(outcome)
    commit = f" @ {code_span(outcome.commit[:12])}" if outcome.commit else ""
    yield f"### {f'[{name}]({link})' if link else name}{commit}\n"
    word, _ = verdict.word(outcome)
    yield f"**{word}** {as_it_is(verdict.sentence(outcome))}  "
    yield f"{as_it_is(verdict.account(outcome))}\n"
    for one in outcome.diagnosis:
        yield from _cause(one)
    yield from _modules(outcome, view)
    for each in outcome.every:
        ordered = sorted(each.findings, key=lambda found: list(Severity).index(found.severity))
        for finding in ordered:
            yield from _finding(finding)
    if outcome.unchecked:
        yield f"Not checked: {as_it_is('; '.join(outcome.unchecked))}\n"


def _cause(one: Diagnosis) -> Iterator[str]:
    yield f"> **{one.cause}** {as_it_is(one.summary)}  "
    yield f"> Fix: {as_it_is(one.fix)}\n"


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
        name = code_span(one.pattern).replace("|", r"\|") if one.row.depth else "(whole model)"
        yield f"| {name} | {' | '.join(figures)} | {share} | {one.row.status} |"
    if len(rows) > _MOST_ROWS:
        yield f"| and {len(rows) - _MOST_ROWS:,} more | | | | |"
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    about = [code_span(file)] if (file := file_of(finding)) else []
    about += [counted(count_of(finding), "name")] if finding.names else []
    about += [counted(finding.parameters, "parameter")] if finding.parameters else []
    shown = "" if finding.severity is Severity.INFO else " open"
    heading = f"<b>{finding.severity}: {finding.kind}</b>"
    yield f"<details{shown}><summary>{heading}</summary>\n"
    said = ", ".join(about)
    yield f"{said}: {as_it_is(finding.reason)}\n" if said else f"{as_it_is(finding.reason)}\n"
    folded = fold(finding.names)
    for pattern in folded[:_MOST_PATTERNS]:
        yield f"- {code_span(pattern)}"
    if len(folded) > _MOST_PATTERNS:
        yield f"- and {len(folded) - _MOST_PATTERNS:,} more"
    yield "\n</details>\n"

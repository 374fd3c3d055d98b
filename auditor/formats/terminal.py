"""The terminal text of an outcome: model, verdict, account, why, what differs, the modules."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.component_table import component_table
from auditor.formats.finding_text import afresh_text, cause_text, finding_text, unused_text
from auditor.formats.module_lines import lines
from auditor.formats.module_table import expected_table, stored_table
from auditor.formats.plain_console import (
    grid,
    indented,
    plain_console,
    shown,
    without_trailing_spaces,
)
from auditor.formats.report_details import details, facts
from auditor.formats.share_table import share_table
from auditor.formats.text import as_ascii, cut_middle, printable, size
from auditor.formats.verdict import account, sentence, word
from auditor.formats.view import View
from auditor.reconciler.findings import NewlyInitialized, Severity, Unused, count_of
from auditor.report import Report, Unaudited

_NAMED_SOURCES = {"bundled", "cache", "snapshot"}
_MOST_DTYPES = 3  # in the title
_MAX_ROWS = 60  # of the table of a config alone, where not all is asked for
_TOPIC = 40  # characters of what was not checked
_SAMPLED = "values: sampled "
_INDENT = 4  # of the account, where the verdict is one word


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """One text of all outcomes."""
    return {"report.txt": "\n".join(render(outcome, view) for outcome in outcomes)}


def render(outcome: Report | Unaudited, view: View | None = None) -> str:
    """The outcome as text for people: the first lines answer, details follow.

    Sentences wrap at the width, figures are never cut. The module table goes down to the depth;
    verbose lists all modules and names, the formula, and where everything comes from.
    """
    view = view or View()
    text = io.StringIO()
    console = plain_console(text, color=view.color)
    for at, block in enumerate(filter(None, map(list, _blocks(outcome, view)))):
        if at:
            console.print()
        for part in block:
            console.print(part, width=None if isinstance(part, Table) else view.width)
    made = without_trailing_spaces(text)
    return as_ascii(made) if view.ascii_only else made


def _blocks(outcome: Report | Unaudited, view: View) -> Iterator[Iterator[RenderableType]]:
    yield _title(outcome)
    yield _verdict(outcome)
    for one in outcome.every:
        yield from _of_one(one, view)
    if outcome.parts:
        yield iter((component_table(outcome, view.width),))
    elif outcome.modules:
        yield _modules(outcome, view)
    if view.verbose:
        yield iter((grid(facts(outcome), view.width),))
        yield iter((grid(details(outcome), view.width),))
        yield _unchecked(outcome)
    else:
        yield _last(outcome)


def _title(outcome: Report | Unaudited) -> Iterator[RenderableType]:
    title = Text(shown(outcome.model or outcome.requested), style="bold")
    rest = f" @ {shown(outcome.commit[:12])}" if outcome.commit else ""
    if outcome.source in _NAMED_SOURCES:
        rest += f" ({outcome.source})"
    foreign = outcome.declared and outcome.target and outcome.target not in outcome.declared
    declared = f" (declared: {', '.join(outcome.declared)})" if foreign else ""
    target = f"{shown(outcome.target)}{shown(declared)}" if outcome.target else ""
    for part in filter(None, (target, _files(outcome))):
        rest += f" \N{MIDDLE DOT} {part}"
    yield title.append(rest, style="not bold")


def _files(outcome: Report | Unaudited) -> str:
    """`1 file, 392 MiB, F32`."""
    observed = outcome.observed
    if observed is None:
        return ""
    said = [f"{observed.files:,} {'file' if observed.files == 1 else 'files'}"]
    if observed.bytes is not None:
        said.append(size(observed.bytes, digits=3))
    most = sorted(observed.by_dtype, key=lambda one: -one[1])
    said += [shown(dtype) for dtype, _ in most[:_MOST_DTYPES]]
    if len(most) > _MOST_DTYPES:
        said.append(f"{len(most) - _MOST_DTYPES} more dtypes")
    if observed.layout:
        said.append(shown(observed.layout))
    return ", ".join(said)


def _verdict(outcome: Report | Unaudited) -> Iterator[RenderableType]:
    said, style = word(outcome)
    indent = max(_INDENT, len(said) + 2)
    row = Table.grid(padding=(0, 2, 0, 0), expand=True)
    row.add_column(no_wrap=True, min_width=_INDENT - 2)
    row.add_column(overflow="fold", ratio=1)
    row.add_row(Text(said, style), Text(shown(sentence(outcome))))
    yield Padding(row, (0, 0, 0, 0))
    if counts := account(outcome):
        yield indented(counts, indent)


def _of_one(one: Report | Unaudited, view: View) -> Iterator[Iterator[RenderableType]]:
    """Causes and findings of a whole or, under a heading, of a part; its notes go with them."""
    blocks = [list(block) for block in _told(one, view)]
    if one.component is not None and any(blocks):
        yield iter((Text(f"in {shown(one.component)}", style="bold"),))
    yield from map(iter, blocks)


def _told(one: Report | Unaudited, view: View) -> Iterator[Iterator[RenderableType]]:
    yield (indented(f"note: {shown(note)}", 0) for note in one.notes)
    yield from (cause_text(each, one.findings) for each in one.diagnosis)
    explained = {at for each in one.diagnosis for at in each.findings}
    ranks = list(Severity)
    ranked = sorted(enumerate(one.findings), key=lambda both: ranks.index(both[1].severity))
    for at, finding in ranked:
        quiet = finding.severity is Severity.INFO or at in explained
        if view.verbose or not quiet:
            yield finding_text(finding, view.width, verbose=view.verbose)
    for finding in one.ignored:
        yield finding_text(finding, view.width, verbose=view.verbose, ignored=True)
    if not view.verbose:
        yield unused_text(one, view.width)
        yield afresh_text(one, view.width)


def _modules(outcome: Report | Unaudited, view: View) -> Iterator[RenderableType]:
    if outcome.observed and not view.verbose:
        if outcome.observed.tensors or outcome.expected:
            yield from share_table(outcome.modules, view.depth, view.width)
        return
    found = lines(outcome.modules, view.depth)
    rows = found if view.verbose else found[:_MAX_ROWS]
    yield (stored_table if outcome.observed else expected_table)(rows, view.width)
    if len(found) > len(rows):
        yield Text(f"and {len(found) - len(rows):,} rows more")


def _last(outcome: Report | Unaudited) -> Iterator[RenderableType]:
    """A line for what is fine, and for what was not checked."""
    told = (Unused, NewlyInitialized)
    fine: Counter[str] = Counter()
    for one in outcome.every:
        for finding in one.findings:
            if finding.severity is Severity.INFO and not isinstance(finding, told):
                fine[finding.kind] += count_of(finding)
    said = []
    if fine:
        said.append(f"Fine: {', '.join(f'{count:,} {kind}' for kind, count in fine.items())}.")
    if outcome.expected and outcome.expected.library:
        said.append(f"Expected by the oracle, {outcome.expected.library}.")
    sampled = [one for one in outcome.unchecked if one.startswith(_SAMPLED)]
    said += [f"{one[:1].upper()}{one[1:]}." for one in map(printable, sampled)]
    if topics := dict.fromkeys(_topic(one) for one in outcome.unchecked if one not in sampled):
        said.append(f"Not checked: {', '.join(topics)}.")
    if said:
        yield Text(f"{' '.join(said)} -v says more.", "dim")


def _topic(sentence: str) -> str:
    """What a sentence of what was not checked is about: it stands before the colon."""
    return cut_middle(printable(sentence.partition(": ")[0]), _TOPIC)


def _unchecked(outcome: Report | Unaudited) -> Iterator[RenderableType]:
    if outcome.unchecked:
        yield Text("not checked")
        yield from (indented(shown(text), 2) for text in outcome.unchecked)

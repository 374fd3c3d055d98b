"""The terminal text of an outcome: model, verdict, counts, causes, findings, modules."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from auditor.companions.companion_files import TOKENIZER
from auditor.findings import (
    EngineRefuses,
    Finding,
    NewlyInitialized,
    OfValues,
    Severity,
    TokenizerNote,
    Unused,
    kind_of,
)
from auditor.formats import View
from auditor.formats.finding_text import (
    ARROW,
    cause_text,
    finding_text,
    newly_initialized_text,
    unused_text,
)
from auditor.formats.module_table import Part, lines, module_table, parts_of
from auditor.formats.tables import (
    STATUS_STYLES,
    Heading,
    Share,
    SimpleTable,
    fitted_rows,
    right_columns,
    styled_rows,
    without_unknown_columns,
)
from auditor.formats.text import (
    Style,
    Styled,
    StyledLine,
    as_ascii,
    cells_of,
    columns,
    counted,
    cut_middle,
    lines_text,
    shown,
    size,
    styled,
    wrapped,
)
from auditor.formats.verdict import (
    account,
    as_sentence,
    engine_rows,
    engines_heading,
    headline_cause,
    headline_finding,
    leading_part,
    sentence,
    word,
    worst_finding,
)
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Diagnosis, Expected, Observed, Report, Unaudited

_NAMED_SOURCES = {"bundled", "cache", "snapshot"}
_MOST_DTYPES = 3  # most dtypes in the title
_MAX_ROWS = 60  # most module rows if only a config was read, unless verbose
_TOPIC = 40  # most characters of a topic that was not checked
_SOURCES = {
    "closed-form": "the closed form",
    "generated": "a generated form",
    "oracle": "the oracle",
}
_SAMPLED = "values: sampled "
_OPTIONS = {"values": "--values"}  # topic that was not checked -> the option that checks it
_CLAUSE = re.compile(r"[;,:.] ")  # what ends the first clause of an advice
_NAMED_OPTIONS = ("--torch-copies",)  # options that the sentence itself names
_LABEL = 9  # cells of a label
_INDENT = 4  # indentation of the line of counts, if the verdict is one word


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    return {"report.txt": "\n".join(render(outcome, view) for outcome in outcomes)}


def render(outcome: Report | Unaudited, view: View | None = None) -> str:
    """Return the outcome as text for people: first the verdict, then details.

    Sentences wrap at `view.width`; numbers are never cut. The module table goes down to
    `view.depth`. `view.verbose` adds all modules and names, the formula, and the sources.
    """
    view = view or View()
    blocks = [lines_text(block, color=view.color) for block in _blocks(outcome, view)]
    text = "\n".join(filter(None, blocks))
    return as_ascii(text) if view.ascii_only else text


def _blocks(outcome: Report | Unaudited, view: View) -> Iterator[Iterator[StyledLine]]:
    yield _title(outcome, view.width)
    yield _verdict(outcome, view)
    if outcome.engines:
        yield _engines(outcome, view.width)
    lead = leading_part(outcome)
    for part in outcome.every:
        yield from _of_part(part, view, is_lead=part is lead)
    if outcome.parts:
        yield component_table(outcome, view.width)
    elif outcome.modules:
        yield _modules(outcome, view)
    if view.verbose:
        yield _labelled(facts(outcome), view.width)
        yield _labelled(details(outcome), view.width)
        yield _unchecked(outcome, view.width)
    else:
        yield _last(outcome, view.width)


def _title(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    facts = f" @ {shown(outcome.commit[:12])}" if outcome.commit else ""
    if outcome.source in _NAMED_SOURCES:
        facts += f" ({outcome.source})"
    is_declared = not outcome.declared or outcome.target in outcome.declared
    declared = "" if is_declared else f" (declared: {', '.join(outcome.declared)})"
    target = f"{shown(outcome.target)}{shown(declared)}" if outcome.target else ""
    for fact in filter(None, (target, _files(outcome))):
        facts += f" \N{MIDDLE DOT} {fact}"
    return wrapped(((shown(outcome.model or outcome.requested), "bold"), (facts, "")), width)


def _files(outcome: Report | Unaudited) -> str:
    """Return `1 file, 392 MiB, F32`."""
    observed = outcome.observed
    if observed is None:
        return ""
    facts = [counted(observed.files, "file")]
    if observed.bytes is not None:
        facts.append(size(observed.bytes, digits=3))
    dtypes = sorted(observed.by_dtype, key=lambda pair: -pair[1])
    facts += [shown(dtype) for dtype, _ in dtypes[:_MOST_DTYPES]]
    if len(dtypes) > _MOST_DTYPES:
        facts.append(f"{len(dtypes) - _MOST_DTYPES} more dtypes")
    if observed.layout:  # GGUF's repeats the dtypes
        is_gguf = observed.layout.startswith("gguf, ")
        facts.append("gguf" if is_gguf else shown(observed.layout))
    return ", ".join(facts)


def _verdict(outcome: Report | Unaudited, view: View) -> Iterator[StyledLine]:
    """Yield the headline, what to do, whether anything else is wrong, and the sum of counts."""
    text, style = word(outcome)
    rows: list[Sequence[Styled | str]] = [
        ((f"{text:<{_INDENT - 2}}", style), shown(sentence(outcome)))
    ]
    arrow: Styled = (f"  {ARROW}", "bold")
    fixes = [part.fix_command for part in outcome.every if part.fix_command is not None]
    for at, fix in enumerate(fixes):
        rows.append((arrow if not at else "", f"{shown(fix.command)}   ({fix.effect})"))
        rows += [("", shown(f"--allow {one.allow}: {one.consequence}")) for one in fix.allows]
    lead = leading_part(outcome)
    if (cause := headline_cause(lead)) is not None:
        by_hand = f"by hand: {cause.fix}" if lead.fix_command else cause.fix
        rows.append(("" if fixes else arrow, shown(by_hand)))
        rows.append(("", shown(_extent(lead, cause, outcome))))
    elif not fixes and (worst := worst_finding(lead)) is not None:
        rows.append((arrow, kind_of(worst).to_do.partition(". ")[0].removesuffix(".")))
    if counts := account(outcome):
        rows.append(("", counts))
    yield from columns(rows, gap=2, width=view.width)


def _engines(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    yield from wrapped(styled(engines_heading(outcome), "dim"), width)
    rows = [(label, shown(text)) for label, text in engine_rows(outcome)]
    yield from columns(rows, gap=2, width=width)


def _extent(outcome: Report | Unaudited, cause: Diagnosis, whole: Report | Unaudited) -> str:
    """Return what the headline's cause explains, whether more is wrong, and the cause's name.

    `whole` is the outcome itself, or the repository of which it is one of several models.
    """
    is_only = len(whole.alarms) == len(outcome.alarms)
    clauses = []
    if cause.explains and cause.explains != "the one name":
        clauses.append(f"this explains {cause.explains}")
    if outcome.is_explained and is_only and not whole.unread:
        clauses.append("nothing else is wrong")
    elif not is_only or (not clauses and len(outcome.alarms) > len(cause.findings)):
        clauses.append("more is wrong, see below")
    extent = f"{as_sentence('; '.join(clauses))} " if clauses else ""
    return f"{extent}(cause: {cause.cause})"


def _of_part(
    part: Report | Unaudited, view: View, *, is_lead: bool
) -> Iterator[Iterator[StyledLine]]:
    """Yield notes, causes and findings of the model or, under a heading, of a component."""
    blocks = [list(block) for block in _explained(part, view, is_lead=is_lead)]
    if part.component is not None and any(blocks):
        yield iter((styled(f"in {shown(part.component)}", "bold"),))
    yield from map(iter, blocks)


def _is_note(finding: Finding) -> bool:
    """Whether a finding's reason is printed as a note: true only for info about tokenizer.json."""
    return TokenizerNote.describes(finding) and finding.file == TOKENIZER


def _explained(
    part: Report | Unaudited, view: View, *, is_lead: bool
) -> Iterator[Iterator[StyledLine]]:
    quiet = () if view.verbose else part.findings
    notes = (*part.notes, *(one.reason for one in quiet if _is_note(one)))
    if (absent := part.checked.get("tokenizer")) is not None:
        notes = (*notes, absent.text)
    yield (line for note in notes for line in wrapped(f"note: {shown(note)}", view.width))
    headline = headline_cause(part) if is_lead else None
    yield from (cause_text(one, view.width) for one in part.diagnosis if one is not headline)
    worst = headline_finding(part) if is_lead else None
    ranked = sorted(enumerate(part.findings), key=lambda pair: pair[1].severity.rank)
    for at, finding in ranked:
        if EngineRefuses.describes(finding):  # the list of engines says it
            continue
        if view.verbose or not (_is_harmless(finding) or at in part.explained):
            is_said = finding is worst
            yield finding_text(finding, view.width, verbose=view.verbose, reason=not is_said)
    for finding in part.ignored:
        yield finding_text(finding, view.width, verbose=view.verbose, ignored=True)
    if not view.verbose:
        yield unused_text(part, view.width)
        yield newly_initialized_text(part, view.width)


def _is_harmless(finding: Finding) -> bool:
    """Whether a finding is only counted, not printed: true for info, except about numbers."""
    return finding.severity is Severity.INFO and not isinstance(finding, OfValues)


def _labelled(rows: Iterator[tuple[str, str]], width: int) -> Iterator[StyledLine]:
    """Align the labels in one column, and wrap their texts in the next column."""
    cells: list[Sequence[Styled | str]] = []
    for label, text in rows:
        cells.append(((f"{label:<{_LABEL}}", "dim"), shown(text)))
    return columns(cells, gap=2, width=width)


def _last(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Yield the last paragraph: harmless findings, source of expectations, unchecked aspects."""
    fine: Counter[str] = Counter()
    for part in outcome.every:
        for finding in part.findings:
            is_listed = finding.kind in {Unused.kind, NewlyInitialized.kind} or _is_note(finding)
            if _is_harmless(finding) and not is_listed:
                fine[finding.kind] += finding.count
    sentences = []
    if fine:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in fine.items())
        sentences.append(f"{'Also' if outcome.unread else 'Fine'}: {kinds}.")
    if outcome.expected and outcome.expected.library:
        sentences.append(
            f"Expected by {_SOURCES[outcome.expected.by]}, {outcome.expected.library}."
        )
    sampled = [text for text in outcome.unchecked if text.startswith(_SAMPLED)]
    sentences += [f"{text[:1].upper()}{text[1:]}." for text in sampled]
    topics = dict.fromkeys(_topic(text) for text in outcome.unchecked if text not in sampled)
    if topics:
        sentences.append(f"Not checked: {', '.join(topics)}.")
    if sentences:
        yield from wrapped(styled(f"{' '.join(sentences)} -v says more.", "dim"), width)


def _topic(text: str) -> str:
    """Return the subject of a sentence, with the option that checks it if there is one."""
    subject, _, reason = text.partition(": ")
    option = _OPTIONS.get(subject) or next((one for one in _NAMED_OPTIONS if one in reason), None)
    topic = cut_middle(subject, _TOPIC)
    return f"{topic} ({option})" if option else topic


def _unchecked(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    if outcome.unchecked:
        yield styled("not checked")
    for text in outcome.unchecked:
        yield from wrapped(shown(text), width, 2)


# --- tables -------------------------------------------------------------------------------------


_BAR = 20  # cells of a bar of 100 %
_LONGEST_FOLDER = 24  # most cells of a folder
_VERDICT = 11  # cells of the longest verdict, NOT AUDITED
_CLASS_ROOM = 12  # least cells of a class, where numbers would fill a narrow terminal
_VERDICT_STYLES: Mapping[str, Style] = {
    "clean": "green",
    "findings": "bold red",
    "unaudited": "yellow",
}
_STORED = ("module", "tensors", "stored", "share", "expected", "difference", "status")


def _modules(outcome: Report | Unaudited, view: View) -> Iterator[StyledLine]:
    if outcome.observed and not view.verbose:
        if outcome.observed.tensors or outcome.expected:
            yield from _share_table(parts_of(outcome.modules, view.depth), view.width)
        return
    modules = lines(outcome.modules, view.depth)
    listed = modules if view.verbose else modules[:_MAX_ROWS]
    if outcome.observed:
        table = without_unknown_columns(module_table(listed, *_STORED))
        rows = fitted_rows(table, view.width)
    else:
        table = module_table(listed, "module", "expected", "formula")
        rows = styled_rows(table, room=view.width // 2)
    yield from columns(rows, right=right_columns(table))
    if len(modules) > len(listed):
        yield styled(f"and {len(modules) - len(listed):,} rows more")


def _share_table(parts: Sequence[Part], width: int) -> Iterator[StyledLine]:
    """Yield the rows of a model's parts, with bars for their shares if there is room."""
    if not parts:
        return
    is_stored = any(part.stored is not None for part in parts)
    is_expected = any(part.expected is not None for part in parts)
    names = (*("stored",) * is_stored, *("expected",) * is_expected, *("share",) * is_stored)
    cells = [
        {
            "stored": part.stored,
            "expected": "=" if part.stored == part.expected else part.expected,
            "share": Share(part.share or 0),
        }
        for part in parts
    ]
    table = SimpleTable(
        "parts",
        ("module", *names, ""),
        tuple(
            (
                part.name,
                *map(cell.get, names),
                (part.note, STATUS_STYLES.get(part.status, "dim")),
            )
            for part, cell in zip(parts, cells, strict=True)
        ),
    )
    rows = fitted_rows(table, width, gap=2)
    taken = sum(max(cells_of(row[at][0]) for row in rows) + 2 for at in range(len(table.columns)))
    bars = []
    for part in parts if is_stored else ():
        thin = "\N{LEFT ONE EIGHTH BLOCK}" if part.share else ""  # so that it is visible
        bars.append("\N{FULL BLOCK}" * round((part.share or 0) * _BAR) or thin)
    if bars and max(map(len, bars)) <= width - taken:
        for row, bar in zip(rows, ("", *bars), strict=True):
            row.insert(-1, (bar, "cyan"))
    yield from columns(rows, right=range(1, len(names) + 1), gap=2)


def component_table(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Yield a row for each component: folder, class (cut to fit), parameters, verdict."""
    rows: list[tuple[object, ...]] = []
    for part in outcome.every[1:]:
        status = str(part.reason if isinstance(part, Unaudited) else part.verdict)
        folder = cut_middle(part.component or "-", _LONGEST_FOLDER)
        mark = (status, _VERDICT_STYLES[part.verdict])
        rows.append((folder, part.target, *_parameters(part), mark))
    rows.append((Heading("all"), "", *_parameters(outcome), ""))
    headings = ("component", "class", "parameters", "expected", "status")
    table = SimpleTable("components", headings, tuple(rows))
    return columns(fitted_rows(table, width, cut=1, least=_CLASS_ROOM), right={2, 3})


class ClosingRow(NamedTuple):
    """The row of one of several models in the closing table."""

    model: str
    verdict: Styled
    cause: str  # and what to do about it; "" if nothing is wrong


def one_line(outcome: Report | Unaudited, width: int, name_columns: int) -> StyledLine:
    """Return the verdict, the model, and as much of the headline as fits into one line."""
    text, style = word(outcome)
    longest = width * 2 // 5
    name = (
        f"{cut_middle(outcome.model or outcome.requested, longest):<{min(name_columns, longest)}}"
    )
    room = width - _VERDICT - len("  ") - cells_of(name) - len("  ")
    said = outcome.reason if isinstance(outcome, Unaudited) else sentence(outcome)
    [(_, (start, _)), *rest] = wrapped(shown(said), room - len(" ~"))
    headline = cut_middle(f"{start} \N{HORIZONTAL ELLIPSIS}" if rest else start, room)
    return (f"{text:<{_VERDICT}}", style), (f"  {name}  ", "bold"), (headline, "")


def closing_row(outcome: Report | Unaudited) -> ClosingRow:
    """Return a model's row: the command that mends it, else the first clause of an advice."""
    fix = outcome.fix_command and outcome.fix_command.command
    name, verdict = outcome.model or outcome.requested, word(outcome)
    if isinstance(outcome, Unaudited):
        return ClosingRow(name, verdict, outcome.reason)
    why, to_do = "", fix or ""
    if (cause := headline_cause(outcome)) is not None:
        why, to_do = cause.cause, fix or _CLAUSE.split(cause.fix, maxsplit=1)[0]
    elif (worst := worst_finding(outcome)) is not None:
        why, to_do = worst.kind, fix or _CLAUSE.split(kind_of(worst).to_do, maxsplit=1)[0]
    elif bad_parts := [part for part in outcome.parts if part.verdict != "clean"]:
        why = f"{bad_parts[0].component}: {closing_row(bad_parts[0]).cause}"
    elif outcome.verdict != "clean":
        why = next((one.kind for one in outcome.findings if one.severity is not Severity.INFO), "")
    return ClosingRow(name, verdict, f"{why} {ARROW} {to_do}" if to_do else why)


def closing_table(rows: Sequence[ClosingRow], width: int) -> Iterator[StyledLine]:
    """Yield a row for each of several models, the worst last: verdict, cause, what to do."""
    ranks = ["OK", "WARNING", "NOT AUDITED", "ERROR"]
    headings = ("model", "verdict", f"cause {ARROW} what to do")
    cells: list[Sequence[Styled | str]] = [[(text, "bold") for text in headings]]
    cells += [
        (cut_middle(row.model, width * 2 // 5), row.verdict, shown(row.cause))
        for row in sorted(rows, key=lambda row: ranks.index(row.verdict[0]))
    ]
    return columns(cells, gap=2, width=width)


def _parameters(part: Report | Unaudited) -> tuple[int | None, int | None]:
    stored = part.observed.parameters if part.observed else None
    return stored, part.expected.parameters if part.expected else None


# --- what verbose adds -------------------------------------------------------------------------


def details(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """Yield (label, text) rows about the request, the source, the counts and the claims."""
    if outcome.model and outcome.model != outcome.requested:
        yield "requested", outcome.requested
    if outcome.model_type:
        yield "type", outcome.model_type
    if outcome.source:
        yield "source", outcome.source + (f": {outcome.origin}" if outcome.origin else "")
    if outcome.fetched.requests:
        fetched = outcome.fetched
        took = f"{counted(fetched.requests, 'request')}, {counted(fetched.bytes, 'byte')}"
        yield "fetched", f"{took}, {fetched.seconds:.2f} s"
    if outcome.observed:
        yield "stored", _stored(outcome.observed)
    if outcome.values:
        yield "values", _values(outcome.values)
    for claim in outcome.claims:
        yield "claim", f"{claim.where} ({claim.key}): {claim.text}, {claim.verdict}"
    if outcome.expected:
        yield "expected", _expected(outcome.expected)


def _stored(observed: Observed) -> str:
    tensors = counted(observed.tensors, "tensor")
    if observed.elements is None or observed.bytes is None:
        return f"{tensors}; no header was read"
    numbers = f"{counted(observed.elements, 'element')} in {counted(observed.bytes, 'byte')}"
    trainable = "" if observed.trainable is None else f", {observed.trainable:,} of them trainable"
    return f"{tensors}, {numbers}{trainable}"


def _values(values: ValuesRead) -> str:
    read, tensors = counted(values.bytes, "byte"), counted(len(values.tensors), "tensor")
    if not values.sampled:
        return f"{read} of numbers read, in {tensors}"
    return f"sampled: {read} in {tensors}, of {values.of:,} in {values.of_tensors:,}"


def _expected(expected: Expected) -> str:
    library = f" ({expected.library})" if expected.library else ""
    tensors = counted(expected.tensors, "tensor")
    by = _SOURCES[expected.by]
    return f"{counted(expected.parameters, 'parameter')} in {tensors}, by {by}{library}"


def facts(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """Yield (label, text) rows: the formula, its letters, and the stored elements of each dtype."""
    expected, observed = outcome.expected, outcome.observed
    if expected and (expected.legend or expected.by == "closed-form"):  # others are the total
        yield "formula", expected.formula
    if expected and expected.legend:
        letters = (
            f"{symbol.letter} = {f'{symbol.formula} = ' if symbol.formula else ''}{symbol.value} "
            f"({symbol.key}{', default' if symbol.default else ''})"
            for symbol in expected.legend
        )
        yield "where", ", ".join(letters)
    if observed and observed.by_dtype:
        yield "dtypes", ", ".join(f"{dtype} {count:,}" for dtype, count in observed.by_dtype)

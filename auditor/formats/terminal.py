"""The terminal text of an outcome: model, verdict, account, why, what differs, the modules."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from auditor.findings import NewlyInitialized, Severity, Unused
from auditor.formats import View
from auditor.formats.finding_text import (
    cause_text,
    finding_text,
    newly_initialized_text,
    unused_text,
)
from auditor.formats.module_table import expected_table, lines, share_table, stored_table
from auditor.formats.text import (
    Style,
    Styled,
    StyledLine,
    as_ascii,
    columns,
    counted,
    cut_middle,
    header_row,
    lines_text,
    shown,
    size,
    styled,
    wrapped,
)
from auditor.formats.verdict import account, sentence, word
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Expected, Observed, Report, Unaudited

_NAMED_SOURCES = {"bundled", "cache", "snapshot"}
_MOST_DTYPES = 3  # in the title
_MAX_ROWS = 60  # of the table of a config alone, where not all is asked for
_TOPIC = 40  # characters of what was not checked
_SAMPLED = "values: sampled "
_LABEL = 9  # cells of a label
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
    blocks = [lines_text(block, color=view.color) for block in _blocks(outcome, view)]
    text = "\n".join(filter(None, blocks))
    return as_ascii(text) if view.ascii_only else text


def _blocks(outcome: Report | Unaudited, view: View) -> Iterator[Iterator[StyledLine]]:
    yield _title(outcome, view.width)
    yield _verdict(outcome, view.width)
    for one in outcome.every:
        yield from _of_one(one, view)
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
    rest = f" @ {shown(outcome.commit[:12])}" if outcome.commit else ""
    if outcome.source in _NAMED_SOURCES:
        rest += f" ({outcome.source})"
    foreign = outcome.declared and outcome.target and outcome.target not in outcome.declared
    declared = f" (declared: {', '.join(outcome.declared)})" if foreign else ""
    target = f"{shown(outcome.target)}{shown(declared)}" if outcome.target else ""
    for part in filter(None, (target, _files(outcome))):
        rest += f" \N{MIDDLE DOT} {part}"
    return wrapped(((shown(outcome.model or outcome.requested), "bold"), (rest, "")), width)


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


def _verdict(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    said, style = word(outcome)
    label = f"{said:<{_INDENT - 2}}"
    yield from columns([((label, style), shown(sentence(outcome)))], gap=2, width=width)
    if counts := account(outcome):
        yield from wrapped(counts, width, max(_INDENT, len(said) + 2))


def _of_one(one: Report | Unaudited, view: View) -> Iterator[Iterator[StyledLine]]:
    """Causes and findings of a whole or, under a heading, of a part; its notes go with them."""
    blocks = [list(block) for block in _told(one, view)]
    if one.component is not None and any(blocks):
        yield iter((styled(f"in {shown(one.component)}", "bold"),))
    yield from map(iter, blocks)


def _told(one: Report | Unaudited, view: View) -> Iterator[Iterator[StyledLine]]:
    yield (line for note in one.notes for line in wrapped(f"note: {shown(note)}", view.width))
    yield from (cause_text(each, one.findings, view.width) for each in one.diagnosis)
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
        yield newly_initialized_text(one, view.width)


def _modules(outcome: Report | Unaudited, view: View) -> Iterator[StyledLine]:
    if outcome.observed and not view.verbose:
        if outcome.observed.tensors or outcome.expected:
            yield from share_table(outcome.modules, view.depth, view.width)
        return
    found = lines(outcome.modules, view.depth)
    rows = found if view.verbose else found[:_MAX_ROWS]
    yield from (stored_table if outcome.observed else expected_table)(rows, view.width)
    if len(found) > len(rows):
        yield styled(f"and {len(found) - len(rows):,} rows more")


def _labelled(rows: Iterator[tuple[str, str]], width: int) -> Iterator[StyledLine]:
    """Labels in one column, and in the next the text of each, which wraps."""
    made: list[Sequence[Styled | str]] = []
    for label, text in rows:
        made.append(((f"{label:<{_LABEL}}", "dim"), shown(text)))
    return columns(made, gap=2, width=width)


def _last(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """A line for what is fine, and for what was not checked."""
    told = (Unused, NewlyInitialized)
    fine: Counter[str] = Counter()
    for one in outcome.every:
        for finding in one.findings:
            if finding.severity is Severity.INFO and not isinstance(finding, told):
                fine[finding.kind] += finding.count
    said = []
    if fine:
        said.append(f"Fine: {', '.join(f'{count:,} {kind}' for kind, count in fine.items())}.")
    if outcome.expected and outcome.expected.library:
        said.append(f"Expected by the oracle, {outcome.expected.library}.")
    sampled = [one for one in outcome.unchecked if one.startswith(_SAMPLED)]
    said += [f"{one[:1].upper()}{one[1:]}." for one in sampled]
    if topics := dict.fromkeys(_topic(one) for one in outcome.unchecked if one not in sampled):
        said.append(f"Not checked: {', '.join(topics)}.")
    if said:
        yield from wrapped(styled(f"{' '.join(said)} -v says more.", "dim"), width)


def _topic(sentence: str) -> str:
    """Return the subject of a sentence about what was not checked: the part before the colon."""
    return cut_middle(sentence.partition(": ")[0], _TOPIC)


def _unchecked(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    if outcome.unchecked:
        yield styled("not checked")
    for text in outcome.unchecked:
        yield from wrapped(shown(text), width, 2)


# --- the table of components -------------------------------------------------------------------


_UNKNOWN = "-"
_HEADINGS = ("component", "class", "parameters", "expected", "status")
_LONGEST_FOLDER = 24  # characters of a folder
_CLASS_ROOM = 12  # characters of a class, where the figures take all of a narrow terminal
_STYLES: Mapping[str, Style] = {"clean": "green", "findings": "bold red", "unaudited": "yellow"}


def component_table(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Folder, class, parameters stored and expected, and how it ended; classes are cut to fit."""
    parts = outcome.every[1:]
    folders = [cut_middle(one.component or _UNKNOWN, _LONGEST_FOLDER) for one in parts]
    stored = [_count(one.observed.parameters if one.observed else None) for one in outcome.every]
    expected = [_count(one.expected.parameters if one.expected else None) for one in outcome.every]
    statuses = [str(one.reason if isinstance(one, Unaudited) else one.verdict) for one in parts]
    known: tuple[list[str], ...] = (folders, stored, expected, statuses)
    headings = (_HEADINGS[0], *_HEADINGS[2:])
    taken = (max(map(len, (name, *cells))) for name, cells in zip(headings, known, strict=True))
    room = max(_CLASS_ROOM, width - sum(taken) - len(known))
    kinds = [cut_middle(one.target or _UNKNOWN, room) for one in parts]
    told = [(status, _STYLES[one.verdict]) for status, one in zip(statuses, parts, strict=True)]
    rows: list[Sequence[Styled | str]] = [header_row(*_HEADINGS)]
    rows += zip(folders, kinds, stored[1:], expected[1:], told, strict=True)
    rows.append((*header_row("all"), "", stored[0], expected[0], ""))
    return columns(rows, right={2, 3})


def _count(figure: int | None) -> str:
    return _UNKNOWN if figure is None else f"{figure:,}"


# --- what verbose adds -------------------------------------------------------------------------


def details(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """Yield what was requested, where it was read, and what was counted."""
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
    for one in outcome.claims:
        yield "claim", f"{one.where} ({one.key}): {one.text}, {one.verdict}"
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
    size, tensors = counted(values.bytes, "byte"), counted(len(values.tensors), "tensor")
    if not values.sampled:
        return f"{size} of numbers read, in {tensors}"
    return f"sampled: {size} in {tensors}, of {values.of:,} in {values.of_tensors:,}"


def _expected(expected: Expected) -> str:
    by = expected.by.replace("-", " ")
    library = f" ({expected.library})" if expected.library else ""
    tensors = counted(expected.tensors, "tensor")
    return f"{counted(expected.parameters, 'parameter')} in {tensors}, by the {by}{library}"


def facts(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """The formula with its letters, and how many numbers of each dtype are stored."""
    expected, observed = outcome.expected, outcome.observed
    if expected and expected.by != "oracle":  # whose formula is the total once more
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

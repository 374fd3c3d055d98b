"""The terminal text of an outcome: what was audited, its modules, its findings, the verdict."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.component_table import component_table
from auditor.formats.module_table import expected_table, lines, stored_table
from auditor.formats.text import cut_middle, printable
from auditor.formats.view import View
from auditor.reconciler.findings import (
    BadConfig,
    BadHeader,
    BadIndex,
    BadSize,
    CopyDiffers,
    Duplicate,
    Finding,
    Mismatched,
    Severity,
    TiedWeight,
    Unsafe,
    WrongTotal,
    count_of,
)
from auditor.reconciler.fold import fold
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Diagnosis, Expected, Observed, Report, Unaudited

_MAX_NAMES = 6  # of one finding, and
_MAX_ROWS = (
    60  # of the module table, where not all is asked for: BERT has 8 at depth 2 and 15 at depth 5
)
_MAX_TEXT = 1000  # characters of a sentence or a formula: more is a stranger's name in it
_WIDEST = 10_000  # no limit: a table may be wider than asked, never cut in its figures
_SEVERITIES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}
_VERDICTS = {"clean": "bold green", "findings": "bold red", "unaudited": "bold yellow"}


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """One text of all outcomes."""
    texts = (
        render(outcome, depth=view.depth, width=view.width, color=view.color, verbose=view.verbose)
        for outcome in outcomes
    )
    return {"report.txt": "\n".join(texts)}


def render(
    outcome: Report | Unaudited,
    *,
    depth: int = 2,
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """The outcome as text for people, its last line the verdict.

    Sentences wrap at `width`, names are cut, the verdict stays on one line. The module table goes
    down to `depth`; `verbose` lists all of its rows and every folded name.
    """
    text = io.StringIO()
    console = plain_console(text, color=color)
    for block in _blocks(outcome, depth, width, verbose=verbose):
        for part in block:
            console.print(part, width=None if isinstance(part, Table) else width)
        console.print()
    console.print(_verdict(outcome), soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def plain_console(text: io.StringIO, *, color: bool) -> Console:
    """A console that takes nothing from the environment it happens to run in."""
    return Console(
        file=text,
        width=_WIDEST,
        color_system="standard" if color else None,
        force_terminal=color,
        force_jupyter=False,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def _blocks(
    outcome: Report | Unaudited, depth: int, width: int, *, verbose: bool
) -> Iterator[list[RenderableType]]:
    yield [_title(outcome), _grid(_header(outcome), width)]
    if outcome.parts:
        yield [component_table(outcome, width)]
    elif outcome.modules:
        yield list(_modules(outcome, depth, width, verbose=verbose))
    if facts := list(_facts(outcome)):
        yield [_grid(facts, width)]
    for one in outcome.every:
        yield from _findings(one, width, verbose=verbose)
    if outcome.notes:
        yield [Text("notes"), *map(_sentence, outcome.notes)]
    if outcome.unchecked:
        yield [Text("not checked"), *map(_sentence, outcome.unchecked)]


def _findings(
    one: Report | Unaudited, width: int, *, verbose: bool
) -> Iterator[list[RenderableType]]:
    """The findings of a whole or, under a heading, of a part, whose notes go with them."""
    if one.component is not None and (one.findings or one.ignored or one.notes):
        yield [Text(f"in {_shown(one.component)}", style="bold"), *map(_sentence, one.notes)]
    yield from (list(_diagnosis(each, width)) for each in one.diagnosis)
    explained = {at for each in one.diagnosis for at in each.findings}
    told = {id(finding) for at, finding in enumerate(one.findings) if at in explained}
    for finding in sorted(one.findings, key=lambda one: list(Severity).index(one.severity)):
        names = verbose or id(finding) not in told
        yield list(_finding(finding, width, verbose=verbose, names=names))
    for finding in one.ignored:
        yield list(_finding(finding, width, verbose=verbose, ignored=True))


def _diagnosis(one: Diagnosis, width: int) -> Iterator[RenderableType]:
    yield Text("why: ", _SEVERITIES[one.severity]).append(one.cause)
    yield _grid([("cause", one.summary), ("fix", one.fix)], width)


def _title(outcome: Report | Unaudited) -> Text:
    title = Text(_shown(outcome.model or outcome.requested), style="bold")
    if outcome.commit:
        title.append(f" @ {_shown(outcome.commit[:12])}", style="not bold")
    return title


def _header(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    if outcome.model and outcome.model != outcome.requested:
        yield "requested", outcome.requested
    if outcome.target:
        family = f" ({outcome.model_type})" if outcome.model_type else ""
        foreign = outcome.declared and outcome.target not in outcome.declared
        declared = f"; the config declares {', '.join(outcome.declared)}" if foreign else ""
        yield "target", f"{outcome.target}{family}{declared}"
    if outcome.source and outcome.source != "hub":
        yield "source", outcome.source + (f": {outcome.origin}" if outcome.origin else "")
    if outcome.observed:
        yield "read", _read(outcome.observed)
    if outcome.fetched.requests:
        fetched = outcome.fetched
        took = f"{_counted(fetched.requests, 'request')}, {_counted(fetched.bytes, 'byte')}"
        yield "fetched", f"{took}, {fetched.seconds:.2f} s"
    if outcome.observed:
        yield "stored", _stored(outcome.observed)
        if outcome.observed.layout:
            yield "layout", outcome.observed.layout
    if outcome.values:
        yield "values", _values(outcome.values)
    if outcome.expected:
        yield "expected", _expected(outcome.expected)


def _read(observed: Observed) -> str:
    size = f" in {_counted(observed.bytes, 'byte')}" if observed.bytes is not None else ""
    return f"{_counted(observed.files, 'file')}, {_counted(observed.tensors, 'tensor')}{size}"


def _stored(observed: Observed) -> str:
    if observed.parameters is None or observed.elements is None:
        return "not known: no header was read"
    trainable = f" ({observed.trainable:,} trainable)" if observed.trainable is not None else ""
    parameters = _counted(observed.parameters, "parameter")
    return f"{parameters}{trainable}, {_counted(observed.elements, 'element')}"


def _values(values: ValuesRead) -> str:
    """How much was read: what is sampled says so."""
    tensors = _counted(len(values.tensors), "tensor")
    if values.how == "all":
        return f"{_counted(values.bytes, 'byte')} of numbers read, in {tensors}"
    of = f"{values.bytes:,} of {_counted(values.of, 'byte')} of numbers"
    return f"sampled: {of}, in {tensors}, by {_counted(values.requests, 'request')}"


def _expected(expected: Expected) -> str:
    tensors = _counted(expected.tensors, "tensor")
    by = expected.by.replace("-", " ")
    library = f" ({expected.library})" if expected.library else ""
    return f"{_counted(expected.parameters, 'parameter')} in {tensors}, by the {by}{library}"


def _modules(
    outcome: Report | Unaudited, depth: int, width: int, *, verbose: bool
) -> Iterator[RenderableType]:
    found = lines(outcome.modules, depth)
    shown = found if verbose else found[:_MAX_ROWS]
    yield (stored_table if outcome.observed else expected_table)(shown, width)
    if len(found) > len(shown):
        yield Text(f"and {_counted(len(found) - len(shown), 'row')} more")


def _facts(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
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


def _finding(
    finding: Finding, width: int, *, verbose: bool, names: bool = True, ignored: bool = False
) -> Iterator[RenderableType]:
    """A finding; without `names` where a diagnosis says what they have in common."""
    yield _heading(finding, ignored=ignored)
    if not names:
        return
    folded = _names(finding)
    shown = folded if verbose else folded[:_MAX_NAMES]
    yield from (_indented(cut_middle(printable(name), width - 4), 4) for name in shown)
    if len(folded) > len(shown):
        yield _indented(f"and {len(folded) - len(shown):,} more of such names", 4)
    yield _indented(_shown(finding.reason), 2)


def _names(finding: Finding) -> tuple[str, ...]:
    """The folded names; of copies each with the tensor that it is a copy of."""
    if finding.names == (_file(finding),):
        return ()
    if not isinstance(finding, TiedWeight | Duplicate):
        return fold(finding.names)
    copies: dict[str, list[str]] = {}
    for name, kept in zip(
        finding.names, finding.to if isinstance(finding, TiedWeight) else finding.of, strict=True
    ):
        copies.setdefault(kept, []).append(name)
    return tuple(
        f"{name} = {other}"
        for kept, names in copies.items()
        for other in fold([kept])
        for name in fold(names)
    )


def _heading(finding: Finding, *, ignored: bool) -> Text:
    style = "dim" if ignored else _SEVERITIES[finding.severity]
    heading = Text(f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}", style)
    file = _file(finding)
    concerned = [] if finding.names == (file,) else [_counted(count_of(finding), "name")]
    if finding.parameters:
        concerned.append(_counted(finding.parameters, "parameter"))
    if file is not None:
        concerned.append(_shown(file))
    return heading.append(f" ({', '.join(concerned)})", style="not bold")


def _file(finding: Finding) -> str | None:
    """The file that the finding is about; None: it is about tensors, wherever they are."""
    if isinstance(
        finding, BadHeader | BadIndex | BadSize | WrongTotal | BadConfig | Unsafe | CopyDiffers
    ):
        return finding.file
    return None


def _verdict(outcome: Report | Unaudited) -> Text:
    verdict = Text(outcome.verdict, style=_VERDICTS[outcome.verdict])
    alarms = Counter(finding.severity for one in outcome.every for finding in one.findings)
    counted = [
        _counted(alarms[severity], severity)
        for severity in (Severity.ERROR, Severity.WARNING)
        if alarms[severity]
    ]
    if isinstance(outcome, Unaudited):
        said = f" ({', '.join((outcome.reason, *counted))}): {_shown(outcome.detail)}"
        return verdict.append(said, style="not bold")
    standing = f" ({', '.join(counted)})" if counted else ""
    return verdict.append(f"{standing}: {', '.join(_account(outcome))}", style="not bold")


def _account(report: Report) -> Iterator[str]:
    """Stored, expected, and kind by kind what lies between: the terms of law 3."""
    if observed := report.observed:
        yield _counted(observed.tensors, "tensor")
        if observed.parameters is not None:
            yield f"{_counted(observed.parameters, 'parameter')} stored"
    if report.expected:
        yield f"{report.expected.parameters:,} expected"
    between: dict[str, int] = {}
    for finding in (each for one in report.every for each in (*one.findings, *one.ignored)):
        between[finding.kind] = between.get(finding.kind, 0) + finding.explains
    yield from (_term(kind, explains) for kind, explains in between.items() if explains)
    yield "no residual to compute" if report.residual is None else f"residual {report.residual:,}"


def _term(kind: str, explains: int) -> str:
    """Only a wrong shape explains in either direction; of the other kinds the name says which."""
    if kind == Mismatched.kind:
        return f"{explains:+,} {kind}"
    return f"{abs(explains):,} {'behind ' if kind.startswith('bad-') else ''}{kind}"


def _grid(rows: Iterator[tuple[str, str]] | list[tuple[str, str]], width: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=9)
    grid.add_column(overflow="fold", max_width=max(20, width - 12))
    for label, text in rows:
        grid.add_row(Text(label, style="dim"), Text(_shown(text)))
    return grid


def _sentence(text: str) -> Padding:
    return _indented(_shown(text), 2)


def _indented(text: str, by: int) -> Padding:
    return Padding(Text(text, overflow="fold"), (0, 0, 0, by), expand=False)


def _shown(text: str) -> str:
    return cut_middle(printable(text), _MAX_TEXT)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

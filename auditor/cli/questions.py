"""The commands that answer questions without an audit: explain, diff, explain-finding and more."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from auditor.analytic import generated
from auditor.analytic.catalogue import model_types, siblings
from auditor.analytic.families import FILES
from auditor.audit.default_configs import parsed_setting
from auditor.audit.pipeline import describing_snapshot
from auditor.audit.pipeline import diff as compared
from auditor.audit.pipeline import explain as explained
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    exit_code,
    put,
    say,
    talk,
    terminal,
)
from auditor.cli.printing import Shown, print_outcome
from auditor.downloader.bundled import PAPERS
from auditor.errors import UsageError
from auditor.findings import BadConfig
from auditor.formats.registry import TERMINAL
from auditor.messages import meant, quoted
from auditor.options import Source
from auditor.report import Unaudited

_JSON, _SVG = "json", "svg"
_FOR_PEOPLE = frozenset({"terminal", "markdown"})
_MOST_ROWS = 40  # most rows shown of each table of differences


def explain(  # noqa: PLR0913 - one parameter for each option
    model: str,
    *,
    target: str | None = None,
    depth: int | None = None,
    symbolic: bool = False,
    latex: bool = False,
    settings: list[str] | None = None,
    tensors: bool = False,
    kinds: bool = False,
    classes: bool = False,
    keys: bool = False,
    form: str = TERMINAL,
    output: Path | None = None,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Print each module that a config implies, with its formula."""
    tell = talk(quiet=quiet)
    values = dict(map(parsed_setting, settings or ()))
    tables = Tables(tensors=tensors, kinds=kinds, classes=classes, keys=keys)
    if any(tables) or form not in {TERMINAL, _JSON, _SVG}:
        put(_tables(model, tables, form, target, source, token, values, tell), output)
        return CLEAN
    outcome = explained(model, target=target, source=source, token=token, settings=values, say=tell)
    from auditor.formats import explanation  # noqa: PLC0415 - for this alone

    faults = [finding.reason for finding in outcome.findings if BadConfig.describes(finding)]
    if values and faults:
        raise UsageError(f"--set: {faults[0]}")
    if form == _JSON:
        put(explanation.as_json(outcome, depth=depth), output)
        return CLEAN if outcome.expected else exit_code(outcome)
    if outcome.expected is None:
        shown = Shown(depth=depth, quiet=isinstance(outcome, Unaudited))
        print_outcome(outcome, TERMINAL, shown)
        if outcome.observed is None and model not in FILES and (hint := meant(model, FILES)):
            say(f"{quoted(model)} is not a model type{hint}")
        return exit_code(outcome)
    for fault in faults:
        tell(f"{BadConfig.kind}: {fault}")
    if form == _SVG:
        from auditor.formats import as_svg  # noqa: PLC0415 - for this alone

        text = as_svg.explained(outcome)
    elif latex:
        text = explanation.latex(outcome, depth=depth)
    else:
        width, color = terminal()
        text = explanation.render(outcome, depth=depth, width=width, color=color, symbolic=symbolic)
    put(text, output)
    return CLEAN


class Tables(NamedTuple):
    """The tables that `audit explain` prints, by its options."""

    tensors: bool
    kinds: bool
    classes: bool
    keys: bool


def _tables(  # noqa: PLR0913, PLR0917 - the request, and the model
    model: str,
    wanted: Tables,
    form: str,
    target: str | None,
    source: str,
    token: str | None,
    settings: Mapping[str, Any],
    say: Callable[[str], None],
) -> str:
    from auditor.audit.claiming import implied_by  # noqa: PLC0415 - for these tables alone
    from auditor.claims import hand_counts  # noqa: PLC0415
    from auditor.claims.subject import subject_of  # noqa: PLC0415
    from auditor.formats.tables import TABLE_FORMATS  # noqa: PLC0415

    _require_table_format(form, TABLE_FORMATS)
    snapshot = describing_snapshot(model, source=source, token=token, say=say)
    expectation, config = implied_by(snapshot, target, settings, say)
    subject = subject_of(snapshot.model, expectation, config)
    tables = [hand_counts.tensor_table(expectation)] if wanted.tensors or not any(wanted) else []
    for is_wanted, table in (
        (wanted.kinds, hand_counts.kind_table),
        (wanted.classes, hand_counts.class_table),
        (wanted.keys, hand_counts.key_table),
    ):
        if is_wanted:
            tables.append(table(subject))
    return TABLE_FORMATS[form](tables)


def _require_table_format(form: str, formats: Mapping[str, object]) -> None:
    if form not in formats:
        raise UsageError(f"--format is {quoted(form)}, expected one of {', '.join(formats)}")


def diff(  # noqa: PLR0913 - one parameter for each option
    first: str,
    second: str,
    *,
    values: bool = False,
    form: str = "terminal",
    output: Path | None = None,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Say what checkpoint B is of A, and list what differs.

    Modules, tensors and config keys are compared.

    A and B may be models, revisions, folders, snapshots; of any format, quantized or not.
    Tensors that both store alike are compared byte by byte if both are on this machine, by the
    sha256 of their files if not.

    Exit codes: 0 nothing is known to differ, 1 different, 2 usage, 3 one of them could not be
    read. Look at "Not compared" before you rely on 0.
    """
    from auditor.formats.comparison import render  # noqa: PLC0415 - for this alone
    from auditor.formats.tables import TABLE_FORMATS  # noqa: PLC0415

    _require_table_format(form, TABLE_FORMATS)
    tell = talk(quiet=quiet)
    comparison = compared(first, second, values=values, source=source, token=token, say=tell)
    most = _MOST_ROWS if form in _FOR_PEOPLE else None
    if output is not None or not quiet:
        put(render(comparison, form, most=most), output)
    return CLEAN if comparison.same else FINDINGS


def explain_finding(names: list[str] | None = None) -> int:
    """Print what a finding or a cause means, and what to do."""
    from auditor.formats import meanings  # noqa: PLC0415 - for this alone

    meaning_by_name: dict[str, meanings.Meaning] = {}
    for one in (*meanings.kind_meanings(), *meanings.cause_meanings()):
        meaning_by_name.setdefault(one.name, one)  # the more severe of two namesakes
    for name in names or ():
        if name not in meaning_by_name:
            hint = meant(name, meaning_by_name) or "; without a name all are listed"
            raise UsageError(f"no finding and no cause is called {quoted(name)}{hint}")
    width, color = terminal()
    render = meanings.render if names else meanings.overview
    shown = [meaning_by_name[name] for name in names or meaning_by_name]
    put(render(shown, width=width, color=color))
    return CLEAN


def symptoms(text: list[str]) -> int:
    """Find what a loader's message means, and what to look at.

    TEXT is the pasted message; - reads it from standard input. Exit codes: 0 found, 1 not found.
    """
    from auditor.formats import symptoms as table  # noqa: PLC0415 - for this alone

    pasted = sys.stdin.read() if text == ["-"] else " ".join(text)
    found = table.symptoms_in(pasted)
    width, color = terminal()
    if not found:
        say("no known message is in this text; audit MODEL compares what is stored and expected")
        return FINDINGS
    put(table.render(found, width=width, color=color))
    return CLEAN


def architectures(*, markdown: bool = False) -> int:
    """List the model types that an audit knows, and what answers for each."""
    from auditor.formats import meanings  # noqa: PLC0415 - for this alone

    types = {name: siblings(name) for name in model_types()}
    width, color = terminal()
    if markdown:
        put(meanings.architectures_markdown(types))
    else:
        learned = sorted(generated.index().types.keys() - types)
        put(meanings.architectures(types, learned, PAPERS, width, color=color))
    return CLEAN

"""The commands that say what a config implies, and what is known."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from auditor.analytic.catalogue import model_types, siblings
from auditor.audit.default_configs import parsed_setting
from auditor.audit.expected import config_faults
from auditor.audit.pipeline import describing_snapshot, require_taken, with_given
from auditor.audit.pipeline import explain as explained
from auditor.cli.console import (
    CLEAN,
    UNAUDITED,
    FailOn,
    FileOption,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    exit_code,
    fail,
    guarded,
    put,
    talk,
    terminal,
)
from auditor.cli.printing import Shown, print_outcome
from auditor.downloader.bundled import PAPERS
from auditor.errors import SourceError, UsageError
from auditor.formats.registry import TERMINAL
from auditor.messages import quoted
from auditor.reconciler.findings import BadConfig
from auditor.report import Unaudited

_JSON = "json"


def explain(  # noqa: PLR0913 - one parameter for each option
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ],
    *,
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="CLASS", show_default=False, help="The class to explain."),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(min=0, show_default="all the way", help="How deep the tree goes.")
    ] = None,
    symbolic: Annotated[bool, typer.Option("--symbolic", help="Formulas without values.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="For a paper: an align* block.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", show_default=False, help="Another value in the config."
        ),
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Each tensor: name, shape, parameters.")
    ] = False,
    kinds: Annotated[
        bool, typer.Option("--kinds", help="Attention, feed forward, ...: one layer and all.")
    ] = False,
    classes: Annotated[
        bool, typer.Option("--classes", help="The classes of the family side by side.")
    ] = False,
    keys: Annotated[
        bool, typer.Option("--keys", help="Which keys of the config change the count.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="Of such tables: markdown, csv, json, latex; of the tree: json."
        ),
    ] = TERMINAL,
    output: FileOption = None,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what the config of MODEL implies: every module, its formula and its share."""
    tell = talk(quiet=quiet)
    with guarded():
        given = dict(map(parsed_setting, settings or ()))
        wanted = Tables(tensors=tensors, kinds=kinds, classes=classes, keys=keys)
        if wanted.any or form not in {TERMINAL, _JSON}:
            text = _tables(model, wanted, form, target, source.value, token, given, tell)
            put(text, output)
            return
        outcome = explained(
            model, target=target, source=source.value, token=token, settings=given, say=tell
        )
        if form == _JSON:
            from auditor.formats import explanation  # noqa: PLC0415 - for this alone

            put(explanation.as_json(outcome, depth=depth), output)
            raise typer.Exit(CLEAN if outcome.expected else exit_code(outcome, FailOn.WARNING))
        if outcome.expected is None:
            print_outcome(
                outcome, TERMINAL, Shown(depth=depth), quiet=isinstance(outcome, Unaudited)
            )
            raise typer.Exit(exit_code(outcome, FailOn.WARNING))
        for finding in outcome.findings:
            if isinstance(finding, BadConfig):
                tell(f"{finding.kind}: {finding.reason}")
        from auditor.formats import explanation  # noqa: PLC0415 - for this alone

        width, color = terminal()
        if latex:
            text = explanation.latex(outcome, depth=depth)
        else:
            text = explanation.render(
                outcome, depth=depth, width=width, color=color, symbolic=symbolic
            )
        put(text, output)


class Tables(NamedTuple):
    """The tables that were asked for."""

    tensors: bool
    kinds: bool
    classes: bool
    keys: bool

    @property
    def any(self) -> bool:
        return self.tensors or self.kinds or self.classes or self.keys


def _tables(  # noqa: PLR0913, PLR0917 - what was asked for, and of what
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

    if form not in TABLE_FORMATS:
        known = ", ".join(TABLE_FORMATS)
        raise UsageError(f"--format {quoted(form)}: the formats of explain are {known}")
    try:
        found, arguments = with_given(
            describing_snapshot(model, source=source, token=token, say=say), settings
        )
        expectation, config = implied_by(found, target, checked=True, arguments=arguments)
    except SourceError as error:
        fail(UNAUDITED, f"{model}: {error.reason}: {error}")
    require_taken(arguments, expectation.target)
    for fault in config_faults(expectation):
        say(f"{BadConfig.kind}: {fault}")
    subject = subject_of(found.model, expectation, config)
    tables = []
    if wanted.tensors or not wanted.any:
        tables.append(hand_counts.tensor_table(expectation))
    if wanted.kinds:
        tables.append(hand_counts.kind_table(subject))
    if wanted.classes:
        tables.append(hand_counts.class_table(subject))
    if wanted.keys:
        tables.append(hand_counts.key_table(subject))
    return TABLE_FORMATS[form](tables)


def architectures(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As the table of the README.")
    ] = False,
) -> None:
    """List the model types with a closed form, and how many classes of each."""
    from auditor.formats import meanings  # noqa: PLC0415 - for this command

    with guarded():
        types = {name: siblings(name) for name in model_types()}
        width, color = terminal()
        text = (
            meanings.architectures_markdown(types)
            if markdown
            else meanings.architectures(types, PAPERS, width, color=color)
        )
        put(text)

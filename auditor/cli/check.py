"""The `audit check` command, which plain `audit MODEL` is short for."""

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from msgspec.structs import replace

from auditor.audit.expected import require_known_class, require_oracle
from auditor.audit.pipeline import audit
from auditor.cli.console import (
    CLEAN,
    FailOn,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    VerboseOption,
    exit_code,
    guarded,
    outcomes_of,
    print_requests,
    talk,
)
from auditor.cli.printing import (
    Shown,
    chosen_format,
    counted_depth,
    known_format,
    meanings,
    print_outcome,
    require_format_of_tensors,
    write_reports,
)
from auditor.findings.ignore import KINDS, Ignore
from auditor.formats.registry import TERMINAL
from auditor.report import Report, Unaudited
from auditor.request import AuditRequest

# Printed below the options, across the page: a column beside them is narrower than some names.
EPILOG = f"Kinds of findings: {', '.join(KINDS)}."


def check(  # noqa: PLR0913 - one parameter for each option
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            help="A Hub id (with @revision) or address, a folder, a file, a snapshot, - for stdin.",
        ),
    ],
    *,
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="CLASS", show_default=False, help="The class to audit for."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            callback=known_format,
            show_default=TERMINAL,
            help=f"What to print, or to write with -o. {meanings()}",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            show_default=False,
            help="Write it there (csv: a folder); the terminal table is printed all the same.",
        ),
    ] = None,
    tensors: Annotated[
        bool,
        typer.Option("--tensors", help="Each tensor as well, beside what was expected there."),
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(
            min=0, show_default="2, for machines all", help="How deep the module rows go."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            help=f"The least severity that exits with 1: {', '.join(FailOn)}.",
        ),
    ] = FailOn.WARNING,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="KIND[:GLOB]",
            show_default=False,
            help="Leave findings out of the verdict, by tensor name. The kinds are listed below.",
        ),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle",
            help="Hold the closed form to transformers as well; needs hf-audit\\[oracle].",
        ),
    ] = False,
    torch_copies: Annotated[
        bool,
        typer.Option(
            "--torch-copies",
            help="On the Hub, too, compare safetensors with their copy in torch files.",
        ),
    ] = False,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            show_default=False,
            help="Audit this variant of the weights: fp16 for model.fp16.safetensors.",
        ),
    ] = None,
    no_companions: Annotated[
        bool,
        typer.Option(
            "--no-companions",
            help="Leave out tokenizer, generation config, chat template and processor.",
        ),
    ] = False,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Read numbers, too, all of local files, a sample on the Hub: NaN, Inf, zeros and "
            "what they tell; needs hf-audit\\[values].",
        ),
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="With --values, of each tensor mean, std and their kin."),
    ] = False,
    values_budget: Annotated[
        str | None,
        typer.Option(
            "--values-budget",
            metavar="N,SIZE",
            show_default="8,600kB",
            help="The most requests and bytes of a sample, which --values takes on the Hub.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            show_default=False,
            help="Say which weight files are, byte for byte, those of this model, by their sha256.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read local files whole, and compare their sha256 with what the repository lists.",
        ),
    ] = False,
    verify_against: Annotated[
        str | None,
        typer.Option(
            "--verify-against",
            metavar="MODEL",
            show_default=False,
            help="The same with what a model of the Hub (with @revision) or a snapshot lists.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            help="Read the weights by this config (a file, a folder or a model), not their own.",
        ),
    ] = None,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Audit checkpoints: what their files store against what their configs imply."""
    with guarded():
        if target is not None:
            require_known_class(target)
        if oracle:
            require_oracle()
        ignored = tuple(Ignore.parse(text) for text in ignore or ())
        chosen = chosen_format(form, output)
        rows = counted_depth(chosen, depth)
        if tensors:
            require_format_of_tensors(chosen)
        show = Shown(depth=depth, verbose=verbose > 0, tensors=tensors)
        is_table_shown = not quiet and (chosen == TERMINAL or output is not None)
        if is_table_shown and not all(map(os.path.lexists, models)):
            _import_meanwhile("auditor.formats.terminal")
        if verbose > 1 and not quiet:
            print_requests()
        request = AuditRequest(
            model="",
            target=target,
            source=source.value,
            token=token,
            depth=rows,
            ignore=ignored,
            oracle=oracle,
            torch_copies=torch_copies,
            variant=variant,
            companions=not no_companions,
            values=values,
            statistics=statistics,
            values_budget=values_budget,
            base=base,
            verify=verify,
            verify_against=verify_against,
            config=config,
        )
        tell = talk(quiet=quiet)
        code = CLEAN
        printed_form = chosen if output is None else TERMINAL
        is_silent = quiet and printed_form == TERMINAL
        outcomes: list[Report | Unaudited] = []  # kept only if they are written in the end
        for outcome in outcomes_of(
            models, lambda model: audit(replace(request, model=model), say=tell)
        ):
            printed = print_outcome(outcome, printed_form, show, quiet=is_silent)
            code = max(code, exit_code(printed, fail_on))
            if output is not None:
                outcomes.append(printed)
        if output is not None:
            written = write_reports(outcomes, chosen, output, show)
            code = max(exit_code(outcome, fail_on) for outcome in written)
    raise typer.Exit(code)


def _import_meanwhile(name: str) -> None:
    """Import a module that the end needs while the beginning waits for the network."""
    with suppress(RuntimeError):  # no thread can be started; the module is imported in the end
        # No daemon: an interpreter that ends in the middle of an import may crash.
        Thread(target=import_module, args=(name,)).start()

"""The `audit check` command; plain `audit MODEL` is short for it."""

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
    SourceChoice,
    SourceOption,
    TargetOption,
    TokenOption,
    VerboseOption,
    engines_asked,
    exit_code,
    guarded,
    outcomes_of,
    print_log,
    talk,
)
from auditor.cli.help import RARE
from auditor.cli.printing import (
    Shown,
    chosen_format,
    counted_depth,
    known_format,
    print_outcomes,
    require_format_of_tensors,
    write_reports,
)
from auditor.findings.ignore import Ignore
from auditor.formats.registry import FORMATS, MATERIALS, TERMINAL
from auditor.report import Report, Unaudited
from auditor.request import AuditRequest


def check(  # noqa: PLR0913 - one parameter for each option
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            help="Hub ids, addresses, folders, files; - for stdin.",
        ),
    ],
    *,
    target: TargetOption = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            callback=known_format,
            show_default=False,
            rich_help_panel="What to print",
            help=f"{', '.join(FORMATS)}.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            show_default=False,
            rich_help_panel="What to print",
            help="The file to write; its ending is the format.",
        ),
    ] = None,
    tensors: Annotated[
        bool,
        typer.Option(
            "--tensors",
            rich_help_panel=RARE,
            help="List each tensor, stored and expected.",
        ),
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="2; json, csv: all",
            rich_help_panel=RARE,
            help="Levels of the module rows.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            show_default=False,
            help="What exits with 1: error, warning (default), never.",
        ),
    ] = FailOn.WARNING,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="KIND[:GLOB]",
            show_default=False,
            help="Leave findings of this kind out of the verdict.",
        ),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="ENGINES",
            show_default=False,
            rich_help_panel="What to check",
            help="Say whether vllm, mlx, llama.cpp or all load it.",
        ),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle",
            rich_help_panel=RARE,
            help="Also compare the closed form with transformers; needs torch, transformers.",
        ),
    ] = False,
    torch_copies: Annotated[
        bool,
        typer.Option(
            "--torch-copies",
            rich_help_panel=RARE,
            help="Compare safetensors with their copies in torch files on the Hub, too.",
        ),
    ] = False,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            show_default=False,
            rich_help_panel=RARE,
            help="Audit this variant of the weights: fp16 for model.fp16.safetensors.",
        ),
    ] = None,
    no_companions: Annotated[
        bool,
        typer.Option(
            "--no-companions",
            rich_help_panel=RARE,
            help="Leave out tokenizer, generation config, chat template and processor.",
        ),
    ] = False,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            rich_help_panel="What to check",
            help="Read numbers, too: NaN, zeros; needs numpy.",
        ),
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option(
            "--statistics",
            rich_help_panel=RARE,
            help="With --values: mean, std and more of each tensor.",
        ),
    ] = False,
    values_budget: Annotated[
        str | None,
        typer.Option(
            "--values-budget",
            metavar="N,SIZE",
            show_default="8,600kB",
            rich_help_panel=RARE,
            help="The most requests and bytes of a sample on the Hub.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            show_default=False,
            rich_help_panel=RARE,
            help="Name the weight files that are identical to those of this model, by sha256.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            rich_help_panel="What to check",
            help="Compare the sha256 of files with the listed ones.",
        ),
    ] = False,
    verify_against: Annotated[
        str | None,
        typer.Option(
            "--verify-against",
            metavar="MODEL",
            show_default=False,
            rich_help_panel=RARE,
            help="Compare them with those of a Hub model (with @revision) or a snapshot.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            show_default=False,
            rich_help_panel=RARE,
            help="Use this config: a file, a folder or a model.",
        ),
    ] = None,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    verbose: VerboseOption = 0,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print errors only; for many models, the table."),
    ] = False,
) -> None:
    """Audit checkpoints: what is stored against what is expected."""
    with guarded():
        if target is not None:
            require_known_class(target)
        if oracle:
            require_oracle()
        asked = engines_asked(engines)
        ignored = tuple(Ignore.parse(text) for text in ignore or ())
        chosen = chosen_format(form, output)
        if tensors:
            require_format_of_tensors(chosen)
        printed_form = chosen if output is None else TERMINAL
        has_table = printed_form == TERMINAL and (len(models) > 1 or models == ["-"])
        has_reports = not has_table or verbose or tensors or depth is not None
        show = Shown(
            depth=depth,
            verbose=verbose > 0,
            tensors=tensors,
            name_columns=None if has_reports else max(map(len, models)),
            quiet=quiet and printed_form == TERMINAL,
            target=target,
        )
        is_table_shown = not quiet and (chosen == TERMINAL or output is not None)
        if is_table_shown and not all(map(os.path.lexists, models)):
            _import_meanwhile("auditor.formats.terminal")
        if verbose and not quiet:
            print_log(verbose)
        request = AuditRequest(
            model="",
            target=target,
            source=source.value,
            token=token,
            depth=counted_depth(chosen, depth),
            ignore=ignored,
            oracle=oracle,
            engines=asked,
            torch_copies=torch_copies,
            variant=variant,
            companions=not no_companions,
            values=values,
            statistics=statistics,
            values_budget=values_budget,
            base=base,
            verify=verify,
            verify_against=verify_against,
            materials=chosen == MATERIALS,
            config=config,
        )
        tell = talk(quiet=quiet)
        outcomes: list[Report | Unaudited] = []
        code = CLEAN
        audited = outcomes_of(models, lambda model: audit(replace(request, model=model), say=tell))
        for outcome in print_outcomes(audited, printed_form, show, has_table=has_table):
            code = max(code, exit_code(outcome, fail_on))
            if output is not None:  # else models from a pipe may be too many to keep
                outcomes.append(outcome)
        if output is not None:
            written = write_reports(outcomes, chosen, output, show)
            code = max(exit_code(outcome, fail_on) for outcome in written)
    raise typer.Exit(code)


def _import_meanwhile(name: str) -> None:
    """Import a module in a thread while the audit waits for replies; it is needed at the end."""
    with suppress(RuntimeError):  # no thread can be started: the module is imported at the end
        # No daemon: an interpreter that ends in the middle of an import may crash.
        Thread(target=import_module, args=(name,)).start()

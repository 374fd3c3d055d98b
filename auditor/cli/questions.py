"""The commands that answer a question about a model, or about what is known."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from auditor.analytic.catalogue import model_types, siblings
from auditor.audit.pipeline import audit
from auditor.audit.pipeline import explain as explained
from auditor.checkpoint.snapshot import Snapshot
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.cli.console import (
    UNAUDITED,
    FailOn,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    exit_code,
    fail,
    guarded,
    requested,
    say,
    talk,
    terminal,
    write,
)
from auditor.cli.printing import Shown, print_outcome
from auditor.downloader import fetch
from auditor.downloader.reference_configs import NAMES as PAPERS
from auditor.errors import Reason, SourceError, UsageError
from auditor.formats.registry import TERMINAL
from auditor.formats.text import printable
from auditor.messages import meant, quoted
from auditor.reconciler.findings import BadConfig
from auditor.report import Unaudited
from auditor.tensors import DTYPE_BITS, FOUR_BIT, SPELT_DTYPES, dtype_as_stored

_FOUR_BITS = 4


def snapshot(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="The file to write; a name that ends in .gz is compressed.",
        ),
    ],
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Record config, headers, index and sizes of MODEL in one small file, to audit it offline."""
    tell = talk(quiet=quiet)
    with guarded():
        try:
            found = fetch(model, source=source.value, token=token, say=tell)
            content = _recorded(found, output.name)
        except SourceError as error:
            fail(UNAUDITED, f"{printable(model)}: {error.reason}: {error}")
        write(output, content)
        tell(f"wrote {quoted(str(output))}, {len(content):,} bytes")


def _recorded(found: Snapshot, name: str) -> bytes:
    """A snapshot file that can be read again; SourceError where there is too much for that."""
    content = dump(found, name)
    try:
        load(content, name)
    except UsageError as fault:
        raise SourceError(Reason.TOO_LARGE, f"no snapshot is written: {fault}") from None
    return content


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
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what the config of MODEL implies: every module, its formula and its share."""
    tell = talk(quiet=quiet)
    with guarded():
        outcome = explained(model, target=target, source=source.value, token=token, say=tell)
        if outcome.expected is None:
            print_outcome(
                outcome, TERMINAL, Shown(depth=depth), quiet=isinstance(outcome, Unaudited)
            )
            raise typer.Exit(exit_code(outcome, FailOn.WARNING))
        for finding in outcome.findings:
            if isinstance(finding, BadConfig):
                tell(f"{finding.kind}: {printable(finding.reason)}")
        from auditor.formats import explanation  # noqa: PLC0415 - rich takes 15 ms

        width, color = terminal()
        if latex:
            sys.stdout.write(explanation.latex(outcome, depth=depth))
        else:
            text = explanation.render(
                outcome, depth=depth, width=width, color=color, symbolic=symbolic
            )
            sys.stdout.write(text)


def memory(  # noqa: PLR0913 - one parameter for each option
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ],
    *,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype", help="Weights and cache in this dtype: bf16, fp32, int8, 4bit, F8_E4M3."
        ),
    ] = "BF16",
    context: Annotated[
        int | None,
        typer.Option("--context", min=1, show_default=False, help="Tokens that the cache holds."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Sequences at a time.")] = 1,
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="CLASS", show_default=False, help="The class to load."),
    ] = None,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Say what MODEL takes in memory: its weights, as stored and in a dtype, and its KV cache.

    Activations, workspaces and the program itself come on top. Exit codes are those of audit,
    findings aside: they make no difference here.
    """
    with guarded():
        bits = _bits(dtype)
        dtype = dtype_as_stored(dtype)
        tell = talk(quiet=quiet)
        outcomes = [
            audit(
                model,
                target=target,
                source=source.value,
                token=token,
                depth=0,
                say=tell,
            )
            for model in requested(models)
        ]
        from auditor.formats import memory as form  # noqa: PLC0415 - rich takes 15 ms

        width, color = terminal()
        for outcome in outcomes:
            if outcome.observed or outcome.expected:
                text = form.render(
                    outcome,
                    bits=bits,
                    dtype=dtype,
                    context=context,
                    batch=batch,
                    width=width,
                    color=color,
                )
                sys.stdout.write(text)
            if isinstance(outcome, Unaudited):
                say(f"{printable(outcome.requested)}: {outcome.reason}: {outcome.detail}")
    raise typer.Exit(max(exit_code(outcome, FailOn.NEVER) for outcome in outcomes))


def _bits(dtype: str) -> int:
    """The width of one number; UsageError for what is no dtype."""
    stored = dtype_as_stored(dtype)
    bits = _FOUR_BITS if stored == FOUR_BIT else DTYPE_BITS.get(stored)
    if bits is None:
        nearly = meant(dtype, (*DTYPE_BITS, *SPELT_DTYPES))
        some = "some are F32, BF16, F16, F8_E4M3, int8, 4bit"
        raise UsageError(f"--dtype {quoted(dtype)}: no such dtype{nearly}; {some}")
    return bits


def architectures(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As the table of the README.")
    ] = False,
) -> None:
    """List the model types with a closed form, and how many classes of each."""
    from auditor.formats import architectures  # noqa: PLC0415 - rich, and all the families

    with guarded():
        types = {name: siblings(name) for name in model_types()}
        width, color = terminal()
        text = (
            architectures.markdown(types)
            if markdown
            else architectures.render(types, PAPERS, width, color=color)
        )
        sys.stdout.write(text)

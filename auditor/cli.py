"""The command line: the only code that prints, reads the environment or exits."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from auditor.analytic.catalogue import model_types, siblings
from auditor.audit import audit
from auditor.audit import explain as explained
from auditor.containers.words import quoted
from auditor.downloader import dump, fetch
from auditor.downloader.papers import NAMES as PAPERS
from auditor.errors import Reason, SourceError, UsageError
from auditor.expecting import require, require_oracle
from auditor.formats import FORMATS, View
from auditor.formats.printable import printable
from auditor.reconciler.findings import Severity
from auditor.reconciler.ignore import KINDS, Ignore
from auditor.report import Report, Unaudited
from auditor.report_cli import report
from auditor.streams import WRITE_FAULTS, discard, prepare
from auditor.sweep_cli import sweep
from auditor.tensors import DTYPE_BITS
from auditor.writing import write_atomically

CLEAN, FINDINGS, USAGE, UNAUDITED, INTERRUPTED = 0, 1, 2, 3, 130
_PIPE_WIDTH = 80  # columns where stdout is no terminal
_TABLE_DEPTH = 2


class FormatChoice(StrEnum):
    """What a report becomes."""

    TERMINAL = "terminal"
    JSON = "json"
    CSV = "csv"


class FailOn(StrEnum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class SourceChoice(StrEnum):
    """Where a Hub id is looked up."""

    HUB = "hub"
    CACHE = "cache"
    BUNDLED = "bundled"
    AUTO = "auto"


class _DefaultToCheck(TyperGroup):
    """`audit bert-base-chinese` is `audit check bert-base-chinese`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            typer.echo(ctx.get_help())
            ctx.exit(USAGE)
        if args[0] not in {*self.commands, "-h", "--help", "--version"}:
            args = ["check", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_DefaultToCheck,
    name="audit",
    subcommand_metavar="MODEL... | COMMAND [ARGS]...",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Source = Annotated[
    SourceChoice,
    typer.Option("--source", help="Where to find a Hub id. auto: hub, then cache, then bundled."),
]
_Token = Annotated[
    str | None,
    typer.Option("--token", show_default=False, help="Access token. Default: the stored one."),
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No table and no talk, errors only.")]


def _say(line: str) -> None:
    try:
        typer.echo(f"audit: {line}", err=True)
    except OSError:  # nobody can be told; the exit code says it all the same
        discard(sys.stderr)


def _keep_quiet(_line: str) -> None:
    pass


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with one positional
    if wanted:
        typer.echo(f"hf-audit {version('hf-audit')}")
        raise typer.Exit


@app.callback()
def _audit(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Account for every tensor of a checkpoint: what is stored against what the config implies.

    `audit MODEL...` is short for `audit check MODEL...`, whose --help lists the options.

    Exit codes: 0 reconciled, 1 findings, 2 usage, 3 could not audit.
    """


@app.command()
def check(  # noqa: PLR0913 - one parameter for each option
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            show_default=False,
            help="A Hub id (with @revision), a folder, a file, a snapshot, or - for stdin.",
        ),
    ],
    *,
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="CLASS", show_default=False, help="The class to audit for."),
    ] = None,
    form: Annotated[
        FormatChoice | None,
        typer.Option(
            "--format",
            show_default="terminal",
            help="What to print, or to write with -o. csv: three tables (modules on stdout).",
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
    depth: Annotated[
        int | None,
        typer.Option(
            min=0, show_default="2, for machines all", help="How deep the module rows go."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="The least severity that exits with 1.")
    ] = FailOn.WARNING,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="KIND[:GLOB]",
            show_default=False,
            help=f"Leave findings out of the verdict, by tensor name. Kinds: {', '.join(KINDS)}.",
        ),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option(
            "--oracle", help="Hold the closed form to transformers as well; needs hf-audit[oracle]."
        ),
    ] = False,
    twins: Annotated[
        bool,
        typer.Option("--twins", help="Compare torch files that stand beside safetensors, too."),
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
    source: _Source = SourceChoice.HUB,
    token: _Token = None,
    quiet: _Quiet = False,
) -> None:
    """Audit checkpoints: what their files store against what their configs imply."""
    with _guarded():
        if target is not None:
            require(target)
        if oracle:
            require_oracle()
        ignored = tuple(Ignore.parse(text) for text in ignore or ())
        chosen = _format(form, output)
        rows = depth if chosen is not FormatChoice.TERMINAL else _terminal_depth(depth)
        if not quiet and FormatChoice.TERMINAL in {chosen, output and FormatChoice.TERMINAL}:
            _import_meanwhile("auditor.formats.terminal")
        outcomes: list[Report | Unaudited] = []
        for model in _requested(models):
            try:
                outcome = audit(
                    model,
                    target=target,
                    source=source.value,
                    token=token,
                    depth=rows,
                    ignore=ignored,
                    oracle=oracle,
                    twins=twins,
                    variant=variant,
                    say=_keep_quiet if quiet else _say,
                )
            except UsageError as error:
                outcome = Unaudited(requested=model, reason=Reason.BAD_REQUEST, detail=str(error))
            outcomes.append(outcome)
            if output is None:
                _print(outcome, chosen, depth, quiet=quiet and chosen is FormatChoice.TERMINAL)
            else:
                _print(outcome, FormatChoice.TERMINAL, depth, quiet=quiet)
        if not outcomes:
            raise UsageError("there is no model on standard input")
        if output is not None:
            _write_reports(outcomes, chosen, output, depth)
    raise typer.Exit(max(_exit_code(outcome, fail_on) for outcome in outcomes))


@app.command()
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
    source: _Source = SourceChoice.HUB,
    token: _Token = None,
    quiet: _Quiet = False,
) -> None:
    """Record config, headers, index and sizes of MODEL in one small file, to audit it offline."""
    say = _keep_quiet if quiet else _say
    with _guarded():
        try:
            content = dump(fetch(model, source=source.value, token=token, say=say), output.name)
        except SourceError as error:
            _fail(UNAUDITED, f"{printable(model)}: {error.reason}: {error}")
        _write(output, content)
        say(f"wrote {quoted(str(output))}, {len(content):,} bytes")


@app.command()
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
    source: _Source = SourceChoice.HUB,
    token: _Token = None,
    quiet: _Quiet = False,
) -> None:
    """Say what the config of MODEL implies: every module, its formula and its share."""
    say = _keep_quiet if quiet else _say
    with _guarded():
        outcome = explained(model, target=target, source=source.value, token=token, say=say)
        if outcome.expected is None:
            _print(outcome, FormatChoice.TERMINAL, depth, quiet=isinstance(outcome, Unaudited))
            raise typer.Exit(_exit_code(outcome, FailOn.WARNING))
        from auditor.formats import explanation  # noqa: PLC0415 - rich takes 15 ms

        width, color = _terminal()
        if latex:
            sys.stdout.write(explanation.latex(outcome, depth=depth))
        else:
            text = explanation.render(
                outcome, depth=depth, width=width, color=color, symbolic=symbolic
            )
            sys.stdout.write(text)


@app.command()
def memory(  # noqa: PLR0913 - one parameter for each option
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ],
    *,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Weights and cache in this dtype: BF16, F32, F8_E4M3.")
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
    source: _Source = SourceChoice.HUB,
    token: _Token = None,
    quiet: _Quiet = False,
) -> None:
    """Say what MODEL takes in memory: its weights, as stored and in a dtype, and its KV cache.

    Activations, workspaces and the program itself come on top. Exit codes are those of audit,
    findings aside: they make no difference here.
    """
    with _guarded():
        bits = _bits(dtype)
        outcomes = [
            audit(
                model,
                target=target,
                source=source.value,
                token=token,
                depth=0,
                say=_keep_quiet if quiet else _say,
            )
            for model in _requested(models)
        ]
        from auditor.formats import memory as form  # noqa: PLC0415 - rich takes 15 ms

        width, color = _terminal()
        for outcome in outcomes:
            if outcome.observed or outcome.expected:
                text = form.render(
                    outcome,
                    bits=bits,
                    dtype=dtype.upper(),
                    context=context,
                    batch=batch,
                    width=width,
                    color=color,
                )
                sys.stdout.write(text)
            if isinstance(outcome, Unaudited):
                _say(f"{printable(outcome.requested)}: {outcome.reason}: {outcome.detail}")
    raise typer.Exit(max(_exit_code(outcome, FailOn.NEVER) for outcome in outcomes))


def _bits(dtype: str) -> int:
    """The width of one number; UsageError for a dtype that safetensors does not have."""
    bits = DTYPE_BITS.get(dtype.upper())
    if bits is None:
        raise UsageError(
            f"--dtype {quoted(dtype)}: no such dtype; some are F32, BF16, F16, F8_E4M3"
        )
    return bits


@app.command()
def architectures(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As the table of the README.")
    ] = False,
) -> None:
    """List the model types with a closed form, and how many classes of each."""
    from auditor.formats import known  # noqa: PLC0415 - rich, and all the families

    with _guarded():
        types = {name: siblings(name) for name in model_types()}
        width, color = _terminal()
        text = (
            known.markdown(types) if markdown else known.render(types, PAPERS, width, color=color)
        )
        sys.stdout.write(text)


app.command("sweep")(sweep)  # main guards it as it guards all of app
app.command("report")(report)


# --- arguments --------------------------------------------------------------------------------


def _requested(models: Sequence[str]) -> Iterator[str]:
    """The models as the user named them; `-` stands for the lines of standard input."""
    for model in models:
        if model == "-":
            yield from filter(None, (line.strip() for line in sys.stdin))
        else:
            yield model


_BY_ENDING = {
    ".json": FormatChoice.JSON,
    ".jsonl": FormatChoice.JSON,
    ".txt": FormatChoice.TERMINAL,
}


def _format(form: FormatChoice | None, output: Path | None) -> FormatChoice:
    if form is not None:
        return form
    if output is None:
        return FormatChoice.TERMINAL
    if output.suffix in _BY_ENDING:
        return _BY_ENDING[output.suffix]
    raise UsageError(
        f"-o {quoted(str(output))}: say --format, or end the name in {', '.join(_BY_ENDING)}"
    )


def _terminal_depth(depth: int | None) -> int:
    return _TABLE_DEPTH if depth is None else depth


# --- output -----------------------------------------------------------------------------------


def _print(
    outcome: Report | Unaudited, form: FormatChoice, depth: int | None, *, quiet: bool
) -> None:
    """A report to stdout, and one line to stderr where there is none to make."""
    known = isinstance(outcome, Report) or outcome.observed or outcome.expected
    if not quiet and (known or form is not FormatChoice.TERMINAL):
        texts = _rendered([outcome], form, depth)
        text = texts.get("modules.csv") or next(iter(texts.values()))
        sys.stdout.write(text)
        sys.stdout.flush()
    if isinstance(outcome, Unaudited):
        _say(f"{printable(outcome.requested)}: {outcome.reason}: {printable(outcome.detail)}")


def _rendered(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, depth: int | None
) -> Mapping[str, str]:
    width, color = _terminal()
    view = View(depth=_terminal_depth(depth), width=width, color=color)
    return FORMATS[form.value](outcomes, view)


def _import_meanwhile(name: str) -> None:
    """Import what the end will need while the beginning waits for the network."""
    # No daemon: an interpreter that ends in the middle of an import may crash.
    Thread(target=import_module, args=(name,)).start()


def _terminal() -> tuple[int, bool]:
    """How many columns standard output has, and whether it shows colours."""
    width = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return width, sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _write_reports(
    outcomes: Sequence[Report | Unaudited], form: FormatChoice, output: Path, depth: int | None
) -> None:
    texts = _rendered(outcomes, form, depth)
    for name, text in texts.items():
        _write(output / name if len(texts) > 1 else output, text.encode())


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        _fail(UNAUDITED, f"cannot write {quoted(str(path))}: {error.strerror or error}")


# --- exits ------------------------------------------------------------------------------------


def _exit_code(outcome: Report | Unaudited, fail_on: FailOn) -> int:
    """Of several models in one repository a finding comes before what could not be audited."""
    if isinstance(outcome, Unaudited):
        return USAGE if outcome.reason is Reason.BAD_REQUEST else UNAUDITED
    otherwise = max((_exit_code(part, FailOn.NEVER) for part in outcome.parts), default=CLEAN)
    if fail_on is FailOn.NEVER or outcome.verdict == "clean":
        return otherwise
    alarming = {Severity.ERROR} if fail_on is FailOn.ERROR else {Severity.ERROR, Severity.WARNING}
    alarms = any(finding.severity in alarming for one in outcome.every for finding in one.findings)
    return FINDINGS if alarms or outcome.residual else otherwise


@contextmanager
def _guarded() -> Iterator[None]:
    """What ends a run early ends it with one line and the right code."""
    try:
        yield
    except UsageError as error:
        _fail(USAGE, str(error))
    except KeyboardInterrupt:
        # Worker threads may sit in a read for seconds yet. Nothing of theirs is worth waiting
        # for, and whatever was written stands whole.
        _say("interrupted")
        os._exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (`audit ... | head`); Python would complain while flushing at exit.
        discard(sys.stdout)
        raise typer.Exit(UNAUDITED) from None
    except OSError as error:
        if error.filename is not None or error.errno not in WRITE_FAULTS:
            raise  # it is about something else: our own fault, and no one-line matter
        discard(sys.stdout)
        _fail(UNAUDITED, f"cannot write to standard output: {error.strerror or error}")


def _fail(code: int, message: str) -> NoReturn:
    _say(message)
    raise typer.Exit(code)


def main() -> None:
    """The entry point of `audit` and of `hf-audit`."""
    # Ninety thousand tensors make millions of objects and no cycles; looking for cycles among
    # them took 130 of the 280 ms that reconciling them takes.
    gc.disable()
    prepare()
    try:
        with _guarded():  # for --help and --version, which typer prints
            code = app(standalone_mode=False)
            sys.stdout.flush()
    except typer.Exit as early:
        code = early.exit_code
    except typer.TyperException as error:
        # Its own message is a box of six lines and more.
        message = " ".join(printable(error.format_message()).split()).removesuffix(".")
        _say(f"{message[:1].lower()}{message[1:]}; audit check --help lists the options")
        code = error.exit_code
    gc.freeze()  # the interpreter's last collection would take 25 ms to find nothing either
    sys.exit(code)

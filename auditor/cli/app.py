"""The `audit` program: its commands, and how it begins and ends."""

import gc
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from auditor.audit.guard import crash
from auditor.cli.console import UNAUDITED, USAGE, guarded, say
from auditor.formats.text import printable
from auditor.streams import prepare_streams
from auditor.version import VERSION

# Each command's function has its name; where it is. The one that is called is loaded and no other,
# which saves a single audit 10 of 145 ms.
_COMMANDS = {
    "check": "check",
    "snapshot": "questions",
    "explain": "questions",
    "memory": "questions",
    "architectures": "questions",
    "fix": "fix",
    "sweep": "sweep",
    "report": "report",
}
_OF_ALL = {"-h", "--help", "--version"}


class _WithHelp(TyperGroup):
    """Without arguments it prints its help, on standard output."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            typer.echo(ctx.get_help())
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)


def _complete(args: list[str]) -> list[str]:
    """`audit bert-base-chinese` is `audit check bert-base-chinese`."""
    return ["check", *args] if args and args[0] not in {*_COMMANDS, *_OF_ALL} else args


def _app(args: list[str]) -> typer.Typer:
    """The program, with the command that these arguments call, or with all for its help."""
    made = typer.Typer(
        cls=_WithHelp,
        name="audit",
        subcommand_metavar="MODEL... | COMMAND [ARGS]...",
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_audit)
    for name in args[:1] if args and args[0] in _COMMANDS else _COMMANDS:
        made.command()(getattr(import_module(f"auditor.cli.{_COMMANDS[name]}"), name))
    return made


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with one positional
    if wanted:
        typer.echo(f"hf-audit {VERSION}")
        raise typer.Exit


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

    Exit codes: 0 reconciled, 1 findings, 2 usage, 3 could not audit and found nothing wrong.
    """


def main() -> None:
    """The entry point of `audit` and of `hf-audit`."""
    # Ninety thousand tensors make millions of objects and no cycles; looking for cycles among
    # them took 130 of the 280 ms that reconciling them takes.
    gc.disable()
    prepare_streams()
    try:
        with guarded():  # for --help and --version, which typer prints
            args = _complete(sys.argv[1:])
            code = _app(args)(args, standalone_mode=False)
            sys.stdout.flush()
    except typer.Exit as early:
        code = early.exit_code
    except typer.TyperException as error:
        # Its own message is a box of six lines and more.
        message = " ".join(printable(error.format_message()).split()).removesuffix(".")
        say(f"{message[:1].lower()}{message[1:]}; audit check --help lists the options")
        code = error.exit_code
    except MemoryError:
        say("out of memory: nothing more could be audited")
        code = UNAUDITED
    except Exception as error:  # noqa: BLE001 - a model has its own guard; this is around the rest
        say(crash(error))
        code = UNAUDITED
    gc.freeze()  # the interpreter's last collection would take 25 ms to find nothing either
    sys.exit(code)

"""The `audit` program: its commands, and how it begins and ends."""

import gc
import os
import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from auditor.audit.guard import crash
from auditor.cli.console import UNAUDITED, USAGE, guarded, say
from auditor.errors import UsageError
from auditor.formats.text import printable
from auditor.messages import meant, quoted
from auditor.streams import prepare_streams
from auditor.version import VERSION

# Each command's function has its name; where it is. The one that is called is loaded and no other,
# which saves a single audit 10 of 145 ms.
_COMMANDS = {
    "check": "check",
    "snapshot": "questions",
    "explain": "questions",
    "explain-finding": "explain_finding",
    "memory": "memory",
    "architectures": "questions",
    "claim": "claim",
    "diff": "diff",
    "fix": "fix",
    "sweep": "sweep",
    "report": "report",
}
_OF_ALL = {"-h", "--help", "--version"}
_COMPLETION = {"--install-completion", "--show-completion"}
_IS_COMPLETING = "_AUDIT_COMPLETE"  # which the shell sets when it asks for words


class _WithHelp(TyperGroup):
    """Without arguments it prints its help, on standard output."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # which is how a shell asks for words
            typer.echo(ctx.get_help())
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)


def _complete(args: list[str]) -> list[str]:
    """`audit bert-base-chinese` is `audit check bert-base-chinese`.

    A first word that is nearly a command, and no path, is a slip: no model has such a name.
    """
    if not args or args[0] in {*_COMMANDS, *_OF_ALL, *_COMPLETION}:
        return args
    first = args[0]
    nearly = "" if first[:1] in {"-", "."} or "/" in first else meant(first, _COMMANDS)
    if nearly and not os.path.lexists(first):
        raise UsageError(f"{quoted(first)} is no command{nearly}; of a model: audit check {first}")
    return ["check", *args]


def _app(args: list[str]) -> typer.Typer:
    """The program, with the command that these arguments call, or with all for its help."""
    made = typer.Typer(
        cls=_WithHelp,
        name="audit",
        subcommand_metavar="MODEL... | COMMAND [ARGS]...",
        # 5 ms that only who asks for it needs
        add_completion=not _COMPLETION.isdisjoint(args) or _IS_COMPLETING in os.environ,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_audit)
    for name in args[:1] if args and args[0] in _COMMANDS else _COMMANDS:
        module = import_module(f"auditor.cli.{_COMMANDS[name]}")
        made.command(name)(getattr(module, name.replace("-", "_")))
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


_NO_OPTION = re.compile(r"(no such option: (\S+)) \(Possible options: (.*)\)", re.IGNORECASE)
_NO_CHOICE = re.compile(r".*'([^']*)' is not one of (.*)", re.DOTALL)


def _in_a_line(error: typer.TyperException, command: str) -> str:
    """What is wrong with the arguments; its own message is a box of six lines and more."""
    message = " ".join(printable(error.format_message()).split()).removesuffix(".")
    message = f"{message[:1].lower()}{message[1:]}"
    if option := _NO_OPTION.fullmatch(message):
        message = f"{option[1]}{meant(option[2], option[3].split(', '))}"
    elif choice := _NO_CHOICE.fullmatch(message):
        message += meant(choice[1], re.findall(r"'([^']*)'", choice[2]))
    return f"{message}; audit {command} --help lists the options"


def main() -> None:
    """The entry point of `audit` and of `hf-audit`."""
    # Ninety thousand tensors make millions of objects and no cycles; looking for cycles among
    # them took 130 of the 280 ms that reconciling them takes.
    gc.disable()
    prepare_streams()
    args = sys.argv[1:]
    try:
        with guarded():  # for --help and --version, which typer prints
            args = _complete(args)
            code = _app(args)(args, standalone_mode=False)
            sys.stdout.flush()
    except typer.Exit as early:
        code = early.exit_code
    except typer.TyperException as error:
        say(_in_a_line(error, args[0] if args and args[0] in _COMMANDS else "check"))
        code = error.exit_code
    except MemoryError:
        say("out of memory: nothing more could be audited")
        code = UNAUDITED
    except Exception as error:  # noqa: BLE001 - a model has its own guard; this is around the rest
        say(crash(error))
        code = UNAUDITED
    gc.freeze()  # the interpreter's last collection would take 25 ms to find nothing either
    sys.exit(code)

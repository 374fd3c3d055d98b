"""The `audit` program: its commands, and how it begins and ends."""

import gc
import os
import re
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from auditor.audit.guard import TOO_LITTLE_MEMORY, crash, is_lack_of_memory
from auditor.cli.console import UNAUDITED, USAGE, guarded, say
from auditor.errors import UsageError
from auditor.messages import meant, printable, quoted
from auditor.streams import prepare_streams
from auditor.version import VERSION


class Command(NamedTuple):
    """A command, whose function has its name with "_" for "-"."""

    module: str  # of auditor.cli
    help: str  # the first sentence of its docstring


# The one that is called is loaded and no other, which saves a single audit 10 of 145 ms; the list
# of all of them needs none, and takes 0.2 s where loading them took 0.4.
COMMANDS = {
    "check": Command(
        "check", "Audit checkpoints: what their files store against what their configs imply."
    ),
    "snapshot": Command(
        "snapshot",
        "Record config, headers, index and sizes of MODEL in one small file, to audit it offline.",
    ),
    "explain": Command(
        "questions",
        "Say what the config of MODEL implies: every module, its formula and its share.",
    ),
    "explain-finding": Command(
        "explain_finding",
        "Say what a kind of finding or a cause means, and what to do about it.",
    ),
    "memory": Command(
        "memory",
        "Say what MODEL takes in memory: stored, loaded in some dtypes, its KV cache, in training.",
    ),
    "architectures": Command(
        "questions", "List the model types with a closed form, and how many classes of each."
    ),
    "claim": Command(
        "claim", "Confirm a published count of MODEL, or say which slips make it come out."
    ),
    "diff": Command(
        "diff",
        "Say what B has otherwise than A: what was lost first, then tensors, config keys, modules.",
    ),
    "fix": Command(
        "fix",
        "Mend what is wrong in names, config and index of a checkpoint, never in its weights.",
    ),
    "sweep": Command(
        "sweep",
        "Audit many models of the Hub, and keep what came of it; only what changed is fetched.",
    ),
    "report": Command(
        "report",
        "Write the reports of a night from the store alone: tables, what changed, and a page.",
    ),
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
    if not args or args[0] in {*COMMANDS, *_OF_ALL, *_COMPLETION}:
        return args
    first = args[0]
    nearly = "" if first[:1] in {"-", "."} or "/" in first else meant(first, COMMANDS)
    if nearly and not os.path.lexists(first):
        raise UsageError(f"{quoted(first)} is no command{nearly}; of a model: audit check {first}")
    return ["check", *args]


def _app(args: list[str]) -> typer.Typer:
    """The program, with the command that these arguments call, or with a list of all."""
    completing = _IS_COMPLETING in os.environ
    made = typer.Typer(
        cls=_WithHelp,
        name="audit",
        subcommand_metavar="MODEL... | COMMAND [ARGS]...",
        # 5 ms that only who asks for it needs
        add_completion=completing or not _COMPLETION.isdisjoint(args),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_audit)
    called = args[:1] if args and args[0] in COMMANDS else ()
    for name in called or COMMANDS:
        if called or completing:
            made.command(name, epilog=_epilog_of(name))(function_of(name))
        else:
            made.command(name, help=COMMANDS[name].help)(_listed)
    return made


def function_of(command: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(_module_of(command), command.replace("-", "_"))
    return function


def _epilog_of(command: str) -> str | None:
    """The text below the options in a command's help; None if its module has no EPILOG."""
    return getattr(_module_of(command), "EPILOG", None)


def _module_of(command: str) -> ModuleType:
    return import_module(f"auditor.cli.{COMMANDS[command].module}")


def _listed() -> None:
    """Stand for any command: `--help` prints its name and summary, and runs none."""


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
    """Return the usage error in one line; typer's own message is a box of six lines and more."""
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
    # The allocator of the HTTP library, which reads this when it is loaded, takes pages of 2 MiB
    # otherwise: 380 MB in place of 200 for a sweep at the Hub's distance, with its 220 threads.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    # It would reserve 1 GiB of address space, or so much of a limit that nothing else has room.
    os.environ.setdefault("MIMALLOC_ARENA_RESERVE", "16M")
    # numpy's linear algebra, of which nothing large is asked: each of its threads reserves 40 MiB.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
        say(_in_a_line(error, args[0] if args and args[0] in COMMANDS else "check"))
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 - a model has its own guard; this is around the rest
        say(f"too little memory: {TOO_LITTLE_MEMORY}" if is_lack_of_memory(error) else crash(error))
        code = UNAUDITED
    if args[:1] == ["sweep"] and any(one.name == "audit" for one in threading.enumerate()):
        # Threads of audit_threads.py still read. Ending in order, Python would go before the HTTP
        # library's own thread, which then calls it and crashes.
        os._exit(code)
    gc.freeze()  # the interpreter's last collection would take 25 ms to find nothing either
    sys.exit(code)

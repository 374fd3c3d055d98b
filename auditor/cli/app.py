"""The `audit` program: its commands, and how it begins and ends."""

import gc
import os
import re
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from itertools import chain
from textwrap import wrap
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from auditor.audit.guard import TOO_LITTLE_MEMORY, crash, is_lack_of_memory
from auditor.cli.console import UNAUDITED, USAGE, guarded, say
from auditor.cli.help import CommandWithHelp, columns, two_columns
from auditor.cli.parameters import PlainValues, command_of
from auditor.downloader import reading_variables
from auditor.errors import UsageError
from auditor.messages import meant, printable, quoted
from auditor.redaction import hide
from auditor.streams import prepare_streams
from auditor.version import VERSION


class Command(NamedTuple):
    """A command: `audit NAME` runs the function NAME (with "_" in place of "-")."""

    help: str  # the first sentence of the command's docstring
    example: str
    module: str = ""  # the module of auditor.cli that has the function; "": that of its name


# Only the module of the called command is imported, which saves a single audit 10 of 145 ms. The
# list of all commands imports no module, and takes 0.2 s instead of 0.4.
COMMANDS = {
    "check": Command(
        "Audit checkpoints: what is stored against what is expected.",
        "audit bert-base-chinese ./my-model --values",
    ),
    "doctor": Command(
        "Examine why MODEL writes gibberish, or never stops.", "audit doctor ./my-model"
    ),
    "explain": Command(
        "Print each module that a config implies, with its formula.",
        "audit explain bert --depth 2 --set num_hidden_layers=24",
        module="questions",
    ),
    "explain-finding": Command(
        "Print what a finding or a cause means, and what to do.",
        "audit explain-finding missing wrapper-prefix",
        module="questions",
    ),
    "symptoms": Command(
        "Find what a loader's message means, and what to look at.",
        'audit symptoms "Some weights were newly initialized"',
        module="questions",
    ),
    "fix": Command(
        "Repair names, config and index; no weight is changed.", "audit fix ./my-model --apply"
    ),
    "memory": Command(
        "Print what MODEL takes in memory, loaded and in training.",
        "audit memory bert-base-chinese --dtype bf16 --context 512",
    ),
    "claim": Command(
        "Confirm a published count, or name the mistakes behind it.",
        "audit claim bert-base-uncased 110M",
    ),
    "diff": Command(
        "Say what checkpoint B is of A, and list what differs.",
        "audit diff org/model org/model-awq",
        module="questions",
    ),
    "snapshot": Command(
        "Record what an audit of MODEL reads, to audit it offline.",
        "audit snapshot org/model -o model.json.gz",
    ),
    "architectures": Command(
        "List the model types that an audit knows, and what answers for each.",
        "audit architectures",
        module="questions",
    ),
    "push": Command(
        "Audit a folder, and send it to the Hub if it has no errors.",
        "audit push ./my-model org/model",
    ),
    "comment": Command(
        "Audit a pull request of the Hub, and post the report there.",
        "audit comment org/model --pr 3",
    ),
    "attest": Command(
        "State an audit with the digests of all files, and sign it.",
        "audit attest org/model -o statement.json --key key.pem",
    ),
    "verify": Command(
        "Check a statement: signature, digests and the audit itself.",
        "audit verify statement.json ./my-model",
    ),
    "sweep": Command(
        "Audit many models of the Hub; fetch only those that changed.",
        "audit sweep --author google --top 100",
    ),
    "report": Command(
        "Write the reports of a night: tables, changes and a page.",
        "audit report sweep.sqlite -o reports/nightly",
    ),
    "accept": Command(
        "Accept findings of the latest night until a date.",
        "audit accept . a/b --kind gated --by Al --reason ok --until 2027-03-31",
    ),
}
_OF_ALL = {"-h", "--help", "--version"}
_GROUPS = {
    "Audit and understand": "check doctor symptoms explain-finding diff claim",
    "Mend and publish": "fix push comment attest verify",
    "Count and plan": "explain memory architectures",
    "Many models": "sweep report accept snapshot",
}
_EXAMPLES = (
    "audit bert-base-chinese",
    "audit ./my-model -o report.html",
    "audit org/model --as AutoModelForSequenceClassification",
)
# Words that people type for a command, which are never looked up as models.
_OTHER_WORDS = {
    "compare": "diff", "convert": "fix", "count": "explain", "info": "check", "inspect": "check",
    "list": "architectures", "login": "", "ls": "architectures", "models": "architectures",
    "params": "explain", "ram": "memory", "repair": "fix", "run": "check", "scan": "check",
    "show": "check", "size": "memory", "test": "check", "upload": "push", "validate": "check",
    "vram": "memory",
}  # fmt: skip
_COMPLETION = {"--install-completion", "--show-completion"}
_IS_COMPLETING = "_AUDIT_COMPLETE"  # a variable that the shell sets to complete words


class _WithHelp(PlainValues, TyperGroup):
    """A command group that prints its help on standard output if there are no arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # the shell completes words
            typer.echo(ctx.get_help())
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        paragraphs = (self.help or "").split("\n\n")
        texts = [wrap(" ".join(text.split()), columns()) for text in paragraphs]
        usage = f"Usage: {ctx.command_path} MODEL... | COMMAND [ARGS]..."
        lines = [usage, "", *chain(*texts), "", "Examples:", *(f"  {one}" for one in _EXAMPLES)]
        for group, names in _GROUPS.items():
            rows = [(name, COMMANDS[name].help) for name in names.split()]
            lines += ["", f"{group}:", *two_columns(rows, max(map(len, COMMANDS)))]
        last = "audit help COMMAND lists its options; audit version prints the version."
        formatter.write("\n".join([*lines, "", last]))


def _complete(args: list[str]) -> list[str]:
    """Insert the default command if the arguments have no command: `MODEL` is `check MODEL`.

    `help` and `version` are words for the options. Raise UsageError if the first word is a misspelt
    command, or another word for one, and not a path.
    """
    if not args or args[0] in {*COMMANDS, *_OF_ALL, *_COMPLETION}:
        return args
    first = args[0]
    if first in {"help", "version"} and not os.path.lexists(first):
        return ["--version"] if first == "version" else [*args[1:2], "--help"]
    if first in _OTHER_WORDS and not os.path.lexists(first):
        other = _OTHER_WORDS[first]
        hint = f"try audit {other}" if other else "log in with hf auth login"
        raise UsageError(f"{quoted(first)} is not a command; {hint}, or audit help")
    nearly = "" if first[:1] in {"-", "."} or "/" in first else meant(first, COMMANDS)
    if nearly and not os.path.lexists(first):
        raise UsageError(
            f"{quoted(first)} is not a command{nearly}; to audit a model of that name: "
            f"audit check {first}"
        )
    return ["check", *args]


def _app(args: list[str]) -> typer.Typer:
    """Return the typer program with the command in `args`, or with a list of all commands."""
    completing = _IS_COMPLETING in os.environ
    program = typer.Typer(
        cls=_WithHelp,
        name="audit",
        # 5 ms
        add_completion=completing or not _COMPLETION.isdisjoint(args),
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    program.callback()(_audit)
    called = args[:1] if args and args[0] in COMMANDS else ()
    for name in called or COMMANDS:
        if called or completing:
            program.command(name, cls=CommandWithHelp, epilog=COMMANDS[name].example)(
                command_of(function_of(name))
            )
        else:
            program.command(name, help=COMMANDS[name].help)(_listed)
    return program


def function_of(command: str) -> Callable[..., int]:
    with reading_variables():
        module = import_module(f"auditor.cli.{COMMANDS[command].module or command}")
    function: Callable[..., int] = getattr(module, command.replace("-", "_"))
    return function


def _listed() -> None:
    """Represent a command in the list that `audit --help` prints; it is never called."""


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

    `audit MODEL...` is short for `audit check MODEL...`.

    Exit codes: 0 clean, 1 findings, 2 usage, 3 not audited.
    """


_NO_OPTION = re.compile(r"(no such option: (\S+)) \(Possible options: (.*)\)", re.IGNORECASE)
_NO_CHOICE = re.compile(r".*'([^']*)' is not one of (.*)", re.DOTALL)


def _in_a_line(error: typer.TyperException, command: str) -> str:
    """Return the message of a usage error in one line; typer would print a box of six lines."""
    message = " ".join(printable(error.format_message()).split()).removesuffix(".")
    message = f"{message[:1].lower()}{message[1:]}"
    if option := _NO_OPTION.fullmatch(message):
        message = f"{option[1]}{meant(option[2], option[3].split(', '))}"
    elif choice := _NO_CHOICE.fullmatch(message):
        message += meant(choice[1], re.findall(r"'([^']*)'", choice[2]))
    return f"{message}; audit {command} --help lists the options"


def main() -> None:
    """Run the program: the entry point of `audit` and `hf-audit`."""
    # Ninety thousand tensors are millions of objects without cycles; the search for cycles took 130
    # of the 280 ms of their reconciliation.
    gc.disable()
    # The allocator of the HTTP library reads this when it is loaded. With pages of 2 MiB, a sweep
    # of 220 threads at the Hub's distance takes 380 MB instead of 200.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    # Without this, the allocator reserves 1 GiB of address space, or most of a lower limit.
    os.environ.setdefault("MIMALLOC_ARENA_RESERVE", "16M")
    # Each thread of numpy's linear algebra reserves 40 MiB; one thread is enough.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    prepare_streams()
    hide(os.environ.get("HF_TOKEN"))
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
    except Exception as error:  # noqa: BLE001 - each model has a guard of its own
        say(f"too little memory: {TOO_LITTLE_MEMORY}" if is_lack_of_memory(error) else crash(error))
        code = UNAUDITED
    if args[:1] == ["sweep"] and any(
        one.name.startswith("audit_") for one in threading.enumerate()
    ):
        # Threads of the sweep's pool still read. At a regular exit, Python ends before the HTTP
        # library's own thread, which then calls it and crashes.
        os._exit(code)
    gc.freeze()  # the interpreter's last collection takes 25 ms otherwise
    sys.exit(code)

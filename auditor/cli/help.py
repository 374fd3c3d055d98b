"""The help of commands in plain text: an example, then the options in groups.

Most helps fit a screen of 25 lines. Options of the group RARE are only named there; `--help-all`
explains them.
"""

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperCommand

from auditor.cli.parameters import PlainValues
from auditor.options import GENERAL, RARE

_GROUPS = (GENERAL, RARE)  # the last groups; others come in the order of their first option
_LEAST, _MOST = 40, 100  # columns of a help
_LEFT = 26  # most columns of the names of options
_FEW = 3  # rare options that are explained like others


class CommandWithHelp(PlainValues, TyperCommand):
    """A command whose help is this module's text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_asked = "--help-all" in args[: args.index("--") if "--" in args else None]
        if is_asked and _rare(self.params):
            typer.echo("\n".join(_lines(self, ctx, is_all=True)))
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(_lines(self, ctx, is_all=False)))


def columns() -> int:
    """Return the width of a help, in columns."""
    return min(_MOST, max(_LEAST, shutil.get_terminal_size((80, 24)).columns)) - 1


def two_columns(rows: Iterable[tuple[str, str]], left: int) -> Iterator[str]:
    """Yield rows of a name and a text, which is wrapped."""
    for name, text in rows:
        first, *others = wrap(text, columns() - left - 4, break_on_hyphens=False) or [""]
        is_long = len(name) > left
        yield from [f"  {name}"] * is_long
        yield f"  {'' if is_long else name:<{left}}  {first}".rstrip()
        yield from (f"{'':{left + 4}}{line}" for line in others)


def _lines(command: Any, ctx: Any, *, is_all: bool) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    yield from wrap(" ".join(["Usage:", ctx.command_path, "[OPTIONS]", *map(_usage, arguments)]))
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield from wrap(" ".join(paragraph.split()), columns())
    yield f"Example: {command.epilog}"
    yield ""
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    rare = [] if is_all else _rare(params)
    shown = [param for param in params if param not in rare]
    records = {param.name: _record(param) for param in shown}
    left = min(_LEFT, max(len(name) for name, _ in records.values()))
    is_few = not is_all and not rare

    def group_of(param: Any) -> str:
        return _GROUPS[0] if is_few and _group(param) == RARE else _group(param)

    order = dict.fromkeys(map(group_of, shown))
    order = {group: order.pop(group) for group in list(order) if group not in _GROUPS} | order
    ranked = sorted(shown, key=lambda param: [*order].index(group_of(param)))
    for group, members in groupby(ranked, group_of):
        if group:
            yield f"{group}:"
        yield from two_columns((records[param.name] for param in members), left)
    if rare:
        names = ", ".join(max(param.opts, key=len) for param in rare)
        text = f"{RARE}, explained by --help-all: {names}."
        yield from wrap(text, columns(), break_on_hyphens=False)


def _rare(params: Iterable[Any]) -> list[Any]:
    """Return the options that only --help-all explains; [] if they are few."""
    rare = [param for param in params if _group(param) == RARE]
    return rare if len(rare) > _FEW else []


def _group(param: Any) -> str:
    """Return the group of an option; "" for an argument."""
    is_argument = param.param_type_name == "argument"
    return "" if is_argument else getattr(param, "rich_help_panel", None) or GENERAL


def _record(param: Any) -> tuple[str, str]:
    """Return the names of an option and the text about it."""
    default = f" Default: {param.show_default}." if isinstance(param.show_default, str) else ""
    text = " ".join(f"{param.help or ''}{default}".split())
    if param.param_type_name == "argument":
        return param.metavar, text
    names = ", ".join(sorted(param.opts, key=len))
    return names if param.is_flag or param.count else f"{names} {param.metavar}", text


def _usage(argument: Any) -> str:
    """Return an argument as the line of usage shows it: `MODEL...`, or `[STORE]` if optional."""
    name = argument.metavar
    shown = name if argument.required or name.startswith("[") else f"[{name}]"
    return f"{shown}..." if argument.nargs == -1 and not shown.endswith("...") else shown

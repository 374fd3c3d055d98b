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
from typer.core import TyperCommand, TyperOption

RARE = "More options"
_GROUPS = ("Options", RARE)  # the last groups; others come in the order of their first option
_LEAST, _MOST = 40, 100  # columns of a help
_LEFT = 26  # most columns of the names of options
_FEW = 3  # rare options that are explained like others


class CommandWithHelp(TyperCommand):
    """A command whose help is this module's text."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        if _rare(self.params):
            every = TyperOption(
                param_decls=["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                hidden=True,  # the help names it in another place
                callback=_print_all,
                help="Explain all options and exit.",
            )
            self.params.append(every)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(_lines(self, ctx, is_all=False)))


def _print_all(ctx: Any, _param: object, wanted: bool) -> None:  # noqa: FBT001 - typer calls it
    if wanted:
        typer.echo("\n".join(_lines(ctx.command, ctx, is_all=True)))
        ctx.exit()


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
    yield from wrap(f"Usage: {' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}")
    yield ""
    for paragraph in (command.help or "").split("\n\n"):
        yield from wrap(" ".join(paragraph.split()), columns())
    yield f"Example: {command.epilog}"
    yield ""
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    rare = [] if is_all else _rare(params)
    shown = [param for param in params if param not in rare]
    records = {param.name: _record(param, ctx) for param in shown}
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
    return "" if is_argument else getattr(param, "rich_help_panel", None) or _GROUPS[0]


def _record(param: Any, ctx: Any) -> tuple[str, str]:
    default = param.default if param.show_default is True else param.show_default
    is_given = bool(default) and not callable(default)
    text = " ".join(f"{param.help or ''}{f' Default: {default}.' if is_given else ''}".split())
    if param.param_type_name == "argument":
        return param.make_metavar(ctx=ctx), text
    names = ", ".join(sorted(param.opts, key=len))
    is_flag = param.is_flag or param.count
    return names if is_flag else f"{names} {param.metavar or _metavar(param)}", text


def _metavar(param: Any) -> str:
    choices = getattr(param.type, "choices", ())
    return "|".join(map(str, choices)) or ("N" if "range" in param.type.name else "TEXT")

"""A command's options and arguments on the command line, from its signature and OPTIONS.

Keyword-only parameters of a command's function are options, the others arguments. A parameter
`Annotated[dict, SomeStruct]` gets the fields of the Struct that were given; `Annotated[..., names]`
names choices for the help. Only what was given is passed, so defaults are the
function's, or the Struct's.

typer handles texts, lists of texts, flags and counts; all values are converted here. From 0.29 on,
typer would import pydantic to convert them, which takes 40 ms.
"""

import inspect
from collections.abc import Callable, Iterator
from enum import StrEnum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from msgspec.structs import fields

from auditor.cli.console import guarded
from auditor.options import OPTIONS, Option

_REQUIRED = inspect.Parameter.empty


class Parameter(NamedTuple):
    """An option or an argument of a command."""

    name: str
    kind: Any  # the type of the value, or of each value of a list
    row: Option
    default: Any
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_argument: bool = False
    group: str = ""  # the parameter of the function that collects it with others, in a dict

    @property
    def flag(self) -> str:
        return self.row.flag or f"--{self.name.replace('_', '-')}"


def command_of(function: Callable[..., int]) -> Callable[..., None]:
    """Return a function for typer that converts the given values and runs the command."""
    parameters = list(parameters_of(function))

    def run(**given: Any) -> None:
        values: dict[str, Any] = {one.group: {} for one in parameters if one.group}
        for one in parameters:
            if (text := given[one.name]) not in (None, False, (), []):
                place = values[one.group] if one.group else values
                place[one.name] = _value(text, one)
        call(function, **values)

    signature = inspect.Signature([_for_typer(one) for one in parameters])
    vars(run)["__signature__"] = signature
    run.__doc__ = function.__doc__
    return run


def call(function: Callable[..., int], *arguments: Any, **options: Any) -> NoReturn:
    """Run a command and raise typer.Exit; a class that no library has is refused first."""
    with guarded(options.get("model") or ""):
        if (target := options.get("target")) is not None:
            from auditor.audit.expected import require_known_class  # noqa: PLC0415 - 0.1 s

            require_known_class(target)
        code = function(*arguments, **options)
    raise typer.Exit(code)


def parameters_of(function: Callable[..., int]) -> Iterator[Parameter]:
    """Yield the options and arguments of a command's function."""
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    for name, parameter in own.items():
        is_annotated = get_origin(hints[name]) is Annotated
        kind, extra = get_args(hints[name]) if is_annotated else (hints[name], ())
        if isinstance(extra, type):
            for one in _fields(extra, function.__name__):
                if one.name not in own:
                    yield one._replace(group=name)
        else:
            row = OPTIONS.get(f"{function.__name__} {name}") or OPTIONS[name]
            one = _parameter(name, kind, row, parameter.default)
            is_argument = parameter.kind is not parameter.KEYWORD_ONLY
            yield one._replace(choices=tuple(extra) or one.choices, is_argument=is_argument)


def _fields(struct: type, command: str) -> Iterator[Parameter]:
    """Yield the fields of a Struct that are options, in the order of OPTIONS."""
    field_by_name = {field.name: field for field in fields(struct) if not field.required}
    hints = get_type_hints(struct)
    for key, row in OPTIONS.items():
        name = key.removeprefix(f"{command} ")
        if field := field_by_name.get(name):
            yield _parameter(name, hints[name], row, field.default)


def _parameter(name: str, hint: Any, row: Option, default: Any) -> Parameter:
    is_union = get_origin(hint) in {Union, UnionType}
    kinds = [one for one in get_args(hint) if one is not NoneType] if is_union else [hint]
    is_list = get_origin(kinds[-1]) in {list, tuple}  # str | tuple[str, ...] is a list, too
    kind = get_args(kinds[-1])[0] if is_list else kinds[0]
    choices: tuple[str, ...] = ()
    if get_origin(kind) is Literal:
        choices = get_args(kind)
    elif issubclass(kind, StrEnum):
        choices = tuple(map(str, kind))
    return Parameter(name, kind, row, default, choices=choices, is_list=is_list)


def _for_typer(one: Parameter) -> inspect.Parameter:
    row = one.row
    kind: Any = str | None
    default: Any = None
    if one.kind is bool or row.is_counted:
        kind, default = (bool, False) if one.kind is bool else (int, 0)
    elif one.is_list:
        kind = list[str] | None
    if one.default is _REQUIRED:
        default = _REQUIRED
    metavar = row.metavar or ("N" if one.kind in {int, float} else "|".join(one.choices) or "TEXT")
    texts: dict[str, Any] = {
        "help": row.help.replace("{choices}", ", ".join(one.choices)),
        "metavar": None if kind in {bool, int} else metavar,
        "show_default": row.default or False,
        "autocompletion": (lambda: one.choices) if one.choices else None,
    }
    if one.is_argument:
        info = typer.Argument(**texts)
    else:
        names = filter(None, (one.flag, row.short))
        info = typer.Option(*names, **texts, count=row.is_counted, rich_help_panel=row.group)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, keyword, default=default, annotation=Annotated[kind, info])


def _value(given: Any, one: Parameter) -> Any:
    """Return the value of a parameter; raise typer.BadParameter if it is not of its type."""
    if one.row.is_counted:
        return given
    if one.kind is bool:
        return not one.default  # --no-companions is a flag that makes `companions` false
    return [_converted(text, one) for text in given] if one.is_list else _converted(given, one)


def _converted(text: str, one: Parameter) -> Any:
    fault = ""
    if one.kind in {int, float}:
        try:
            number = one.kind(text)
        except ValueError:
            fault = f"{text!r} is not a {'whole ' if one.kind is int else ''}number"
        else:
            if one.row.least is None or number >= one.row.least:  # nan is no such number
                return number
            fault = f"{text} is not {one.row.least} or more"
    elif one.kind is not str and one.choices and text not in one.choices:
        fault = f"{text!r} is not one of {', '.join(map(repr, one.choices))}"
    if fault:
        name = one.row.metavar if one.is_argument else one.flag
        raise typer.BadParameter(f"{fault}.", param_hint=f"'{name}'")
    return text if get_origin(one.kind) is Literal else one.kind(text)


class PlainValues:
    """A mixin for typer's commands: values stay as they are, from typer 0.29 on."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if hasattr(type(param), "get_runtime_param"):
                vars(param)["get_runtime_param"] = _AsGiven
        return params


class _AsGiven:
    """The conversion of a parameter that converts nothing."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002 - typer's interface
        return () if value is None and (param.multiple or param.nargs == -1) else value

"""Print the reference of the Python API from signatures, docstrings and comments of fields."""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import auditor
from auditor.presented import PresentedOutcome

_FUNCTIONS = ("audit", "explain", "claim", "diff", "memory", "fix", "snapshot", "examine")


def api_reference() -> str:
    """Return Markdown: the functions, then the classes of arguments and results, then errors."""
    names = [name for name in auditor.__all__ if name not in _FUNCTIONS]
    values = [getattr(auditor, name) for name in names]
    errors = [value for value in values if issubclass(value, Exception)]
    classes = [value for value in values if value not in errors]
    lines = ["", "## Functions", ""]
    for name in _FUNCTIONS:
        lines += _function(getattr(auditor, name))
    lines += ["## Classes", ""]
    for value in classes:
        lines += _class(value)
    lines += ["## Errors", "", "| error | raised |", "|---|---|"]
    lines += [f"| `{value.__name__}` | {_text(value)} |" for value in errors]
    return "\n".join((*lines, ""))


def _text(value: Any) -> str:
    """Return a docstring in one line."""
    return " ".join(inspect.cleandoc(value.__doc__ or "").split())


def _paragraphs(value: Any) -> Iterator[str]:
    for paragraph in inspect.cleandoc(value.__doc__ or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")


def _function(function: Any) -> Iterator[str]:
    """Yield the signature, an argument a line, and the docstring."""
    node = _node(function)
    yield from (f"### auditor.{node.name}", "", "```text", f"auditor.{node.name}(")
    yield from (f"    {argument}," for argument in _arguments(node.args))
    yield from (f") -> {_annotation(node.returns)}", "```", "", *_paragraphs(function))


def _arguments(of: ast.arguments) -> Iterator[str]:
    defaults = [None] * (len(of.args) - len(of.defaults)) + of.defaults
    yield from map(_argument, of.args, defaults)
    if of.kwonlyargs:
        yield "*"
    yield from map(_argument, of.kwonlyargs, of.kw_defaults)
    if of.kwarg:
        yield f"**{of.kwarg.arg}: {_annotation(of.kwarg.annotation)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = f"{argument.arg}: {_annotation(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _annotation(node: ast.expr | None) -> str:
    if node is None:
        return "None"
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _class(value: Any) -> Iterator[str]:
    """Yield the docstring, the fields, and the public properties and methods."""
    yield from (f"### auditor.{value.__name__}", "", *_paragraphs(value))
    comments, rows = _comments(value), []
    for base in reversed(_bases(value)):
        for node in _node(base).body:
            comment = comments.get((base, getattr(node, "lineno", 0)), "")
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                default = f" = {ast.unparse(node.value)}" if node.value else ""
                kind = f"{_annotation(node.annotation)}{default}"
                rows.append((node.target.id, kind, comment))
            elif isinstance(node, ast.Assign):
                rows.append((ast.unparse(node.targets[0]), ast.unparse(node.value), comment))
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                decorators = {*map(ast.unparse, node.decorator_list)}
                is_method = decorators.isdisjoint({"property", "cached_property"})
                summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
                name = f"{node.name}()" if is_method else node.name
                rows.append((name, _annotation(node.returns), " ".join(summary.split())))
    shown = [row for row in rows if not row[0].startswith("_")]
    if shown:
        yield from ("| name | type | meaning |", "|---|---|---|")
        for cells in {row[0]: row for row in shown}.values():
            name, kind, comment = (cell.replace("|", "\\|") for cell in cells)
            yield f"| `{name}` | `{kind}` | {comment} |"
        yield ""


def _bases(value: type) -> list[type]:
    """Return the class and its bases in this package, without the shared methods of outcomes."""
    return [
        base
        for base in value.__mro__
        if base.__module__.startswith("auditor.") and base is not PresentedOutcome
    ]


def _node(value: Any) -> Any:
    return ast.parse(dedent(inspect.getsource(value))).body[0]


def _comments(value: type) -> dict[tuple[type, int], str]:
    """Return the comment of each field: at the end of its line, or on the lines above it."""
    found: dict[tuple[type, int], str] = {}
    for base in _bases(value):
        above: list[str] = []
        source = io.StringIO(dedent(inspect.getsource(base)))
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                text = token.string.removeprefix("#").strip()
                if token.line.strip().startswith("#"):
                    above.append(text)
                else:
                    found[base, token.start[0]] = text
            elif token.type == tokenize.NEWLINE:
                if above:
                    found.setdefault((base, token.start[0]), " ".join(above))
                above = []
    return found

"""Messages are plain English: no string of the package has one of the odd phrases below.

A message is `<subject> is <observed>, expected <expected>; <what to do>`. All string literals but
docstrings are searched: a phrase that is odd in a message is not needed in another string either.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "auditor"
ODD = re.compile(
    r"\b(?:is|are|was|were) none\b"  # there is no
    r"|\bnone of\b(?! the \{)"  # no; "none of the {} files" has a count
    r"|\b(?:has|have) not(?=\s*(?:$|[.,;:)]))"  # does not have
    r"|, for (?:there|it|they|that|this|nothing|nobody|no \w+) (?:is|are|has|have|was|were)\b"
    r"|\bdue\b"  # expected
    r"|\b(?:told|hears?|heard) "  # reported, declares
    r"|\bstands? beside\b"  # is next to, has
    r"|\bwhere it (?:is told|does not)\b"
    r"|(?<!there )\b(?:is|are) no (?!longer|more|other)"  # is not a
    r"|\bcomes? to (?:that|\{)"  # is equal to
    r"|\bexpected\b.*\bfound\b"  # is X, expected Y
    r"|\bare the most\b"  # expected at most
    r"|\b(?:nobody|likewise|strangers?)\b"
)


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each literal; an f-string has `{}` for each value."""
    skipped = {id(part) for node in ast.walk(tree) for part in _not_literals(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            yield node.lineno, str(node.value)


def _not_literals(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of f-strings, and docstrings."""
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value


def odd_messages() -> Iterator[str]:
    """Yield each odd string with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for line, text in strings(ast.parse(path.read_text("utf-8"))):
            if ODD.search(text):
                yield f"auditor/{name}:{line} {text}"


def test_no_message_is_odd():
    assert list(odd_messages()) == []


def test_a_phrase_is_odd_in_literals_and_not_in_docstrings(subtests):
    for source, is_odd in [
        ("fault = f'value type is {kind}, which GGUF has not'", True),
        ("fault = f'no values: {a} of them, for there is nothing to read'", True),
        ("raise Error(f'{size} bytes; ' f'{most} are the most that are read')", True),
        ("fault = 'expected a list, found an object'", True),
        ("fault = 'is no config'", True),
        ("fault = 'is a list, expected an object'", False),
        ("fault = 'there is no config; the file has not been read'", False),
        ("def f():\n    'The file stands beside it.'", False),
    ]:
        with subtests.test(source=source, is_odd=is_odd):
            assert any(ODD.search(text) for _, text in strings(ast.parse(source))) is is_odd

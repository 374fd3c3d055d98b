"""Count the docstrings that begin with a word to avoid, and draw some for a reader.

`python tools/language.py` prints a count for each package; `tests/unit/test_language.py` wants
none. `--list PACKAGE` prints the docstrings of a package that begin so;
`--sample 200 --seed 1` draws 200 of all docstrings. `--messages PACKAGE` prints the sentences that
its code shows to users, each with its place; `{}` stands for a value.
"""

import argparse
import ast
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "auditor"
# A docstring begins with a noun phrase and its article, or with a verb in the imperative.
AVOIDED = re.compile(r"(?:What|Those|That|The same|Of|As|Where|Who|Why|None|It)\b")


class Docstring(NamedTuple):
    """A docstring and its place."""

    path: str  # below auditor/, "/" between folders
    line: int
    name: str  # of the class or function; "" for a module
    text: str

    @property
    def package(self) -> str:
        """The top-level package or module: `formats`, `report.py`."""
        return self.path.partition("/")[0]


def docstrings() -> Iterator[Docstring]:
    """Yield the docstrings of all modules, classes and functions of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            if text := ast.get_docstring(node):
                line, name = getattr(node, "lineno", 1), getattr(node, "name", "")
                yield Docstring(path.relative_to(PACKAGE).as_posix(), line, name, text)


def avoided() -> list[Docstring]:
    """List the docstrings that begin with a word to avoid."""
    return [each for each in docstrings() if AVOIDED.match(each.text)]


def avoided_by_package() -> dict[str, int]:
    """Count the docstrings that begin with a word to avoid, by package."""
    return dict(sorted(Counter(each.package for each in avoided()).items()))


_LEAST_WORDS = 3  # of a text that is a sentence, not a name


def messages(package: str) -> Iterator[Docstring]:
    """Yield the texts of several words in a package's code that are not docstrings."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.partition("/")[0] != package:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = "" if id(node) in left_out else _text_of(node)
            if isinstance(node, ast.JoinedStr):
                left_out.update(map(id, node.values))
            if len(re.findall(r"[a-z]{2,}", text)) >= _LEAST_WORDS and " " in text:
                yield Docstring(place, node.lineno, "", " ".join(text.split()))


def _text_of(node: ast.AST) -> str:
    """Return the text of a literal, `{}` for each value in it; "" for another node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    parts = node.values if isinstance(node, ast.JoinedStr) else ()
    return "".join(_text_of(one) or "{}" for one in parts)


def _printed(each: Docstring) -> str:
    text = each.text.replace("\n", "\n    ")
    return f"auditor/{each.path}:{each.line} {each.name}\n    {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="PACKAGE", help="print those of one package")
    parser.add_argument("--messages", metavar="PACKAGE", help="print the sentences of one package")
    parser.add_argument("--sample", type=int, metavar="N", help="print N docstrings at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    options = parser.parse_args()
    if options.sample is not None:
        everything = list(docstrings())
        chosen = random.Random(options.seed).sample(
            everything, min(options.sample, len(everything))
        )
        print("\n\n".join(map(_printed, chosen)))
    elif options.messages is not None:
        print("\n".join(f"{one.path}:{one.line} {one.text}" for one in messages(options.messages)))
    elif options.list is not None:
        print("\n\n".join(_printed(each) for each in avoided() if each.package == options.list))
    else:
        counts = avoided_by_package()
        for package, count in counts.items():
            print(f'    "{package}": {count},')
        total = sum(1 for _ in docstrings())
        print(f"{sum(counts.values()):,} of {total:,} docstrings begin with a word to avoid")


if __name__ == "__main__":
    main()

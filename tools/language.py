"""Count the docstrings that begin with a word to avoid, and draw some for a reader.

`python tools/language.py` prints a count for each package; `tests/unit/test_language.py` wants
none. `--list PACKAGE` prints the docstrings of a package that begin so;
`--sample 200 --seed 1` draws 200 of all docstrings.
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


def _printed(each: Docstring) -> str:
    text = each.text.replace("\n", "\n    ")
    return f"auditor/{each.path}:{each.line} {each.name}\n    {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="PACKAGE", help="print those of one package")
    parser.add_argument("--sample", type=int, metavar="N", help="print N docstrings at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    options = parser.parse_args()
    if options.sample is not None:
        everything = list(docstrings())
        chosen = random.Random(options.seed).sample(
            everything, min(options.sample, len(everything))
        )
        print("\n\n".join(map(_printed, chosen)))
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

"""Runs docs/notebook.ipynb and writes its outputs anew: `python tools/rewrite_notebook.py`.

test_notebook.py holds the notebook to what it says. No Jupyter is needed: a cell is Python.
"""

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "notebook.ipynb"


def executed(content: str) -> str:
    """The notebook with the outputs that its cells have, one after the other."""
    notebook = json.loads(content)
    names: dict[str, Any] = {}
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(codes, 1):
        value = _run("".join(cell["source"]), names)
        cell["execution_count"] = number
        cell["outputs"] = [] if value is None else [_output(value, number)]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own notebook
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - likewise


def _output(value: Any, number: int) -> dict[str, Any]:
    shown = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        shown["text/html"] = value._repr_html_().splitlines(keepends=True)
    return {
        "output_type": "execute_result",
        "execution_count": number,
        "metadata": {},
        "data": shown,
    }


if __name__ == "__main__":
    NOTEBOOK.write_text(executed(NOTEBOOK.read_text(encoding="utf-8")), encoding="utf-8")

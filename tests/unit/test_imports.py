"""No two files import each other, directly or through others; `make lint` holds the layers."""

import ast
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("auditor")
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imported).static_order())) == len(graph.modules)


def names_import_module(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text()))
    words = {value for node in nodes for _, value in ast.iter_fields(node) if type(value) is str}
    return not words.isdisjoint({"import_module", "__import__"})


def test_only_listed_files_import_a_module_by_its_name():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["auditor"]
    paths = (ROOT / "auditor").rglob("*.py")
    files = {path.relative_to(ROOT).as_posix() for path in paths if names_import_module(path)}
    assert files == set(listed["import_module"])

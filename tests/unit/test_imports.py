"""No two files import each other, directly or through others; `make lint` holds the layers."""

import ast
import re
import tomllib
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import auditor

ROOT = Path(__file__).parents[2]


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("auditor")
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imported).static_order())) == len(graph.modules)


IMPORTING = ("import_module", "__import__")


def names_import_module(path: Path) -> bool:
    text = path.read_text()
    if not any(name in text for name in IMPORTING):  # to parse all files takes seconds
        return False
    nodes = ast.walk(ast.parse(text))
    words = {value for node in nodes for _, value in ast.iter_fields(node) if type(value) is str}
    return not words.isdisjoint(IMPORTING)


def test_only_listed_files_import_a_module_by_its_name():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["auditor"]
    paths = (ROOT / "auditor").rglob("*.py")
    files = {path.relative_to(ROOT).as_posix() for path in paths if names_import_module(path)}
    assert files == set(listed["import_module"])


# --- names of classes -----------------------------------------------------------------------------


PACKAGE = Path(auditor.__file__).parent
DEFINED = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)


def test_a_class_has_a_name_of_its_own():
    files_by_name = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in DEFINED.findall(path.read_text("utf-8")):
            files_by_name[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in files_by_name.items() if files[1:]} == {}

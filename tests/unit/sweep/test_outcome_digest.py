"""What an outcome depends on is what the pipeline imports, and nobody lists it."""

import ast
import shutil
from pathlib import Path

import pytest

from auditor.sweep import outcome_digest

PACKAGE = Path(outcome_digest.__file__).parent.parent
MAKERS = [path.relative_to(PACKAGE).as_posix() for path in outcome_digest.pipeline_files()]


def imported(path: Path) -> set[str]:
    """Every name of ours that a source imports, by Python's own parser."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return {name for name in found if name.split(".")[0] == "auditor"}


def module_file(name: str) -> Path | None:
    whole = PACKAGE.joinpath(*name.split(".")[1:])
    files = (whole / "__init__.py", whole.with_suffix(".py"))
    return next((path for path in files if path.is_file()), None)


@pytest.mark.slow
def test_whatever_a_maker_imports_is_one():
    makers = set(outcome_digest.pipeline_files())
    for maker in makers:
        if maker.suffix == ".py":
            wanted = {path for name in imported(maker) if (path := module_file(name))}
            assert wanted <= makers, maker


def test_an_outcome_depends_on_what_the_pipeline_imports_also_by_name_and_on_data():
    wanted = {
        "analytic/families/bert.py",  # imported by its name
        "containers/torch_file.py",
        "data/config_classes.jsonl",
        "messages.py",  # the wording that stands in findings
    }
    others = {"cli/app.py", "sweep/store/schema.py"}
    assert all((PACKAGE / name).exists() for name in others)
    assert wanted <= {*MAKERS}
    assert not others & {*MAKERS}


@pytest.mark.slow
def test_a_change_of_any_maker_is_another_version(tmp_path):
    copy = tmp_path / "auditor"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = outcome_digest._digest(copy)  # noqa: SLF001 - of a copy
    assert before == outcome_digest._digest(PACKAGE)  # noqa: SLF001
    for name in MAKERS[:: max(1, len(MAKERS) // 12)]:
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content + b"\n")
        assert outcome_digest._digest(copy) != before, name  # noqa: SLF001
        (copy / name).write_bytes(content)
    (copy / "cli" / "app.py").write_text("")
    assert outcome_digest._digest(copy) == before  # noqa: SLF001

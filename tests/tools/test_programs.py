"""The programs of tools/: each can be loaded where they run, with tools and tests on the path."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "tools").with_suffix("").parts)
    for path in (ROOT / "tools").rglob("*.py")
    if "judges" not in path.parts  # they run in the engines' own environments
)
LOAD = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


@pytest.mark.slow
def test_every_module_of_the_programs_can_be_loaded():
    pytest.importorskip("torch")
    env = {"PYTHONPATH": f"{ROOT / 'tools'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", LOAD, *MODULES]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)  # noqa: S603 - ours
    assert (done.returncode, done.stderr) == (0, "")
    assert "hostile.__main__" in MODULES


def test_following_one_audit_takes_few_moves_between_files():
    """The bounds are what was reached; a function that is called name by name makes hundreds."""
    command = [sys.executable, "tools/visits.py"]
    env = {"PYTHONPATH": f"{ROOT / 'tools'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=ROOT)  # noqa: S603 - ours
    counts = r"\d+ files, ([\d,]+) moves between them in [\d,]+ calls; (\d+) returns of reconcile\n"
    printed = re.fullmatch(counts, done.stdout)
    assert printed
    assert int(printed[1].replace(",", "")) <= 1_080
    assert int(printed[2]) <= 4

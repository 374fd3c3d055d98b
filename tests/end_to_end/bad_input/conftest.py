"""A machine that knows no Hub, and the clean audits that the others are held against."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.bad_input import making
from support.bad_input.running import CLEAN, Run, assert_harmless, environment, run, tree


@pytest.fixture
def audit(tmp_path: Path, clean: Run) -> Callable[..., Run]:
    """Runs `audit` in an empty folder; it must do no harm, and write nothing anywhere."""
    env = environment(tmp_path / "home")
    (tmp_path / "cwd").mkdir()

    def audit(*args: str, against: Run = clean, variables=(), **options) -> Run:
        before = tree(tmp_path)
        ran = run(*args, env=env | dict(variables), cwd=tmp_path / "cwd", **options)
        assert_harmless(ran, against)
        assert tree(tmp_path) == before
        return ran

    return audit


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The audit of a clean folder; a fork says of it what the installed program says."""
    top = tmp_path_factory.mktemp("clean")
    folder, env = making.whole(top / "model"), environment(top / "home")
    ran = run(str(folder), "--format", "json", env=env, cwd=top)
    installed = run(str(folder), "--format", "json", env=env, cwd=top, installed=True)
    assert replace(installed, peak=ran.peak, spent=ran.spent) == ran
    assert ran.code == CLEAN
    assert ran.outcome["verdict"] == "clean"
    return ran

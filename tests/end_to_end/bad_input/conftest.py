"""A machine that knows no Hub, and the clean audits that the others are held against."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_input import making
from bad_input.running import CLEAN, Run, assert_harmless, run, tree

LEAKS = ("HF_", "HUGGING", "HTTP_", "HTTPS_", "ALL_PROXY", "NO_PROXY", "FORCE_COLOR", "COLUMNS")
NO_HUB = "http://127.0.0.1:9"  # the port of the discard protocol: nothing listens


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Of a machine without token, cache and Hub."""
    home.mkdir(parents=True)
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(LEAKS)}
    own = {"HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": NO_HUB, "NO_COLOR": "1"}
    return kept | own | variables


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
    """The audit of a clean folder."""
    top = tmp_path_factory.mktemp("clean")
    folder = making.whole(top / "model")
    ran = run(str(folder), "--format", "json", env=environment(top / "home"), cwd=top)
    assert ran.code == CLEAN
    assert ran.outcome["verdict"] == "clean"
    return ran

"""Audits in little address space: each ends by itself, with a result or with one clear line."""

import json
import resource
import subprocess
from itertools import product

import pytest
from support.bad_input.making import whole
from support.examples import one_in
from support.running import AUDIT
from support.sweep_models import healthy

# Without a limit on what a process may reserve there is nothing to test.
pytestmark = pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="has no RLIMIT_AS")

MIB = 1024 * 1024
LEVELS = (40, 70, 100, 150, 190, 260, 400)
ENOUGH = {"folder": 60, "folder --values": 190, "hub": 4000}  # at and above, an audit must succeed


@pytest.fixture
def run_within(hub, hub_env, tmp_path):
    """Runs an audit whose process may reserve so many MiB."""
    hub.add("org/m", healthy(1))
    models = {"folder": [str(whole(tmp_path / "m"))], "hub": ["org/m"]}
    models["folder --values"] = [*models["folder"], "--values"]

    def run_within(kind: str, level: int) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (level * MIB, level * MIB))

        return subprocess.run(  # noqa: S603 - our own command
            [AUDIT, *models[kind], "--format", "json"],
            env=hub_env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=limit,
        )

    return run_within


@pytest.mark.parametrize(("kind", "level"), one_in(2, product(ENOUGH, LEVELS)))
def test_an_audit_ends_with_a_result_or_reports_too_little_memory(kind, level, run_within):
    ran = run_within(kind, level)
    if ran.returncode in {0, 1}:
        assert json.loads(ran.stdout)["verdict"] in {"clean", "findings"}
        assert ran.stderr == ""
        return
    assert level < ENOUGH[kind]
    assert ran.returncode == 3
    [line] = ran.stderr.splitlines()
    assert ": too-little-memory: " in line
    assert json.loads(ran.stdout)["reason"] == "too-little-memory"

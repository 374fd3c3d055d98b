"""A process that is forked after an audit over the network audits too, and leaves its parent be."""

import os
import subprocess
import sys

import pytest
from support.sweep_models import healthy

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")

# Each process has an alarm, so that a hang ends it and not the test's patience.
AUDITS = """
import os, signal, sys
from auditor import audit

def audited(name):
    outcome = audit("o/n")
    print(name, getattr(outcome, "reason", outcome.verdict), flush=True)

def forked(work):
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, code
        return
    signal.alarm(30)
    work()
    sys.exit()

def grandchild():
    forked(lambda: audited("grandchild"))

def child():
    audited("child")
    audited("child")
    grandchild()

signal.alarm(60)
audited("parent")
forked(child)
forked(child)
audited("parent")
"""
GENERATION = ["child clean", "child clean", "grandchild unreachable"]


@pytest.mark.filterwarnings("ignore")
def test_a_child_that_is_forked_after_an_audit_audits_too(hub, hub_env):
    hub.add("o/n", healthy(1))
    command = [sys.executable, "-W", "ignore", "-c", AUDITS]
    ran = subprocess.run(  # noqa: S603 - our own script
        command, env=hub_env, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["parent clean", *GENERATION, *GENERATION, "parent clean"]

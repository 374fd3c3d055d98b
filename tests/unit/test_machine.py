"""On which CPUs threads and processes run: those of a sweep on one, the oracle's on every one."""

import os
import sys
from contextlib import ExitStack
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor import machine
from auditor.machine import every_cpu, one_cpu
from auditor.oracle.client import Process

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system does not say which CPUs there are"
)
ASKED = "import json, os; input(); print(json.dumps({'cpus': [*os.sched_getaffinity(0)]}))"


def in_a_thread(work):
    """What `work` returns in a thread of its own."""
    found = []
    thread = Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def allowed():
    return os.sched_getaffinity(0)


def test_threads_that_are_started_within_stay_on_the_one_cpu_of_the_caller():
    before = allowed()
    with one_cpu():
        mine = allowed()
        assert len(mine) == 1
        assert mine <= before
        assert in_a_thread(allowed) == in_a_thread(lambda: in_a_thread(allowed)) == mine
    assert allowed() == in_a_thread(allowed) == before


def test_the_caller_is_free_again_after_an_error():
    before = allowed()
    with pytest.raises(ZeroDivisionError), one_cpu():
        _ = 1 / 0
    assert allowed() == before


def test_the_oracle_that_such_a_thread_starts_has_every_cpu():
    before = allowed()
    process = Process((sys.executable, "-c", ASKED))
    with one_cpu():
        said = in_a_thread(lambda: process.ask("[]", "BertModel", "transformers"))
        assert len(allowed()) == 1
    process.end()
    assert {*said["cpus"]} == before


@given(st.lists(st.sampled_from([one_cpu, every_cpu]), max_size=6))
def test_each_restores_the_cpus_that_were_allowed(steps):
    found, left = [], []
    with ExitStack() as stack:
        for step in steps:
            found.append(allowed())
            stack.callback(lambda: left.append(allowed()))
            stack.enter_context(step())
    assert left == found[::-1]


@pytest.mark.parametrize("fault", [PermissionError("a sandbox"), OSError("no such CPU")])
def test_on_a_system_without_affinity_nothing_changes(fault, monkeypatch):
    def refuse(*_):
        raise fault

    before = allowed()
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with one_cpu(), every_cpu():
        assert allowed() == before


def test_a_system_without_affinities_is_left_alone(monkeypatch):
    monkeypatch.setattr(machine, "_ALL", set[int]())
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    with one_cpu(), every_cpu():
        pass

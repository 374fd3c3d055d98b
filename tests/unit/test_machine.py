"""The CPUs of this process, also on a system that does not say which there are."""

import os

from auditor.machine import cpu_count


def test_the_cpus_that_this_process_may_use_are_counted(monkeypatch):
    if hasattr(os, "sched_getaffinity"):
        assert cpu_count() == len(os.sched_getaffinity(0))
        monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cpu_count() == 1

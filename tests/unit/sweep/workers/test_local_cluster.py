"""Sweeps of several processes on this machine: workers that die, hang, or outlive nobody."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest
from support.hub import After, TooMany
from support.running import PATIENCE, children_of, is_at_work, started
from support.sweep_models import add_planted
from support.sweep_stores import contents

from auditor.errors import Reason, UsageError
from auditor.sweep import runner
from auditor.sweep.selection import ModelSelection
from auditor.sweep.store.reading import Store

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")

OURS = ModelSelection(author="sweep")
MODELS = 60
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
TOKEN = "hf_" + "a" * 34


@pytest.fixture
def models(at_hub):
    add_planted(at_hub, MODELS)
    return at_hub


def is_worker(pid):
    """Whether it is one of Dask's processes, and not what counts semaphores."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - no file
        return b"spawn_main" in file.read()


def workers(pid):
    return [child for child in children_of(pid) if is_worker(child)]


def reasons(settings):
    with Store.open(settings.output.store) as store:
        return {one.model: one.reason for one in store.results("n1")}


def test_two_processes_of_which_one_dies_end_with_the_store_of_one(models, settings, tmp_path):
    runner.sweep(settings(OURS), night="n1")
    store = settings(OURS).output.store
    plain = contents(store.rename(tmp_path / "plain.sqlite"))
    alarm = After(requests=40)
    models.misbehave(fault=alarm)
    killed = []

    def kill():
        alarm.event.wait()
        killed.append(workers(os.getpid())[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    swept = runner.sweep(settings(OURS, processes=2), night="n1")
    killer.join()
    assert swept.audited == MODELS + 1
    assert killed
    assert contents(store) == plain


def test_a_worker_that_hangs_is_replaced(models, settings):
    alarm = After(requests=40)  # of two batches, one for each worker
    models.misbehave(fault=alarm)

    def hang():
        alarm.event.wait()
        os.kill(workers(os.getpid())[0], signal.SIGSTOP)

    hanging = threading.Thread(target=hang)
    hanging.start()
    with distributed.dask.config.set({"distributed.scheduler.worker-ttl": "3s"}):
        runner.sweep(settings(OURS, processes=2), night="n1")
    hanging.join()
    assert set(reasons(settings(OURS)).values()) == {None, Reason.GATED}


def waiting(models, env, tmp_path):
    """A sweep of two processes, all of whose requests wait, and its workers."""
    models.misbehave(fault=TooMany(reset=290), path="*/resolve/*")
    store = ("--store", str(tmp_path / "s.sqlite"))
    process = started("sweep", "--author", "sweep", "--processes", "2", *store, env=env)
    while "; waiting " not in process.stderr.readline():
        assert process.poll() is None
    return process, workers(process.pid)


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_ends_a_sweep_and_its_workers_at_once(number, models, hub_env, tmp_path):
    process, others = waiting(models, hub_env, tmp_path)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == CODES[number]
    assert all(line.startswith("audit: ") for line in said.splitlines()), said
    assert len(others) == 2
    assert not [pid for pid in others if is_at_work(pid)]


def test_workers_block_signals_of_the_terminal_and_do_not_outlive_a_sweep_that_is_killed(
    models, hub_env, tmp_path
):
    """Of a Ctrl-C while they start each would tell by a traceback."""
    process, others = waiting(models, hub_env, tmp_path)
    status = [Path(f"/proc/{pid}/status").read_text() for pid in others]
    process.kill()
    process.communicate(timeout=PATIENCE)  # its stderr, which they inherit, ends with the last one
    blocked = [int(re.search(r"^SigBlk:\s*(\w+)$", one, re.MULTILINE)[1], 16) for one in status]
    assert [mask >> (signal.SIGINT - 1) & 1 for mask in blocked] == [1, 1]
    assert [mask >> (signal.SIGHUP - 1) & 1 for mask in blocked] == [1, 1]
    assert not [pid for pid in others if is_at_work(pid)]


def test_a_token_that_was_given_reaches_the_workers_and_is_in_no_task(
    models, settings, monkeypatch
):
    models.grant(TOKEN, "sweep/gated")
    given = []
    true = distributed.Client.submit

    def submit(client, work, *batch, **named):
        given.append(repr((batch, named)))
        return true(client, work, *batch, **named)

    monkeypatch.setattr(distributed.Client, "submit", submit)
    runner.sweep(settings(OURS, processes=2), night="n1", token=TOKEN)
    configs = [record for record in models.log if record.path.endswith("config.json")]
    assert {record.authorization for record in configs} == {f"Bearer {TOKEN}"}
    assert set(reasons(settings(OURS)).values()) == {None}
    assert given
    assert not [one for one in given if TOKEN in one]


def test_without_dask_one_line_names_what_to_install(at_hub, settings, monkeypatch):
    del at_hub
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "auditor.sweep.workers.cluster")
    with pytest.raises(UsageError, match="--processes needs Dask: pip install"):
        runner.sweep(settings(OURS, processes=2), night="n1")

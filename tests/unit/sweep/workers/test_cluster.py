"""The same sweep on a cluster: real workers, processes of their own, some of which die.

On many machines: test_local_cluster.py has those of `--processes`.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from support.hub import After, Quota, Stall
from support.sweep_models import FAULTS, add_planted, healthy, planted
from support.sweep_stores import contents

from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep import runner
from auditor.sweep.selection import ModelSelection
from auditor.sweep.store.reading import Store, Versions

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")
cluster = pytest.importorskip("auditor.sweep.workers.cluster")

OURS = ModelSelection(author="sweep")
MODELS = 120
START = "import sys; from auditor.cli import main; sys.argv[0] = 'audit'; main()"


@pytest.fixture
def models(at_hub):
    add_planted(at_hub, MODELS)
    return at_hub


@contextmanager
def workers(count, **options):
    """A scheduler and workers on loopback."""
    with distributed.LocalCluster(
        n_workers=count,
        threads_per_worker=2,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # None takes 8787, which another test may have
        **options,
    ) as running:
        yield running


def pids(running):
    return [worker.pid for worker in running.workers.values()]


def started(*options, store, cluster):
    """The command on a cluster, while it runs."""
    where = ("--store", str(store), "--scheduler", cluster.scheduler_address)
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", *options, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def swept(*options, store, cluster):
    """The command on a cluster: its exit code, and what it says."""
    command = started(*options, store=store, cluster=cluster)
    printed, said = command.communicate()
    assert not printed
    return command.returncode, said


@pytest.fixture
def plain(models, settings, tmp_path):
    """The store of a sweep without a cluster."""
    del models
    runner.sweep(settings(OURS), night="n1")
    store = settings(OURS).output.store
    return contents(store.rename(tmp_path / "plain.sqlite"))


@dataclass(frozen=True, kw_only=True)
class Kills(After):
    """Ends the workers."""

    running: object

    def bites(self, request, answer):
        for pid in pids(self.running):
            with suppress(OSError, TypeError):  # TypeError: it is not there again yet
                os.kill(pid, signal.SIGKILL)
        return super().bites(request, answer)


def test_a_model_that_ends_its_worker_is_the_only_one_that_is_not_audited(
    at_hub, settings, monkeypatch
):
    # A request that is made again would end the worker during the audit of another model.
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "60")
    for name, files, _ in planted(12):
        at_hub.add(name, files)
    with (
        distributed.dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        workers(1) as running,
    ):
        at_hub.misbehave(fault=Kills(running=running), path="*m00005/*config.json")
        runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)
    with Store.open(settings(OURS).output.store) as store:
        reasons = {one.model: one.reason for one in store.results("n1")}
    assert {name for name, reason in reasons.items() if reason} == {"sweep/m00005"}
    assert reasons["sweep/m00005"] == Reason.CRASHED


def test_a_scheduler_that_goes_away_takes_nothing_with_it(models, plain, settings):
    batches_are_back = After(requests=300)  # 100 models: two batches and a part of two more
    models.misbehave(fault=batches_are_back)
    models.misbehave(fault=Stall(), path="*m00119/*")  # and the sweep is not over yet
    with workers(1) as running:

        def close():
            batches_are_back.event.wait()
            running.close(timeout=5)

        closer = threading.Thread(target=close)
        closer.start()
        store = settings(OURS).output.store
        code, said = swept("--author", "sweep", "--night", "n1", store=store, cluster=running)
        closer.join()
    assert code == 3
    assert "outcomes are stored, and the same command resumes" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())
    models.behave()
    assert runner.sweep(settings(OURS), night="n1").audited < MODELS + 1
    stored = contents(settings(OURS).output.store)
    for row, of_plain in zip(stored["outcomes"], plain["outcomes"], strict=True):
        # a connection that breaks with the scheduler is a request more
        assert row.pop("requests") >= of_plain.pop("requests")
    assert stored == plain


def test_the_command_line_names_the_scheduler(at_hub, tmp_path):
    at_hub.add("o/a", healthy(1))
    at_hub.add("o/b", FAULTS["missing"](2))
    with workers(1) as running:
        code, said = swept("--author", "o", store=tmp_path / "s.sqlite", cluster=running)
    assert code == 1
    assert "2 models (1 clean, 1 with findings); 2 audited" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())


def test_a_sweep_whose_workers_wait_for_the_budget_shows_how_long(at_hub, tmp_path):
    for name, files, _ in planted(40):
        at_hub.add(name, files)
    at_hub.limit(Quota(resolvers=40, window=60))  # two requests a model
    with workers(2) as running:
        # One request at a time: none is under way that the other worker does not know of.
        options = ("--author", "sweep", "--at-once", "1")
        command = started(*options, store=tmp_path / "s.sqlite", cluster=running)
        said = next((line for line in command.stderr if "budget of requests" in line), "")
        command.kill()
        command.communicate()
        for pid in pids(running):
            os.kill(pid, signal.SIGKILL)  # they would wait as long
    assert re.fullmatch(r"audit: every worker's budget of requests is spent; waiting \d+ s\n", said)
    assert 429 not in {record.status for record in at_hub.log}


def test_a_worker_of_another_version_is_refused_and_nothing_of_it_is_kept(
    at_hub, settings, monkeypatch
):
    at_hub.add("sweep/a", healthy(1))
    ours = Versions(auditor="0.0.9", catalogue="another")
    for module in (runner, cluster):
        monkeypatch.setattr(module, "current_versions", lambda **_: ours)
    with (
        workers(1) as running,
        pytest.raises(UsageError, match=r"expected hf-audit 0\.0\.9 \(another\); install the same"),
    ):
        runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)
    with Store.open(settings(OURS).output.store) as store:
        assert [one.verdict for one in store.results("n1")] == [None]


def test_a_scheduler_that_is_not_running_is_an_outside_fault(at_hub, settings, monkeypatch):
    del at_hub
    monkeypatch.setattr(cluster, "_CONNECTING", 0.3)
    with pytest.raises(SourceError, match=r"scheduler 'tcp://127\.0\.0\.1:1' does not answer"):
        runner.sweep(settings(OURS), night="n1", scheduler="tcp://127.0.0.1:1")


def test_a_cluster_without_workers_is_not_waited_for_for_ever(models, settings, monkeypatch):
    del models
    monkeypatch.setattr(cluster, "_ALONE", 0.5)
    with workers(0) as running, pytest.raises(SourceError, match="has had no worker"):
        runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:1", "tcp://"])
def test_an_invalid_address_is_a_usage_error(address, at_hub, settings, monkeypatch):
    del at_hub
    monkeypatch.setattr(cluster, "_CONNECTING", 0.3)
    with pytest.raises(UsageError, match="expected tcp://HOST:PORT"):
        runner.sweep(settings(OURS), night="n1", scheduler=address)

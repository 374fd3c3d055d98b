"""Sweeps by the workers of a Dask cluster: some die, hang, lose their scheduler, or are stopped."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.hub import After, Quota, Stall, TooMany
from support.running import PATIENCE, children_of, is_at_work, started
from support.sweep_models import FAULTS, add_planted, healthy, planted
from support.sweep_stores import contents

from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep import runner
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.reading import Store, Versions

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")
cluster = pytest.importorskip("auditor.sweep.cluster")

OURS = ModelSelection(author="sweep")
MODELS = 60
TOKEN = "hf_" + "vwxyz" * 7
START = "import sys; from auditor.cli import main; sys.argv[0] = 'audit'; main()"


@pytest.fixture
def models(at_hub):
    add_planted(at_hub, MODELS)
    return at_hub


def reasons(settings):
    with Store.open(settings.output.store) as store:
        return {one.model: one.reason for one in store.results("n1")}


# --- workers of `--processes` ---------------------------------------------------------------------


def local_workers(pid):
    """The processes of Dask, without the one that counts semaphores."""
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(pid)}
    return [child for child, command in commands.items() if b"spawn_main" in command]


def test_two_processes_of_which_one_dies_end_with_the_store_of_one(models, settings, tmp_path):
    runner.sweep(settings(OURS), night="n1")
    store = settings(OURS).output.store
    plain = contents(store.rename(tmp_path / "plain.sqlite"))
    alarm = After(requests=40)
    models.misbehave(fault=alarm)

    def kill_one():
        alarm.event.wait()
        os.kill(local_workers(os.getpid())[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    swept = runner.sweep(settings(OURS, processes=2), night="n1")
    killer.join()
    assert swept.audited == MODELS + 1
    assert contents(store) == plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_sweep_and_its_workers_at_once(number, models, hub_env, tmp_path):
    """Workers block the terminal's signals: each would print a traceback."""
    models.misbehave(fault=TooMany(reset=290), path="*/resolve/*")
    store = ("--store", str(tmp_path / "s.sqlite"))
    process = started("sweep", "--author", "sweep", "--processes", "2", *store, env=hub_env)
    while "; waiting " not in process.stderr.readline():
        assert process.poll() is None
    others = local_workers(process.pid)
    masks = [Path(f"/proc/{pid}/status").read_text() for pid in others]
    blocked = [int(re.search(r"^SigBlk:\s*(\w+)$", one, re.MULTILINE)[1], 16) for one in masks]
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    if number == signal.SIGKILL:
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        assert all(line.startswith("audit: ") for line in said.splitlines()), said
    assert [mask >> (signal.SIGINT - 1) & 1 for mask in blocked] == [1, 1]
    assert not [pid for pid in others if is_at_work(pid)]


def test_a_token_that_was_given_reaches_the_workers_and_is_in_no_task(
    models, settings, monkeypatch
):
    models.grant(TOKEN, "sweep/gated")
    given = []
    true = distributed.Client.submit

    def submit(client, work, *arguments, **named):
        given.append(repr((arguments, named)))
        return true(client, work, *arguments, **named)

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
    monkeypatch.delitem(sys.modules, "auditor.sweep.cluster")
    with pytest.raises(UsageError, match="--processes needs Dask: pip install"):
        runner.sweep(settings(OURS, processes=2), night="n1")


# --- workers of a scheduler -----------------------------------------------------------------------


@contextmanager
def workers(count):
    """A scheduler and workers on loopback."""
    with distributed.LocalCluster(
        n_workers=count,
        threads_per_worker=2,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # None takes 8787, which another test may have
    ) as running:
        yield running


def kill(running):
    for worker in running.workers.values():
        with suppress(OSError, TypeError):  # TypeError: it is not there again yet
            os.kill(worker.pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Kills(After):
    """Ends the workers."""

    running: object

    def bites(self, request, answer):
        kill(self.running)
        return super().bites(request, answer)


def command(store, running):
    """The command on a cluster, while it runs."""
    options = ("--author", "sweep", "--night", "n1", "--store", str(store))
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", *options, "--scheduler", running.scheduler_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_line_names_the_scheduler(at_hub, tmp_path):
    at_hub.add("sweep/a", healthy(1))
    at_hub.add("sweep/b", FAULTS["missing"](2))
    with workers(1) as running:
        process = command(tmp_path / "s.sqlite", running)
        _, said = process.communicate()
    assert process.returncode == 1
    assert "2 models (1 clean, 1 with findings); 2 audited" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())


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
    failed = {name: reason for name, reason in reasons(settings(OURS)).items() if reason}
    assert failed == {"sweep/m00005": Reason.CRASHED}


def test_a_scheduler_that_goes_away_takes_nothing_with_it(models, settings):
    some_are_back = After(requests=100)
    models.misbehave(fault=some_are_back)
    models.misbehave(fault=Stall(), path="*m00059/*")  # so the sweep is not over yet
    store = settings(OURS).output.store
    with workers(1) as running:
        process = command(store, running)
        some_are_back.event.wait()
        running.close(timeout=5)
        _, said = process.communicate()
    assert process.returncode == 3
    assert "outcomes are stored, and the same command resumes" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())
    models.behave()
    assert runner.sweep(settings(OURS), night="n1").audited < MODELS + 1
    assert set(reasons(settings(OURS)).values()) == {None, Reason.GATED}


def test_a_sweep_whose_workers_wait_for_the_rate_limit_shows_how_long(at_hub, tmp_path):
    for name, files, _ in planted(40):
        at_hub.add(name, files)
    at_hub.limit(Quota(resolvers=40, window=60))  # two requests a model
    with workers(2) as running:
        process = command(tmp_path / "s.sqlite", running)
        said = next((line for line in process.stderr if "; waiting " in line), "")
        process.kill()
        process.communicate()
        kill(running)  # they would wait as long
    assert re.fullmatch(r"audit: .*; waiting \d+ s\n", said)


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


def test_a_cluster_without_workers_is_not_waited_for_for_ever(models, settings, monkeypatch):
    del models
    monkeypatch.setattr(cluster, "_ALONE", 0.5)
    with workers(0) as running, pytest.raises(SourceError, match="has had no worker"):
        runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)


ADDRESSES = {
    "tcp://127.0.0.1:1": (SourceError, r"scheduler 'tcp://127\.0\.0\.1:1' does not answer"),
    "http://127.0.0.1:1": (UsageError, "expected tcp://HOST:PORT"),
    "nonsense": (UsageError, "expected tcp://HOST:PORT"),
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_without_a_scheduler_is_reported_before_any_work(
    address, at_hub, settings, monkeypatch
):
    monkeypatch.setattr(cluster, "_CONNECTING", 0.3)
    error, message = ADDRESSES[address]
    with pytest.raises(error, match=message):
        runner.sweep(settings(OURS), night="n1", scheduler=address)
    assert not at_hub.log

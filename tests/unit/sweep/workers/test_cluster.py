"""The same sweep on a cluster: real workers, processes of their own, some of which die.

On many machines: test_local_cluster.py has those of `--processes`.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hub import After, Quota, Stall
from support.sweep_models import FAULTS, add_planted, healthy, planted
from support.sweep_stores import contents

from auditor.downloader.http import Turn
from auditor.downloader.waits import Wait, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep import runner
from auditor.sweep.policy import Policy
from auditor.sweep.selection import ModelSelection
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.store.reading import Store, Versions
from auditor.sweep.workers import one_model
from auditor.sweep.workers.budget import Budget, spared

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


def test_a_cluster_with_a_worker_killed_half_way_ends_with_the_store_of_a_plain_sweep(
    models, plain, settings
):
    half_way = After(requests=180)
    with workers(2) as running:
        models.misbehave(fault=half_way)
        killed = []

        def kill():
            half_way.event.wait()
            killed.append(pids(running)[0])
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        night = runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)
        killer.join()
    assert killed
    assert (night.models, night.audited) == (MODELS + 1, MODELS + 1)
    assert contents(settings(OURS).output.store) == plain


@dataclass(frozen=True, kw_only=True)
class Kills(After):
    """Ends the workers."""

    running: object

    def bites(self, request, answer):
        for pid in pids(self.running):
            with suppress(OSError, TypeError):  # TypeError: it is not there again yet
                os.kill(pid, signal.SIGKILL)
        return super().bites(request, answer)


def test_a_model_that_ends_its_worker_is_the_only_one_that_is_not_audited(at_hub, settings):
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
    assert "what is audited is kept, and the same command goes on" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())
    models.behave()
    assert runner.sweep(settings(OURS), night="n1").audited < MODELS + 1
    assert contents(settings(OURS).output.store) == plain


def test_the_command_line_names_the_scheduler(at_hub, tmp_path):
    at_hub.add("o/a", healthy(1))
    at_hub.add("o/b", FAULTS["missing"](2))
    with workers(1) as running:
        code, said = swept("--author", "o", store=tmp_path / "s.sqlite", cluster=running)
    assert code == 1
    assert "2 models (1 clean, 1 findings); 2 audited" in said
    assert all(line.startswith("audit: ") for line in said.splitlines())


def test_a_sweep_whose_workers_wait_for_the_budget_says_how_long(at_hub, tmp_path):
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
        monkeypatch.setattr(module, "current_versions", lambda: ours)
    with (
        workers(1) as running,
        pytest.raises(
            UsageError, match=r"this sweep has hf-audit 0\.0\.9 \(another\): install the same"
        ),
    ):
        runner.sweep(settings(OURS), night="n1", scheduler=running.scheduler_address)
    with Store.open(settings(OURS).output.store) as store:
        assert [one.verdict for one in store.results("n1")] == [None]


TOKEN = "hf_" + "a" * 34
DIGEST = r"a token \(of digest [0-9a-f]{16}\)"
OTHER = "hf_" + "b" * 34
TOKENS = {
    "here alone": (TOKEN, None, rf"has no token, and this sweep has {DIGEST}:"),
    "there alone": (None, TOKEN, rf"has {DIGEST}, and this sweep has no token:"),
    "unlike": (OTHER, TOKEN, rf"has {DIGEST}, and this sweep has {DIGEST}:"),
}


def audited(*names, terms=None, **bounds):
    """What a worker makes of a batch, and that it tells of its waits from then on."""
    metrics = {}
    loop = SimpleNamespace(add_callback=lambda call, *given: call(*given))
    worker = SimpleNamespace(metrics=metrics, loop=loop)
    models = tuple(Waiting(name, "0" * 40, None, None) for name in names)
    policy = Policy(deadline=0.05, **bounds)
    with patch.object(cluster.distributed, "get_worker", lambda: worker):
        done = cluster.audit_batch(models, policy, terms or cluster.terms(None), 1, "ours")
    assert [*metrics.values()] == [cluster.waits]
    return done


def refusal(terms):
    """What a worker says that may not audit, in one line that shows no token."""
    with pytest.raises(UsageError) as refused:
        audited("o/a", terms=terms)
    said = str(refused.value)
    assert said.startswith("a worker on '")
    assert "\n" not in said
    assert TOKEN not in said
    return said


@pytest.mark.parametrize(("here", "there", "said"), TOKENS.values(), ids=TOKENS)
def test_a_worker_with_another_token_is_refused_and_no_token_shown(
    here, there, said, at_hub, monkeypatch
):
    del at_hub
    terms = cluster.terms(here)
    assert TOKEN not in repr(terms)
    if there:
        monkeypatch.setenv("HF_TOKEN", there)
    remedy = ".* set .*HF_TOKEN, which is not sent, where both start"
    assert re.search(said + remedy, refusal(terms))


def test_a_worker_that_asks_another_hub_says_which(at_hub, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(cluster, "endpoint", lambda: "http://127.0.0.1:1")
        terms = cluster.terms(None)
    hubs = f"has the Hub '{at_hub.url}', and this sweep has the Hub 'http://127.0.0.1:1'"
    assert re.search(f"{hubs}: .*set HF_ENDPOINT .*where both start", refusal(terms))


def test_a_worker_of_another_version_says_which_before_all_else(at_hub):
    del at_hub
    said = refusal(("hf-audit 0.0.9 (c)", "good cheer"))
    assert re.search(r"has hf-audit .*, and this sweep has hf-audit 0\.0\.9 \(c\): install", said)


def test_a_model_that_is_stuck_is_given_up_and_those_behind_it_are_audited(at_hub, monkeypatch):
    del at_hub
    freed = threading.Event()

    def audit(_self, waiting, _allowance, **_alone):
        if waiting.model == "o/stuck":
            freed.wait()
        return one_model.failed(waiting, Reason.GATED, "said the Hub")

    monkeypatch.setattr(one_model.Auditor, "audit", audit)
    monkeypatch.setattr(cluster, "_STUCK", 0.05)
    done = audited("o/a", "o/stuck", "o/b", at_once=1)
    freed.set()
    assert {one.model: one.recorded.summary.reason for one in done} == {
        "o/a": "gated",
        "o/stuck": "crashed",
        "o/b": "gated",
    }


def test_a_worker_tells_what_each_sweep_waits_that_has_work_there(at_hub, monkeypatch):
    del at_hub
    told = []

    def audit(auditor, waiting, _allowance, **_alone):
        told.append(cluster.waits())
        for wait in (Wait("the budget is spent", 250.0), Wait("the budget is spent", 249.0), None):
            auditor.talk.waits.tell("a thread", wait)
            told.append(cluster.waits())
        return one_model.failed(waiting, Reason.GATED, "said the Hub")

    monkeypatch.setattr(one_model.Auditor, "audit", audit)
    assert cluster.waits() == {}
    audited("o/a")
    assert told == [{"ours": 0.0}, {"ours": 250.0}, {"ours": 249.0}, {"ours": 0.0}]
    assert cluster.waits() == {}


# What workers tell, by sweep, and the seconds that are said.
WAITING = {
    "there is no worker": ([], 0.0),
    "nobody has work": ([{}, None], 0.0),
    "one waits": ([{"ours": 9.0}], 9.0),
    "all wait": ([{"ours": 9.0}, {"ours": 7.0}], 7.0),
    "one that works does not wait": ([{"ours": 9.0}, {"ours": 0.0}], 0.0),
    "one without work does not count": ([{"ours": 9.0}, {}, None], 9.0),
    "nor does one with work of another sweep": ([{"ours": 9.0}, {"other": 0.0}], 9.0),
    "nor do waits of another": ([{"ours": 0.0, "other": 9.0}], 0.0),
}


@pytest.mark.parametrize(("told", "seconds"), WAITING.values(), ids=WAITING)
def test_the_shortest_wait_is_said_where_every_worker_with_work_waits(
    told, seconds, at_hub, monkeypatch
):
    """And it is counted down until the workers are asked again, after two seconds."""
    del at_hub
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(cluster, "time", clock)
    workers = {
        str(number): {"nthreads": 2, "metrics": {} if one is None else {cluster._METRIC: one}}  # noqa: SLF001 - Dask's side
        for number, one in enumerate(told)
    }
    client = SimpleNamespace(
        id="ours", scheduler=SimpleNamespace(identity=lambda: {"workers": workers})
    )
    client.sync = lambda asked: asked()
    waits = Waits(lambda _wait: None)
    ours = cluster.Cluster(Policy(), None, waits)
    ours._client, ours._seen = client, clock.now  # noqa: SLF001 - as if it were connected
    said = []
    for clock.now in (1000.0, 1001.5, 1001.75):
        assert not list(ours.finished(0.0))
        said.append(waits.longest.seconds if waits.longest else 0.0)
    assert said == [max(0.0, seconds - passed) for passed in (0.0, 1.5, 1.75)]
    clock.now = 1002.0
    for worker in workers.values():
        worker["metrics"] = {cluster._METRIC: {"ours": 0.0}}  # noqa: SLF001 - Dask's side
    assert not list(ours.finished(0.0))
    assert waits.longest is None


class Future:
    """What a fake client returns for a batch: the test ends it."""

    def __init__(self, models):
        self.models, self.status = models, "pending"

    def add_done_callback(self, ended):
        self.ended = ended

    def end(self, status):
        self.status = status
        self.ended(self)

    def exception(self, _seconds):
        return distributed.KilledWorker("a task", None, 4)

    def result(self, _seconds):
        return tuple(one_model.failed(one, Reason.GATED, "said the Hub") for one in self.models)


def test_nothing_is_under_way_beside_a_suspect_not_even_the_last_one(at_hub):
    del at_hub
    sent = []

    def submit(_work, models, *_given, pure):
        assert not pure
        sent.append(Future(models))
        return sent[-1]

    one = {"nthreads": 2, "metrics": {}}
    scheduler = SimpleNamespace(identity=lambda: {"workers": {"a": one}})
    client = SimpleNamespace(id="ours", scheduler=scheduler, submit=submit)
    client.sync = lambda asked: asked()
    ours = cluster.Cluster(Policy(), None, Waits(lambda _wait: None))
    ours._client = client  # noqa: SLF001 - as if it were connected

    def finished():
        return [(done.model, done.recorded.summary.reason) for done in ours.finished(0.0)]

    for name in "ab":
        ours.submit(Waiting(name, "0" * 40, None, None))
    assert finished() == []
    sent[0].end("error")
    assert finished() == []
    assert not ours.has_room
    ours.submit(Waiting("c", "0" * 40, None, None))
    for status, done in (("error", ("a", "crashed")), ("finished", ("b", "gated"))):
        assert finished() == finished() == []
        sent[-1].end(status)
        assert finished() == [done]
    assert finished() == []
    assert [[one.model for one in batch.models] for batch in sent] == [
        ["a", "b"],
        ["a"],
        ["b"],
        ["c"],
    ]


def test_a_scheduler_that_nobody_has_started_is_an_outside_fault(at_hub, settings, monkeypatch):
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
def test_an_address_that_is_none_is_the_users_fault(address, at_hub, settings, monkeypatch):
    del at_hub
    monkeypatch.setattr(cluster, "_CONNECTING", 0.3)
    with pytest.raises(UsageError, match="expected tcp://HOST:PORT"):
        runner.sweep(settings(OURS), night="n1", scheduler=address)


def test_without_dask_one_line_says_what_to_install(at_hub, settings, monkeypatch):
    del at_hub
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "auditor.sweep.workers.cluster")
    with pytest.raises(UsageError, match=r"pip install 'hf-audit\[cluster\]'"):
        runner.sweep(settings(OURS), night="n1", scheduler="tcp://127.0.0.1:1")


FILE = "/o/n/resolve/main/config.json"


def stop(_wait, _step):
    message = "waits"
    raise TimeoutError(message)


class Server:
    """Counts the requests of one window, and tells each worker what is left for all."""

    def __init__(self, quota, workers):
        self.quota, self.spent = quota, 0
        self.budgets = [self._share(workers) for _ in range(workers)]

    def _share(self, workers):
        budget = Budget(clock=lambda: 1.0)
        budget.share = workers
        budget.note(budget.take(FILE, stop), 200, self._told())
        return budget

    def _told(self):
        return {
            "ratelimit": f'"resolvers";r={max(0, self.quota - self.spent)};t=100',
            "ratelimit-policy": f'"fixed window";"resolvers";q={self.quota};w=300',
        }

    def ask(self, worker):
        """Let a worker ask, unless its budget has it wait."""
        with suppress(TimeoutError):
            turn = self.budgets[worker].take(FILE, stop)
            self.spent += 1
            self.budgets[worker].note(turn, 200, self._told())


SIZES = {"quota": st.integers(20, 1000), "workers": st.integers(1, 12)}


@given(**SIZES, asks=st.lists(st.integers(0, 11), max_size=2000))
def test_shares_of_a_budget_are_together_no_more_than_the_whole(quota, workers, asks):
    server = Server(quota, workers)
    for worker in asks:
        server.ask(worker % workers)
    for worker in [*range(workers)] * (quota // workers):
        server.ask(worker)
    assert server.spent <= quota


class Distance(Server):
    """The same from far away: requests are under way, and answers come in any order."""

    def __init__(self, quota, workers, draw):
        self.now, self.draw = 1.0, draw
        self.under_way = []  # (worker, what the Hub says, when it arrives, its turn)
        super().__init__(quota, workers)

    def _share(self, workers):
        budget = Budget(clock=lambda: self.now)
        budget.share = workers
        budget.note(budget.take(FILE, stop), 200, self._told())
        return budget

    def send(self, worker):
        with suppress(TimeoutError):
            turn = self.budgets[worker].take(FILE, stop)
            self.spent += 1
            arrives = self.now + self.draw.uniform(0.05, 0.3)
            self.under_way.append((worker, self._told(), arrives, turn))

    def pass_time(self, seconds):
        self.now += seconds
        arrived = [one for one in self.under_way if one[2] <= self.now]
        self.draw.shuffle(arrived)
        for one in arrived:
            self.under_way.remove(one)
            self.budgets[one[0]].note(one[3], 200, one[1])


@given(workers=st.integers(2, 8), at_once=st.sampled_from([4, 8, 16]), seed=st.integers(0))
def test_nor_are_they_with_requests_under_way_and_workers_that_were_idle(workers, at_once, seed):
    """Of a quota with 25 requests for each under way: Team's has as many for 50 workers of 16."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    server = Distance(25 * at_once * workers, workers, draw)
    while server.now < 30.0:  # before the window ends
        busy = draw.sample(range(workers), draw.randint(1, workers))
        for _ in range(draw.randint(1, 60)):
            for worker in busy:
                there = sum(one[0] == worker for one in server.under_way)
                for _ in range(at_once - there):
                    server.send(worker)
            server.pass_time(draw.uniform(0.01, 0.1))
    assert 0.5 * server.quota < server.spent <= server.quota


@given(**SIZES)
def test_what_idle_workers_leave_is_not_lost(quota, workers):
    server = Server(quota, workers)
    for _ in range(quota):
        server.ask(0)
    assert server.spent >= quota - workers * (1 + spared(quota // workers)) - workers


def test_a_bound_of_our_own_is_divided_evenly():
    bounded = Budget(100, clock=lambda: 1.0)
    bounded.note(Turn(FILE), 200, {})
    bounded.share = 4
    for _ in range(25):
        bounded.take("/api/models", stop)
    with pytest.raises(TimeoutError, match="waits"):
        bounded.take("/api/models", stop)

"""What a worker makes of a batch, and what the sweep does with its waits and faults."""

import re
import threading
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from auditor.downloader.waits import Wait, Waits
from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers import one_model

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")
cluster = pytest.importorskip("auditor.sweep.workers.cluster")

TOKEN = "hf_" + "a" * 34
DIGEST = r"a token \(of digest [0-9a-f]{16}\)"
OTHER = "hf_" + "b" * 34
TOKENS = {
    "here alone": (TOKEN, None, rf"has no token, expected {DIGEST};"),
    "there alone": (None, TOKEN, rf"has {DIGEST}, expected no token;"),
    "unlike": (OTHER, TOKEN, rf"has {DIGEST}, expected {DIGEST};"),
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
    remedy = ".* set .*HF_TOKEN for both: no token is sent"
    assert re.search(said + remedy, refusal(terms))


def test_a_worker_with_another_hub_reports_which(at_hub, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(cluster, "endpoint", lambda: "http://127.0.0.1:1")
        terms = cluster.terms(None)
    hubs = f"has the Hub '{at_hub.url}', expected the Hub 'http://127.0.0.1:1'"
    assert re.search(f"{hubs}; .*set HF_ENDPOINT .*for both", refusal(terms))


def test_a_worker_of_another_version_reports_it_first(at_hub):
    del at_hub
    said = refusal(("hf-audit 0.0.9 (c)", "good cheer"))
    assert re.search(r"has hf-audit .*, expected hf-audit 0\.0\.9 \(c\); install", said)


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


def test_a_worker_reports_the_wait_of_each_sweep_that_has_work_there(at_hub, monkeypatch):
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
def test_the_shortest_wait_is_reported_if_every_busy_worker_waits(
    told, seconds, at_hub, monkeypatch
):
    """And it is counted down until the workers are asked again, after two seconds."""
    del at_hub
    workers = {str(number): worker(one) for number, one in enumerate(told)}
    wait_at = waits_of(workers, monkeypatch)
    said = [*map(wait_at, (1000.0, 1001.5, 1001.75))]
    assert said == [max(0.0, seconds - passed) for passed in (0.0, 1.5, 1.75)]
    workers |= dict.fromkeys(workers, worker({"ours": 0.0}))
    assert wait_at(1002.0) == 0.0


def test_a_worker_that_hangs_is_not_waited_for_beyond_its_last_report(at_hub, monkeypatch):
    del at_hub
    workers = {"hangs": worker({"ours": 30.0}), "works": worker({"ours": 30.0})}
    wait_at = waits_of(workers, monkeypatch)
    assert wait_at(1000.0) == 30.0
    workers["works"] = worker({"ours": 27.0})
    assert wait_at(1003.0) == 27.0
    workers["works"] = worker({"ours": 290.0})
    assert [*map(wait_at, (1010.0, 1029.0, 1031.0))] == [20.0, 1.0, 0.0]


def worker(told):
    return {"nthreads": 2, "metrics": {} if told is None else {cluster._METRIC: told}}  # noqa: SLF001 - Dask's side


def waits_of(workers, monkeypatch):
    """What a sweep says at a time, in seconds, of workers that tell these metrics."""
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(cluster, "time", clock)
    scheduler = SimpleNamespace(identity=lambda: {"workers": workers})
    client = SimpleNamespace(id="ours", scheduler=scheduler, sync=lambda asked: asked())
    waits = Waits(lambda _wait: None)
    ours = cluster.Cluster(Policy(), None, waits)
    ours._client, ours._seen = client, clock.now  # noqa: SLF001 - as if it were connected

    def wait_at(now):
        clock.now = now
        assert not list(ours.finished(0.0))
        return waits.longest.seconds if waits.longest else 0.0

    return wait_at


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


def connected(sent):
    """A cluster whose scheduler has one worker; each batch is a future in the list."""

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
    return ours


RESULTS = {
    "short": lambda right: right[:-1],
    "long": lambda right: (*right, *right[:1]),
    "of others": lambda right: tuple(one._replace(model="o/other") for one in right),
    "without outcomes": lambda right: tuple(one._replace(recorded=None) for one in right),
    "of other types": lambda right: tuple(one._replace(snapshot=[["a"]]) for one in right),
    **{repr(odd): lambda _, odd=odd: odd for odd in (None, True, 1.5, "a", [["a"]], {"a": 1}, ())},
}


@pytest.mark.parametrize("spoil", RESULTS.values(), ids=RESULTS)
def test_a_result_without_one_outcome_of_each_model_is_asked_for_again_model_by_model(
    spoil, at_hub
):
    del at_hub
    sent = []
    ours = connected(sent)
    for name in ("o/a", "o/b"):
        ours.submit(Waiting(name, "0" * 40, None, None))
    done = []
    while ours.under_way:
        done += [(one.model, one.recorded.summary.reason) for one in ours.finished(0.0)]
        for future in (one for one in sent if one.status == "pending"):
            right = future.result(0)
            first = spoil(right) if len(future.models) > 1 or right[0].model == "o/a" else right
            future.result = lambda _seconds, first=first: first
            future.end("finished")
    assert [[one.model for one in batch.models] for batch in sent] == [
        ["o/a", "o/b"],
        ["o/a"],
        ["o/b"],
    ]
    assert done == [("o/a", "bad-response"), ("o/b", "gated")]


IDENTITIES = (
    [],
    {},
    {"workers": []},
    {"workers": {"a": []}},
    {"workers": {"a": {"nthreads": "2"}}},
)


@pytest.mark.parametrize("identity", IDENTITIES, ids=repr)
def test_a_scheduler_that_describes_itself_in_another_form_is_lost_in_one_line(identity, at_hub):
    del at_hub
    ours = connected([])
    ours._client.scheduler.identity = lambda: identity  # noqa: SLF001 - Dask's side
    with pytest.raises(SourceError, match="describes its workers in another form") as lost:
        list(ours.finished(0.0))
    assert "\n" not in str(lost.value)


def test_nothing_is_under_way_beside_a_suspect_not_even_the_last_one(at_hub):
    del at_hub
    sent = []
    ours = connected(sent)

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

"""Threads that audit: what is stuck, what takes all memory, and how many there are."""

import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from auditor.checkpoint.hub_listing import Listing
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers import audit_threads, one_model
from auditor.sweep.workers.audit_threads import AuditThreads, Crew
from auditor.sweep.workers.budget import Budget

NAMES = tuple("abcdefgh")


@pytest.fixture
def crew(monkeypatch):
    """Threads whose audits are the test's own: a function of a model's name."""

    @contextmanager
    def make(audit, **bounds):
        def audited(_self, waiting, _allowance):
            audit(waiting.model)
            return one_model.failed(waiting, Reason.GATED, "said the Hub")

        monkeypatch.setattr(one_model.Auditor, "_audited", audited)
        with closing(AuditThreads(Policy(**bounds), None, Budget())) as threads:
            yield Crew(threads)

    return make


def reasons(crew, names):
    """What becomes of these models, all given at once."""
    for name in names:
        crew.submit(Waiting(name, "0" * 40, None, None))
    found = {}
    while crew.under_way:
        for done in crew.finished(0.01):
            assert done.model not in found
            found[done.model] = done.recorded.summary.reason, done.recorded
    return {name: reason for name, (reason, _) in found.items()}


@pytest.mark.parametrize("stuck", ["a", "ab", "abcd", "defgh"])
def test_what_is_stuck_is_given_up_and_all_others_are_audited(stuck, crew):
    """With four threads, also where each of them is stuck."""
    freed = threading.Event()
    with crew(lambda name: freed.wait() if name in stuck else None, deadline=0.05) as threads:
        found = reasons(threads, NAMES)
        freed.set()
    assert found == {name: "crashed" if name in stuck else "gated" for name in NAMES}


def test_an_outcome_that_comes_after_its_model_was_given_up_is_not_heard_of(crew):
    freed, ended = threading.Event(), threading.Event()

    def audit(name):
        if name == "a":
            freed.wait()
            ended.set()

    with crew(audit, deadline=0.02) as threads:
        assert reasons(threads, "a") == {"a": "crashed"}
        freed.set()
        ended.wait()
        assert reasons(threads, "b") == {"b": "gated"}


class Memory:
    """Runs out where too much is under way at once, whoever asks for more then."""

    def __init__(self, sizes, most):
        self.sizes, self.most = sizes, most
        self.used = 0
        self.lock = threading.Lock()
        self.full = threading.Barrier(4, timeout=10)
        self.tries = []

    def __call__(self, name):
        size = self.sizes.get(name, 1)
        first = name not in self.tries
        with self.lock:
            self.tries.append(name)
            self.used += size
        if first and len(self.tries) <= 4:
            self.full.wait()  # so that four are under way together
        try:
            with self.lock:
                if self.used > self.most:
                    raise MemoryError
        finally:
            with self.lock:
                self.used -= size


def test_where_memory_runs_out_each_model_goes_once_more_alone(crew):
    memory = Memory({"b": 10}, most=12)
    with crew(memory) as threads:
        assert reasons(threads, NAMES) == dict.fromkeys(NAMES, "gated")
    assert len(memory.tries) > len(NAMES)


def test_only_the_model_that_takes_all_memory_is_unaudited(crew):
    memory = Memory({"b": 20}, most=12)
    with crew(memory) as threads:
        found = reasons(threads, NAMES)
    assert found == {**dict.fromkeys(NAMES, "gated"), "b": "too-little-memory"}
    assert memory.tries.count("b") == 2


def test_no_more_threads_are_at_work_than_there_may_be_models_under_way(crew):
    lock, at_work, most = threading.Lock(), set(), []

    def audit(name):
        with lock:
            at_work.add(name)
            most.append(len(at_work))
        with lock:
            at_work.discard(name)

    with crew(audit, at_once=2) as threads:
        reasons(threads, [f"{number}" for number in range(200)])
    assert max(most) <= 2


def test_whatever_an_audit_raises_the_others_go_on(crew):
    def audit(name):
        if name == "c":
            raise SystemExit

    with crew(audit) as threads:
        assert reasons(threads, "abcd") == {
            "a": "gated",
            "b": "gated",
            "c": "crashed",
            "d": "gated",
        }


def test_where_many_are_under_way_an_outcome_waits_for_others(monkeypatch):
    """Those that come meanwhile are handed on with it; where few are, none is waited for."""
    arrived = []

    class Threads:
        give_up_stuck = staticmethod(lambda: None)
        submit = staticmethod(lambda _waiting, queue: arrived.append(queue))

    crew, waits = Crew(Threads()), []
    clock = SimpleNamespace(sleep=lambda wait: (waits.append(wait), arrived[0].put("second")))
    monkeypatch.setattr(audit_threads, "time", clock)
    for name in range(audit_threads.MANY):
        crew.submit(Waiting(str(name), "0" * 40, None, None))
    arrived[0].put("first")
    assert list(crew.finished(1.0)) == ["first", "second"]
    arrived[0].put("third")
    assert list(crew.finished(1.0)) == ["third"]
    assert (len(waits), crew.under_way) == (1, audit_threads.MANY - 3)


def test_an_examination_that_takes_too_long_does_not_hold_up_the_others(monkeypatch):
    freed, entered = threading.Event(), threading.Event()

    def audited(snapshot, _remembered):
        if snapshot.model == "long":
            entered.set()
            freed.wait()
        return one_model.recorded(one_model.unaudited_model("m", "", Reason.GATED, ""))

    def fetched(_self, waiting, _allowance):
        return Snapshot(model=waiting.model, commit=None, source=Source.HUB, origin="", files=())

    monkeypatch.setattr(one_model, "_TURN", 0.01)
    monkeypatch.setattr(one_model, "audited", audited)
    monkeypatch.setattr(one_model.Auditor, "_fetched", fetched)
    with closing(AuditThreads(Policy(), None, Budget())) as threads:
        crew = Crew(threads)
        crew.submit(Waiting("long", "0" * 40, None, None))
        assert entered.wait(10)
        crew.submit(Waiting("short", "0" * 40, None, None))
        first = [done.model for done in crew.finished(10.0)]
        freed.set()
        assert (first, [done.model for done in crew.finished(10.0)]) == (["short"], ["long"])


@pytest.mark.parametrize("companions", [False, True])
def test_the_config_of_a_model_is_read_with_its_weights(companions, monkeypatch):
    """In turn the first of the two reads would never see the second begin."""
    header, seen = threading.Event(), []

    def read(model, _listing, _session, _choose, *, pool, patient):
        assert patient
        if companions:
            pool.submit(header.wait, 10)
        config = pool.submit(header.wait, 10)
        pool.submit(header.set)
        seen.append(config.result())
        return Snapshot(model=model.id, commit=None, source=Source.HUB, origin="", files=())

    listing = Listing(model_id="m", commit="0" * 40, files=())
    monkeypatch.setattr(one_model.hub, "fetch_listing", lambda _model, _session: listing)
    monkeypatch.setattr(one_model.hub, "read_from_listing", read)
    with closing(AuditThreads(Policy(companions=companions), None, Budget())) as threads:
        crew = Crew(threads)
        crew.submit(Waiting("m", "0" * 40, None, None))
        assert [done.model for done in crew.finished(20.0)] == ["m"]
    assert seen == [True]

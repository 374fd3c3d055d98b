"""The pool of a sweep: models that are stuck, take all memory, or end their worker."""

import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import closing, contextmanager

import pytest

from auditor.downloader.waits import Wait, Waits
from auditor.errors import Reason
from auditor.sweep import one_model, worker_pool
from auditor.sweep.one_model import Auditor
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.settings import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.worker_pool import WorkerPool

NAMES = tuple("abcdefghijkl")  # more than are submitted at first


class Died(Auditor):
    """An auditor of which an audit may end the worker, as one of Dask."""

    def audit(self, waiting, *, alone=True):
        done = super().audit(waiting, alone=alone)
        if done and done.recorded.summary.reason == "crashed":
            raise ConnectionError
        return done


@pytest.fixture
def waits():
    return Waits(lambda _wait: None)


@pytest.fixture
def pool(monkeypatch, waits):
    """A pool whose audits are the test's own: a function of a model's name."""

    @contextmanager
    def make(audit, hopeless=60.0, kind=Auditor):
        def audited(_self, waiting, _over):
            audit(waiting.model)
            return one_model.failed(waiting, Reason.GATED, "said the Hub")

        monkeypatch.setattr(Auditor, "_audited", audited)

        def start():
            return kind(Policy(at_once=4), None, RateLimiter())

        with closing(WorkerPool(start, hopeless, waits)) as made:
            yield made

    return make


def reasons(pool, names):
    """What becomes of these models, submitted as there is room."""
    waiting, found = list(names), {}
    while waiting or pool.under_way:
        while waiting and pool.has_room:
            pool.submit(Waiting(waiting.pop(0), "0" * 40, None, None))
        for done in pool.finished(0.01):
            assert done.model not in found
            found[done.model] = done.recorded.summary.reason
    return found


@pytest.mark.parametrize("stuck", ["a", "defgh"])
def test_a_stuck_model_is_given_up_and_all_others_are_audited(stuck, pool):
    """With four threads, and also if each of them is stuck."""
    freed = threading.Event()
    with pool(lambda name: freed.wait() if name in stuck else None, hopeless=0.1) as made:
        found = reasons(made, NAMES)
        freed.set()
    assert found == {name: "crashed" if name in stuck else "gated" for name in NAMES}


def test_a_model_that_waits_is_not_stuck(pool, waits):
    tries = Counter()

    def audit(name):
        tries[name] += 1
        time.sleep(0.3)
        waits.tell("a thread", None)

    waits.tell("a thread", Wait("the budget is spent", 290.0))
    with pool(audit, hopeless=0.05) as made:
        assert reasons(made, "a") == {"a": "gated"}
    assert tries["a"] == 1


class Memory:
    """Runs out if too much is under way at once, whoever asks for more then."""

    def __init__(self, sizes, most):
        self.sizes, self.most = sizes, most
        self.used = 0
        self.lock = threading.Lock()
        self.full = threading.Barrier(4, timeout=10)
        self.tries = Counter()
        self.beside = 0  # memory of others during an audit that is repeated

    def __call__(self, name):
        size = self.sizes.get(name, 1)
        with self.lock:
            self.tries[name] += 1
            self.used += size
            is_among_first = self.tries[name] == 1 and len(self.tries) <= 4
        if is_among_first:
            self.full.wait()  # so that four are under way together
        elif self.tries[name] > 1:
            time.sleep(0.05)
            self.beside += self.used - size
        try:
            with self.lock:
                if self.used > self.most:
                    raise MemoryError
        finally:
            with self.lock:
                self.used -= size


@pytest.mark.parametrize(("size", "reason"), [(10, "gated"), (20, "too-little-memory")])
def test_a_model_for_which_memory_ran_out_is_audited_once_more_alone(size, reason, pool):
    memory = Memory({"b": size}, most=12)
    with pool(memory) as made:
        assert reasons(made, NAMES) == {**dict.fromkeys(NAMES, "gated"), "b": reason}
    assert memory.tries.total() > len(NAMES)
    assert memory.beside == 0
    assert memory.tries["b"] == 2 or reason == "gated"


@pytest.mark.parametrize(("kind", "times"), [(Auditor, 1), (Died, 2)])
def test_whatever_an_audit_raises_the_other_models_are_audited(kind, times, pool):
    tries = Counter()

    def audit(name):
        tries[name] += 1
        if name == "c":
            raise SystemExit

    with pool(audit, kind=kind) as made:
        assert reasons(made, "abcd") == {"a": "gated", "b": "gated", "c": "crashed", "d": "gated"}
    assert tries["c"] == times


def test_no_more_models_are_under_way_than_at_once(pool):
    lock, at_work, most = threading.Lock(), set(), []

    def audit(name):
        with lock:
            at_work.add(name)
            most.append(len(at_work))
        with lock:
            at_work.discard(name)

    with pool(audit) as made:
        reasons(made, [f"{number}" for number in range(200)])
    assert max(most) <= 4


class Losing:
    """Workers that lose the first outcome, as Dask may if a worker dies."""

    at_once = 4

    def __init__(self):
        self.lost = []

    def submit(self, waiting, *, alone):
        future = Future()
        if alone:
            future.set_result(one_model.failed(waiting, Reason.GATED, "said the Hub"))
        else:
            self.lost.append(future)
        return future

    def check(self):
        pass

    def is_idle(self):
        return True

    def close(self):
        pass


def test_a_model_whose_outcome_was_lost_is_audited_again(monkeypatch, waits):
    monkeypatch.setattr(worker_pool, "_LOST", 0.05)
    workers = Losing()
    with closing(WorkerPool(lambda: workers, 60.0, waits)) as pool:
        assert reasons(pool, "ab") == {"a": "gated", "b": "gated"}
    assert len(workers.lost) == 2

"""Threads that audit: what is stuck, what takes all memory, and how many there are."""

import threading
from contextlib import closing, contextmanager
from heapq import heappop, heappush
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.checkpoint.hub_listing import Listing
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.errors import Reason
from auditor.sweep.policy import Policy
from auditor.sweep.store.ledger import Waiting
from auditor.sweep.workers import audit_threads, one_model
from auditor.sweep.workers.audit_threads import LEAST, AuditThreads, Concurrency, Crew
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

    def examined(snapshot, _options):
        if snapshot.model == "long":
            entered.set()
            freed.wait()
        return one_model.unaudited_model("m", "", Reason.GATED, "")

    def fetched(_self, waiting, _allowance):
        return Snapshot(model=waiting.model, commit=None, source=Source.HUB, origin="", files=())

    monkeypatch.setattr(one_model, "_TURN", 0.01)
    monkeypatch.setattr(one_model, "examine", examined)
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


# --- the number of models under way ---------------------------------------------------------------


MOST, MODELS, FILES = 160, 3000, 2  # under way, of a sweep, of a model
DISTANCES = st.floats(0.0, 1.0)  # seconds of network for one model
PROCESSORS = st.floats(0.001, 0.05)  # seconds of processor for one model
BUNCHES = st.sampled_from((1, 2, 30))  # models that are done at once: threads take turns


class Measured(Concurrency):
    """The rule, by clocks of the test's own."""

    def __init__(self, most=MOST):
        self.now = self.spent = 0.0
        super().__init__(most, lambda: self.now, lambda: self.spent)

    def done_at(self, now, spent, seconds, *, waited=False):
        self.now, self.spent = now, spent
        self.done(seconds, waited=waited)


def swept(distance, processor, rate=None, bunch=1, link=0.0):
    """Models a second of the last half, by the rule, and how many it has under way at the end.

    One processor examines in turn what is fetched; `bunch` models that are next to each other are
    done together, as threads are that share a processor. One model after another takes the `link`
    for so many seconds.
    """
    rule, free, done = Measured(), 0.0, []
    under_way = []  # (when it is done, its start, whether it waited for the budget)
    budget = linked = 0.0  # when the next two requests may go, and when the link is free
    now, spent = 0.0, 0.0
    while len(done) < MODELS:
        while len(under_way) < rule.models:
            start = max(now, budget)
            budget = start + FILES / rate if rate else 0.0
            linked = max(linked, start) + link
            free = max(free, linked + distance) + processor  # fetched, and then examined in turn
            heappush(under_way, (free, start, start > now))
        together = [heappop(under_way) for _ in range(min(bunch, len(under_way)))]
        now = together[-1][0]
        spent += processor * len(together)
        for _, start, waited in together:
            done.append(now)
            rule.done_at(now, spent, now - start, waited=waited)
    half = len(done) // 2
    return (len(done) - half) / (done[-1] - done[half - 1]), rule.models


@given(distance=DISTANCES, processor=PROCESSORS, bunch=BUNCHES)
def test_the_processor_is_busy_whatever_the_distance(distance, processor, bunch):
    rate, models = swept(distance, processor, bunch=bunch)
    reachable = min(1 / processor, MOST / (distance + bunch * processor))
    assert rate >= 0.9 * reachable
    assert LEAST <= models <= MOST


@given(distance=DISTANCES, processor=PROCESSORS)
def test_no_more_are_under_way_than_that_takes(distance, processor):
    """By Little's law, and half as many again: some wait for the processor from the start."""
    _, models = swept(distance, processor)
    assert models <= max(LEAST, 1.5 * (distance + LEAST * processor) / processor + 1)


@given(distance=DISTANCES, rate=st.floats(5, 200))
def test_a_quota_is_used_up_and_no_more_are_under_way_than_it_needs(distance, rate):
    models, under_way = swept(distance, 0.001, rate=rate)
    assert models >= 0.9 * min(rate / 2, MOST / (distance + 0.001))
    assert under_way <= max(LEAST, 1.3 * rate / 2 * (distance + 0.005) + 1)


@given(distance=DISTANCES, link=st.floats(0.01, 0.1))
def test_models_that_wait_for_each_other_are_not_made_more_and_more(distance, link):
    """The link is full, and the processor idles: more under way would only take longer."""
    rate, models = swept(distance, 0.5 * link, link=link)
    few = distance + LEAST * 1.5 * link  # seconds of a model while there are few
    assert rate >= 0.9 * min(1 / link, MOST / (distance + link))
    assert models <= 1.25 * 4 * few / (0.5 * link) + 1


@pytest.mark.parametrize("most", [1, 2, 40])
def test_there_are_never_more_than_allowed(most):
    rule = Measured(most)
    assert rule.models <= most
    for number in range(100):
        rule.done_at(number, 0.001 * number, 10.0)
        assert rule.models <= most


def test_the_largest_plan_at_the_distance_of_the_hub_needs_fifty():
    """333 requests a second, two a model; two answers of 150 ms, the second of them storage's."""
    rule, pace = Measured(), 100_000 / 300 / FILES
    for number in range(1, 1001):
        rule.done_at(number / pace, 0.001 * number, 0.3, waited=True)
    assert 50 <= rule.models <= 63


def test_a_network_that_becomes_slower_has_more_under_way_and_a_busy_processor_has_not():
    rule = Measured()
    for number in range(1, 201):
        rule.done_at(number / 50, 0.01 * number, 0.1)
    before = rule.models
    for number in range(201, 401):  # twice the time, and the processor idles no more than before
        rule.done_at(number / 50, 0.01 * number, 0.2)
    assert rule.models == pytest.approx(2 * before, abs=2)
    for number in range(401, 601):  # four times the time, and the processor does nothing else
        rule.done_at(8 + (number - 400) / 100, 0.01 * number, 0.4)
    assert 1.5 * before < rule.models <= 2 * before


def test_models_without_requests_show_no_network_figures():
    """A stretch of repositories without weights, or of what is stored, before those to fetch."""
    rule = Measured()
    for number in range(1, 1001):
        rule.done_at(number / 1000, 0.0005 * number, None)
    assert rule.models == LEAST
    for number in range(1, 1001):
        rule.done_at(1 + number / 100, 0.5 + 0.005 * number, 0.3)
    assert rule.models == pytest.approx(200 * 0.3 * 1.25, abs=2)


def test_where_few_ask_the_network_there_are_as_many_as_those_need():
    rule = Measured()
    for number in range(1, 1001):
        rule.done_at(number / 100, 0.005 * number, None if number % 10 else 0.3)
    assert rule.models == pytest.approx(20 * 0.3 * 1.25, abs=2)

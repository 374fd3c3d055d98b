"""What a model may take, and who waits for whom."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.downloader.fetching import ignore_message
from auditor.downloader.waits import ProgressLines
from auditor.errors import SourceError
from auditor.sweep import workers
from auditor.sweep.workers.allowance import LARGE, Allowance, Bounds, ByteGate
from auditor.sweep.workers.budget import Budget

FILE = "/o/n/resolve/main/model.safetensors"


def allowance(gate=None, seconds=60.0):
    bounds = Bounds("one model", seconds, 2 * LARGE)
    return Allowance(bounds, Budget(), ProgressLines.of(ignore_message), threading.Event(), gate)


def test_large_models_are_received_one_after_the_other_and_small_ones_are_not_held_up():
    gate = ByteGate(0)
    first, second, small = (allowance(gate) for _ in range(3))
    first.check(LARGE + 1)
    first.check(LARGE + 2)
    small.check(LARGE)
    went_on = threading.Event()
    waiting = threading.Thread(target=lambda: (second.check(LARGE + 1), went_on.set()))
    waiting.start()
    assert not went_on.is_set()
    gate.leave(first)
    waiting.join()
    assert went_on.is_set()


def test_the_wait_for_another_large_model_does_not_count(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(workers.allowance.time, "monotonic", lambda: now[0])

    class Gate(ByteGate):
        def enter(self, who, size):
            del who, size
            now[0] += 100.0

    late = allowance(Gate(0), seconds=10.0)
    late.check(LARGE + 1)
    assert late.seconds == 0.0
    late.admit(FILE)  # and is still in time
    now[0] += 11.0
    with pytest.raises(SourceError, match="not fetched within 10 s"):
        late.check(1)


def test_more_than_the_bound_and_later_than_the_deadline_end_it():
    with pytest.raises(SourceError, match="expected at most 8,388,608 of one model"):
        allowance().check(2 * LARGE + 1)
    with pytest.raises(SourceError, match="not fetched within 0 s"):
        allowance(seconds=0.0).check(1)


def test_a_wait_that_a_server_requires_counts_once_a_window(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(workers.allowance.time, "monotonic", lambda: now[0])
    patient = allowance(seconds=1.0)
    for _ in range(4):
        with patient.held(100.0):
            now[0] += 100.0
    assert patient.seconds == 100.0


@given(waits=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=8))
def test_waits_of_its_threads_at_the_same_time_count_once(waits):
    """A model that waited for its config and its weights was never under way for less than none."""
    waited = {at for since, seconds in waits for at in range(since, since + seconds)}
    second = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers.allowance.time, "monotonic", lambda: second)
        model = allowance()
        held = {one: model.held(0.0) for one in enumerate(waits)}
        for second in range(75):
            for (_, (since, seconds)), wait in held.items():
                if since == second:
                    wait.__enter__()
                if since + seconds == second:
                    wait.__exit__(None, None, None)
            assert model.seconds == sum(at not in waited for at in range(second))


@examples(30)
@given(most=st.integers(0, 20), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_what_is_inside_fits_or_is_alone_and_all_get_in(most, sizes):
    gate, lock, inside, seen = ByteGate(most), threading.Lock(), {}, []

    def use(who, size):
        gate.enter(who, size)
        with lock:
            inside[who] = size
            seen.append(dict(inside))
        with lock:
            del inside[who]
        gate.leave(who)

    threads = [threading.Thread(target=use, args=one) for one in enumerate(sizes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(sizes)
    assert all(len(sizes) == 1 or sum(sizes.values()) <= most for sizes in seen)


def test_a_model_that_was_let_in_waits_for_no_other():
    gate = ByteGate(0)
    gate.enter("a", 5)
    gate.enter("a", 500)
    gate.leave("a")
    gate.leave("a")
    gate.enter("b", 5)

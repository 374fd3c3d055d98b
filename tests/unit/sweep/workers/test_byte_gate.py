"""What takes memory side by side: never more than fits, unless it is alone."""

import threading

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.sweep.workers.byte_gate import ByteGate


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


def test_whoever_is_inside_waits_for_nobody():
    gate = ByteGate(0)
    gate.enter("a", 5)
    assert gate.enter("a", 500) < 1.0
    gate.leave("a")
    gate.leave("a")
    gate.enter("b", 5)

"""Law 8, in short: tools/fuzz/stops.py stops as many sweeps as a night has time for."""

import random

import pytest
from support.stopping import WAYS, Stopping

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("seed", "processes"), [(0, 1), (2, 2)])
def test_a_sweep_that_is_stopped_ends_with_the_store_of_one_left_alone(
    seed, processes, hub, hub_env, tmp_path
):
    """Each way to stop a process, and some of them for a sweep of two."""
    if processes > 1:
        pytest.importorskip("distributed", reason="the cluster extra is not installed")
    draw = random.Random(seed)  # noqa: S311 - the same points in every run
    ways = draw.sample(list(WAYS), len(WAYS) if processes == 1 else 2)
    assert Stopping(hub, tmp_path, hub_env, processes).round(draw, ways) >= 1

"""Law 8. Stop a sweep anywhere, start it again: the same store.

Where and how a sweep is stopped is drawn in test_law_8_at_random_points.py.
"""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from support.hub import After
from support.running import heeding
from support.sweep_models import add_planted
from support.sweep_stores import contents

pytestmark = pytest.mark.slow

MODELS = 40
OPTIONS = ("--author", "sweep", "--night", "n1", "--at-once", "4")
START = "import sys; from auditor.cli import main; sys.argv[0] = 'audit'; main()"


@pytest.fixture
def models(at_hub):
    add_planted(at_hub, MODELS)
    return at_hub


def started(store):
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", START, "sweep", *OPTIONS, "--store", str(store)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heeding,  # noqa: PLW1509 - it sets three signals, and no more
    )


def under_way(models, store, requests):
    """A sweep that has made that many requests."""
    alarm = After(requests=requests)
    models.misbehave(fault=alarm)
    process = started(store)
    alarm.event.wait()
    return process


def killed(models, store, *, after):
    process = under_way(models, store, after)
    process.kill()
    ended(process)


def ended(process):
    _, said = process.communicate()
    return process.returncode, said


@pytest.fixture
def undisturbed(models, tmp_path):
    del models
    store = tmp_path / "undisturbed.sqlite"
    code, said = ended(started(store))
    assert code == 3, said  # the gated one
    assert said.count("41 models") == 2
    return contents(store)


def test_models_audited_before_the_kill_are_not_requested_again(models, tmp_path):
    store = tmp_path / "killed.sqlite"
    killed(models, store, after=60)
    models.behave()
    with closing(sqlite3.connect(store)) as database:
        kept = {model for (model,) in database.execute("SELECT model FROM outcomes")}
    assert kept
    models.reset_log()
    assert ended(started(store))[0] == 3
    paths = [record.path for record in models.log if "/commits/" not in record.path]
    assert not [path for path in paths if any(f"/{name}/" in path for name in kept)]
    assert "/api/models" not in paths  # the plan was frozen


def test_two_sweeps_of_one_store_end_with_the_store_of_one(models, undisturbed, tmp_path):
    del models
    store = tmp_path / "shared.sqlite"
    both = [started(store) for _ in range(2)]
    assert [ended(process)[0] for process in both] == [3, 3]
    assert contents(store) == undisturbed


def test_a_night_under_way_is_not_taken_over_by_another_selection(models, tmp_path):
    store = tmp_path / "killed.sqlite"
    killed(models, store, after=30)
    other = [*OPTIONS, "--search", "m0"]
    command = [sys.executable, "-c", START, "sweep", *other, "--store", str(store)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert 'under way for [{"author": "sweep"}], not for' in done.stderr

"""Stops a sweep at any point, in any way, and looks at what is left of it."""

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from support.hub import After, Hub
from support.running import children_of, is_at_work, started
from support.sweep_models import add_planted
from support.sweep_stores import contents

MODELS = 40
_SWEEP = ("sweep", "--author", "sweep", "--night", "n1", "--at-once", "4")
_LAST = 3  # the exit code of a night with a gated model
_SMALLEST, _LARGEST = 20_000, 200_000  # bytes of a file where the disk is full

FULL = "full"
_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
WAYS: Mapping[str, signal.Signals | None] = {one.name: one for one in _CODES} | {FULL: None}


class Stopping:
    """One Hub, what an undisturbed sweep makes of it, and sweeps that are stopped."""

    def __init__(self, hub: Hub, folder: Path, env: Mapping[str, str], processes: int = 1) -> None:
        self._hub, self._folder, self._env = hub, folder, env
        self._sweep = (*_SWEEP, "--processes", "1")
        add_planted(hub, MODELS)
        self._rounds = 0
        self._undisturbed = contents(self._ended(self._store()))
        self._sweep = (*_SWEEP, "--processes", str(processes))

    def round(self, draw: random.Random, ways: list[str]) -> int:
        """Stop a sweep in these ways, one after the other, and let it end; how many took effect.

        Raises AssertionError where its store is another one than that of a sweep left alone.
        """
        store = self._store()
        stops = sum(self._stopped(store, draw, way) for way in ways)
        self._hub.behave()
        assert contents(self._ended(store)) == self._undisturbed, ways
        left = {one.name for one in store.parent.iterdir()}
        assert left == {store.name}, left
        return stops

    def _store(self) -> Path:
        self._rounds += 1
        folder = self._folder / f"{self._rounds}"
        folder.mkdir()
        return folder / "sweep.sqlite"

    def _ended(self, store: Path) -> Path:
        process = started(*self._sweep, "--store", str(store), env=self._env)
        _, said = process.communicate()
        assert process.returncode == _LAST, said
        return store

    def _stopped(self, store: Path, draw: random.Random, way: str) -> bool:
        number = WAYS[way]
        return self._cut_short(store, draw) if number is None else self._hit(store, draw, number)

    def _hit(self, store: Path, draw: random.Random, number: signal.Signals) -> bool:
        """By a signal, after some request and some moment."""
        alarm = After(requests=draw.randrange(1, MODELS))
        self._hub.behave()
        self._hub.misbehave(fault=alarm)
        process = started(*self._sweep, "--store", str(store), env=self._env)
        threading.Thread(target=lambda: (process.wait(), alarm.event.set())).start()
        alarm.event.wait()
        time.sleep(draw.choice((0.0, draw.uniform(0.0, 0.1))))
        try:
            others = children_of(process.pid)
        except OSError:
            others = []
        process.send_signal(number)
        _, said = process.communicate()
        assert "Traceback" not in said, said
        assert not [pid for pid in others if is_at_work(pid)]
        assert process.returncode in {_CODES[number], _LAST, -number}, (process.returncode, said)
        return process.returncode != _LAST

    def _cut_short(self, store: Path, draw: random.Random) -> bool:
        """By a bound on the size of files, which SQLite meets as it meets a full disk."""
        most = draw.randrange(_SMALLEST, _LARGEST)
        self._hub.behave()

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        command = (*self._sweep, "--quiet", "--store", str(store))
        process = started(*command, env=self._env, preexec_fn=limit)
        _, said = process.communicate()
        assert process.returncode == _LAST, said
        assert said.count("\n") <= 1, said
        return bool(said)


def environment(url: str, home: Path) -> dict[str, str]:
    """That of a sweep that knows no Hub but this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {**clean, "HF_ENDPOINT": url, "HF_HOME": str(home), "NO_COLOR": "1"}

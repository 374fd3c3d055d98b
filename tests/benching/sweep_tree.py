"""A command and all the processes that it starts: time, processor time and memory.

Not by wait4: the processes of a sweep are forked by a server of forks, and are nobody's children
that could be waited for.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from benching.measure import environment_of

_LOOK = 0.02  # seconds; what a process does between the last look and its end is not counted


@dataclass(frozen=True, kw_only=True)
class Run:
    """One command, from its start to its end."""

    wall: float  # seconds
    cpu: float  # seconds, user and system, of all its processes
    memory: int  # bytes: the peaks of all its processes, added up


def run(command: Sequence[str], bytecode: Path, url: str) -> Run:
    """Run the command in a cache of its own; raises where it does not end with 0."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w+b") as said:
        start = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment_of(Path(folder), bytecode, SimpleNamespace(url=url)),
            start_new_session=True,
        )
        ticks: dict[int, int] = {}
        peaks: dict[int, int] = {}
        while process.poll() is None:
            for pid in _of_session(process.pid):
                ticks[pid], peaks[pid] = _used(pid, ticks.get(pid, 0), peaks.get(pid, 0))
            time.sleep(_LOOK)
        wall = time.perf_counter() - start
        if process.returncode != 0:
            said.seek(0)
            message = f"{command} ended with {process.returncode}: {said.read()[-2000:]!r}"
            raise RuntimeError(message)
    cpu = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
    return Run(wall=wall, cpu=cpu, memory=sum(peaks.values()))


def _of_session(session: int) -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                yield int(place.name)


def _used(pid: int, ticks: int, peak: int) -> tuple[int, int]:
    """Processor time so far, and the peak of memory so far."""
    place = Path(f"/proc/{pid}")
    try:
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        status = (place / "status").read_text()
    except OSError:
        return ticks, peak
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM"))
    return int(fields[11]) + int(fields[12]), max([peak, *(1024 * int(one[1]) for one in lines)])

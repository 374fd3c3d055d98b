"""A command and all the processes that it starts: time and processor time, or memory.

One or the other: whoever looks at memory while it runs takes a tenth of a core for that.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from benching.measure import environment_of

_LOOK = 0.02  # seconds between looks; what a process takes after the last one is not seen


@dataclass(frozen=True, kw_only=True)
class Run:
    """One command, from its start to its end."""

    wall: float  # seconds
    cpu: float  # seconds, user and system, of all its processes


def run(command: Sequence[str], bytecode: Path, url: str) -> Run:
    """Run the command in a cache of its own; raises where it does not end with 0."""
    start = time.perf_counter()
    with _started(command, bytecode, url) as process:
        _, status, used = os.wait4(process.pid, 0)  # of those too that the command waited for
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    return Run(wall=wall, cpu=used.ru_utime + used.ru_stime)


def peak(command: Sequence[str], bytecode: Path, url: str) -> int:
    """Bytes: the peaks of all processes of the command, added up; raises as `run` does."""
    peaks: dict[int, int] = {}
    with _started(command, bytecode, url) as process:
        while process.poll() is None:
            for pid in _of_session(process.pid):
                peaks[pid] = _peak_of(pid, peaks.get(pid, 0))
            time.sleep(_LOOK)
    return sum(peaks.values())


@contextmanager
def _started(command: Sequence[str], bytecode: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w+b") as said:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment_of(Path(folder), bytecode, SimpleNamespace(url=url)),
            start_new_session=True,
        )
        yield process
        if process.returncode != 0:
            said.seek(0)
            message = f"{command} ended with {process.returncode}: {said.read()[-2000:]!r}"
            raise RuntimeError(message)


def _of_session(session: int) -> Iterator[int]:
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                yield int(place.name)


def _peak_of(pid: int, before: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return before
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM"))
    return max([before, *(1024 * int(one[1]) for one in lines)])

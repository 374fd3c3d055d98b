"""Runs of `audit` that are forked from a process which has loaded it, one server a session."""

import array
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

AUDIT = str(Path(sys.executable).with_name("audit"))
SERVER = Path(__file__).with_name("fork_server.py")
# What Python and typer read as they start: a run whose own differ has to start itself.
AT_START = ("PYTHON", "LC_", "LANG", "TYPER_", "_TYPER_", "MALLOC_")
NO_HUB = "http://127.0.0.1:9"  # the port of the discard protocol: nothing listens


class Ended(NamedTuple):
    """How a run ended."""

    code: int  # negative: the signal that ended it
    stdout: bytes
    stderr: bytes
    peak: int  # KiB
    spent: int  # milliseconds of processor time


def of_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


class Server:
    """The process that forks; it ends when this one does.

    With `nobody`, its runs are of a user who owns nothing: root may read every file.
    """

    def __init__(self, *options: str) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._busy, self._start = ours, threading.Lock(), of_start(os.environ)
        command = [sys.executable, str(SERVER), str(theirs.fileno()), *options]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            env={**os.environ, "HF_ENDPOINT": NO_HUB},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def can_run(self, env: Mapping[str, str]) -> bool:
        """Whether a run with these variables starts as the server has started."""
        return of_start(env) == self._start

    def run(self, given: Mapping[str, object], streams: Sequence[int]) -> tuple[int, int, int]:
        """The exit code, the peak memory and the processor time of a run."""
        content = json.dumps(given).encode()
        reading, answer = os.pipe()
        descriptors = array.array("i", (answer, *streams))
        with self._busy:
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            self._socket.sendmsg([len(content).to_bytes(8)], beside)
            self._socket.sendall(content)
        for descriptor in descriptors:
            os.close(descriptor)
        code, peak, spent = map(int, _read(reading).split())
        return code, peak, spent


server = cache(Server)


def run(  # noqa: PLR0913 - as subprocess.run has them
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes = b"",
    stdout: int | IO[bytes] = subprocess.PIPE,
    seconds: int,
    options: tuple[str, ...] = (),
) -> Ended:
    """Run `audit` to its end in a fork of the session's server with these options."""
    given = {"args": [AUDIT, *args], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    with ThreadPoolExecutor(3) as threads:
        theirs, ours = os.pipe()
        threads.submit(_write, ours, stdin)
        said, out = _written(threads, stdout)
        blamed, err = _written(threads, subprocess.PIPE)
        ended = server(*options).run({**given, "seconds": seconds}, (theirs, out, err))
        return Ended(ended[0], said.result(), blamed.result(), *ended[1:])


def _written(threads: ThreadPoolExecutor, to: int | IO[bytes]) -> tuple[Future[bytes], int]:
    """What will have been written to a stream, none of it where it is the caller's; the stream."""
    if to == subprocess.PIPE:
        reading, writing = os.pipe()
        return threads.submit(_read, reading), writing
    if to == subprocess.DEVNULL:
        return threads.submit(bytes), os.open(os.devnull, os.O_WRONLY)
    return threads.submit(bytes), os.dup(to if isinstance(to, int) else to.fileno())


def _read(stream: int) -> bytes:
    with open(stream, "rb") as pipe:
        return pipe.read()


def _write(stream: int, content: bytes) -> None:
    with suppress(BrokenPipeError), open(stream, "wb") as pipe:
        pipe.write(content)

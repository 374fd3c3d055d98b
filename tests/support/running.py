"""Runs `audit` as a user at a terminal does, or a log."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path

from support import forking
from support.forking import AUDIT

COLUMNS = "100"


PATIENCE = 60  # seconds for a run to end, once it is told to


def run(
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A run to its end, in a pipe; forked where it can be, which takes a fifth of the time."""
    env = env or os.environ.copy()
    if not forking.server().can_run(env):
        return run_installed(*args, env=env, stdin=stdin, cwd=cwd)
    given = (stdin or "").encode()
    ended = forking.run(args, env=env, cwd=cwd, stdin=given, seconds=60)
    said = (TextIOWrapper(BytesIO(one)).read() for one in (ended.stdout, ended.stderr))
    return subprocess.CompletedProcess((AUDIT, *args), ended.code, *said)


def run_installed(
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same of the program as it was installed, started anew."""
    return subprocess.run(  # noqa: S603 - our own command
        [AUDIT, *args],
        env=env or os.environ.copy(),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def started(*args: str, env: Mapping[str, str], **options) -> subprocess.Popen[str]:
    """A run that goes on; what it says is piped."""
    command: Sequence[str] = (AUDIT, *args)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    given = {"preexec_fn": heeding, **pipes, **options}
    return subprocess.Popen(command, env=env, **given)  # noqa: S603 - our own command


def heeding() -> None:
    """Signals end the process, also where the tests run in the background and ignore them."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def at_a_terminal(*args: str, env: Mapping[str, str], **options) -> tuple[int, str]:
    """The exit code, and all that a terminal was sent on standard error."""
    ours, theirs = os.openpty()
    given = {**env, "COLUMNS": COLUMNS, "TERM": "xterm"}
    process = started(*args, env=given, stdout=subprocess.DEVNULL, stderr=theirs, **options)
    os.close(theirs)
    sent = bytearray()
    with suppress(OSError):  # EIO: the other end is closed
        while piece := os.read(ours, 4096):
            sent += piece
    os.close(ours)
    return process.wait(), sent.decode()


def children_of(pid: int) -> list[int]:
    """The processes that any thread of it has started, and not waited for."""
    places = Path(f"/proc/{pid}/task").glob("*/children")
    found: list[int] = []
    for place in places:
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended since
            found += map(int, place.read_text().split())
    return found


def is_at_work(pid: int) -> bool:
    """Whether the process has not begun to end: it closes its files before it is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"} and any(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def shown(sent: str) -> list[str]:
    """What stood on a terminal's lines, one after the other, without colours and movements."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    return [line.strip() for line in re.split(r"[\r\n]+", plain) if line.strip()]

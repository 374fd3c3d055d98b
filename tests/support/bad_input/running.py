"""Runs `audit` as a user does, and says what must be true of every run whatever the input."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support import forking
from support.forking import AUDIT, NO_HUB

SECONDS = 30  # after which a run counts as hanging: the slowest of these takes seven
KIB_ABOVE = 64 * 1024  # that bad input may take above a clean audit of the same kind
LAUNCHER = str(Path(__file__).with_name("launcher.py"))
LEAKS = ("HF_", "HUGGING", "HTTP_", "HTTPS_", "ALL_PROXY", "NO_PROXY", "FORCE_COLOR", "COLUMNS")

CLEAN, FINDINGS, USAGE, UNAUDITED = 0, 1, 2, 3

Tree = dict[str, tuple[int, int, int]]


def environment(home: Path, **variables: str) -> dict[str, str]:
    """Of a machine without token, cache and Hub."""
    home.mkdir(parents=True)
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(LEAKS)}
    own = {"HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": NO_HUB, "NO_COLOR": "1"}
    return kept | own | variables


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of the command left behind."""

    code: int  # negative: the signal that ended it
    stdout: str
    stderr: str
    peak: int  # KiB
    spent: int  # milliseconds of processor time

    @property
    def outcome(self) -> dict[str, Any]:
        """The JSON on stdout, which must be one line."""
        assert self.stdout.endswith("\n")
        assert self.stdout.count("\n") == 1
        return json.loads(self.stdout)

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return self.stderr.splitlines()[-1]


def run(  # noqa: PLR0913 - how it is called, and where
    *args: str,
    env: Mapping[str, str],
    cwd: Path,
    stdin: bytes = b"",
    stdout: int | IO[bytes] = subprocess.PIPE,
    redirection: str = "",
    seconds: int = SECONDS,
    installed: bool = False,
    options: tuple[str, ...] = (),
) -> Run:
    """Run `audit` to its end, forked where it can be; what hangs is ended by SIGALRM."""
    if not (installed or redirection) and forking.server().can_run(env):
        given = {"cwd": cwd, "stdin": stdin, "stdout": stdout, "seconds": seconds}
        given["options"] = options
        return _run_of(forking.run(args, env=env, **given))
    reading, writing = os.pipe()
    shell = ["/bin/sh", "-c", f'exec "$0" "$@" {redirection}'] if redirection else []
    launcher = [sys.executable, "-I", "-S", LAUNCHER, str(writing), str(seconds)]
    command = [*launcher, *shell, AUDIT, *args]
    with os.fdopen(reading) as report:
        ended = subprocess.run(  # noqa: S603 - our own command
            command,
            check=False,
            env=env,
            cwd=cwd,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            pass_fds=(writing,),
        )
        os.close(writing)
        code, peak, spent = map(int, report.read().split())
    return _run_of(forking.Ended(code, ended.stdout or b"", ended.stderr, peak, spent))


def _run_of(ended: forking.Ended) -> Run:
    said = {"stdout": ended.stdout.decode(), "stderr": ended.stderr.decode()}
    return Run(code=ended.code, **said, peak=ended.peak, spent=ended.spent)


def tree(top: Path) -> Tree:
    """Every file and folder below, with what shows that it was written to."""
    found = {}
    for folder, folders, files in os.walk(top):
        for path in (Path(folder, name) for name in (*folders, *files)):
            status = path.lstat()
            found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def assert_harmless(ran: Run, clean: Run) -> None:
    """What holds for every input: no traceback, no hang, no control characters, little memory."""
    assert ran.code != -signal.SIGALRM, "it hangs"
    assert ran.code in {CLEAN, FINDINGS, USAGE, UNAUDITED}, ran.stderr[-2000:]
    assert "Traceback" not in ran.stdout + ran.stderr
    assert [line for line in ran.stderr.split("\n")[:-1] if not line.startswith("audit: ")] == []
    assert ran.stderr == "" or ran.stderr.endswith("\n")
    assert all(char.isprintable() or char == "\n" for char in ran.stdout + ran.stderr)
    assert ran.peak <= clean.peak + KIB_ABOVE

"""One process, from its start to its end: time, memory, and what it asked of the server."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benching.server import Served

LEAKS = ("HF_", "HUGGING", "HTTP_", "HTTPS_", "ALL_PROXY", "NO_PROXY", "FORCE_COLOR")
AUDIT = str(Path(sys.executable).with_name("audit"))
_REDIRECTS = range(300, 400)
_KIB = 1024  # Linux counts ru_maxrss in KiB


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process and its requests."""

    wall: float  # seconds
    cpu: float  # seconds, user and system, of all threads
    memory: int  # bytes at the peak
    requests: int
    redirects: int  # among them; each leads to one more
    api: int  # among them, answered by the Hub's API and not by a redirect
    bytes: int  # of bodies, as the server sent them
    stdout: str


def ours(model: str) -> tuple[str, ...]:
    """The console script, as users start it."""
    return AUDIT, model


def peer(model: str) -> tuple[str, ...]:
    """The nearest thing in huggingface_hub: every header, parsed, and the parameters counted."""
    code = (
        "from huggingface_hub import get_safetensors_metadata; "
        f"print(sum(get_safetensors_metadata({model!r}).parameter_count.values()))"
    )
    return sys.executable, "-c", code


def run(command: Sequence[str], bytecode: Path, served: Served | None = None) -> Run:
    """Run the command in a cache of its own, empty; raises where it does not end with 0.

    `bytecode` is the folder for compiled modules, which a first run fills.
    """
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        environment = environment_of(where, bytecode, served)
        with (where / "out").open("w+b") as out, (where / "err").open("w+b") as err:
            start = time.perf_counter()
            process = subprocess.Popen(  # noqa: S603 - our own commands
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )
            # Not process.wait: wait4 alone tells what this one child has used. The peak holds
            # that of the process it was forked from, so this one must stay the smaller.
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said = "".join((where / name).read_text(errors="replace") for name in ("out", "err"))
            message = f"{command} ended with {process.returncode}:\n{said[-2000:]}"
            raise RuntimeError(message)
        return Run(
            wall=wall,
            cpu=usage.ru_utime + usage.ru_stime,
            memory=usage.ru_maxrss * _KIB,
            stdout=(where / "out").read_text(encoding="utf-8"),
            **_asked(served),
        )


def environment_of(folder: Path, bytecode: Path, served: Served | None) -> Mapping[str, str]:
    """No Hub but the server's, no cache, no token of the user's; the same for both sides."""
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(LEAKS)}
    # An installed package has its bytecode; a checkout, where writing it is forbidden, has not,
    # and compiling it each time took 25 ms of the 325.
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    return clean | {
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "HF_ENDPOINT": served.url if served else "http://127.0.0.1:9",
        "HF_HOME": str(folder / "hf-home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        # Spares the peer a request that huggingface_hub makes for its user agent when it finds
        # itself started by a coding agent. It is none of its work.
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _asked(served: Served | None) -> dict[str, int]:
    log = served.log() if served else ()
    redirected = [record for record in log if record.status in _REDIRECTS]
    api = [record for record in log if record.path.startswith("/api/models/")]
    return {
        "requests": len(log),
        "redirects": len(redirected),
        "api": sum(record not in redirected for record in api),
        "bytes": sum(record.sent for record in log),
    }

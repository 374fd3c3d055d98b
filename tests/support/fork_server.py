"""A process with `audit` loaded, which forks for each run: what a run says, without its start.

It reads requests from a socket and answers each, in a pipe of its own, with the exit code, the peak
memory in KiB and the milliseconds of processor time. A child goes on into `main` and ends as a
program does, with the arguments, variables, folder and streams of its request.
"""

import array
import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import ClassVar

import auditor

LOADED = (
    "importlib.metadata",
    "importlib.resources",
    "pyreqwest.client",
    "sqlite3",
    "tomllib",
    "auditor.analytic.families.bert",
    "auditor.audit.published_claims",
    "auditor.cli.app",
    "auditor.cli.check",
    "auditor.cli.claim",
    "auditor.cli.fix",
    "auditor.cli.memory",
    "auditor.cli.questions",
    "auditor.companions.generation",
    "auditor.companions.reading",
    "auditor.companions.vocabulary",
    "auditor.diagnosis.engine",
    "auditor.diagnosis.known_causes",
    "auditor.downloader.fetching",
    "auditor.formats.terminal",
    "auditor.reconciler.repository_rules.chat_templates",
    "auditor.reconciler.repository_rules.of_files",
    "auditor.reconciler.repository_rules.token_ids",
)
# What may be read as they load; a run that has its own is not forked.
AT_START = {"TYPER_USE_RICH", "TYPER_STANDARD_TRACEBACK", "_TYPER_STANDARD_TRACEBACK"}
NOBODY = 65534


class Recording(os._Environ):  # noqa: SLF001 - the class of the only environment there is
    """The environment, which notes what is asked of it."""

    asked: ClassVar[set[str]] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)


def load() -> None:
    """Load what runs share; nothing of it may depend on an environment, which is a run's own."""
    plain = type(os.environ)
    os.environ.__class__ = Recording
    for name in LOADED:
        import_module(name)
    os.environ.__class__ = plain
    gc.freeze()  # no child's collection copies the pages of what is shared
    assert Recording.asked <= AT_START, Recording.asked


def load_everything() -> None:
    """Load all that may be needed by a user who may not be allowed to read the modules."""
    for module in pkgutil.walk_packages(auditor.__path__, "auditor."):
        if not module.name.startswith(("auditor.integrations", "auditor.oracle", "auditor.sweep")):
            import_module(module.name)
    gc.freeze()


def own_nothing() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def served(requests: socket.socket) -> bool:
    """Serve until the other end is closed; True in a process that is to run."""
    started = 0  # processes that wait for a run each, and were not waited for
    while request := received(requests):
        given, (answer, *streams) = request
        while started and os.waitpid(-1, os.WNOHANG)[0]:
            started -= 1
        started += 1
        if os.fork() == 0:
            requests.close()
            if os.fork() == 0:
                os.close(answer)
                become(given, streams)
                return True
            tell(answer, streams)
            os._exit(0)
        for descriptor in (answer, *streams):
            os.close(descriptor)
    while started:
        os.wait()
        started -= 1
    return False


def received(requests: socket.socket) -> tuple[dict, list[int]] | None:
    """A length of eight bytes with descriptors beside it, and so much JSON."""
    head, beside, _, _ = requests.recvmsg(8, socket.CMSG_SPACE(16), socket.MSG_WAITALL)
    if not head:
        return None
    [(_, _, descriptors)] = beside
    content = requests.recv(int.from_bytes(head), socket.MSG_WAITALL)
    return json.loads(content), list(array.array("i", descriptors))


def tell(answer: int, streams: list[int]) -> None:
    """Wait for the only child and say how it ended."""
    for stream in streams:
        os.close(stream)
    _, status, usage = os.wait4(-1, 0)
    spent = round(1000 * (usage.ru_utime + usage.ru_stime))
    said = (os.waitstatus_to_exitcode(status), usage.ru_maxrss, spent)
    os.write(answer, " ".join(map(str, said)).encode())


def become(given: dict, streams: list[int]) -> None:
    signal.alarm(given["seconds"])  # ends what hangs with SIGALRM
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, opened(number, getattr(sys, name)))
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    sys.argv = given["args"]


def end_at_once(end: SystemExit) -> None:
    """End as Python does, but without freeing what is loaded: that took half of a run's time."""
    if end.code is None or isinstance(end.code, int):
        threading._shutdown()  # noqa: SLF001 - waits for threads, as the end of a program does
        atexit._run_exitfuncs()  # noqa: SLF001 - likewise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code or 0)


def opened(number: int, before: TextIOWrapper) -> TextIOWrapper:
    """A standard stream made as Python makes it at its start: it may be of another kind now."""
    return open(
        number,
        before.mode,
        1 if before.line_buffering else -1,
        before.encoding,
        before.errors,
        "\n",
        closefd=False,
    )


if __name__ == "__main__":
    del sys.path[0]  # this folder, which the installed program does not search
    is_nobody = "nobody" in sys.argv
    (load_everything if is_nobody else load)()
    if served(socket.socket(fileno=int(sys.argv[1]))):
        from auditor.cli import main

        if is_nobody:
            own_nothing()
        try:
            main()
        except SystemExit as end:
            with suppress(OSError, ValueError):  # of a stream: Python's own end reports it
                end_at_once(end)
            raise

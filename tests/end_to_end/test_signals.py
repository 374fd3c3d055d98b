"""The first signal ends a run, whatever it waits for, with the code that is usual for it."""

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from support.examples import one_in
from support.hub import Says, Stall, TooMany
from support.running import PATIENCE, children_of, heeding, is_at_work, started
from support.sweep_models import healthy

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
SPENT = Says(status=429, headers=(("RateLimit", '"api";r=0;t=290'),))


@pytest.fixture
def model(hub):
    hub.add("o/n", healthy(1))
    return hub


@pytest.fixture
def sweep(tmp_path):
    return ("sweep", "--author", "o", "--store", str(tmp_path / "s.sqlite"), "--night", "n1")


def ended_by(number, process):
    """The exit code, and what was said after the signal; no process of its is left."""
    others = children_of(process.pid)
    process.send_signal(number)
    out, said = process.communicate(timeout=PATIENCE)
    assert out == ""
    assert not [pid for pid in others if is_at_work(pid)]
    return process.returncode, said


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_ends_the_wait_of_an_audit(number, model, hub_env):
    model.misbehave(fault=TooMany(reset=290), path="/api/models/*")
    process = started("o/n", env=hub_env)
    assert process.stderr.readline().endswith("; waiting 290 s\n")
    assert ended_by(number, process) == (CODES[number], "audit: interrupted\n")


KEPT = "audit: outcomes are stored; the same command resumes the sweep\naudit: interrupted\n"


WAITS = (TooMany(reset=290), SPENT, TooMany(retry_after=290))


@pytest.mark.parametrize(("number", "fault"), list(zip(CODES, WAITS, strict=True)))
def test_a_signal_ends_the_wait_of_a_selection(number, fault, model, hub_env, sweep):
    model.misbehave(fault=fault, path="/api/models")
    process = started(*sweep, env=hub_env)
    while "; waiting " not in process.stderr.readline():
        pass
    assert ended_by(number, process) == (CODES[number], KEPT)


@pytest.mark.parametrize("number", one_in(2, CODES), ids=lambda number: number.name)
def test_a_signal_ends_a_sweep_whose_processes_wait_and_the_next_goes_on(
    number, model, hub_env, sweep
):
    model.misbehave(fault=TooMany(reset=290), path="*/resolve/*")
    process = started(*sweep, env=hub_env)
    while "; waiting " not in process.stderr.readline():
        pass
    code, said = ended_by(number, process)
    # The model waits because it was refused, and other requests for the end of the window, which
    # is a second later: either may be said first.
    lines = [line for line in said.splitlines(keepends=True) if "; waiting 29" not in line]
    assert (code, "".join(lines)) == (CODES[number], KEPT)
    model.behave()
    process = started(*sweep, env=hub_env)
    assert "1 model (1 clean)" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0


def test_a_signal_ends_a_read(model, hub_env):
    alarm = Stall()
    model.misbehave(fault=alarm, path="*config.json")
    process = started("o/n", env={**hub_env, "HF_HUB_DOWNLOAD_TIMEOUT": "100"})
    while not any(record.fault for record in model.log):
        pass
    assert ended_by(signal.SIGINT, process) == (130, "audit: interrupted\n")


@contextmanager
def nobody_accepts():
    """The port of a server whose queue is full: connections to it begin, and go no further."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)  # noqa: FBT003 - its only argument
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def is_connecting(pid, port):
    """Whether a socket of the process has asked for a connection, and has no answer."""
    places: list[str] = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed meanwhile
            places.append(str(one.readlink()))
    table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    asked = [line.split() for line in table]
    theirs = {row[9] for row in asked if row[2:4] == [f"0100007F:{port:04X}", "02"]}
    return any(place.endswith(f"socket:[{inode}]") for place in places for inode in theirs)


@pytest.mark.parametrize(("what", "number"), [("audit", signal.SIGTERM), ("sweep", signal.SIGINT)])
def test_a_signal_ends_a_connect(number, what, hub_env, sweep):
    with nobody_accepts() as port:
        endpoint = f"http://127.0.0.1:{port}"
        env = {**hub_env, "HF_ENDPOINT": endpoint, "HF_HUB_DOWNLOAD_TIMEOUT": "100"}
        process = started(*(("o/n",) if what == "audit" else sweep), env=env)
        while not is_connecting(process.pid, port):
            assert process.poll() is None
        said = "audit: interrupted\n" if what == "audit" else KEPT
        assert ended_by(number, process) == (CODES[number], said)


def test_a_signal_that_is_ignored_stays_so(model, hub_env):
    """As nohup has it."""
    model.misbehave(fault=TooMany(reset=3), path="/api/models/*", times=1)
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731 - of two words
    process = started("o/n", env=hub_env, preexec_fn=ignore)
    process.stderr.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


# Calls `main` as the installed program does, and sends itself a signal when a module is imported.
INTERRUPTED_IMPORT = """
import os, sys
number, module = int(sys.argv[1]), sys.argv[2]
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["audit", "--version"]
from auditor.cli import main
main()
"""


def test_a_signal_while_the_program_is_imported_ends_it_without_a_traceback(subtests):
    for number, module in list(zip(CODES, ["auditor.cli.app", "typer", "msgspec"], strict=True)):
        with subtests.test(number=number, module=module):
            command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(int(number)), module]
            ran = subprocess.run(  # noqa: S603 - our own command
                command,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=heeding,
                timeout=PATIENCE,
            )
            assert (ran.returncode, ran.stdout, ran.stderr) == (CODES[number], "", "")

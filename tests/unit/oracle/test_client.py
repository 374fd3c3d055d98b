"""Asking the oracle: it answers within bounds or not at all, and is asked once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from auditor.analytic import Config, ExpectedTensor, Role
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.oracle.client import Oracle, Process
from auditor.oracle.transformers_classes import InstalledLibrary

pytestmark = pytest.mark.slow  # each starts the oracle's process

# As `inventory` of auditor.oracle does, but without the import of a slow library.
PRETENCE = """
import sys
from auditor.oracle import build, server
from auditor.analytic import ExpectedTensor
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import PLAIN
from auditor.errors import CheckpointError, Reason, SourceError

def inventory(library, target, config):
    print("a library that prints")
    open(config["log"], "a").write(target + "\\n")
    {body}
    tensor = ExpectedTensor("a.weight", (2, config["size"]), 2 * config["size"])
    return summed_expectation(
        target, model_type="pretence", prefix="base", tensors=(tensor,), loading=PLAIN
    )

server.inventory = inventory
server.MOST_SECONDS = 1
server.serve()
"""


Pretending = Callable[..., Oracle]


@pytest.fixture
def pretending(tmp_path: Path) -> Iterator[Pretending]:
    """Makes oracles, each with a process of its own, that share a folder of answers."""
    library = InstalledLibrary("transformers 0", tmp_path, {"pretence": ("Model", "ModelForA")})
    processes: list[Process] = []

    def make(body: str = "pass") -> Oracle:
        processes.append(Process((sys.executable, "-c", PRETENCE.format(body=body))))
        return Oracle(library, tmp_path / "answers", processes[-1])

    yield make
    for process in processes:
        process.end()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def config(log: Path, size: int = 3) -> Config:
    return Config(values={"log": str(log), "size": size})


def test_an_answer_is_the_expectation_with_its_sums(pretending: Pretending, log: Path) -> None:
    found = pretending().expect(config(log), "Model")
    assert found.tensors == (ExpectedTensor("a.weight", (2, 3), 6, Role.PARAMETER),)
    assert (found.parameters, found.modules["a"].parameters) == (6, 6)
    assert (found.target, found.model_type, found.prefix) == ("Model", "pretence", "base")
    assert (found.by, found.library) == ("oracle", "transformers 0")


def test_one_question_starts_one_process(pretending: Pretending, log: Path) -> None:
    first, second = pretending(), pretending()
    assert first.expect(config(log), "Model") == second.expect(config(log), "Model")
    second.expect(config(log, 4), "Model")  # another config
    second.expect(config(log), "ModelForA")  # another class
    second.sibling(config(log), "ModelForA")
    assert log.read_text().split() == ["Model", "Model", "ModelForA"]


def test_fine_tunes_of_one_base_share_an_answer_and_versions_of_the_library_do_not(
    pretending: Pretending, log: Path
) -> None:
    oracle, base = pretending(), config(log)
    for name in ("a", "b"):
        own = {"architectures": [name], "_name_or_path": f"me/{name}"}
        oracle.expect(Config(values={**base.values, **own}), "Model")
    assert log.read_text().split() == ["Model"]
    oracle.name = "transformers 1"
    oracle.expect(base, "Model")
    assert log.read_text().split() == ["Model", "Model"]


BROKEN = [
    "",
    "[]",
    '{"model_type": "m", "prefix": "", "tensors": [["a", [1], 1, "no such role", null]]}',
    '{"model_type": "m", "prefix": "", "tensors": []}',  # as it was before there were rules
]


def test_a_broken_answer_is_requested_again(
    tmp_path: Path, pretending: Pretending, log: Path
) -> None:
    oracle = pretending()
    found = oracle.expect(config(log), "Model")
    [kept] = (tmp_path / "answers").iterdir()
    for broken in BROKEN:
        kept.write_text(broken)
        assert oracle.expect(config(log), "Model") == found
        assert json.loads(kept.read_text())["model_type"] == "pretence"


def test_a_config_that_builds_no_model_is_a_fault_of_the_checkpoint_and_is_cached(
    pretending: Pretending, log: Path
) -> None:
    for _ in range(2):
        oracle = pretending("raise CheckpointError('size is odd')")
        with pytest.raises(CheckpointError, match=r"^size is odd$"):
            oracle.expect(config(log), "Model")
    assert log.read_text().split() == ["Model"]


@pytest.mark.parametrize(
    ("body", "reason", "detail"),
    [
        (
            "raise SourceError(Reason.UNKNOWN_ARCHITECTURE, 'it needs timm')",
            Reason.UNKNOWN_ARCHITECTURE,
            "^it needs timm$",
        ),
        ("1 / 0", Reason.UNKNOWN_ARCHITECTURE, "^Model: ZeroDivisionError: division by zero$"),
        (
            "sys.exit(7)",
            Reason.UNKNOWN_ARCHITECTURE,
            "^the process .* Model ended with exit code 7",
        ),
        (
            "import os; os.abort()",
            Reason.UNKNOWN_ARCHITECTURE,
            "^the process .* Model ended with SIGABRT$",
        ),
        ("pass", Reason.TOO_LARGE, "^transformers took more than .* to build Model$"),
        (
            "bytearray(8 * 2**30)",
            Reason.TOO_LARGE,
            "^transformers takes more than 4 GiB to build Model$",
        ),
    ],
    ids=["source", "bug", "exit", "signal", "hang", "memory"],
)
def test_a_process_without_an_answer_is_explained_and_the_next_question_is_answered(
    pretending: Pretending, log: Path, body: str, reason: Reason, detail: str
) -> None:
    oracle = pretending(f"while target == 'Model': {body}")
    for _ in range(2):
        with pytest.raises(SourceError, match=detail) as caught:
            oracle.expect(config(log), "Model")
        assert caught.value.reason is reason
        assert oracle.expect(config(log), "ModelForA").parameters == 6
    assert log.read_text().split().count("Model") == 2  # it is not kept: it may be there tomorrow


FORKS = """
import os, signal, sys
from auditor.oracle.client import Process

answers = "import json, os, sys\\nfor _ in sys.stdin: print(json.dumps(os.getpid()), flush=True)"
process = Process((sys.executable, "-c", answers.replace("os.getpid()", "[str(os.getpid())]")))
[first] = process.ask("?", "Model", "pretence")
if not (child := os.fork()):
    signal.alarm(30)
    [other] = process.ask("?", "Model", "pretence")
    process.end()
    os._exit(other == first)
assert os.waitpid(child, 0)[1] == 0
assert process.ask("?", "Model", "pretence") == [first]
process.end()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_child_asks_a_process_of_its_own() -> None:
    command = [sys.executable, "-c", FORKS]
    subprocess.run(command, timeout=60, check=True)  # noqa: S603 - our own script

"""A fault of our own is one model's outcome: it is said, ends with 3, and the next is audited."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.bad_input.making import whole
from support.hub import Hub
from support.pipelines import encoders, verdicts, written
from support.sweep_models import healthy

import auditor
from auditor import Reason, Unaudited, UsageError
from auditor.audit import outcome as audit_outcome
from auditor.downloader import hub
from auditor.sweep.one_model import Auditor
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.settings import PASSING, Policy
from auditor.sweep.store.ledger import Waiting

SECRET = "hf_" + "s" * 34
# `audit` with a bug: whatever is named b ends in an exception with a text that must not be shown.
BROKEN = f"""
import sys
from auditor.{{module}} import {{name}} as module
true = module.{{function}}
def broken(first, *rest, **named):
    every = first if isinstance(first, list | tuple) else [first]
    named_b = [one for one in every if str(getattr(one, "model", one)).endswith("b")]
    if any(getattr(one, "observed", True) for one in named_b):  # not what stands in its place
        raise {{error}}("Bearer {SECRET} \\x1b[2J")
    return true(first, *rest, **named)
module.{{function}} = broken
from auditor.cli import main
sys.argv[0] = "audit"
main()
"""
SAYS = r"KeyError at audit/outcome.py:"


def audit(  # noqa: PLR0913 - where the bug is, and how it is called
    *args: str,
    module: str = "audit",
    name: str = "outcome",
    function: str = "contents",
    error: str = "KeyError",
    stdin: str = "",
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    program = BROKEN.format(module=module, name=name, function=function, error=error)
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", program, *args],
        check=False,
        capture_output=True,
        text=True,
        input=stdin,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
    )


@pytest.fixture
def models(tmp_path) -> list[str]:
    return [str(whole(tmp_path / name)) for name in "abc"]


def assert_said(ran, models: list[str]) -> None:
    """One line on stderr, which asks for a report and holds nothing of what the exception says."""
    assert ran.returncode == 3
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"audit: {models[1]}: crashed: the audit failed with KeyError at ")
    assert "a bug of hf-audit" in line
    assert "please report it" in line
    assert SECRET not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


def test_the_models_after_it_are_audited(models):
    ran = audit(*models, "--format", "json")
    assert_said(ran, models)
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["verdict"] for one in outcomes] == ["clean", "unaudited", "clean"]
    assert (outcomes[1]["reason"], SAYS in outcomes[1]["detail"]) == ("crashed", True)


def test_a_finding_as_well_does_not_make_it_1(models):
    os.unlink(f"{models[0]}/model.safetensors")  # noqa: PTH108 - a text
    assert audit(*models[:2]).returncode == 3
    assert audit(models[1], "--fail-on", "never").returncode == 3


def test_a_report_that_cannot_be_shown_is_an_outcome_as_well(subtests, models, tmp_path):
    for options, name, function in [
        ([], "terminal", "one_line"),
        (["--format", "json"], "as_json", "files"),
        (["--format", "csv"], "as_csv", "files"),
        (["-o", "out", "--format", "csv", "--quiet"], "as_csv", "files"),
    ]:
        with subtests.test(options=options, name=name, function=function):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            ran = audit(
                *models, *options, module="formats", name=name, function=function, cwd=place
            )
            assert_said(ran, models)
            for path in (*place.glob("out.json"), *place.glob("out/models.csv")):
                assert "crashed" in path.read_text()
                assert path.read_text().count("clean") >= 2
            if options[:1] != ["-o"]:
                assert ran.stdout


def test_ctrl_c_and_what_ends_a_program_pass(models):
    assert audit(*models, error="KeyboardInterrupt").returncode == 130
    assert audit(*models, error="SystemExit").returncode == 1


def test_a_model_that_memory_is_too_little_for_has_an_outcome_and_the_others_are_audited(models):
    ran = audit(*models, "--format", "json", error="MemoryError")
    assert ran.returncode == 3
    [line] = ran.stderr.splitlines()
    assert line.startswith(f"audit: {models[1]}: too-little-memory: ")
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["verdict"] for one in outcomes] == ["clean", "unaudited", "clean"]
    assert outcomes[1]["reason"] == "too-little-memory"


def test_every_command_ends_in_one_line(subtests, models, tmp_path):
    for error, said in [("KeyError", "please report it"), ("MemoryError", "too little memory")]:
        for command in [["explain"], ["memory"], ["snapshot", "-o", "x"]]:
            with subtests.test(command=command, error=error, said=said):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                where = {"module": "downloader", "name": "local_folder", "function": "read"}
                ran = audit(*command, models[1], error=error, cwd=place, **where)
                assert ran.returncode == 3
                [line] = ran.stderr.splitlines()
                assert said in line.replace("-", " ")


def fail(*_args, **_named):
    raise RecursionError("maximum recursion depth exceeded")


def test_in_python_it_is_an_outcome(models, monkeypatch):
    monkeypatch.setattr(audit_outcome, "contents", fail)
    outcome = auditor.audit(models[0])
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.requested) == (Reason.CRASHED, models[0])
    assert outcome.detail.startswith("the audit failed with RecursionError at audit/outcome.py:")
    assert auditor.explain(models[0]).reason is Reason.CRASHED


def test_in_python_a_bad_request_and_no_memory_are_raised(models, monkeypatch):
    with pytest.raises(UsageError, match="NoSuchClass"):
        auditor.audit(models[0], target="NoSuchClass")

    def no_memory(*_args, **_named):
        raise MemoryError

    monkeypatch.setattr(audit_outcome, "contents", no_memory)
    with pytest.raises(MemoryError, match=r"^$"):
        auditor.audit(models[0])


@pytest.fixture
def crashing_part(monkeypatch):
    """The audit of the part in text_encoder/ crashes, and that of no other."""
    true = audit_outcome.contents

    def contents(snapshot):
        if snapshot.config.name.startswith("text_encoder/"):
            raise ZeroDivisionError
        return true(snapshot)

    monkeypatch.setattr(audit_outcome, "contents", contents)


@pytest.mark.usefixtures("crashing_part")
def test_of_a_pipeline_the_other_parts_are_audited(tmp_path):
    outcome = auditor.audit(written(tmp_path, encoders()))
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is Reason.CRASHED
    assert outcome.detail.startswith("text_encoder: the audit failed with ZeroDivisionError")
    assert verdicts(outcome) == {"text_encoder": "unaudited", "text_encoder_2": "clean"}


def test_a_worker_of_a_sweep_reports_too_little_memory(at_hub: Hub, monkeypatch):
    commit = at_hub.add("o/a", healthy(1))
    monkeypatch.setattr(hub, "fetch_listing", fail)
    worker = Auditor(Policy(at_once=1), None, RateLimiter())
    waiting = Waiting("o/a", commit, snapshot=None, listing=None)
    done = worker.audit(waiting)
    assert done.recorded.summary.reason == "crashed"
    assert done.recorded.summary.reason in PASSING


def test_a_sweep_continues_and_reports_it(at_hub: Hub, tmp_path):
    for name in "abc":
        at_hub.add(f"o/{name}", healthy(ord(name)))
    env = {"HF_ENDPOINT": at_hub.url, "HF_HOME": str(tmp_path / "hf")}
    ran = audit("sweep", "--author", "o", "--processes", "1", cwd=tmp_path, env=env)
    assert ran.returncode == 3
    assert "3 models (2 clean, 1 crashed)" in ran.stderr
    assert "the audit of 1 model crashed, which is a bug of hf-audit" in ran.stderr
    assert SECRET not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr

"""What the documents show is what the commands print; what they say to run is run."""

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from rewrite_documents import AUDIT, DOCS, SHOWN
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.sweep_models import FAULTS, healthy

from auditor.sweep import settings
from auditor.sweep.settings import Policy

NIGHTLY = (DOCS / "nightly.md").read_text()
SWEEPS = (DOCS / "sweeps.md").read_text()
BLOCK = re.compile(r"```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)```", re.DOTALL)
NAMED = {block["name"]: block["text"] for block in BLOCK.finditer(NIGHTLY) if block["name"]}
CONSOLE = sorted(
    {  # a document in two languages shows the same
        (block[2], block[3])
        for path in DOCS.glob("*.md")
        for block in SHOWN.finditer(path.read_text())
    }
)


def test_the_cost_of_three_million_models_is_documented():
    assert "audit sweep --top 3000000 --plan" in [command for command, _ in CONSOLE]


def test_every_key_of_a_sweep_toml_is_documented_and_read(tmp_path):
    (text,) = (block["text"] for block in BLOCK.finditer(SWEEPS) if block["language"] == "toml")
    (tmp_path / "sweep.toml").write_text(text)
    (tmp_path / "ids.txt").write_text("acme/a\n")
    read = settings.read_sweep_settings(tmp_path / "sweep.toml")
    assert len(read.selections) == 3
    policy = set(Policy.__struct_fields__)
    output = set(settings.Output.__struct_fields__)
    due = {"author", "filter", "library", "search", "sort", "top", "ids", "address"}
    keys = set(re.findall(r"^(\w+) +=", text, re.MULTILINE))
    assert keys == due | policy | output | {"fail_on"}
    assert (read.policy.shards, read.policy.max_bytes) == (Policy().shards, Policy().max_bytes)


# --- a night -----------------------------------------------------------------------------------


def with_buffer():
    """What the baseline of the document accepts."""
    described = {one.name: ("F32", one.shape) for one in stored_by(expect("BertModel"))}
    described["encoder.layer.0.rotary_emb.inv_freq"] = ("F32", (2,))
    config = config_bytes(architectures=["BertModel"], dtype="float32")
    return {"config.json": config, "model.safetensors": safetensors_bytes(described)}


@pytest.fixture
def acme(hub):
    """The models of somebody who has looked at everything."""
    hub.add("acme/good", healthy(1))
    hub.add("acme/legacy-1", with_buffer())
    hub.add("acme/customer", healthy(2), gated="manual")
    return hub


@pytest.fixture
def folder(tmp_path):
    """The folder of the document."""
    place = tmp_path / "srv" / "audit"
    place.mkdir(parents=True)
    for name in ("sweep.toml", "baseline.toml", "nightly.sh"):
        (place / name).write_text(NAMED[name])
    return place


@pytest.fixture
def environment(hub_env):
    """What cron, systemd and CI leave of it, and where the Hub is."""
    kept = {name: value for name, value in hub_env.items() if name.startswith(("HF_", "COVERAGE"))}
    return {**kept, "PATH": f"{AUDIT.parent}:/usr/bin:/bin"}


def ran(command, folder, environment):
    return subprocess.run(  # noqa: S603 - the document's own
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def night(folder, environment):
    """The exit code of nightly.sh."""
    done = ran(["/bin/sh", str(folder / "nightly.sh")], "/", environment)
    assert "Traceback" not in done.stderr
    return done.returncode


def test_a_night_on_which_all_is_accepted_ends_with_0_and_leaves_its_reports(
    acme, folder, environment
):
    del acme
    assert night(folder, environment) == 0
    (report,) = (folder / "reports" / "nightly").iterdir()
    assert {"changes.csv", "models.csv", "index.html"} <= {path.name for path in report.iterdir()}
    assert json.loads((folder / "reports" / "audit.sarif").read_text())["version"] == "2.1.0"


ALARMS = {
    "a finding that nobody accepts": (FAULTS["missing"](3), 1),
    "a model that could not be audited": ({"config.json": b"{}"}, 3),
}


@pytest.mark.parametrize(("files", "code"), ALARMS.values(), ids=ALARMS)
def test_a_night_ends_with_the_code_of_the_table(files, code, acme, folder, environment):
    acme.add("acme/other", files)
    assert night(folder, environment) == code
    assert re.search(rf"^\| {code} \|", NIGHTLY, re.MULTILINE)


def test_a_night_that_could_not_ask_the_hub_ends_with_2_whatever_there_was_before(
    acme, folder, environment
):
    del acme
    assert night(folder, environment) == 0
    with_no_night = (folder / "nightly.sh").read_text().replace("+%F", "+%F-b")
    (folder / "nightly.sh").write_text(with_no_night)
    assert night(folder, {**environment, "HF_HUB_OFFLINE": "1"}) == 2


def test_the_cron_line_sends_mail_when_something_is_wrong_and_only_then(acme, folder, environment):
    (crontab,) = (
        block["text"] for block in BLOCK.finditer(NIGHTLY) if block["language"] == "crontab"
    )
    path, line = crontab.replace("/srv/audit", str(folder)).splitlines()
    assert path.startswith("PATH=/opt/hf-audit/bin:")
    schedule, command = line.split(maxsplit=5)[:5], line.split(maxsplit=5)[5]
    assert all(re.fullmatch(r"\*|\d+", part) for part in schedule)
    assert "%" not in command.replace(r"\%", "")
    command = command.replace(r"\%", "%")
    done = ran(["/bin/sh", "-c", command], "/", environment)
    assert (done.stdout, done.stderr) == ("", "")
    acme.add("acme/other", FAULTS["missing"](3))
    done = ran(["/bin/sh", "-c", command], "/", environment)
    assert done.stdout.startswith("audit: exit code 1\naudit: ")
    assert "1 new" in done.stdout


def units(folder, place):
    """The document's units, with this machine's folders."""
    place.mkdir()
    for name in ("audit.service", "audit.timer"):
        text = (
            NAMED[name]
            .replace("/srv/audit", str(folder))
            .replace("/opt/hf-audit/bin", str(AUDIT.parent))
        )
        (place / name).write_text(text)
    return place / "audit.service", place / "audit.timer"


def test_what_the_systemd_unit_starts_audits(acme, folder, environment, tmp_path):
    del acme
    service, _ = units(folder, tmp_path / "units")
    keys = dict(re.findall(r"^(\w+)=(.*)$", service.read_text(), re.MULTILINE))
    assert (keys["Type"], keys["WorkingDirectory"]) == ("oneshot", str(folder))
    paths = re.search(r"^Environment=PATH=(.*)$", service.read_text(), re.MULTILINE)[1]
    given = {**environment, "PATH": paths}
    assert ran(shlex.split(keys["ExecStart"]), keys["WorkingDirectory"], given).returncode == 0
    assert (folder / "sweep.sqlite").is_file()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_units(folder, tmp_path):
    paths = units(folder, tmp_path / "units")
    done = ran(["systemd-analyze", "verify", *map(str, paths)], tmp_path, {"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# --- CI ----------------------------------------------------------------------------------------


@pytest.fixture
def workflow():
    read = yaml.safe_load(NAMED["audit.yml"])
    assert set(read) == {"name", True, "permissions", "concurrency", "jobs"}  # True: YAML's `on`
    return read


@pytest.fixture
def job(workflow):
    ((_, found),) = workflow["jobs"].items()
    return found


def test_the_store_is_restored_before_the_sweep_and_saved_whatever_happens(job):
    steps = job["steps"]
    restore, save = (
        next(step for step in steps if step.get("uses", "").startswith(f"actions/cache/{what}@"))
        for what in ("restore", "save")
    )
    assert restore["with"]["path"] == save["with"]["path"]
    assert restore["with"]["key"] == save["with"]["key"]
    assert save["with"]["key"].startswith(restore["with"]["restore-keys"])
    assert "github.run_id" in save["with"]["key"]
    names = [step.get("name") for step in steps]
    assert names.index("Restore the store") < names.index("Sweep") < names.index("Save the store")
    for step in steps[names.index("Sweep") + 1 :]:
        assert ("uses" not in step) or step["if"] == "always()"


@pytest.mark.parametrize("wrong", [False, True], ids=["all is accepted", "a new finding"])
def test_the_steps_of_the_workflow_audit_and_leave_what_is_uploaded(
    wrong, acme, folder, environment, job
):
    if wrong:
        acme.add("acme/other", FAULTS["missing"](3))
    variables = folder.parent / "github-env"
    variables.touch()
    codes = {}
    for step in job["steps"]:
        if "run" not in step or step["name"] == "Install":
            continue
        told = dict(line.split("=", 1) for line in variables.read_text().splitlines())
        given = {**environment, **told, "GITHUB_ENV": str(variables)}
        # As a runner does: a step that fails ends the job, but for those that are always run.
        codes[step["name"]] = ran(["bash", "-e", "-c", step["run"]], folder, given).returncode
    assert codes == {"Name the night": 0, "Sweep": 0, "Report": int(wrong)}
    uploaded = [step["with"] for step in job["steps"] if step.get("if") == "always()"]
    for given in uploaded:
        assert (folder / given.get("path", given.get("sarif_file"))).exists()


# --- a cluster ---------------------------------------------------------------------------------


@contextmanager
def running(command):
    """A process that runs until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def test_the_commands_for_a_cluster_sweep(acme, folder, environment, monkeypatch):
    pytest.importorskip("distributed", reason="the cluster extra is not installed")
    del acme
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    (text,) = (
        block["text"] for block in BLOCK.finditer(SWEEPS) if "dask scheduler" in block["text"]
    )
    here = text.replace("10.0.0.1", "127.0.0.1").replace("8786", port)
    scheduler, worker, sweep = (shlex.split(line, comments=True) for line in here.splitlines())
    dask = str(Path(sys.executable).parent / scheduler.pop(0))
    assert worker.pop(0) == "dask"
    with (
        running([dask, *scheduler, "--port", port, "--no-dashboard"]),
        running([dask, *worker, "--no-dashboard", "--local-directory", str(folder)]),
    ):
        done = ran([AUDIT, *sweep[1:]], folder, environment)
    assert "3 models (1 clean, 1 with findings, 1 gated); 3 audited" in done.stderr
    assert done.returncode == 3

"""What other programs run of this repository: a step of a workflow, and a hook before a commit."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from rewrite_documents import DOCS
from support.programs import ROOT
from support.running import AUDIT
from support.sweep_models import healthy

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


@pytest.fixture(name="checkpoint")
def a_sound_checkpoint(tmp_path):
    """A folder named `model` with a small BERT."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in healthy(0).items():
        (folder / name).write_bytes(content)
    return folder


def step(folder, hub_env, **inputs):
    """The action's last step, as a runner runs it: its inputs in variables, bash -e."""
    last = ACTION["runs"]["steps"][-1]
    given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in last["env"].items()
    }
    summary = folder / "summary.md"
    env = hub_env | variables | {"GITHUB_STEP_SUMMARY": str(summary)}
    env["PATH"] = f"{Path(AUDIT).parent}:{env['PATH']}"
    run = subprocess.run(  # noqa: S603 - our own action
        ["/bin/bash", "-e", "-c", last["run"]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return run, summary.read_text()


@pytest.mark.usefixtures("checkpoint")
def test_the_action_prints_the_report_and_keeps_the_tables(tmp_path, hub_env):
    run, summary = step(tmp_path, hub_env, models="model", reports="tables")
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert summary == f"```\n{run.stdout}```\n"
    assert (tmp_path / "tables" / "modules.csv").exists()


def test_the_action_ends_as_the_audit_does(checkpoint, tmp_path, hub_env):
    (checkpoint / "model.safetensors").write_bytes(b"no weights")
    assert step(tmp_path, hub_env, models="model")[0].returncode == 1
    run, _ = step(tmp_path, hub_env, models="model", options="--fail-on never")
    assert run.returncode == 0
    assert step(tmp_path, hub_env, models="absent/folder/of/many")[0].returncode == 2


@pytest.mark.usefixtures("checkpoint")
def test_nothing_that_a_workflow_gives_the_action_is_run(tmp_path, hub_env):
    for hostile in ("$(touch ran)", "`touch ran`", "; touch ran", "model && touch ran", "* --help"):
        step(tmp_path, hub_env, models=hostile, options=hostile, reports=hostile)
        step(tmp_path, hub_env, models=hostile, token=hostile)
    assert not (tmp_path / "ran").exists()


def test_no_input_of_the_action_stands_in_its_script():
    assert not [one for one in ACTION["runs"]["steps"] if "${{" in one.get("run", "")]
    assert all(one.get("shell") == "bash" for one in ACTION["runs"]["steps"] if "run" in one)


def test_the_hook_audits_the_folder_that_is_committed(checkpoint, hub_env):
    def run():
        return subprocess.run(  # noqa: S603 - our own hook
            [Path(AUDIT).with_name(HOOK["entry"]), *HOOK["args"]],
            cwd=checkpoint,
            env=hub_env,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run().returncode == 0
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": ', '"num_hidden_layers": 1'))
    assert run().returncode == 1


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("config.json", True),
        ("generation_config.json", True),
        ("unet/diffusion_pytorch_model.safetensors", True),
        ("model.safetensors.index.json", True),
        ("pytorch_model.bin", True),
        ("README.md", False),
        ("train.py", False),
    ],
)
def test_the_hook_runs_where_an_audit_may_say_something_new(name, due):
    assert (re.search(HOOK["files"], name) is not None) == due


def blocks(document, language):
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", ["publishing.md", "ci.md"])
def test_what_the_documents_say_to_run_runs(document, hub, hub_env, checkpoint):
    hub.add("your-name/my-model", healthy(0))
    (checkpoint.parent / "my-model").symlink_to(checkpoint)
    for script in blocks(document, "bash"):
        run = subprocess.run(  # noqa: S603 - the document's own
            ["/bin/bash", "-e", "-o", "pipefail", "-c", script],
            cwd=checkpoint.parent,
            env=hub_env | {"PATH": f"{Path(AUDIT).parent}:{hub_env['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert "says why" not in run.stdout


def test_the_workflow_and_the_hook_of_the_document_are_those_of_this_repository():
    workflow, hooks = map(yaml.safe_load, blocks("ci.md", "yaml"))
    (used,) = [one for one in workflow["jobs"]["audit"]["steps"] if "auditor" in one["uses"]]
    assert used["with"].keys() <= ACTION["inputs"].keys()
    assert hooks["repos"][0]["hooks"] == [{"id": HOOK["id"]}]
    table = re.findall(r"^\| `([\w-]+)` \|", (DOCS / "ci.md").read_text(), re.MULTILINE)
    assert table == list(ACTION["inputs"])

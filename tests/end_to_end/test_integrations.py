"""What other programs run of this repository: a step of a workflow, and a hook before a commit."""

import random
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt
from rewrite_documents import DOCS
from support.programs import ROOT
from support.running import AUDIT
from support.sweep_models import healthy

import auditor

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


def step(folder, hub_env, *, name="Audit", program=Path(AUDIT).parent, **inputs):
    """Run a step of the action as a runner does: its inputs in variables, bash -e.

    `program` is the folder, or the folders with a colon between them, of the programs.
    """
    [last] = [one for one in ACTION["runs"]["steps"] if one.get("name") == name]
    given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in last.get("env", {}).items()
    }
    summary = folder / "summary.md"
    summary.touch()
    outputs = {"GITHUB_OUTPUT": str(folder / "outputs")}
    env = hub_env | variables | {"GITHUB_STEP_SUMMARY": str(summary), **outputs}
    env["PATH"] = f"{program}:{env['PATH']}"
    run = subprocess.run(  # noqa: S603 - our own action
        ["/bin/bash", "-e", "-c", last["run"]],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return run, summary.read_text()


def commands_and_text(log):
    """Split a log as the runner does: the commands that it obeys, and the lines that it shows.

    A command begins a line with `::`, or stands in it as `##[...]`. While commands are stopped,
    the token is the only one.
    """
    obeyed, text, token = [], [], None
    for line in log.splitlines():
        new, old = re.match(r"\s*::([^ :]+)[^:]*::(.*)", line), re.search(r"##\[(\w+)[^]]*\]", line)
        command = new[1] if new else old[1] if old else None
        if command is None or token not in {None, command}:
            text.append(line)
            continue
        obeyed.append(command)
        token = new[2] if new and command == "stop-commands" else None
    return obeyed, text


def shown_in_summary(summary):
    """Return the text of a summary, which is one block of code and nothing else."""
    (block,) = MarkdownIt("commonmark", {"html": True}).parse(summary)
    assert block.type == "code_block"
    return block.content


@pytest.mark.usefixtures("checkpoint")
def test_the_action_prints_the_report_and_uploads_the_tables(tmp_path, hub_env):
    run, summary = step(tmp_path, hub_env, models="model", reports="tables")
    assert (run.returncode, run.stderr) == (0, "")
    (stop, token, notice), text = commands_and_text(run.stdout)
    assert (stop, len(token), notice) == ("stop-commands", 32, "notice")
    assert text
    assert summary == (tmp_path / "tables" / "report.md").read_text()
    assert (tmp_path / "tables" / "modules.csv").exists()


def outputs_of(folder):
    return dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())


def test_the_outputs_of_the_action_are_the_verdict_the_causes_and_the_report(
    checkpoint, tmp_path, hub_env
):
    step(tmp_path, hub_env, models="model", reports="tables")
    assert outputs_of(tmp_path) == {"verdict": "clean", "causes": "", "report": "tables/report.md"}
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": ', '"num_hidden_layers": 1'))
    (tmp_path / "outputs").unlink()
    _, summary = step(tmp_path, hub_env, models="model")
    said = outputs_of(tmp_path)
    assert (said["verdict"], said["causes"]) == ("findings", "config-field")
    assert summary.endswith(Path(said["report"]).read_text())
    assert said.keys() == ACTION["outputs"].keys()


def test_a_report_that_was_checked_out_is_no_command(checkpoint, tmp_path, hub_env):
    planted = tmp_path / "tables"
    planted.mkdir()
    (planted / "report.github").write_text("::error::planted\n")
    run, _ = step(tmp_path, hub_env, models="absent/folder/of/many", reports="tables")
    assert "planted" not in run.stdout
    assert checkpoint.is_dir()


HOSTILE_LINES = (
    "::set-output name=a::b",
    "  ::error file=a::b",
    "::stop-commands::pause-logging",
    "::stop-commands::::",
    "x ##[add-path]/tmp",
    "```",
    "</pre></details><script>alert(1)</script>",
    "@octocat",
)


def test_no_line_that_the_program_prints_is_a_command_to_the_runner(tmp_path, hub_env):
    program = tmp_path / "bin" / "audit"
    program.parent.mkdir()
    printed = "\n".join(f"echo '{line}'; echo '{line}' >&2" for line in HOSTILE_LINES)
    program.write_text(f"#!/bin/bash\n{printed}\nexit 1\n")
    program.chmod(0o755)
    tokens = set()
    for _ in range(2):
        run, summary = step(tmp_path, hub_env, program=program.parent, models="model")
        assert (run.returncode, run.stderr) == (1, "")
        (stop, token), text = commands_and_text(run.stdout)
        assert stop == "stop-commands"
        assert sorted(text) == sorted([*HOSTILE_LINES, *HOSTILE_LINES])
        tokens.add(token)
    assert len(tokens) == 2
    shown = [line for line in shown_in_summary(summary).splitlines() if line]
    assert shown == [*HOSTILE_LINES, *HOSTILE_LINES]


def test_commands_of_the_workflow_go_on_after_an_audit_that_is_stopped(tmp_path, hub_env):
    program = tmp_path / "bin" / "audit"
    program.parent.mkdir()
    program.write_text("#!/bin/bash\nkill $PPID\n")
    program.chmod(0o755)
    run, _ = step(tmp_path, hub_env, program=program.parent, models="model")
    (stop, token), _ = commands_and_text(run.stdout)
    assert (stop, len(token)) == ("stop-commands", 32)


def test_the_action_ends_as_the_audit_does(checkpoint, tmp_path, hub_env):
    (checkpoint / "model.safetensors").write_bytes(b"no weights")
    failed, _ = step(tmp_path, hub_env, models="model")
    assert failed.returncode == 1
    *_, annotation, verdict = failed.stdout.splitlines()
    assert annotation.startswith("::error file=model/model.safetensors,title=audit model::")
    assert verdict.startswith("::notice title=audit model::ERROR: ")
    run, _ = step(tmp_path, hub_env, models="model", options="--fail-on never")
    assert run.returncode == 0
    assert step(tmp_path, hub_env, models="absent/folder/of/many")[0].returncode == 2


@pytest.mark.usefixtures("checkpoint")
def test_nothing_that_a_workflow_gives_the_action_is_run(tmp_path, hub_env):
    for hostile in ("$(touch ran)", "`touch ran`", "; touch ran", "model && touch ran", "* --help"):
        step(tmp_path, hub_env, models=hostile, options=hostile, reports=hostile)
        step(tmp_path, hub_env, models=hostile, token=hostile)
        step(tmp_path, hub_env, name="Comment", models=hostile, options=hostile, comment=hostile)
    assert not (tmp_path / "ran").exists()


# It answers as GitHub does: with the last comment, if one begins with the marker.
GH = """#!/bin/bash
case "$*" in
  *--paginate*) head -c 20 comment | grep -q "^<!-- hf-audit" && echo 17 || true ;;
  *) echo "$@" >> calls; file="${@: -1}"; cp "${file#body=@}" comment ;;
esac
"""


def test_the_action_comments_once_and_replaces_its_comment(checkpoint, tmp_path, hub_env):
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    (tmp_path / "comment").write_text("")
    env = hub_env | {"PATH": f"{gh.parent}:{hub_env['PATH']}", "GITHUB_REPOSITORY": "o/r"}
    texts = []
    for fault in (False, True):
        if fault:
            (checkpoint / "model.safetensors").write_bytes(b"no weights")
        run, _ = step(tmp_path, env, name="Comment", models="model", comment="5")
        assert (run.returncode, run.stderr) == (0, "")
        texts.append((tmp_path / "comment").read_text())
    assert ["**OK**" in text for text in texts] == [True, False]
    assert all(text.startswith("<!-- hf-audit report -->\n### ") for text in texts)
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert "repos/o/r/issues/5/comments" in first
    assert "--method PATCH repos/o/r/issues/comments/17" in second
    refused, _ = step(tmp_path, env, name="Comment", models="model", comment="5/../6")
    assert refused.returncode == 2


# A shim that stands for a program: it notes which tokens it was given, and runs the program.
SHIM = """#!/bin/bash
export PATH=${PATH#*:}
echo "${0##*/}${HF_TOKEN:+ HF_TOKEN}${GH_TOKEN:+ GH_TOKEN}" >> "$SEEN"
exec "${0##*/}" "$@"
"""
USED = (
    *("audit", "cat", "cp", "dirname", "find", "gh", "mkdir", "mktemp", "od"),
    *("python", "sed", "tail", "tee", "tr"),
)


def test_a_token_is_in_the_environment_of_the_command_that_needs_it(checkpoint, tmp_path, hub_env):
    assert checkpoint.is_dir()
    shims, others = tmp_path / "shims", tmp_path / "bin"
    for folder in (shims, others):
        folder.mkdir()
    for name in USED:
        (shims / name).write_text(SHIM)
        (shims / name).chmod(0o755)
    (others / "gh").write_text(GH)
    (others / "gh").chmod(0o755)
    (tmp_path / "comment").write_text("")
    program = f"{shims}:{others}:{Path(AUDIT).parent}"
    env = hub_env | {"SEEN": str(tmp_path / "seen"), "GITHUB_REPOSITORY": "o/r"}
    given = {"models": "model", "token": "hf_of_the_hub", "reports": "tables"}
    for name in ("Audit", "Comment"):
        run, _ = step(tmp_path, env, name=name, program=program, comment="5", **given)
        assert run.returncode == 0, run.stdout
    seen = set((tmp_path / "seen").read_text().splitlines())
    assert {"audit HF_TOKEN", "gh GH_TOKEN", "python", "tee"} <= seen
    assert {line for line in seen if "TOKEN" in line} == {"audit HF_TOKEN", "gh GH_TOKEN"}


PLANTED = (
    *("auditor/__init__.py", "auditor/cli/__init__.py", "pip/__init__.py", "pip/__main__.py"),
    *("pip.py", "typing.py", "re.py", "json.py", "os.py", "site.py", "sitecustomize.py"),
    *("usercustomize.py", "encodings/__init__.py", "typer.py", "rich/__init__.py", "msgspec.py"),
    *("huggingface_hub/__init__.py", "pyreqwest/__init__.py", "yaml.py", "hatchling.py"),
)


@pytest.mark.parametrize("seed", range(2))
def test_no_module_that_was_checked_out_is_run(seed, checkpoint, tmp_path, hub_env):
    assert checkpoint.is_dir()
    draw = random.Random(seed)  # noqa: S311 - a test's own draw
    for name in draw.sample(PLANTED, 8) if seed else PLANTED:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = []\n")
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    (tmp_path / "comment").write_text("")
    program = f"{gh.parent}:{Path(AUDIT).parent}"
    env = hub_env | {"GITHUB_ACTION_PATH": str(tmp_path / "absent"), "GITHUB_REPOSITORY": "o/r"}
    installed, _ = step(tmp_path, env, name="Install", program=program)
    assert "absent" in installed.stderr  # pip itself has run
    for name in ("Audit", "Comment"):
        run, _ = step(tmp_path, env, name=name, program=program, models="model", comment="5")
        assert run.returncode == 0, run.stdout
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("link", "reports"),
    [
        ("tables", "tables"),
        ("tables", "./tables//"),
        ("tables", "{here}/tables"),
        ("a/tables", "a/tables"),
        ("tables/report.md", "tables"),
        ("tables/more/report.json", "tables/more"),
    ],
)
def test_reports_are_not_written_through_a_link_that_was_checked_out(
    link, reports, checkpoint, tmp_path, hub_env
):
    assert checkpoint.is_dir()
    folder, outside = tmp_path / "work", tmp_path / "outside"
    folder.mkdir()
    checkpoint.rename(folder / "model")
    outside.mkdir()
    target = outside if "." not in link else outside / "precious"
    if target != outside:
        target.write_text("as it was")
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / link).symlink_to(target)
    run, summary = step(folder, hub_env, models="model", reports=reports.format(here=folder))
    is_written = not (folder / link).is_symlink() or "report.json" in link
    assert {path.read_text() for path in outside.iterdir()} <= {"as it was"}
    assert is_written or (run.returncode == 2 and "a link leads out of it" in run.stdout)
    assert "model" in summary
    assert not outputs_of(folder)["report"].startswith("tables") or is_written


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


def test_the_hook_runs_on_files_that_can_change_an_audit():
    read = ("config.json", "unet/diffusion_pytorch_model.safetensors", "pytorch_model.bin")
    assert all(re.search(HOOK["files"], name) for name in read)
    assert not any(re.search(HOOK["files"], name) for name in ("README.md", "train.py"))


def blocks(document, language):
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)


@pytest.mark.parametrize("document", ["publishing.md", "ci.md"])
def test_the_commands_of_the_documents_run(document, hub, hub_env, checkpoint):
    if document == "ci.md":
        hub.add("your-name/my-model", healthy(0))
    hub.let_write("hf_write", "your-name")
    hub_env |= {"HF_TOKEN": "hf_write", "HF_HUB_DISABLE_XET": "1"}
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
    (used,) = [one for one in workflow["jobs"]["audit"]["steps"] if "hf-audit" in one["uses"]]
    assert used["with"].keys() <= ACTION["inputs"].keys()
    assert hooks["repos"][0]["hooks"] == [{"id": HOOK["id"]}]
    table = re.findall(r"^\| `([\w-]+)` \|", (DOCS / "ci.md").read_text(), re.MULTILINE)
    assert table == list(ACTION["inputs"])


def test_the_release_workflow_builds_by_make_and_publishes_only_if_told(tmp_path):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    runs = {step.get("name"): step["run"] for step in jobs["build"]["steps"] if "run" in step}
    assert runs["Build and check"] == "make dist"
    assert re.search(r"^dist: ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert jobs["publish"]["if"] == "vars.PUBLISH == 'true'"
    assert workflow["permissions"] == {"contents": "read"}
    for tag, code in ((f"v{auditor.__version__}", 0), ("v0", 1)):
        done = subprocess.run(  # noqa: S603 - our own workflow
            ["/bin/bash", "-e", "-c", runs["Compare the tag with the version"]],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "GITHUB_REF_NAME": tag, "HOME": str(tmp_path)},
            check=False,
        )
        assert done.returncode == code

"""What people type, and what is nearly right: each ends with one line that helps, or just works."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.bad_input.making import whole
from support.running import run

ENV = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
BUNDLED = ("bert-base-chinese", "--source", "bundled")


def test_a_slip_is_met_with_what_was_meant(subtests, tmp_path):
    for args, said in [
        (("chek", "m"), "'chek' is not a command (did you mean check?)"),
        ((*BUNDLED, "--sorce", "hub"), "--sorce (did you mean --source?); audit check --help"),
        ((*BUNDLED, "--source", "bundeld"), "(did you mean bundled?)"),
        ((*BUNDLED, "--ignore", "mising"), "no such kind (did you mean missing?)"),
        ((*BUNDLED, "--format", "jsn"), "(did you mean json?)"),
        ((*BUNDLED, "--as", "BertForMaskdLM"), "(did you mean BertForMaskedLM?)"),
        (("memory", *BUNDLED, "--dtype", "flot16"), "(did you mean float16?)"),
    ]:
        with subtests.test(args=args, said=said):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            done = run(*args, env=ENV, cwd=place)
            assert (done.returncode, done.stdout) == (2, "")
            [line] = done.stderr.splitlines()
            assert said in line


def test_a_folder_of_a_name_like_a_command_is_audited(tmp_path):
    shutil.copytree(whole(tmp_path / "m"), tmp_path / "chek")
    done = run("chek", env=ENV, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_type_that_is_nearly_one_is_met_with_what_was_meant(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "lama"}')
    done = run("explain", str(tmp_path), env={**ENV, "PYTHONPATH": str(_without_torch(tmp_path))})
    assert done.returncode == 3
    assert "'lama' (did you mean llama?)" in done.stderr


def _without_torch(tmp_path):
    """A folder whose torch cannot be found, so that closed forms alone answer."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(
        "import importlib.util as u; f = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else f(name, *a)\n"
    )
    return tmp_path / "path"


def test_a_dtype_is_accepted_in_any_spelling(subtests):
    for spelt, shown, bits in [
        ("fp16", "F16", 16),
        ("torch.bfloat16", "BF16", 16),
        ("nf4", "4-bit", 4),
    ]:
        with subtests.test(spelt=spelt, shown=shown, bits=bits):
            done = run("memory", *BUNDLED, "--dtype", spelt, env=ENV)
            row = [shown, f"{bits / 8:g}", f"{102_290_312 * bits // 8:,}"]
            assert row in [line.split()[:3] for line in done.stdout.splitlines()]


def test_python_m_auditor_is_audit(tmp_path):
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "auditor", *BUNDLED],
        env=ENV,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == run(*BUNDLED, env=ENV).stdout


def test_completion_is_installed_where_the_shell_looks(tmp_path):
    env = {**ENV, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run("--install-completion", "bash", env=env)
    assert done.returncode == 0, done.stderr
    assert "_AUDIT_COMPLETE" in (tmp_path / ".bash_completions" / "audit.sh").read_text()


def test_a_shell_that_completes_gets_commands():
    words = {"_AUDIT_COMPLETE": "complete_bash", "COMP_WORDS": "audit ex", "COMP_CWORD": "1"}
    assert run(env={**ENV, **words}).stdout.split() == ["explain", "explain-finding"]


def test_packages_and_hidden_folders_do_not_change_the_verdict_and_are_named(tmp_path):
    folder = whole(tmp_path / "m")
    for inside in (".hidden", "node_modules/a", "env/lib", "env/bin"):
        (folder / inside).mkdir(parents=True)
        (folder / inside / "model.safetensors").write_bytes(b"\0" * 100)
    (folder / "env" / "pyvenv.cfg").write_text("")
    done = run(str(folder), "--format", "json", env=ENV)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "clean")
    [others] = [one for one in report["findings"] if one["kind"] == "other-weights"]
    assert others["names"] == [".hidden/model.safetensors", "env/lib/model.safetensors"]
    named = [line for line in report["unchecked"] if "not looked into" in line]
    assert [line.partition(":")[0] for line in named] == ["'node_modules'", "'env/bin'"]


def test_weights_may_be_read_by_a_config_that_lies_elsewhere(tmp_path):
    folder = whole(tmp_path / "m")
    config = folder / "config.json"
    config.rename(tmp_path / "of-it.json")
    args = (str(folder / "model.safetensors"), "--format", "json", "--config")
    found = json.loads(run(*args, str(tmp_path / "of-it.json"), env=ENV).stdout)
    assert (found["verdict"], found["residual"]) == ("clean", 0)
    assert found["notes"][0].startswith("the config is that of '")


def test_a_dumb_terminal_gets_no_escape_codes(tmp_path):
    script = shutil.which("script")
    if script is None:
        pytest.skip("needs script(1), which makes a terminal")
    command = " ".join([sys.executable, "-m", "auditor", *BUNDLED])
    done = subprocess.run(  # noqa: S603 - our own command
        [script, "-qec", command, "/dev/null"],
        env={**ENV, "TERM": "dumb"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "BertForMaskedLM" in done.stdout
    assert "\x1b" not in done.stdout

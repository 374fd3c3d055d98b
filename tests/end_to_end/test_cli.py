"""The command in a process of its own, against the Hub on loopback."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from support.hub import Hub, Sparse
from support.running import AUDIT, run, run_installed
from support.sharding import on_disk, sharded
from support.sweep_models import healthy

import auditor.formats
from auditor.checkpoint.selecting import CONFIG, WEIGHTS
from auditor.checkpoint.snapshot import Snapshot
from auditor.cli.app import COMMANDS
from auditor.cli.console import FailOn
from auditor.downloader.fetching import fetch
from auditor.findings import Severity
from auditor.findings.ignore import KINDS
from auditor.formats.registry import FORMATS

CHINESE = "google-bert/bert-base-chinese"
TOKEN = "hf_" + "t" * 34


def publish(hub: Hub, model: str, snapshot: Snapshot, **options) -> str:
    """Put a checkpoint on the Hub whose headers are the snapshot's and whose weights are zeros."""
    files: dict[str, object] = {"README.md": b"hello"}
    if snapshot.config is not None:
        files[snapshot.config.name] = snapshot.config.content
    for head in snapshot.headers:
        files[head.name] = Sparse(head.prefix, head.size)
    return hub.add(model, files, **options)


@pytest.fixture
def chinese(hub: Hub) -> str:
    snapshot = fetch("bert-base-chinese", source="bundled")
    return publish(hub, CHINESE, snapshot, aliases=("bert-base-chinese",))


def test_the_first_command_of_the_readme_is_clean_and_costs_three_requests(
    hub: Hub, hub_env, chinese: str
) -> None:
    hub.grant(TOKEN)
    env = hub_env | {"HF_TOKEN": TOKEN}
    done = run_installed("bert-base-chinese", "--format", "json", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    jsonschema.validate(report, _schema())
    assert (report["model"], report["commit"], report["source"]) == (CHINESE, chinese, "hub")
    assert report["observed"]["by_dtype"] == {"F32": 102_882_442}
    assert (report["observed"]["tensors"], report["expected"]["parameters"]) == (206, 102_290_312)
    assert (report["verdict"], report["residual"]) == ("clean", 0)
    answered = [record for record in hub.log if CHINESE in record.path]  # not by the old name
    api = [record for record in answered if record.path.startswith("/api/")]
    resolvers = [record for record in answered if "/resolve/" in record.path]
    assert len(api) == 1
    assert len(resolvers) == 2
    assert report["fetched"]["requests"] == len(hub.log)
    assert report["fetched"]["bytes"] <= 65_536
    assert not [r for r in hub.log if r.origin == "storage" and r.authorization]
    assert [r for r in hub.log if r.origin == "hub" and r.authorization]


@pytest.mark.usefixtures("chinese")
def test_vv_prints_a_line_for_each_request_and_no_secret(hub: Hub, hub_env) -> None:
    hub.grant(TOKEN)
    done = run(CHINESE, "-vv", "--format", "json", env=hub_env | {"HF_TOKEN": TOKEN})
    lines = [line for line in done.stderr.splitlines() if line.startswith("audit: GET http://")]
    assert len(lines) == len(hub.log) == json.loads(done.stdout)["fetched"]["requests"]
    assert {record.path.partition("?")[0] in " ".join(lines) for record in hub.log} == {True}
    assert any("bytes=0-40959 206," in line and "model.safetensors" in line for line in lines)
    assert any("the listing" in line for line in lines)
    assert all("?" not in line and TOKEN not in line for line in lines)
    done = run(CHINESE, "-v", "--format", "json", env=hub_env)
    assert "GET" not in done.stderr


def _schema() -> dict:
    folder = Path(auditor.formats.__file__).parent
    return json.loads((folder / "report.schema.json").read_text())


@pytest.mark.usefixtures("chinese")
def test_csv_goes_to_a_folder_of_tables_and_the_table_is_still_printed(
    hub_env, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    done = run("bert-base-chinese", "--format", "csv", "-o", str(folder), env=hub_env)
    assert done.returncode == 0
    assert "\nbert.encoder " in done.stdout
    tables = {
        path.name: list(csv.DictReader(path.read_text().splitlines())) for path in folder.iterdir()
    }
    names = {"models", "modules", "findings", "diagnosis", "tensors"}
    assert set(tables) == {f"{name}.csv" for name in names}
    assert sum(int(row["parameters"] or 0) for row in tables["tensors.csv"]) == 102_882_442
    (model,) = tables["models.csv"]
    assert (model["parameters"], model["expected"]) == ("102882442", "102290312")
    explained = sum(int(row["explains"]) for row in tables["findings.csv"])
    assert explained == int(model["difference"])
    parameters = [int(row["parameters"]) for row in tables["tensors.csv"] if row["file"]]
    assert (len(parameters), sum(parameters)) == (206, 102_882_442)


def test_what_could_not_be_audited_again_is_not_recorded(hub_env, tmp_path: Path) -> None:
    """Each of the three is as long as it may be; together they are too long for a snapshot."""
    folder, file = tmp_path / "model", tmp_path / "s.json"
    folder.mkdir()
    texts = {"config.json": 16, "quantize_config.json": 16, "model.safetensors.index.json": 32}
    for name, mib in texts.items():
        (folder / name).write_bytes(b" " * (mib * 2**20))
    done = run("snapshot", str(folder), "-o", str(file), env=hub_env)
    assert (done.returncode, done.stdout, file.exists()) == (3, "", False)
    said = (
        f"audit: {folder}: too-large: no snapshot is written: 's.json' is not a snapshot that can"
    )
    assert done.stderr.startswith(said)
    assert "torch copies have 67,108,864 bytes, expected at most 50,331,648" in done.stderr


@pytest.mark.usefixtures("chinese")
def test_the_same_audit_prints_the_same_bytes_but_for_the_seconds(hub_env) -> None:
    first, second = (
        json.loads(run("bert-base-chinese", "--format", "json", env=hub_env).stdout)
        for _ in range(2)
    )
    for report in (first, second):
        report["fetched"].pop("seconds")
    assert json.dumps(first) == json.dumps(second)


def test_without_a_network_it_exits_3_and_names_the_options(hub: Hub, hub_env) -> None:
    hub.__exit__(None, None, None)
    done = run("bert-base-chinese", env=hub_env)
    assert done.returncode == 3
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    for option in ("--source cache", "--source bundled", "--source auto"):
        assert option in last


def test_source_auto_falls_back_to_the_package_and_reports_it(hub_env) -> None:
    env = hub_env | {"HF_HUB_OFFLINE": "1"}
    done = run("bert-base-chinese", "--source", "auto", "--format", "jsonl", env=env)
    assert done.returncode == 0
    assert json.loads(done.stdout)["source"] == "bundled"
    assert "package" in done.stderr or "bundled" in done.stderr


COMMAND_LINE = {"typer", "annotated_doc", "shellingham", "msgspec", "typing_extensions"}


def test_a_help_fits_a_screen_and_has_an_example(subtests):
    for command in ["", *COMMANDS]:
        with subtests.test(command=command):
            shown = run(
                *filter(None, [command]), "--help", env={**os.environ, "COLUMNS": "80"}
            ).stdout
            assert "--help" in shown or not command
            assert "\N{HORIZONTAL ELLIPSIS}" not in shown
            assert len(shown.splitlines()) <= (25 if command else 42)
            assert max(map(len, shown.splitlines())) < 80
            if command:
                assert f"\nExample: {COMMANDS[command].example}\n" in shown


def test_an_option_that_the_help_only_names_is_explained_by_help_all():
    wide = {**os.environ, "COLUMNS": "220"}
    short, full = (run("check", option, env=wide).stdout for option in ("--help", "--help-all"))
    options = set(re.findall(r"--[a-z-]+", short)) - {"--help-all"}
    assert options == set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", full, re.MULTILINE))
    assert "needs torch, transformers." in " ".join(full.split())
    assert {*FORMATS, *FailOn} <= set(re.findall(r"[a-z]+", short))


def test_kinds_of_findings_are_listed_by_severity_and_then_causes():
    lines = run("explain-finding").stdout.splitlines()
    headings = [line.partition(",")[0] for line in lines if line and line[0] != " "]
    assert headings == [*Severity, "causes"]
    listed = {line.split()[0] for line in lines if re.match("  [a-z]", line)}
    assert {*KINDS} <= listed


HUB = {"huggingface_hub", "pyreqwest"}


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        (("--help",), COMMAND_LINE),
        (("check", "--help"), COMMAND_LINE),
        (("org/m", "--source", "bundled"), COMMAND_LINE),
        (("bert-base-chinese", "--source", "bundled"), COMMAND_LINE),
        (("org/m",), COMMAND_LINE | HUB),
        (("org/shards",), COMMAND_LINE | HUB),
    ],
    ids=["help", "help of check", "bundled, unknown", "bundled", "of the Hub", "in shards"],
)
def test_the_first_second_loads_these_packages_and_no_others(args, allowed, hub, hub_env, tmp_path):
    files = healthy(1)
    hub.add("org/m", files)
    (tmp_path / WEIGHTS).write_bytes(files[WEIGHTS])
    parts = sharded(tmp_path / "shards", on_disk(tmp_path), files[CONFIG])
    hub.add("org/shards", {path.name: path.read_bytes() for path in parts.iterdir()})
    modules = loaded(args, hub_env)
    found = {name.partition(".")[0] for name in modules}
    ours = {"auditor", "__main__", "_distutils_hack"}  # the last is of setuptools, wherever that is
    assert found - sys.stdlib_module_names - ours <= allowed
    slow = {"asyncio", "email.message", "http.client", "importlib.metadata", "ssl", "zipfile"}
    assert modules & slow == set()


def test_a_command_loads_no_other(hub_env) -> None:
    others = {"auditor.cli.check", "auditor.cli.report", "auditor.cli.sweep"}
    assert loaded(("architectures",), hub_env) & others == set()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux has them")
def test_an_audit_of_the_hub_takes_no_huge_pages(hub, hub_env):
    hub.add("org/m", healthy(1))
    state = at_its_end("*open('/proc/self/status')", ("org/m",), hub_env)
    assert "THP_enabled: 0" in " ".join(state.split())


def loaded(args: tuple[str, ...], env: dict[str, str]) -> set[str]:
    """The modules that a run of `audit` has loaded when it ends."""
    return set(at_its_end("*sys.modules", args, env).splitlines()[-1].split())


def at_its_end(shown: str, args: tuple[str, ...], env: dict[str, str]) -> str:
    """What a run of `audit` says on standard error, where it prints what is `shown` as it ends."""
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print({shown}, file=sys.stderr))\n"
        "from auditor.cli import main\n"
        f"sys.argv = ['audit', *{args!r}]\n"
        "main()\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    return done.stderr


def test_fail_on_decides_which_findings_exit_with_1(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    snapshot = fetch("bert-base-cased", source="bundled")
    config = json.loads(snapshot.config.content) | {"torch_dtype": "float16"}
    path.write_text(json.dumps(config))
    weights = tmp_path / "model.safetensors"
    with weights.open("wb") as file:
        file.write(snapshot.headers[0].prefix)
        file.truncate(snapshot.headers[0].size)
    codes = {
        option: run(str(tmp_path), "--fail-on", option).returncode
        for option in ("error", "warning", "never")
    }
    assert codes == {"error": 0, "warning": 1, "never": 0}
    assert run(str(tmp_path), "--ignore", "wrong-dtype").returncode == 0


def test_a_report_that_cannot_be_written_leaves_the_old_one_intact(tmp_path: Path) -> None:
    old = tmp_path / "report.json"
    old.write_text("old")
    command = f"ulimit -f 0; exec {AUDIT} bert-base-cased --source bundled -q -o {old}"
    limited = ["bash", "-c", command]
    done = subprocess.run(  # noqa: S603 - our own command
        limited, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode not in {0, 1}
    assert old.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert "Traceback" not in done.stderr

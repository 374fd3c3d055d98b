"""Every command and every format, over names and values that some reader would act upon.

What a checkpoint holds is text in every output: no terminal obeys it, no log of a workflow takes a
line of it for a command, no page takes it for markup, no spreadsheet for a formula.
"""

import os
import shutil

import pytest
import typer
from support.bad_input.making import WEIGHTS
from support.examples import one_in
from support.forking import of_start
from support.hostile_checkpoints import FOLDER_NAME, HOSTILE_NAMES, hostile_folders
from support.output_readers import COMMAND, READERS, assert_harmless_text, names_in_json
from support.running import run

import auditor
from auditor.cli.app import COMMANDS, function_of
from auditor.cli.parameters import command_of, parameters_of
from auditor.formats.registry import FORMATS
from auditor.formats.tables import TABLE_FORMATS

ONE_FORMAT = ("terminal",)
# The formats of each command; a command or a format that is missing here fails a test below.
FORMATS_OF = {
    "check": tuple(FORMATS),
    "doctor": ONE_FORMAT,
    "snapshot": ONE_FORMAT,
    "symptoms": ONE_FORMAT,
    "explain": tuple(TABLE_FORMATS),
    "explain-finding": ONE_FORMAT,
    "memory": ("terminal", "json"),
    "architectures": ONE_FORMAT,
    "claim": ("terminal", "json"),
    "diff": tuple(TABLE_FORMATS),
    "fix": ("terminal", "json"),
    "push": ONE_FORMAT,
    "comment": ONE_FORMAT,
    "attest": ONE_FORMAT,
    "verify": ONE_FORMAT,
    "sweep": ONE_FORMAT,
    "report": ONE_FORMAT,
    "accept": ONE_FORMAT,
}
# Those of `check` one by one: they read all folders.
RUNS = [("check", (form,)) for form in FORMATS] + [
    (command, forms) for command, forms in FORMATS_OF.items() if command != "check"
]
MORE_OPTIONS = {
    ("check", "terminal"): [("--tensors", "-v"), ("--ignore", "unexpected:*")],
    ("check", "csv"): [("--tensors",)],
    ("diff", "terminal"): [("--values",)],
    ("diff", "markdown"): [("--values",)],
    ("explain", "terminal"): [("--latex",), ("--symbolic",)],
    ("fix", "terminal"): [("--apply",)],
    ("push", "terminal"): [("--dry-run", "--fail-on", "never"), ("--token", FOLDER_NAME)],
    ("comment", "terminal"): [("--pr", "1")],
    **{
        ("explain", form): [("--tensors",), ("--kinds", "--classes", "--keys")]
        for form in TABLE_FORMATS
        if form != "terminal"
    },
}
COMPARED = (
    ("tensors", "tuned"),
    ("tensors", "config"),
    ("config", "tensors"),
    ("prefix", "config"),
    ("tensors", "prefix"),
    ("adapter", "pickle"),
    ("gguf", "type"),
)

_SIGNED = [f"--{one}={FOLDER_NAME}" for one in ("kind", "by", "reason", "until", "name")]


def argument_lists(command, form, paths):
    """The arguments of each run of a command, over folders of hostile names and without any."""
    every = tuple(paths.values())
    some = [(paths[kind],) for kind in ("tensors", "config", "index", "type", "prefix")]
    one_document = form in {"cyclonedx", "html", "svg", "badge", "sarif"}
    return {
        "check": [*((one,) for one in one_in(2, every)), (FOLDER_NAME,)]
        if one_document
        else [every, (FOLDER_NAME, f"{FOLDER_NAME}@{FOLDER_NAME}")],
        "doctor": some,
        "snapshot": [(paths["tensors"], FOLDER_NAME)],
        "explain": some,
        "explain-finding": [("missing",), (FOLDER_NAME,)],
        "symptoms": [("MISSING",), (FOLDER_NAME,)],
        "memory": [every],
        "architectures": [()],
        "claim": [(paths[one], "110M", "5*D", FOLDER_NAME) for one in ("tensors", "type", "gguf")],
        "diff": [(paths[one], paths.get(other, "")) for one, other in COMPARED],
        "fix": some,
        "push": [*((one, "org/name") for (one,) in some), (FOLDER_NAME, FOLDER_NAME)],
        "comment": [("org/name",), (FOLDER_NAME,)],
        "attest": some,
        "verify": [(FOLDER_NAME, FOLDER_NAME), (paths["tensors"],)],
        "sweep": [(FOLDER_NAME,)],
        "report": [(FOLDER_NAME,)],
        "accept": [(FOLDER_NAME, FOLDER_NAME, *_SIGNED)],
    }[command]


@pytest.fixture(scope="module", name="folders")
def hostile_folders_of_this_module(tmp_path_factory):
    return hostile_folders(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module", name="env")
def environment_without_network(tmp_path_factory):
    home = str(tmp_path_factory.mktemp("home"))
    start = of_start(os.environ)  # as the session's server has them: each run is forked
    return {**start, "HOME": home, "HF_HOME": home, "HF_HUB_OFFLINE": "1"}


def test_the_table_of_this_test_has_every_command_and_its_formats():
    for command in COMMANDS:
        forms = [one for one in parameters_of(function_of(command)) if one.name == "form"]
        assert bool(forms) == (FORMATS_OF[command] != ONE_FORMAT), command
        assert all(one.choices in {(), FORMATS_OF[command]} for one in forms), command


@pytest.mark.parametrize(("command", "forms"), RUNS)
def test_no_name_is_more_than_text_in_any_output(command, forms, folders, env, tmp_path):
    for folder in folders.values():
        shutil.copytree(folder, tmp_path / folder.name)
    paths = {kind: folder.name for kind, folder in folders.items()}
    if command == "diff":
        paths["tuned"] = tuned(tmp_path / paths["tensors"]).name
    runs = [
        (form, more, arguments)
        for form in forms
        for plain in [argument_lists(command, form, paths)]
        for more, some in [
            ((), plain),
            *((one, plain[:2]) for one in MORE_OPTIONS.get((command, form), ())),
        ]
        for arguments in some
    ]
    for form, more, arguments in runs:
        given = () if FORMATS_OF[command] == ONE_FORMAT else ("--format", form)
        output = ("-o", f"{FOLDER_NAME}.json") if command in {"snapshot", "attest"} else ()
        done = run(command, *given, *more, *output, "--", *arguments, env=env, cwd=tmp_path)
        assert_harmless_text(done.stderr)
        assert "crashed" not in done.stderr
        assert all(line.startswith("audit: ") for line in done.stderr.splitlines())
        READERS["latex" if r"\begin{align*}" in done.stdout else form](done.stdout)


CHANGED = 4000  # bytes: the numbers of tensors that have hostile names


def tuned(folder):
    """A copy of a folder of zeros, in which the last tensors have other numbers."""
    copy = shutil.copytree(folder, folder.with_name(f"{folder.name} tuned"))
    weights = copy / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-CHANGED] + b"\x3c" * CHANGED)
    return copy


def test_json_has_the_names_as_they_are(folders, env):
    done = run("check", "--format", "json", str(folders["tensors"]), env=env)
    assert set(HOSTILE_NAMES) <= names_in_json(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_value_of_an_option_is_more_than_text(command, folders, env, tmp_path):
    folder = shutil.copytree(folders["prefix"], tmp_path / "model")
    function = click_command(command)
    options = [one for one in function.params if one.param_type_name == "option"]
    models = [folder.name] if command not in {"architectures", "explain-finding", "sweep"} else []
    models *= 2 if command in {"diff", "push"} else 1
    for option in one_in(2, (one for one in options if not one.is_flag)):  # one function reads them
        given = (option.opts[0], FOLDER_NAME)
        done = run(command, *given, "--", *models, env=env, cwd=tmp_path)
        assert_harmless_text(done.stderr)
        assert "crashed" not in done.stderr
        assert_harmless_text(done.stdout)


def click_command(name):
    """The command as its library sees it, with all of its options."""
    app = typer.Typer()
    app.command(name)(command_of(function_of(name)))
    return typer.main.get_command(app)


def test_the_objects_of_the_library_are_shown_as_one_harmless_line(folders):
    for folder in folders.values():
        assert repr(auditor.audit(str(folder))).isprintable()
    compared = auditor.diff(str(folders["tensors"]), str(folders["config"]))
    assert repr(compared).isprintable()
    assert not COMMAND.search(repr(compared))


ON_A_HUB = ("tensors", "config", "adapter", "pickle", "gguf", "type", "prefix")


def test_no_name_is_more_than_text_in_the_reports_of_a_night(folders, hub, hub_env, tmp_path):
    for kind in ON_A_HUB:
        hub.add(f"org/{kind}", {one.name: one.read_bytes() for one in folders[kind].iterdir()})
    ids = "".join(f"org/{kind}\n" for kind in (*ON_A_HUB, FOLDER_NAME))
    swept = run("sweep", "-", "--store", "s.sqlite", env=hub_env, stdin=ids, cwd=tmp_path)
    options = ("--night", swept.stderr.split("night ")[1][:10], "--sarif", "r.sarif", "-o", "out")
    reported = run("report", "s.sqlite", *options, env=hub_env, cwd=tmp_path)
    for done in (swept, reported):
        assert (done.returncode in {1, 2, 3}, done.stdout) == (True, ""), done.stderr
        assert_harmless_text(done.stderr)
        assert "crashed" not in done.stderr
    paths = [one for one in (tmp_path / "out").rglob("*") if one.is_file()]
    assert {one.stem for one in paths} >= {"index", "models", "findings", "changes", "summary"}
    assert sum(one.parent.name == "models" for one in paths) >= len(ON_A_HUB)
    for path in (*paths, tmp_path / "r.sarif"):
        READERS[path.suffix.removeprefix(".")](path.read_text("utf-8"))


@pytest.mark.parametrize("form", ["terminal", "json"])
def test_no_line_of_standard_input_is_more_than_text(form, env, tmp_path):
    lines = "".join(f"{name}\n" for name in HOSTILE_NAMES)
    for command in ("check", "memory"):
        done = run(command, "--format", form, "-", env=env, stdin=lines, cwd=tmp_path)
        assert done.returncode in {2, 3}
        assert_harmless_text(done.stderr)
        READERS[form](done.stdout)

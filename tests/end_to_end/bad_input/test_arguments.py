"""Arguments, standard streams and output paths that cannot be used."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, WEIGHTS, assert_ended, whole
from support.bad_input.running import CLEAN, UNAUDITED, USAGE, environment
from support.forking import AUDIT

LINES = "--format=json"


def ids(*pairs: tuple[str, str]) -> list:
    return [pytest.param(given, says, id=f"{given[:30]!a} {len(given)}") for given, says in pairs]


@pytest.mark.parametrize(
    ("model", "says"),
    ids(
        ("", "^audit: : bad-request: '' is neither a path"),
        ("a/b/c", r"an id has one '/' at most \(namespace/name\), this one has 2"),
        ("https://github.com/google/bert", "'github.com' is another site"),
        ("x" * 100_000, "a part has 96 characters at most, this one has 100000"),
        ("bert\x1b[31m\n\u202e", r"'\\x1b' is not a letter"),
        ("bert@\x07", r"a revision cannot contain '\\x07'"),
    ),
)
def test_an_id_that_cannot_be_is_a_usage_error(model, says, audit):
    ran = audit(model, LINES)
    assert_ended(ran, USAGE, says)
    assert ran.outcome["reason"] == "bad-request"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(args, says, id=" ".join(ascii(arg[:30]) for arg in args))
        for args, says in (
            (("--as", "NoSuch", "m"), "no closed form is known for 'NoSuch'; audit architectures"),
            (("--as", "", "m"), "no closed form is known for ''"),
            (("--as", "\x1b[31mBert\nModel", "m"), r"known for '\\x1b\[31mBert\\nModel'"),
            (
                ("--ignore", "nosuch", "m"),
                "--ignore 'nosuch': no such kind; audit explain-finding lists the kinds",
            ),
            (("--depth", "deep", "m"), "invalid value for '--depth'"),
            (("--depth", "9" * 5000, "m"), "invalid value for '--depth'"),
            (("--format", "yaml", "m"), "invalid value for '--format'.*'json', 'markdown'"),
            (("--format", "\x1b[31m", "m"), r"invalid value for '--format'.*\\x1b"),
            (("--fail-on", "info", "m"), "invalid value for '--fail-on'.*'warning', 'never'"),
            (("--source", "s3", "m"), "invalid value for '--source'.*'bundled'"),
            (("--bogus", "m"), "no such option: --bogus; audit check --help lists"),
            (("check",), "missing argument 'MODEL'"),
            (("snapshot", "m"), "missing option '--output'"),
            (("snapshot", "a", "b", "-o", "x"), "unexpected extra argument"),
            (("-o", "out", "m"), "-o is 'out', expected a name that ends in .txt"),
            (("-o", "\x1b[31m\n", "m"), r"-o is '\\x1b\[31m\\n', expected a name"),
        )
    ],
)
def test_an_option_that_cannot_be_is_a_usage_error(args, says, audit):
    ran = audit(*args)
    assert_ended(ran, USAGE, says)
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1


def test_no_argument_at_all_shows_the_help(audit):
    ran = audit()
    assert (ran.code, ran.stderr) == (USAGE, "")
    assert "Usage: audit" in ran.stdout


def test_every_line_of_stdin_is_answered_and_the_worst_code_wins(audit, tmp_path):
    good, bad, empty = whole(tmp_path / "good"), whole(tmp_path / "bad"), tmp_path / "empty"
    (bad / WEIGHTS).write_bytes(b"")
    empty.mkdir()
    lines = [str(good), "", "  ", "a/b/c", str(bad), "\x1b[31m", str(empty), f" {good}\r"]
    ran = audit("-", LINES, stdin="\n".join(lines).encode() + b"\n\xff\xfe\n" + bytes(9))
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    ends = [outcome["reason"] or outcome["verdict"] for outcome in outcomes]
    bad_request = "bad-request"
    expected = ["clean", bad_request, "findings", bad_request, "empty-repo", "clean"]
    assert ends == [*expected, bad_request, bad_request]
    assert ran.stderr.count("\n") == 5
    assert ran.code == UNAUDITED


def test_a_line_of_twenty_megabytes_takes_no_memory_and_the_next_line_is_audited(audit, tmp_path):
    good = whole(tmp_path / "good")
    alone = audit(str(good), LINES)
    ran = audit("-", LINES, stdin=bytes(20_000_000) + f"\n{good}\n".encode())
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [outcome["verdict"] for outcome in outcomes] == ["unaudited", "clean"]
    assert ran.code == USAGE
    [line] = ran.stderr.splitlines()
    assert line.startswith("audit: standard input: bad-request: line 1 has more than 4,096")
    assert ran.peak < alone.peak + 16 * 1024


def test_a_model_in_a_pipe_that_stays_open_is_audited_at_once(tmp_path):
    good, env = whole(tmp_path / "good"), environment(tmp_path / "home")
    command = [AUDIT, "-", LINES]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=tmp_path, **pipes) as running:  # noqa: S603
        for _ in range(2):
            print(good, file=running.stdin, flush=True)
            assert json.loads(running.stdout.readline())["verdict"] == "clean"
        running.stdin.close()
        assert running.wait() == CLEAN


@pytest.mark.parametrize("command", ["check", "memory"])
def test_a_stdin_that_cannot_be_read_is_a_usage_error(command, audit):
    ran = audit(command, "-", redirection="0>/dev/null")
    assert_ended(ran, USAGE, "^audit: standard input: bad-request: it cannot be read: ")


def test_an_empty_stdin_is_no_model_and_no_success(audit):
    assert_ended(audit("-", LINES), USAGE, "no model")


@pytest.mark.parametrize("form", ["json", "csv", "terminal"])
def test_a_full_disk_behind_stdout_is_an_error(form, audit, tmp_path):
    folder = whole(tmp_path / "input")
    with Path("/dev/full").open("wb") as full:
        ran = audit(str(folder), "--format", form, stdout=full)
    assert_ended(
        ran, UNAUDITED, "^audit: cannot write to standard output: No space left on device$"
    )


@pytest.mark.parametrize("args", [["--version"], ["check", "--help"], []])
def test_a_full_disk_behind_the_help_is_an_error(args, audit):
    with Path("/dev/full").open("wb") as full:
        ran = audit(*args, stdout=full)
    assert_ended(
        ran, UNAUDITED, "^audit: cannot write to standard output: No space left on device$"
    )


@pytest.mark.parametrize("args", [["--format", "json"], ["--format", "csv"], []])
def test_a_reader_who_has_gone_is_no_success_and_no_noise(args, audit, tmp_path):
    folder = whole(tmp_path / "input")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        ran = audit(str(folder), *args, stdout=gone)
    assert (ran.code, ran.stderr) == (UNAUDITED, "")


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_a_standard_stream_that_is_closed_changes_no_verdict_for_the_better(
    redirection, audit, tmp_path
):
    folder = whole(tmp_path / "input")
    (folder / CONFIG).unlink()
    ran = audit("-" if "<" in redirection else str(folder), LINES, redirection=redirection)
    assert ran.code == (USAGE if "<" in redirection else UNAUDITED)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file/out.json", "^audit: cannot write '.*out.json': Not a directory$"),
        ("folder", "^audit: cannot write .*folder': Is a directory$"),
        ("full", "^audit: cannot write .*full': No space left on device$"),
        ("x" * 300, "^audit: cannot write .*: File name too long$"),
        ("loop/out.json", "^audit: cannot write .*: Not a directory$"),
    ],
    ids=["below a file", "a folder", "a full disk", "a long name", "a loop"],
)
@pytest.mark.parametrize("command", ["check", "snapshot"])
def test_an_output_that_cannot_be_written_is_an_error(command, name, says, audit, tmp_path):
    folder, places = whole(tmp_path / "input"), tmp_path / "output"
    places.mkdir()
    (places / "file").write_bytes(b"kept")
    (places / "folder").mkdir()
    (places / "full").symlink_to("/dev/full")
    (places / "loop").symlink_to("loop")
    options = ["--format", "json"] if command == "check" else []
    ran = audit(command, str(folder), *options, "-q", "-o", str(places / name))
    assert_ended(ran, UNAUDITED, says)


@pytest.mark.parametrize(
    "variables",
    [
        {"COLUMNS": "1"},
        {"COLUMNS": "99999999999"},
        {"TERM": "nosuch"},
        {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        {"LC_ALL": "nosuch.UTF-8"},
        {"HF_HOME": "/dev/null"},
    ],
    ids=lambda variables: " ".join(f"{k}={v}" for k, v in variables.items()),
)
def test_an_odd_environment_changes_no_verdict(variables, audit, tmp_path):
    folder = whole(tmp_path / "modèle-日本")
    ran = audit(str(folder), variables=variables)
    assert (ran.code, ran.stderr) == (CLEAN, "")
    assert re.search("^OK  All 39 tensors", ran.stdout, re.MULTILINE)

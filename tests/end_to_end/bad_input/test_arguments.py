"""Arguments, standard streams and output paths that cannot be used."""

import json
import os
import re
import subprocess
from pathlib import Path

from support.bad_input.making import CONFIG, WEIGHTS, assert_ended, whole
from support.bad_input.running import CLEAN, UNAUDITED, USAGE, environment
from support.forking import AUDIT

LINES = "--format=json"


IDS = (
    ("", "^audit: : bad-request: '' is neither a path"),
    ("a/b/c", r"an id has one '/' at most \(namespace/name\), this one has 2"),
    ("https://github.com/google/bert", "'github.com' is another site"),
    ("x" * 100_000, "a part has 96 characters at most, this one has 100000"),
    ("bert\x1b[31m\n\u202e", r"'\\x1b' is not a letter"),
    ("bert@\x07", r"a revision cannot contain '\\x07'"),
)
OPTIONS = (
    (("--as", "NoSuch", "m"), "no closed form is known for 'NoSuch'; audit architectures"),
    (("--as", "\x1b[31mBert\nModel", "m"), r"known for '\\x1b\[31mBert\\nModel'"),
    (
        ("--ignore", "nosuch", "m"),
        "--ignore 'nosuch': no such kind; audit explain-finding lists the kinds",
    ),
    (("--depth", "9" * 5000, "m"), "invalid value for '--depth'"),
    (("--format", "\x1b[31m", "m"), r"invalid value for '--format'.*\\x1b"),
    (("--fail-on", "info", "m"), "invalid value for '--fail-on'.*'warning', 'never'"),
    (("--source", "s3", "m"), "invalid value for '--source'.*'bundled'"),
    (("--bogus", "m"), "no such option: --bogus; audit check --help lists"),
    (("check",), "missing argument 'MODEL'"),
    (("snapshot", "m"), "missing option '--output'"),
    (("snapshot", "a", "b", "-o", "x"), "unexpected extra argument"),
    (("-o", "\x1b[31m\n", "m"), r"-o is '\\x1b\[31m\\n', expected a name that ends in .txt"),
)


def test_an_id_or_an_option_that_cannot_be_is_a_usage_error(audit, subtests):
    for model, says in IDS:
        with subtests.test(model=model[:30]):
            ran = audit(model, LINES)
            assert_ended(ran, USAGE, says)
            assert ran.outcome["reason"] == "bad-request"
    for args, says in OPTIONS:
        with subtests.test(args=[arg[:30] for arg in args]):
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


def test_a_stdin_that_cannot_be_read_is_a_usage_error(audit):
    for command in ("check", "memory"):
        ran = audit(command, "-", redirection="0>/dev/null")
        assert_ended(ran, USAGE, "^audit: standard input: bad-request: it cannot be read: ")


def test_an_empty_stdin_is_no_model_and_no_success(audit):
    assert_ended(audit("-", LINES), USAGE, "no model")


def test_a_full_disk_behind_stdout_is_an_error(audit, tmp_path, subtests):
    folder = str(whole(tmp_path / "input"))
    for args in ([folder, LINES], [folder, "--format=csv"], [folder], ["--version"], ["--help"]):
        with subtests.test(args=args[-1]), Path("/dev/full").open("wb") as full:
            ran = audit(*args, stdout=full)
            assert_ended(
                ran, UNAUDITED, "^audit: cannot write to standard output: No space left on device$"
            )


def test_a_reader_who_has_gone_is_no_success_and_no_noise(audit, tmp_path, subtests):
    folder = whole(tmp_path / "input")
    for args in ([LINES], ["--format=csv"], []):
        reading, writing = os.pipe()
        os.close(reading)
        with subtests.test(args=args), os.fdopen(writing, "wb") as gone:
            ran = audit(str(folder), *args, stdout=gone)
            assert (ran.code, ran.stderr) == (UNAUDITED, "")


def test_a_standard_stream_that_is_closed_changes_no_verdict_for_the_better(audit, tmp_path):
    folder = whole(tmp_path / "input")
    (folder / CONFIG).unlink()
    for redirection in ("<&-", ">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-"):
        ran = audit("-" if "<" in redirection else str(folder), LINES, redirection=redirection)
        assert ran.code == (USAGE if "<" in redirection else UNAUDITED), redirection


OUTPUTS = (
    ("file/out.json", "^audit: cannot write '.*out.json': Not a directory$"),
    ("folder", "^audit: cannot write .*folder': Is a directory$"),
    ("full", "^audit: cannot write .*full': No space left on device$"),
    ("x" * 300, "^audit: cannot write .*: File name too long$"),
    ("loop/out.json", "^audit: cannot write .*: Not a directory$"),
)


def test_an_output_that_cannot_be_written_is_an_error(audit, tmp_path, subtests):
    folder, places = whole(tmp_path / "input"), tmp_path / "output"
    places.mkdir()
    (places / "file").write_bytes(b"kept")
    (places / "folder").mkdir()
    (places / "full").symlink_to("/dev/full")
    (places / "loop").symlink_to("loop")
    for command, options in (("check", [LINES]), ("snapshot", [])):
        for name, says in OUTPUTS:
            with subtests.test(command=command, name=name[:30]):
                ran = audit(command, str(folder), *options, "-q", "-o", str(places / name))
                assert_ended(ran, UNAUDITED, says)


ODD = (
    {"COLUMNS": "1"},
    {"COLUMNS": "99999999999"},
    {"TERM": "nosuch"},
    {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    {"LC_ALL": "nosuch.UTF-8"},
    {"HF_HOME": "/dev/null"},
)


def test_an_odd_environment_changes_no_verdict(audit, tmp_path, subtests):
    folder = whole(tmp_path / "modèle-日本")
    for variables in ODD:
        with subtests.test(variables=variables):
            ran = audit(str(folder), variables=variables)
            assert (ran.code, ran.stderr) == (CLEAN, "")
            assert re.search("^OK  All 39 tensors", ran.stdout, re.MULTILINE)

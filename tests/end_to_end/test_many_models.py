"""Several models in one command: a line as each audit ends, and a closing table."""

import re
import signal

import pytest
from support.hub import TooMany
from support.running import PATIENCE, run, started
from support.sweep_models import FAULTS, healthy

MODELS = ("acme/cut", "acme/nowhere", "acme/sound")
HINT = "-v prints the complete reports."


@pytest.fixture
def acme(hub):
    hub.add("acme/sound", healthy(0))
    hub.add("acme/cut", FAULTS["bad-size"](1))
    return hub


def lines_and_table(stdout):
    lines, table, hint = stdout.split("\n\n")
    assert hint == f"{HINT}\n"
    return [line.split()[:2] for line in lines.splitlines()], table.splitlines()


@pytest.mark.usefixtures("acme")
def test_each_model_is_a_line_in_the_order_given_and_a_row_with_the_worst_last(hub_env):
    done = run(*MODELS, env=hub_env | {"COLUMNS": "80"})
    lines, (heading, *rows) = lines_and_table(done.stdout)
    assert lines == [["ERROR", "acme/cut"], ["NOT", "AUDITED"], ["OK", "acme/sound"]]
    assert heading.split()[:3] == ["model", "verdict", "cause"]
    assert [row.split()[0] for row in rows if not row.startswith(" ")] == [
        "acme/sound",
        "acme/nowhere",
        "acme/cut",
    ]
    [said] = done.stderr.splitlines()
    assert said.startswith("audit: acme/nowhere: not-found: ")
    assert done.returncode == 3


@pytest.mark.usefixtures("acme")
def test_quiet_prints_the_table_alone(hub_env):
    whole, quiet = (run(*MODELS, *options, env=hub_env) for options in ((), ("--quiet",)))
    assert quiet.stdout.splitlines() == lines_and_table(whole.stdout)[1]
    assert quiet.stderr == whole.stderr
    assert quiet.returncode == whole.returncode


@pytest.mark.usefixtures("acme")
def test_an_option_for_reports_prints_the_report_of_each_model(hub_env):
    done = run("acme/sound", "acme/cut", "--depth", "1", env=hub_env)
    for model in ("acme/sound", "acme/cut"):
        title = rf"^{model} @ [0-9a-f]{{12}} . BertModel"
        assert re.search(title, done.stdout, re.MULTILINE)
    assert HINT not in done.stdout
    assert done.returncode == 1


@pytest.mark.usefixtures("acme")
def test_a_file_has_the_complete_reports_and_the_screen_the_lines(hub_env, tmp_path):
    name = "reports.json"
    printed = run(*MODELS, env=hub_env)
    done = run(*MODELS, "-o", str(tmp_path / name), env=hub_env)
    assert (done.stdout, done.returncode) == (printed.stdout, printed.returncode)
    text = (tmp_path / name).read_text("utf-8")
    assert all(model in text for model in MODELS)


@pytest.mark.usefixtures("acme")
def test_models_of_standard_input_are_lines_too_and_one_has_no_table(hub_env):
    given = run(*MODELS, env=hub_env)
    piped = run("-", stdin="\n".join(MODELS), env=hub_env)
    assert lines_and_table(piped.stdout) == lines_and_table(given.stdout)
    empty = run("-", MODELS[0], stdin="\n", env=hub_env)
    assert "standard input: bad-request: it has no model" in empty.stderr
    alone = run("-", stdin="acme/sound\n", env=hub_env)
    assert alone.stdout.startswith("OK ")
    assert alone.stdout.count("\n") == 1


def test_a_signal_leaves_the_lines_of_the_models_that_were_audited(acme, hub_env):
    acme.misbehave(fault=TooMany(reset=290), path="/api/models/acme/slow*")
    process = started("acme/cut", "acme/slow", "acme/sound", env=hub_env)
    assert process.stdout.readline().startswith("ERROR ")
    assert "; waiting 290 s" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert (stdout, stderr, process.returncode) == ("", "audit: interrupted\n", 130)

"""`audit comment` in a discussion of the tests' Hub: one comment, ours, and up to date."""

import pytest
from support.hub.intake import comment_event
from support.running import run
from support.sweep_models import FAULTS, healthy

from auditor.publishing.comment import MARKER, comment_text

MODEL, TOKEN = "org/my-model", "hf_write"


@pytest.fixture(name="env")
def an_environment_with_a_token(hub, hub_env):
    hub.let_write(TOKEN, "reviewer")
    return hub_env | {"HF_TOKEN": TOKEN}


def comment(env, *options, number=1):
    return run("comment", MODEL, "--pr", str(number), *options, env=env)


def comments(hub, number=1):
    events = hub.intake.discussions[MODEL][number].events
    return [(event["author"]["name"], event["data"]["latest"]["raw"]) for event in events]


def test_a_second_run_updates_the_comment_of_the_first(hub, env):
    hub.add(MODEL, healthy(0), refs={"refs/pr/1": FAULTS["missing"](0)})
    hub.intake.open_discussion(MODEL, is_pull_request=True)
    done = comment(env)
    [(author, text)] = comments(hub)
    assert (done.returncode, done.stdout, author) == (1, "", "reviewer")
    assert text.startswith(f"{MARKER}### ")
    assert "**ERROR**" in text
    assert text == MARKER + comment(env, "--dry-run").stdout
    hub.push(MODEL, healthy(0), revision="refs/pr/1")
    assert comment(env).returncode == 0
    [(_, text)] = comments(hub)
    assert "**OK**" in text


def test_a_dry_run_needs_no_token(hub, env):
    hub.add(MODEL, healthy(0), refs={"refs/pr/1": FAULTS["missing"](0)})
    hub.intake.open_discussion(MODEL, is_pull_request=True)
    anonymous = env | {"HF_TOKEN": ""}
    done = comment(anonymous, "--dry-run")
    assert (done.returncode, "**ERROR**" in done.stdout) == (1, True), done.stderr
    assert comment(anonymous).returncode == 3


def test_a_comment_of_somebody_else_stays_whatever_it_begins_with(hub, env):
    hub.add(MODEL, healthy(0))
    number = hub.intake.open_discussion(MODEL, is_pull_request=False)
    others = [("mallory", MARKER), ("reviewer", f"see: {MARKER}")]
    events = hub.intake.discussions[MODEL][number].events
    events += [comment_event(at, *one) for at, one in enumerate(others)]
    assert comment(env).returncode == comment(env).returncode == 0
    *before, (author, text) = comments(hub)
    assert (before, author) == (others, "reviewer")
    assert text.startswith(MARKER)


def test_a_comment_that_cannot_be_posted_ends_in_a_line(hub, env):
    hub.add(MODEL, healthy(0))
    hub.grant("hf_read")
    for changes in ({}, {"HF_TOKEN": ""}, {"HF_TOKEN": "hf_read"}):
        done = comment(env | changes, "--quiet", number=7)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


def test_a_long_report_is_cut_between_findings():
    section = "\n<details open><summary>x</summary>\n\n</details>\n"
    text = comment_text("### model\n" + section * 5000)
    assert len(text) < 65_536
    assert text.count("<details") == text.count("</details>") > 100
    assert "The rest is cut" in text
    assert comment_text(section) == MARKER + section

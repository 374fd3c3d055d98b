"""The command line of a sweep: what it takes, what it says, how it ends."""

import os
import re

import pytest
from support.hub import HtmlPage, WrongJson
from support.running import run
from support.sweep_models import FAULTS, healthy

from auditor.sweep.store.reading import Store


@pytest.fixture
def sweep(at_hub, tmp_path):
    """Run `audit sweep` in a folder of its own; return exit code, stdout and stderr."""
    del at_hub

    def command(*options, stdin=""):
        env = {**os.environ, "NO_COLOR": "1"}
        done = run("sweep", *options, env=env, stdin=stdin, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    return command


def test_the_worst_model_decides_how_it_ends(at_hub, sweep):
    at_hub.add("o/a", healthy(1))
    at_hub.add("o/b", FAULTS["unexpected"](2))
    at_hub.add("o/c", healthy(3), gated="auto")
    ids = "o/a\no/b\n"
    assert sweep("-", "--processes", "1", stdin=ids)[0] == 1
    assert sweep("-", "--fail-on", "error", stdin=ids)[0] == 0
    assert sweep("-", "--fail-on", "never", stdin=ids)[0] == 0
    assert sweep("-", "--night", "n2", stdin=f"{ids}no id/at all\n")[0] == 2
    assert sweep("-", "--night", "n3", "--processes", "1", "-q", stdin=f"{ids}o/c\n") == (3, "", "")


def test_an_author_that_is_not_utf_8_has_no_models(sweep):
    options = ("--author", "\udcff", "--night", "n 1", "--store", "a store")
    code, _, said = sweep(*options)
    selection = r"the selection 'author \udcff' has no model"
    assert (code, said) == (2, f"audit: {selection}; correct it, or repeat with --force if meant\n")
    code, _, said = sweep(*options, "--force")
    assert (code, said.splitlines()[-1]) == (0, "audit: next: audit report 'a store' --night 'n 1'")


MODELS = [f"o/m{number:02}" for number in range(20)]


@pytest.fixture
def listing(at_hub):
    """Let the Hub's list have the first N of twenty healthy models."""
    commits = {name: at_hub.add(name, healthy(1)) for name in MODELS}

    def first(count):
        at_hub.behave()
        entries = [{"id": name, "sha": commits[name], "siblings": []} for name in MODELS[:count]]
        at_hub.misbehave(path="/api/models", fault=WrongJson(value=entries))

    return first


def nights(folder):
    with Store.open(folder / "sweep.sqlite") as store:
        return [(row.night, store.count(row), bool(row.finished)) for row in store.nights()]


def test_a_selection_that_has_lost_models_ends_with_2_and_leaves_the_nights(
    listing, sweep, tmp_path
):
    author = ("--author", "o", "--fail-on", "never", "--night")
    listing(20)
    assert sweep(*author, "n1")[0] == 3  # the entries of this list have no files
    before = nights(tmp_path)
    for count, night in ((17, "n1"), (17, "n2"), (0, "n1"), (0, "n2")):
        listing(count)
        code, _, said = sweep(*author, night, "-q")
        assert (code, said.count("\n"), nights(tmp_path)) == (2, 1, before)
        assert "the selection 'author o' has " in said
        if count:
            assert "17 models, and had 20 in the night 'n1'; lost are 'o/m17', " in said
    listing(18)
    assert sweep(*author, "n2")[0] == 3
    listing(10)
    assert sweep(*author, "n3")[0] == 2
    assert sweep(*author, "n3", "--force")[0] == 3
    assert nights(tmp_path) == [*before, ("n2", 18, True), ("n3", 10, True)]
    assert sweep(*author, "n4")[0] == 3  # it has lost nothing since the last night


def test_a_list_of_ids_that_was_cut_ends_with_2(at_hub, sweep, tmp_path):
    for name in MODELS:
        at_hub.add(name, healthy(1))
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(MODELS))
    assert sweep("ids.txt", "--night", "n1")[0] == 0
    ids.write_text("\n".join(MODELS)[:50])
    for source, text in (("ids.txt", ""), ("-", ids.read_text())):
        code, _, said = sweep(source, "--night", "n2", stdin=text)
        assert (code, "and had 20 in the night 'n1'" in said) == (2, True)
    for source in ("ids.txt", "-"):
        ids.write_text("# none\n\n")
        assert sweep(source, "--night", "n2", "--force")[0] == 2
    assert nights(tmp_path) == [("n1", 20, True)]


def test_a_finished_night_is_replaced_by_another_selection_only_with_force(at_hub, sweep, tmp_path):
    at_hub.add("o/a", healthy(1))
    at_hub.add("p/b", healthy(1))
    assert sweep("--author", "o", "--night", "n1")[0] == 0
    code, _, said = sweep("--author", "p", "--night", "n1")
    assert code == 2
    assert re.search('the night \'n1\' is finished for .*"o".*, not for .*"p".*--force', said)
    assert nights(tmp_path) == [("n1", 1, True)]
    at_hub.misbehave(path="/api/models", fault=HtmlPage())
    assert sweep("--author", "p", "--night", "n1", "--force")[0] == 3
    at_hub.behave()
    with Store.open(tmp_path / "sweep.sqlite") as store:
        assert [one.model for one in store.results("n1")] == ["o/a"]
    assert sweep("--author", "p", "--night", "n1", "--force")[0] == 0
    with Store.open(tmp_path / "sweep.sqlite") as store:
        assert [one.model for one in store.results("n1")] == ["p/b"]


def test_an_empty_night_is_no_green_night(sweep, tmp_path):
    nobody = ("--author", "nobody")
    for options in ((), ("--plan",)):
        assert sweep(*nobody, *options)[0] == 2
    assert run("report", cwd=tmp_path).returncode == 2
    assert sweep(*nobody, "--night", "n1", "--force")[0] == 0
    report = run("report", "-q", cwd=tmp_path)
    assert report.returncode == 3
    assert report.stderr == "audit: the night 'n1' has no models: nothing was audited\n"


def test_a_sweep_toml_names_it_all(at_hub, sweep, tmp_path):
    at_hub.add("o/a", FAULTS["missing"](1))
    (tmp_path / "ids.txt").write_text("o/a\n")
    (tmp_path / "sweep.toml").write_text(
        '[[selection]]\nids = "ids.txt"\n[policy]\nprocesses = 1\nfail_on = "never"\n'
        '[output]\nstore = "kept/sweep.sqlite"\n'
    )
    assert sweep("sweep.toml")[0] == 0
    assert (tmp_path / "kept/sweep.sqlite").is_file()
    assert sweep("sweep.toml", "--fail-on", "error")[0] == 1


def test_a_sweep_toml_with_a_folder_for_reports_has_them_written(at_hub, sweep, tmp_path):
    at_hub.add("sweep/a", healthy(1))
    (tmp_path / "sweep.toml").write_text(
        '[[selection]]\nauthor = "sweep"\n[output]\nstore = "s.sqlite"\nreports = "nights"\n'
    )
    code, _, said = sweep("sweep.toml", "--night", "2026-11-21")
    assert code == 0
    assert "wrote" in said
    written = {path.name for path in (tmp_path / "nights" / "2026-11-21").iterdir()}
    assert {"models.csv", "findings.csv", "changes.csv", "summary.json", "index.html"} <= written


def test_dropped_nights_are_reported_before_the_next_command(at_hub, sweep, tmp_path):
    at_hub.add("o/a", healthy(1))
    (tmp_path / "sweep.toml").write_text('[[selection]]\nauthor = "o"\n[output]\nkeep = 3\n')
    said = [sweep("sweep.toml", "--night", f"n{number}")[2] for number in range(4)]
    assert ["dropped" in one for one in said] == [False, False, False, True]
    assert said[3].splitlines()[-2].endswith("; 1 night dropped")
    assert said[3].splitlines()[-1] == "audit: next: audit report sweep.sqlite --night n3"
    last = sweep("sweep.toml", "--keep", "1", "--night", "n4")[2].splitlines()[-2]
    assert last.endswith("; 3 nights dropped")


WRONG = {
    (): "no models are selected",
    ("-",): "standard input has no model",
    ("none.txt",): "'none.txt', a list of ids, cannot be read",
    ("none.toml",): "'none.toml' cannot be read",
    ("--top", "0"): "invalid value for '--top'",
    ("--author", "o", "--deadline", "nan"): "deadline",
    ("x.toml", "--author", "o"): "has its own selections; omit",
    ("--author", "o", "--night", "a/b"): "the night is 'a/b', expected a name that",
}


@pytest.mark.parametrize(("options", "message"), WRONG.items(), ids=map(" ".join, WRONG))
def test_wrong_arguments_are_reported_in_one_line(options, message, sweep):
    code, out, said = sweep(*options)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert message in said.lower()


@pytest.mark.parametrize("options", [(), ("--plan",)], ids=["sweep", "plan"])
@pytest.mark.parametrize("given", ["http://a:99999", "ftp://a"])
def test_an_invalid_endpoint_is_reported_in_one_line(given, options, sweep, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", given)
    code, out, said = sweep("--author", "o", *options)
    assert (code, out) == (2, "")
    assert re.fullmatch("audit: .*HF_ENDPOINT.*\n", said)

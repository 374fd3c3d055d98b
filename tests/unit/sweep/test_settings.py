"""A sweep.toml: what it can say, and one line for what it cannot."""

import pytest

from auditor.errors import UsageError
from auditor.sweep.settings import ids_in, ids_of, read_sweep_settings, selection_of

FULL = """
[[selection]]
author = "google"
library = "transformers"
filter = ["zh", "pytorch"]

[[selection]]
sort = "likes"
top = 500

[[selection]]
ids = "ours.txt"

[policy]
fail_on = "error"
max_requests = 900
deadline = 60.5

[output]
store = "nights/sweep.sqlite"
keep = 2
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "sweep.toml"
        path.write_text(text)
        (tmp_path / "ours.txt").write_text("a/b # ours\n\n# theirs\nc/d@v1\na/b\n")
        return path

    return write


def test_a_whole_file_says_selections_policy_and_output(file, tmp_path):
    settings = read_sweep_settings(file(FULL))
    google, liked, ours = settings.selections
    assert (google.author, google.filters) == ("google", ("zh", "pytorch", "transformers"))
    assert (liked.sort, liked.top) == ("likes", 500)
    assert ours.ids == ("a/b", "c/d@v1")
    assert (settings.policy.max_requests, settings.policy.deadline) == (900, 60.5)
    assert settings.fail_on == "error"
    assert settings.output.store == tmp_path / "nights/sweep.sqlite"
    assert settings.output.keep == 2
    assert read_sweep_settings(file("[[selection]]\ntop = 1\n")).output.keep is None


SELECTION = "[[selection]]\ntop = 1\n"
NUMBER = "expected a number from 1 on"
WRONG = {
    "": r"no \[\[selection\]\] says which models to sweep",
    "selection = 3": "no .*selection",
    "[[selection]]": "a selection that chooses nothing|chooses nothing would be the whole Hub",
    "[[selection]]\nautor = 'x'": "has no 'autor'; it has author, filter, ids",
    "[[selection]]\nauthor = 3": "selection.author: expected a string, found 3",
    "[[selection]]\ntop = 0": f"selection.top: {NUMBER}, found 0",
    "[[selection]]\ntop = true": f"selection.top: {NUMBER}, found true",
    "[[selection]]\nids = 'none.txt'": "'.*none.txt', a list of ids, cannot be read",
    "[[selection]]\nids = 'ours.txt'\nauthor = 'x'": "ids are taken as they are",
    "[policy\n": "is not TOML",
    "surprise = 1": "a sweep.toml has no 'surprise'; it has output, policy, selection",
    f"{SELECTION}[policy]\nprocesses = 0": "policy.processes: expected a number above 0, found 0",
    f"{SELECTION}[policy]\nat_once = 1.5": "policy.at_once: expected a whole number, found 1.5",
    f"{SELECTION}[policy]\nspeed = 1": "has no 'speed'",
    f"{SELECTION}[policy]\nfail_on = 'info'": "fail_on: expected error, warning or never, found",
    "policy = 3\n[[selection]]\ntop = 1": r"policy is 3, not a \[policy\] table",
    f"{SELECTION}[output]\nplace = 'x'": "has no 'place'",
    f"{SELECTION}[output]\nplace = 3": "has no 'place'; it has keep, reports, store",
    f"{SELECTION}[output]\nkeep = 0": f"output.keep: {NUMBER}, found 0",
    f"{SELECTION}[output]\nkeep = true": f"output.keep: {NUMBER}, found true",
    f"{SELECTION}[output]\nkeep = '2'": f"output.keep: {NUMBER}, found the string '2'",
    f"{SELECTION}[output]\nkeep = 1.5": f"output.keep: {NUMBER}, found 1.5",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_what_is_wrong_is_said_in_one_line_with_the_file(text, message, file):
    with pytest.raises(UsageError, match=message) as caught:
        read_sweep_settings(file(text))
    assert "\n" not in str(caught.value)
    assert ".t" in str(caught.value) or "ids are" in str(caught.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(UsageError, match=r"sweep.toml' cannot be read: No such file"):
        read_sweep_settings(tmp_path / "sweep.toml")


def test_ids_are_lines_without_blanks_and_comments_each_once():
    assert ids_of(["a/b\n", "  c/d  # why\n", "#\n", "\n", "a/b\n"]) == ("a/b", "c/d")


def test_a_list_without_ids_is_no_list(tmp_path):
    (tmp_path / "empty.txt").write_text("# none\n")
    with pytest.raises(UsageError, match=r"'.*empty.txt' holds no model"):
        ids_in(tmp_path / "empty.txt")


def test_the_top_models_are_those_most_downloaded_unless_said_otherwise():
    assert selection_of(top=5).sort == "downloads"
    assert selection_of(top=5, sort="likes").sort == "likes"
    assert selection_of() is None

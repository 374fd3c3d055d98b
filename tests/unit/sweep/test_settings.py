"""A sweep.toml: what it can say, and one line for what it cannot."""

import pytest

from auditor.errors import UsageError
from auditor.sweep.policy import Policy
from auditor.sweep.settings import Output, ids_in, ids_of, read_sweep_settings, selection_of

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
    assert settings.policy.fail_on == "error"
    assert settings.output.store == tmp_path / "nights/sweep.sqlite"
    assert settings.output.keep == 2
    small = read_sweep_settings(file("[[selection]]\nfilter = 'zh'\n[policy]\ndeadline = 60\n"))
    assert small.selections[0].filters == ("zh",)
    assert small.policy == Policy(deadline=60.0)
    assert small.output == Output()


SELECTION = "[[selection]]\ntop = 1\n"
NUMBER = "expected a whole number from 1 on"
OUTPUT = "'place' is not known; keys are store, reports, keep"
WRONG = {
    "": r": selection: expected a \[\[selection\]\] of the models to sweep, found nothing",
    "selection = 3": r": selection: expected a \[\[selection\]\] .*, found 3",
    "selection = [3]": "selection 1: expected a table, found 3",
    "selection = []": r": selection: expected a \[\[selection\]\] .*, found a list",
    "[[selection]]": "selection 1: .* chooses nothing would be the whole Hub: say sort",
    f"{SELECTION}[[selection]]\nautor = 'x'": "selection 2: 'autor' is not known; keys are auth",
    "[[selection]]\nauthor = 3": "selection 1: author: expected a string, found 3",
    "[[selection]]\nauthor = ''": "selection 1: author: expected a string, found the string ''",
    "[[selection]]\nfilter = ['x', 3]": "filter: expected a string or a list of them, found a list",
    "[[selection]]\ntop = 0": f"selection 1: top: {NUMBER}, found 0",
    "[[selection]]\ntop = true": f"selection 1: top: {NUMBER}, found true",
    "[[selection]]\nids = 'none.txt'": "'.*none.txt', a list of ids, cannot be read",
    "[[selection]]\nids = 3": "selection 1: ids: expected a path, found 3",
    "[[selection]]\nids = 'ours.txt'\nauthor = 'x'": "ids are taken as they are",
    "[policy\n": "is not TOML",
    "surprise = 1": "'surprise' is not known; keys are selection, policy, output",
    '"sur\\nprise" = 1': r"'sur\\nprise' is not known",
    f"{SELECTION}[policy]\nprocesses = 0": f"policy: processes: {NUMBER}, found 0",
    f"{SELECTION}[policy]\nat_once = 1.5": f"policy: at_once: {NUMBER}, found 1.5",
    f"{SELECTION}[policy]\nmax_requests = true": f"policy: max_requests: {NUMBER}, found true",
    f"{SELECTION}[policy]\ndeadline = 0": "policy: deadline: expected a number above 0, found 0",
    f"{SELECTION}[policy]\ndeadline = nan": "deadline: expected a number above 0, found nan",
    f"{SELECTION}[policy]\ncompanions = 1": "policy: companions: expected true or false, found 1",
    f"{SELECTION}[policy]\nspeed = 1": "policy: 'speed' is not known; keys are processes, ",
    f"{SELECTION}[policy]\nfail_on = 'info'": "fail_on: expected error, warning or never, found",
    "policy = 3\n[[selection]]\ntop = 1": "policy: expected a table, found 3",
    f"{SELECTION}[output]\nplace = 'x'": f"output: {OUTPUT}",
    f"{SELECTION}[output]\nplace = 3": f"output: {OUTPUT}",
    f"{SELECTION}[output]\nstore = 3": "output: store: expected a path, found 3",
    f"{SELECTION}[output]\nstore = ''": "output: store: expected a path, found the string ''",
    f"{SELECTION}[output]\nkeep = 0": f"output: keep: {NUMBER}, found 0",
    f"{SELECTION}[output]\nkeep = true": f"output: keep: {NUMBER}, found true",
    f"{SELECTION}[output]\nkeep = '2'": f"output: keep: {NUMBER}, found the string '2'",
    f"{SELECTION}[output]\nkeep = 1.5": f"output: keep: {NUMBER}, found 1.5",
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


def test_a_file_that_is_too_long_is_not_read_whole(file):
    with pytest.raises(UsageError, match=r"sweep.toml' has more than 1,048,576 bytes"):
        read_sweep_settings(file(f"#{'x' * 1024 * 1024}"))


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

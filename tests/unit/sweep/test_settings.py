"""A sweep.toml: what it can say, and one line for what it cannot."""

from io import StringIO
from itertools import count

import pytest

from auditor.errors import UsageError
from auditor.streams import LONGEST_LINE, ListLine, lines_of
from auditor.sweep import settings
from auditor.sweep.settings import (
    Output,
    Policy,
    SelectionTable,
    ids_of,
    read_sweep_settings,
    selection_of,
)

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


def test_a_full_settings_file_has_selections_policy_and_output(file, tmp_path):
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
NUMBER = "Expected `int` >= 1 - at "
WRONG = {
    "": r"has no \[\[selection\]\], expected one",
    "selection = [3]": r"Expected `object`, got `int` - at `\$.selection\[0\]`",
    "[[selection]]": r"has an empty \[\[selection\]\], which is the whole Hub; add sort",
    f"{SELECTION}[[selection]]\nautor = 'x'": r"`autor` - at `\$.selection\[1\]`; known are ids, ",
    "[[selection]]\nauthor = ''": r"Expected `str` of length >= 1 - at `\$.selection\[0\].author`",
    "[[selection]]\nfilter = ['x', 3]": r"`str`, got `int` - at `\$.selection\[0\].filter\[1\]`",
    "[[selection]]\ntop = 0": rf"{NUMBER}`\$.selection\[0\].top`",
    "[[selection]]\nids = 'none.txt'": "'.*none.txt', a list of ids, cannot be read",
    '[[selection]]\nids = "a\\u0000b"': r"Expected a path - at `\$.selection\[0\].ids`",
    "[[selection]]\nids = 'ours.txt'\nauthor = 'x'": "ids are combined with filters",
    "[policy\n": "is not TOML",
    '"sur\\nprise" = 1': r"unknown field `sur\\nprise`; known are selection, policy, output",
    '"x - at `$.policy.top.x" = 1': r"unknown field `x - at `\$.policy.top.x`; known are ",
    f"{'x' * 10_000} = 1": r"unknown field `xxx+.{1,3}x+`; known are selection",
    f"{SELECTION}[policy]\ndeadline = nan": r"Expected `float` > 0.0 - at `\$.policy.deadline`",
    f"{SELECTION}[policy]\nat_once = {10**30}": r"Expected `int` <= 10000 - at `\$.policy.at_once`",
    f"{SELECTION}[policy]\nfail_on = 'info'": r"error\|warning\|never.* - at `\$.policy.fail_on`",
    f"{SELECTION}[output]\nstore = ''": r"Expected a path - at `\$.output.store`",
    f"{SELECTION}[output]\nkeep = true": r"Expected `int.*`, got `bool` - at `\$.output.keep`",
}


def test_a_fault_is_reported_in_one_line_with_the_file(subtests, file):
    for text, message in WRONG.items():
        with subtests.test(text=text, message=message):
            with pytest.raises(UsageError, match=message) as caught:
                read_sweep_settings(file(text))
            assert "\n" not in str(caught.value)
            assert ".t" in str(caught.value) or "ids are" in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_file(file, tmp_path):
    (tmp_path / "marked.txt").write_text("\ufeffa/b\n")
    settings = read_sweep_settings(file("\ufeff[[selection]]\nids = 'marked.txt'\n"))
    assert settings.selections[0].ids == ("a/b",)


def test_a_file_that_is_too_long_is_not_read_completely(file):
    with pytest.raises(UsageError, match=r"sweep.toml' has more than 1,048,576 bytes"):
        read_sweep_settings(file(f"#{'x' * 1024 * 1024}"))


def test_a_list_with_a_line_that_is_too_long_is_refused():
    lines = lines_of(StringIO("a/b\n" + "x" * (LONGEST_LINE + 1)))
    with pytest.raises(UsageError, match=r"^the list: line 2 has more than 4,096 characters"):
        ids_of(lines, "the list")


def test_an_endless_list_is_refused_before_it_is_in_memory(monkeypatch):
    monkeypatch.setattr(settings, "_MOST_IDS", 1000)
    with pytest.raises(UsageError, match=r"^the list has more than 1,000 characters"):
        ids_of((ListLine(number, "a/b") for number in count(1)), "the list")


def test_the_top_models_are_the_most_downloaded_by_default():
    assert selection_of(SelectionTable(top=5)).sort == "downloads"
    assert selection_of(SelectionTable(top=5, sort="likes")).sort == "likes"

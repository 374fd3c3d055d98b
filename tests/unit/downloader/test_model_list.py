"""The list of models: its end, and its pages, held to what the json module reads of them."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.bounded.json_text import MAX_TEXT_VALUES
from auditor.downloader import model_list
from auditor.downloader.model_list import MAX_FILES, ListEntry, entries_in, pages
from auditor.errors import Reason, SourceError

WORDS = st.text("abcxyz", min_size=1, max_size=8)
IDS = st.builds("{}/{}".format, WORDS, WORDS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
MODELS = st.fixed_dictionaries({"id": IDS}, optional={"sha": VALUES, "siblings": VALUES})
PAGES = st.lists(MODELS | VALUES, max_size=8)


def read(content):
    return [entry for group in entries_in(content) for entry in group]


def named(page):
    """What is read of the models of a page."""
    models = [one for one in page if isinstance(one, dict) and one.get("id", "").count("/") == 1]
    return [ListEntry(one["id"], one.get("sha"), one.get("siblings")) for one in models]


@given(PAGES, st.booleans(), st.sampled_from([None, 1]))
def test_every_model_of_a_page_is_an_entry(page, plain, indent):
    content = json.dumps(page, ensure_ascii=plain, indent=indent).encode(errors="surrogatepass")
    assert [one for one in read(content) if one in named(page)] == named(page)


@given(PAGES.map(json.dumps), st.integers(0, 100))
def test_a_page_that_breaks_off_is_not_a_list(text, share):
    with pytest.raises(SourceError, match="is not a JSON list"):
        read(text.encode()[: len(text) * share // 101])


def test_an_invalid_list_is_reported(subtests):
    for text in ["", '{"a": [{"id": "o/n"}]}', "<html>"]:
        with subtests.test(text=text), pytest.raises(SourceError, match="is not a JSON list"):
            read(text.encode())


def model(number, files, more=""):
    siblings = ", ".join(f'{{"rfilename": "{n}.bin"}}' for n in range(files))
    return f'{{"id": "o/m{number}", "sha": "{"a" * 40}", "siblings": [{siblings}]{more}}}'


def page(*models):
    return f"[{', '.join(models)}]".encode()


@pytest.mark.slow
def test_a_model_with_too_many_files_is_reported_and_the_others_are_read(subtests):
    for files in [MAX_FILES + 1, 3 * MAX_TEXT_VALUES]:
        with subtests.test(files=files):
            before, crowded, after = read(page(model(1, 3), model(2, files), model(3, 3)))
            assert before.id == "o/m1"
            assert len(after.siblings) == 3
            assert (crowded.id, crowded.siblings) == ("o/m2", None)
            assert "expected at most 150,000" in crowded.excess


def test_a_model_that_is_too_deep_is_reported_and_the_others_are_read():
    deep = f', "x": {"[" * 500}{"]" * 500}'
    found = read(page(model(1, 1), model(2, 1, deep), model(3, 1)))
    excess = "is nested 501 levels deep, expected at most 128"
    assert found[1] == ListEntry("o/m2", excess=excess)
    assert [one.id for one in (found[0], found[2])] == ["o/m1", "o/m3"]


@pytest.mark.slow
def test_many_models_of_many_files_come_in_groups_of_bounded_memory():
    content = page(*(model(number, 20_000) for number in range(16)))
    tracemalloc.start()
    groups = sum(1 for _ in entries_in(content))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert groups == 8  # 640,000 values, 100,000 at a time
    assert most < 40e6  # json.loads takes 93 MB for it


def test_a_page_of_too_many_values_is_too_large(monkeypatch):
    monkeypatch.setattr(model_list, "_MOST_VALUES", 1000)
    with pytest.raises(SourceError, match="more than 1,000 values") as raised:
        read(page(*["1"] * (MAX_TEXT_VALUES + 1)))
    assert raised.value.reason is Reason.TOO_LARGE


def test_half_a_character_in_one_model_spoils_no_other(subtests):
    for files in [1, MAX_TEXT_VALUES]:
        with subtests.test(files=files):
            half = ', "x": "\\ud83d \\ud83d\\ude00"'  # a half alone, and a whole one
            found = read(page(model(1, 1), model(2, 1, half), model(3, 1), model(4, files)))
            assert [one.id for one in found[:3]] == ["o/m1", "o/m2", "o/m3"]


def test_a_model_that_is_not_utf8_spoils_no_other():
    content = page(model(1, 1), model(2, 1), model(3, 1)).replace(b"o/m2", b"o/m\xff")
    assert [one.id for one in read(content)] == ["o/m1", "o/m3"]


class Listed:
    """A session of a Hub whose pages are given, each with the next page's address."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def get(self, _address, _take, *, purpose):
        assert purpose
        ids, following = self.answers.pop(0)
        return json.dumps([{"id": one} for one in ids]).encode(), following


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(["o/a"], "/2"), (["o/b"], "/2")], "is circular"),
        ([(["o/a", "o/b"], "/2"), (["o/b"], "/3")], r"page 2 .*has no new model"),
        ([([], "/2")], r"page 1 .*has no new model"),
        ([([f"o/{n}"], f"/{n}") for n in range(4)], r"more than 3 pages; select fewer"),
    ],
)
def test_a_list_without_an_end_is_refused(answers, message, monkeypatch):
    monkeypatch.setattr(model_list, "MAX_PAGES", 3)
    session = Listed(*answers)
    with pytest.raises(SourceError, match=message):
        list(pages(lambda: session, []))


def test_a_list_is_read_to_its_end():
    session = Listed((["o/a"], "/2"), (["o/b", "o/a"], "/3"), (["o/a"], None))
    assert [[one.id for one in page] for page in pages(lambda: session, [])] == [
        ["o/a"],
        ["o/b", "o/a"],
        ["o/a"],
    ]

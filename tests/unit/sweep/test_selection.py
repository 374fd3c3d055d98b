"""Selections against a Hub on loopback: which models, at which commit, for how many requests."""

import re

import pytest
from support.hub import Header, ServerError, ShortBody, WrongJson

from auditor.errors import Reason, SourceError
from auditor.sweep.rate_limits import RateLimiter
from auditor.sweep.selection import Selector
from auditor.sweep.settings import ModelSelection, Policy

FILES = {"config.json": b"{}"}


@pytest.fixture
def selector(at_hub):
    del at_hub
    with Selector(Policy(), None, RateLimiter()) as made:
        yield made


def chosen(selector, selection):
    """(model, commit, requested) of what was found, and (model, reason) of what was not."""
    every = [one for page in selector.pages(selection) for one in page]
    found = [one[:3] for one in every if one.refusal is None]
    refused = [(one.model, one.refusal.summary.reason) for one in every if one.refusal]
    assert {one.commit_sha for one in every if one.refusal} <= {""}
    return found, refused


def names(selector, **selection):
    found, refused = chosen(selector, ModelSelection(**selection))
    assert not refused
    return [model for model, _, _ in found]


def test_a_page_of_the_list_has_commits_and_files_of_a_thousand_models(at_hub, selector):
    commits = {f"o/m{n:04}": at_hub.add(f"o/m{n:04}", FILES) for n in range(1500)}
    pages = list(selector.pages(ModelSelection(author="o")))
    assert [len(page) for page in pages] == [1000, 500]
    assert {one.model: one.commit_sha for page in pages for one in page} == commits
    assert pages[0][0].siblings == [{"rfilename": "config.json"}]
    assert len({record.query for record in at_hub.log}) == 2


def test_the_time_of_the_commit_is_the_hubs_and_a_revision_has_none(at_hub, selector):
    at_hub.add("o/a", FILES, refs={"v1": {"x": b"1"}})
    by_list, by_id, of_revision = (
        one.pushed
        for selection in ({"author": "o"}, {"ids": ("o/a",)}, {"ids": ("o/a@v1",)})
        for page in selector.pages(ModelSelection(**selection))
        for one in page
    )
    assert re.fullmatch("[0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}Z", by_list)
    assert (by_id, of_revision) == (by_list, None)


def test_models_are_chosen_as_the_list_api_chooses(at_hub, selector):
    at_hub.add("a/bert", FILES, tags=["transformers", "zh"], downloads=3)
    at_hub.add("a/gpt", FILES, tags=["transformers"], downloads=9)
    at_hub.add("b/bert", FILES, tags=["flair"], downloads=5)
    at_hub.add("b/secret", FILES, private=True)
    assert names(selector, author="a") == ["a/bert", "a/gpt"]
    assert names(selector, search="BERT") == ["a/bert", "b/bert"]
    assert names(selector, filters=("transformers", "zh")) == ["a/bert"]
    assert names(selector, sort="downloads") == ["a/gpt", "b/bert", "a/bert"]
    assert names(selector, sort="downloads", top=2) == ["a/gpt", "b/bert"]
    assert "limit=2" in at_hub.log[-1].query


def test_an_id_costs_one_request_for_its_newer_name_and_its_revision(at_hub, selector):
    new = at_hub.add("google-bert/bert", FILES, aliases=["bert"], refs={"v1": {"x": b"1"}})
    at_hub.reset_log()
    found, refused = chosen(selector, ModelSelection(ids=("bert",)))
    assert found == [("google-bert/bert", new, "bert")]
    found, _ = chosen(selector, ModelSelection(ids=("google-bert/bert@v1",)))
    assert found[0][1] != new
    assert not refused
    assert [record.status for record in at_hub.log] == [307, 200, 200]


def test_an_id_without_an_answer_of_the_hub_is_refused_by_itself(at_hub, selector):
    at_hub.add("o/here", FILES)
    at_hub.add("o/private", FILES, private=True)
    ids = ("o/here", "o/gone", "o/private", "o/here@nowhere", "no id/at all")
    found, refused = chosen(selector, ModelSelection(ids=ids))
    assert [model for model, _, _ in found] == ["o/here"]
    assert refused == [
        ("o/gone", Reason.NOT_FOUND),
        ("o/private", Reason.NOT_FOUND),
        ("o/here@nowhere", Reason.NO_REVISION),
        ("no id/at all", Reason.BAD_REQUEST),
    ]


def test_an_entry_without_a_commit_is_requested_by_itself(at_hub, selector):
    commit = at_hub.add("o/n", FILES)
    at_hub.misbehave(path="/api/models", fault=WrongJson(value=[{"id": "o/n"}]))
    assert chosen(selector, ModelSelection(author="o")) == ([("o/n", commit, "o/n")], [])


def test_an_entry_that_names_no_model_is_passed_over(subtests, at_hub, selector):
    for entry in [None, {"id": 3}, {"id": "../../etc"}]:
        with subtests.test(entry=entry):
            at_hub.clear()
            good = {"id": "o/n", "sha": "a" * 40, "siblings": []}
            at_hub.misbehave(path="/api/models", fault=WrongJson(value=[entry, good]))
            assert names(selector, author="o") == ["o/n"]


def test_a_page_that_fails_once_is_requested_again(subtests, at_hub, selector):
    for fault in [ServerError(), ShortBody(missing=3)]:
        with subtests.test(fault=fault):
            at_hub.clear()
            at_hub.add("o/n", FILES)
            at_hub.misbehave(path="/api/models", fault=fault, times=1)
            assert names(selector, author="o") == ["o/n"]


def test_a_list_that_goes_on_elsewhere_is_not_followed(subtests, at_hub, selector):
    for link, message in [
        ("<http://127.0.0.1:9/api/models>", "is 'http://127.0.0.1:9/.*expected one of the Hub"),
        ("<file:///etc/passwd>", "expected one of the Hub"),
        ("<{own}>", "is circular"),
    ]:
        with subtests.test(link=link, message=message):
            at_hub.clear()
            for number in range(3):
                at_hub.add(f"o/m{number}", FILES)
            query = "author=o&limit=1000&expand=sha&expand=siblings&expand=lastModified"
            value = link.replace("{own}", f"{at_hub.url}/api/models?{query}") + '; rel="next"'
            at_hub.misbehave(path="/api/models", fault=Linked(value=value))
            with pytest.raises(SourceError, match=message):
                chosen(selector, ModelSelection(author="o"))


UNREADABLE = ['<{next}>; rel="next', "<{next}; rel=next", '<{next}>; title="next']
READABLE = ["<{next}>;rel=next", '<{next}>; title="a"; REL="next"']


def test_a_link_to_the_next_page_that_cannot_be_read_is_not_the_end(subtests, at_hub, selector):
    for link in UNREADABLE:
        with subtests.test(link=link):
            at_hub.clear()
            at_hub.add("o/m", FILES)
            value = link.replace("{next}", f"{at_hub.url}/api/models?cursor=a")
            at_hub.misbehave(path="/api/models", fault=Linked(value=value))
            with pytest.raises(SourceError, match="the Link header of the list of models is"):
                chosen(selector, ModelSelection(author="o"))


def test_a_link_to_the_next_page_may_have_each_form_of_its_standard(subtests, at_hub, selector):
    for link in READABLE:
        with subtests.test(link=link):
            at_hub.clear()
            at_hub.add("o/m", FILES)
            at_hub.add("p/m", FILES)
            value = link.replace("{next}", f"{at_hub.url}/api/models?author=p")
            at_hub.misbehave(path="/api/models", fault=Linked(value=value), times=1)
            assert names(selector, author="o") == ["o/m", "p/m"]


class Linked(Header):
    """A Link header, where there was none."""

    def __init__(self, value):
        super().__init__(name="Link", value=value)

    def bites(self, request, answer):
        del request, answer
        return True


def test_a_selection_is_described_without_its_ids():
    selection = ModelSelection(ids=("a/b", "c/d"))
    assert selection.described["ids"].startswith("2 ids, ")
    assert ModelSelection(ids=("c/d", "a/b")).described != selection.described
    assert ModelSelection(author="o", top=3).described == {"author": "o", "top": 3}

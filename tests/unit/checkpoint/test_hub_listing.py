"""What the Hub's answer about a model says of its files, and of its size."""

import json

import pytest

from auditor.checkpoint.hub_listing import authors_in
from auditor.checkpoint.snapshot import RepoFile
from auditor.downloader.hub import parse_listing
from auditor.errors import Reason, SourceError

LISTED = {"id": "a/b", "sha": "a" * 40, "siblings": []}


def test_a_listing_of_another_shape_is_a_bad_response(subtests):
    for content, fault in [
        ("<!doctype html>", "is .* a Hub"),
        ([], "is .* a Hub"),
        ({}, "a/b has no key 'id'"),
        (LISTED | {"id": "a/b/c"}, "an id has one '/' at most"),
        (LISTED | {"sha": "main"}, "sha is the string 'main', expected 40 hex digits"),
        (LISTED | {"siblings": None}, "siblings is null, expected a list"),
        (LISTED | {"siblings": [{"rfilename": "../x"}]}, "'../x' leaves the repository"),
        (LISTED | {"siblings": [{"rfilename": "x", "size": -1}]}, "size is -1, expected"),
    ]:
        with subtests.test(content=content, fault=fault):
            text = content if isinstance(content, str) else json.dumps(content)
            with pytest.raises(SourceError, match=fault) as raised:
                parse_listing(text.encode(), "a/b")
            assert raised.value.reason is Reason.BAD_RESPONSE


def test_the_size_in_a_listing_is_read_if_it_is_a_number(subtests):
    for said, read in [
        ({"safetensors": {"parameters": {"F32": 7}, "total": 9}}, {"safetensors.total": "9"}),
        ({"safetensors": {"parameters": {"F32": 7, "I64": 1}}}, {"safetensors.parameters": "8"}),
        ({"safetensors": {"total": True}}, {}),
        ({"safetensors": {"total": 2**80}}, {}),
        ({"safetensors": [1], "cardData": "x"}, {}),
        (
            {"cardData": {"params": "7B", "size": 5, "license": "mit"}},
            {
                "cardData.params": "7B",
                "cardData.size": "5",
            },
        ),
        ({"cardData": {"params": ["7B"], "size": "x" * 99, "model_size": 1e9}}, {}),
    ]:
        with subtests.test(said=said, read=read):
            answer = {"id": "a/b", "sha": "a" * 40, "siblings": [], **said}
            listing = parse_listing(json.dumps(answer).encode(), "a/b")
            assert {one.name: one.text for one in listing.published} == read


def test_the_time_of_a_commit_is_read_if_it_is_a_utc_time(subtests):
    for said, time in [
        ("2026-11-25T14:02:11.000Z", "2026-11-25T14:02:11Z"),
        ("2026-11-25T14:02:11Z", "2026-11-25T14:02:11Z"),
        *((other, None) for other in (5, "2026-11-25T14:02:11+02:00", "2026-11-25T14:02:11Z\n")),
    ]:
        with subtests.test(said=said, time=time):
            content = json.dumps(LISTED | {"lastModified": said}).encode()
            assert parse_listing(content, "a/b").pushed == time


def test_the_authors_of_a_commit_are_those_of_the_first_in_the_list(subtests):
    for said, authors in [
        ([{"user": "alice"}], "alice"),
        ([{"user": "alice"}, {"name": "B. Git"}], "alice; B. Git"),
        ([{"user": None, "name": "B. Git"}, {"user": " "}, {}], "B. Git"),
        ([{"user": "x" * 201}], "x" * 199 + "\u2026"),
        *((other, None) for other in (None, ["alice"], [{}])),
    ]:
        with subtests.test(said=said, authors=authors):
            commit, older = ({"id": name * 40, "authors": said, "title": "t"} for name in "ab")
            content = json.dumps([commit, older]).encode()
            assert authors_in(content, "a" * 40) == authors
            assert authors_in(content, "b" * 40) is None


def test_what_is_no_list_of_commits_names_nobody(subtests):
    for content in [b"[]", b"[" * 9999, b'[{"id": "\xff"}]']:
        with subtests.test(content=content):
            assert authors_in(content, "a" * 40) is None


def test_a_listing_without_sizes_will_do():
    listing = parse_listing(
        b'{"id": "a/b", "sha": "%s", "siblings": [{"rfilename": "z"}, {"rfilename": "a"}]}'
        % (b"a" * 40),
        "a/b",
    )
    assert listing.files == (RepoFile(name="a", size=None), RepoFile(name="z", size=None))

"""What the Hub's answer about a model says of its files, and of its size."""

import json

import pytest

from auditor.checkpoint.snapshot import RepoFile
from auditor.downloader.hub import parse_listing
from auditor.errors import Reason, SourceError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!doctype html>", "is .* a Hub"),
        (b"[]", "is .* a Hub"),
        (b"{}", "as its id null"),
        (b'{"id": "a/b/c"}', "as its id the string 'a/b/c'"),
        (b'{"id": "a/b"}', "as its commit null"),
        (b'{"id": "a/b", "sha": "main"}', "as its commit the string 'main'"),
        (b'{"id": "a/b", "sha": "%s"}' % (b"a" * 40), "as its files null"),
        (b'{"id": "a/b", "sha": "%s", "siblings": [1]}' % (b"a" * 40), "a file named null"),
        (
            b'{"id": "a/b", "sha": "%s", "siblings": [{"rfilename": "../x"}]}' % (b"a" * 40),
            "a file named the string '../x'",
        ),
        (
            b'{"id": "a", "sha": "%s", "siblings": [{"rfilename": "x", "size": -1}]}' % (b"a" * 40),
            "as the size of 'x' -1",
        ),
        (
            b'{"id": "a", "sha": "%s", "siblings": [{"rfilename": "x", "size": true}]}'
            % (b"a" * 40),
            "as the size of 'x' true",
        ),
    ],
)
def test_a_listing_of_another_shape_is_a_bad_response(content, said):
    with pytest.raises(SourceError, match=said) as raised:
        parse_listing(content, "org/name")
    assert raised.value.reason is Reason.BAD_RESPONSE


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"safetensors": {"parameters": {"F32": 7}, "total": 9}}, {"safetensors.total": "9"}),
        ({"safetensors": {"parameters": {"F32": 7, "I64": 1}}}, {"safetensors.parameters": "8"}),
        ({"safetensors": {"parameters": {"F32": "7"}}}, {}),
        ({"safetensors": {"total": True}}, {}),
        ({"safetensors": {"total": -1}}, {}),
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
    ],
)
def test_the_size_in_a_listing_is_read_if_it_is_a_number(said, read):
    answer = {"id": "a/b", "sha": "a" * 40, "siblings": [], **said}
    listing = parse_listing(json.dumps(answer).encode(), "a/b")
    assert {one.name: one.text for one in listing.published} == read


def test_a_listing_without_sizes_will_do():
    listing = parse_listing(
        b'{"id": "a/b", "sha": "%s", "siblings": [{"rfilename": "z"}, {"rfilename": "a"}]}'
        % (b"a" * 40),
        "a/b",
    )
    assert listing.files == (RepoFile(name="a", size=None), RepoFile(name="z", size=None))

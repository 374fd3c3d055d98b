"""Refusals of the Hub mean to us what they mean to huggingface_hub."""

from typing import NamedTuple

import httpx2
import pytest
from huggingface_hub import hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.http import Url

from auditor.downloader.answers import refusal_error
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason

MODEL = "https://huggingface.co/api/models/org/name/revision/main"
FILE = "https://huggingface.co/org/name/resolve/main/config.json"
LIST = "https://huggingface.co/api/models?author=org"
PASSING = {408, 429}
LEGAL = 451
CODES = ("GatedRepo", "RepoNotFound", "RevisionNotFound", "EntryNotFound", "SomethingNew")
MESSAGES = (
    "Access to this resource is disabled.",
    "Invalid credentials in Authorization header",
    "Invalid username or password.",
)
# In this order: a GatedRepoError is a RepositoryNotFoundError too.
KINDS = (
    (GatedRepoError, Reason.GATED),
    (RepositoryNotFoundError, Reason.NOT_FOUND),
    (DisabledRepoError, Reason.DISABLED),
    (RevisionNotFoundError, Reason.NO_REVISION),
    (EntryNotFoundError, Reason.BAD_RESPONSE),
)


class Refusal(NamedTuple):
    """What is looked at of an Answer."""

    status: int
    headers: dict[str, str]
    url: Url = Url(MODEL)
    host: str = "huggingface.co"


def reason_of_the_library(refusal):
    """As huggingface_hub distinguishes the kinds; a plain error of some statuses is a denial."""
    request = httpx2.Request("GET", str(refusal.url))
    response = httpx2.Response(refusal.status, headers=refusal.headers, request=request)
    with pytest.raises(HfHubHTTPError) as raised:
        hf_raise_for_status(response)
    denied = refusal.status in {401, 403, 407}
    plain = Reason.DENIED if denied else Reason.BAD_RESPONSE
    kinds = (reason for kind, reason in KINDS if isinstance(raised.value, kind))
    return next(kinds, plain)


def named(name, values):
    return st.sampled_from(values).map(lambda value: {name: value}) | st.just({})


@given(
    st.sampled_from(sorted({*range(400, 500)} - PASSING - {LEGAL})) | st.sampled_from([401, 403]),
    named("x-error-code", CODES),
    named("x-error-message", MESSAGES),
    st.sampled_from([MODEL, FILE, LIST]),
)
def test_a_refusal_is_of_the_kind_that_huggingface_hub_raises(status, code, message, url):
    refusal = Refusal(status, {**code, **message}, Url(url))
    error = refusal_error(HubModel(id="org/name"), refusal, b"", by_hub=True)
    assert error.reason is reason_of_the_library(refusal)


def test_the_body_is_quoted_if_it_is_text(subtests):
    for body, said in [
        (b'{"error": "no such\\nthing"}', r"answered 404 for org/name \('no such\\nthing'\)"),
        (b'{"error": ["a list"]}', "answered 404 for org/name$"),
        (b"[" * 100_000, "answered 404 for org/name$"),
        (b"<html>", "answered 404 for org/name$"),
    ]:
        with subtests.test(body=body, said=said):
            error = refusal_error(HubModel(id="org/name"), Refusal(404, {}), body, by_hub=True)
            with pytest.raises(type(error), match=said):
                raise error


def test_a_proxy_that_requires_a_password_is_not_the_hub():
    error = refusal_error(HubModel(id="org/name"), Refusal(407, {}), b"", by_hub=True)
    assert str(error).startswith("a proxy needs a user and a password (407)")

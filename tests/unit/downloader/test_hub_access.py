"""Who may read a model on the Hub, who sees the token, and where the Hub is."""

import pytest
from huggingface_hub import constants
from support.hub import Origin
from support.hub_models import CONFIG, FILES, HEAD, ONE, large

from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError, UsageError

TOKEN = "hf_secret"  # noqa: S105 - opens nothing


def test_a_refusal_is_recognised_by_its_kind(subtests, at_hub):
    for requested, token, reason, said in [
        ("org/none", None, Reason.NOT_FOUND, "check the spelling; a private model needs a token"),
        ("org/private", None, Reason.NOT_FOUND, "a private model needs a token"),
        ("org/open@nope", None, Reason.NO_REVISION, "org/open has no revision 'nope'"),
        ("org/gated", None, Reason.GATED, "accept its licence at http.*/org/gated, then give"),
        ("org/disabled", None, Reason.DISABLED, "org/disabled is disabled"),
        ("org/open", "hf_wrong", Reason.DENIED, "check the token"),
    ]:
        with subtests.test(requested=requested, token=token, reason=reason, said=said):
            at_hub.clear()
            at_hub.add("org/open", FILES)
            at_hub.add("org/private", FILES, private=True)
            at_hub.add("org/gated", FILES, gated="manual")
            at_hub.add("org/disabled", FILES, disabled=True)
            at_hub.grant(TOKEN)
            with pytest.raises(SourceError, match=said) as raised:
                fetch(requested, token=token)
            assert raised.value.reason is reason
            assert "\n" not in str(raised.value)


def test_a_token_opens_what_it_was_granted(at_hub):
    at_hub.add("org/name", FILES, gated="manual")
    at_hub.grant(TOKEN, "org/name")
    assert fetch("org/name", token=TOKEN).headers[0].prefix == HEAD


def test_the_token_never_reaches_the_second_origin(at_hub):
    at_hub.add("new/name", {CONFIG: b"{}", ONE: large(100_000)}, aliases=["name"])
    at_hub.grant(TOKEN)
    fetch("name", token=TOKEN)
    seen = {(record.origin, record.authorization) for record in at_hub.log}
    assert seen == {(Origin.HUB, f"Bearer {TOKEN}"), (Origin.STORAGE, None)}


def test_a_stored_token_is_used(at_hub, monkeypatch):
    at_hub.add("org/name", FILES, private=True)
    at_hub.grant(TOKEN, "org/name")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch("org/name").headers[0].prefix == HEAD


def test_a_stored_token_is_left_alone_where_that_is_wished(at_hub, monkeypatch):
    at_hub.add("org/name", FILES)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    fetch("org/name")
    assert {record.authorization for record in at_hub.log} == {None}


def test_a_token_that_cannot_be_one_is_refused_and_not_shown(subtests, at_hub):
    for token in ["hf_a b", "hf_é"]:
        with subtests.test(token=token):
            with pytest.raises(UsageError, match="copy the whole token") as raised:
                fetch("org/name", token=token)
            assert token not in str(raised.value)
            assert at_hub.log == ()


# The network


def test_offline_no_request_is_sent_and_the_alternatives_are_named(at_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="--source cache, --source bundled or --source auto") as e:
        fetch("org/name")
    assert e.value.reason is Reason.OFFLINE
    assert at_hub.log == ()


def test_a_port_without_a_server_is_unreachable(machine):
    machine.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"no connection to 127.0.0.1.*\(tried 5 times\)") as e:
        fetch("org/name")
    assert e.value.reason is Reason.UNREACHABLE


def test_an_endpoint_that_is_no_address_is_the_users_fault(subtests, machine):
    for endpoint in ["ftp://example.org", "here:8080"]:
        with subtests.test(endpoint=endpoint):
            machine.setattr(constants, "ENDPOINT", endpoint)
            with pytest.raises(UsageError, match=r"HF_ENDPOINT is .*, expected an http address"):
                fetch("org/name")


def test_the_origin_hides_what_an_endpoint_holds_before_its_host(at_hub, machine):
    at_hub.add("org/name", FILES)
    at_hub.grant("Basic dXNlcjpwYXNz")  # user:pass in base64
    machine.setattr(constants, "ENDPOINT", at_hub.url.replace("http://", "http://user:pass@"))
    assert fetch("org/name").origin == f"read from {at_hub.url}"

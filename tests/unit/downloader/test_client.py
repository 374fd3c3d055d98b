"""The client between audits: connections that serve again, tokens, proxies, changed settings."""

import pytest
from huggingface_hub import constants
from support.hub import Header
from support.raw_server import raw_server
from support.sweep_models import healthy

from auditor.downloader import hub
from auditor.downloader.client import shared_client
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.hub_settings import plain_url
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError, UsageError

MODEL = HubModel(id="o/n")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def model(at_hub, machine):
    at_hub.add("o/n", healthy(1))
    for name in PROXIES:
        machine.delenv(name, raising=False)
        machine.delenv(name.upper(), raising=False)
    return at_hub


def read(token=None):
    session = Session(MODEL, token, ignore_message)
    return hub.read_from_listing(MODEL, hub.fetch_listing(MODEL, session), session)


def test_a_connection_serves_a_model_after_the_other(model):
    read()
    model.reset_log()
    for _ in range(3):
        read()
    assert len({record.connection for record in model.log if record.origin == "storage"}) == 1
    assert len({record.connection for record in model.log if record.origin == "hub"}) <= 2


def test_a_connection_that_the_server_closed_meanwhile_costs_nothing(model):
    model.misbehave(fault=Header(name="Content-Length", value=None), times=2)
    assert read().fetched.requests == read().fetched.requests


def test_an_unknown_host_is_not_requested_again(model, machine):
    del model
    waits = []
    machine.setattr("auditor.downloader.waits.Waits.rest_through", lambda *wait: waits.append(wait))
    session = Session(MODEL, None, ignore_message)
    with pytest.raises(SourceError, match=r"nowhere\.invalid cannot be found") as error:
        session.get("http://nowhere.invalid/", hub.whole_body(10, "it"), purpose="it")
    assert (error.value.reason, waits) == (Reason.UNREACHABLE, [])


def test_an_address_is_requested_without_its_user_and_fragment(subtests):
    for text in ["http://u:p@a.b/x?y#z", "//u@a.b/x?y", "//a.b/x?y#u:p@c"]:
        with subtests.test(text=text):
            base = plain_url("http://v:q@c.d/")
            assert str(plain_url(text, base)) == "http://a.b/x?y"
            assert str(base) == "http://c.d/"


def body_of(url):
    reply = shared_client().ask(plain_url(url), {}, 10.0)
    try:
        return b"".join(reply.pieces())
    finally:
        reply.close()


@pytest.mark.parametrize("name", ["http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(name, model, machine):
    del model
    with raw_server() as proxy:
        proxy.otherwise(OK)
        machine.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        assert body_of("http://model.invalid/x") == b"hello"
        assert [path for path, _ in proxy.asked] == ["http://model.invalid/x"]
        machine.setenv("NO_PROXY", "model.invalid")
        with pytest.raises(SourceError):
            body_of("http://model.invalid/x")


def test_the_client_is_made_anew_where_settings_change(model, machine):
    del model
    first = shared_client()
    assert shared_client() is first
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 77)
    assert shared_client() is not first


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_system_without_certificates_gets_advice(content, model, machine, tmp_path):
    del model
    file = tmp_path / "certificates"
    if content:
        file.write_bytes(content)
    machine.delenv("SSL_CERT_DIR", raising=False)
    machine.delenv("REQUESTS_CA_BUNDLE", raising=False)
    machine.setenv("SSL_CERT_FILE", str(file) if content else "")
    with pytest.raises(UsageError, match=r"No CA certificates.*; install ca-certificates, or name"):
        shared_client()


def test_a_wrong_proxy_is_refused_without_its_password(model, machine):
    del model
    machine.setenv("HTTPS_PROXY", "ftp://user:secret@proxy.example:3128")
    with pytest.raises(UsageError, match=r"HTTPS_PROXY begins with 'ftp', expected") as error:
        shared_client()
    assert "secret" not in str(error.value)

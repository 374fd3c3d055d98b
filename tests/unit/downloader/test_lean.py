"""The lean client against httpx2's own: the same snapshots, the same refusals, and old manners."""

import pytest
from huggingface_hub import constants
from support.hub import (
    Drip,
    EndlessBody,
    EndlessHeaders,
    Gzipped,
    HangUp,
    Header,
    HtmlPage,
    RedirectLoop,
    RedirectTo,
    Reset,
    ServerError,
    ShortBody,
    Stall,
    TooMany,
    WholeFile,
    WrongRange,
)
from support.sweep_models import healthy

from auditor.downloader import hub
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.lean import Lean
from auditor.downloader.model_argument import HubModel
from auditor.errors import SourceError

MODEL = HubModel(id="o/n")
FAULTS = {
    "none": None,
    "429": TooMany(),
    "500": ServerError(),
    "long 503": ServerError(status=503, size=10**6),
    "reset": Reset(),
    "reset in the body": Reset(after=3),
    "closed": HangUp(),
    "closed in the body": HangUp(after=3),
    "stall": Stall(),
    "stall in the body": Stall(after=3),
    "drip": Drip(piece=64, seconds=0.001),
    "short": ShortBody(missing=5),
    "whole file": WholeFile(),
    "wrong range": WrongRange(shift=1),
    "no length": Header(name="Content-Length", value=None),
    "no commit": Header(name="X-Repo-Commit", value=None),
    "another commit": Header(name="X-Repo-Commit", value="b" * 40),
    "circles": RedirectLoop(),
    "to a file": RedirectTo(location="file:///etc/passwd"),
    "redirect with a body": RedirectTo(size=20_000),
    "endless": EndlessBody(),
    "endless in chunks": EndlessBody(chunked=True),
    "page": HtmlPage(),
    "gzip": Gzipped(),
}


@pytest.fixture
def model(at_hub, machine):
    at_hub.add("o/n", healthy(1))
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        machine.delenv(name, raising=False)
        machine.delenv(name.upper(), raising=False)
    return at_hub


@pytest.fixture
def client(model):
    del model
    made = Lean.unless_proxied()
    assert made is not None
    yield made
    made.close()


def read(client=None):
    session = Session(MODEL, None, ignore_message, wire=client)
    return hub.read_from_listing(MODEL, hub.fetch_listing(MODEL, session), session)


def said(client=None):
    """The snapshot, or the reason that there is none."""
    try:
        found = read(client)
    except SourceError as error:
        return error.reason
    return found.config, found.headers, found.commit, found.fetched.requests


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_both_clients_see_the_same(fault, times, model, client):
    seen = []
    for one in (None, client):
        model.behave()
        if fault:
            model.misbehave(fault=fault, path="/o/n/resolve/*/model.safetensors", times=times)
            model.misbehave(fault=fault, path="/xet/*", times=times)
        seen.append(said(one))
    assert seen[0] == seen[1]


def test_headers_without_end_end_the_attempt(model, client):
    model.misbehave(fault=EndlessHeaders(), path="*.safetensors", times=1)
    assert said(client)[:3] == said()[:3]


def test_one_connection_to_each_origin_serves_a_model_after_the_other(model, client):
    model.reset_log()
    for _ in range(3):
        session = Session(MODEL, None, ignore_message, wire=client)
        listing = hub.fetch_listing(MODEL, session)
        hub.read_from_listing(MODEL, listing, session)
    assert {record.connection for record in model.log if record.origin == "storage"} == {1}
    assert len({record.connection for record in model.log if record.origin == "hub"}) <= 2


def test_a_connection_that_the_server_closed_meanwhile_costs_nothing(model, client):
    model.misbehave(fault=Header(name="Content-Length", value=None), times=2)
    assert said(client) == said()


def test_a_token_goes_to_the_hub_and_to_nobody_else(model, client):
    model.grant("hf_token", "o/n")
    session = Session(MODEL, "hf_token", ignore_message, wire=client)
    hub.read_from_listing(MODEL, hub.fetch_listing(MODEL, session), session)
    sent = {record.origin: record.authorization for record in model.log}
    assert sent == {"hub": "Bearer hf_token", "storage": None}


def test_an_address_where_nobody_listens_is_unreachable(model, client):
    model.misbehave(fault=RedirectTo(location="http://127.0.0.1:9/x"), path="*.safetensors")
    assert said(client) == "unreachable"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"])
def test_where_a_proxy_is_in_the_way_it_steps_back(name, machine):
    machine.setenv(name, "http://127.0.0.1:9")
    assert Lean.unless_proxied() is None

"""A Hub, a mirror or a proxy that misbehaves: it is mended by trying again, or told in a line."""

import json

import pytest
from huggingface_hub import constants
from support.builders import framed, safetensors_bytes
from support.hub import (
    Drip,
    EndlessBody,
    EndlessHeaders,
    Gzipped,
    HangUp,
    Header,
    HtmlPage,
    Origin,
    RedirectLoop,
    RedirectTo,
    Reset,
    ServerError,
    ShortBody,
    Sparse,
    Stall,
    TooMany,
    WholeFile,
    WrongJson,
    WrongRange,
)

from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader import hub
from auditor.downloader.fetching import fetch, ignore_message
from auditor.downloader.headers import FIRST_READ
from auditor.downloader.http import RequestBudget, Session
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError

pytestmark = pytest.mark.slow  # it waits and tries again

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
API, ANY_CONFIG, ANY_HEAD = "/api/models/*", "*config.json", "*model.safetensors"
TOKEN = "hf_secret"  # noqa: S105 - opens nothing
LENGTH = 100_000  # bytes of header: two ranged reads
GIGABYTES = 5 * 10**9
ENOUGH = 2 * 1024 * 1024  # bytes that a server may push into buffers before it is left


def large(length: int = LENGTH) -> Sparse:
    """A file with a header of that length before five billion bytes that are never made."""
    header = safetensors_bytes({"a": ("U8", (GIGABYTES,))}, align=1, data=False)[8:]
    return Sparse(framed(header.ljust(length)), 8 + length + GIGABYTES)


@pytest.fixture
def model(at_hub):
    at_hub.add("org/name", {CONFIG: b'{"a": 1}', ONE: large()}, aliases=["old"])
    return at_hub


@pytest.fixture
def hurried(machine):
    """Time-outs of a tenth of a second, so that no test waits for ten."""
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)


def whole(requested: str = "org/name", **options) -> Snapshot:
    """Fetches the model and holds it to be whole."""
    snapshot = fetch(requested, **options)
    assert snapshot.config.content == b'{"a": 1}'
    assert snapshot.headers[0].prefix == large().head
    assert snapshot.headers[0].size == large().size
    return snapshot


def refused(reason: Reason, said: str, requested: str = "org/name", **options) -> None:
    with pytest.raises(SourceError, match=said) as raised:
        fetch(requested, **options)
    assert raised.value.reason is reason
    assert "\n" not in str(raised.value)


def early(path: str) -> int:
    """How often a path is asked for in vain, beside the listing."""
    return int(path != API)


# What passes

PASSING = [
    TooMany(reset=0),
    TooMany(retry_after=0),
    ServerError(status=408),
    ServerError(status=502, size=10**6),
    Reset(),
    Reset(after=5),
    HangUp(after=0),
    ShortBody(),
]


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_what_passes_is_tried_again(model, fault):
    for path in (API, ANY_CONFIG, ANY_HEAD):
        model.misbehave(path=path, fault=fault, times=2)
    whole()
    assert sum(record.fault is not None for record in model.log) == 6


@pytest.mark.parametrize("fault", PASSING[::3], ids=str)
def test_the_storage_is_requested_again_through_the_hub(model, fault):
    model.misbehave(origin=Origin.STORAGE, fault=fault, times=1)
    whole()
    assert sum("/resolve/" in record.path for record in model.log) == 4  # config, head, head, rest
    assert sum(record.origin is Origin.STORAGE for record in model.log) == 3


@pytest.mark.parametrize(
    ("path", "fault", "reason", "said"),
    [
        (API, TooMany(), Reason.RATE_LIMITED, "429, too many requests"),
        (ANY_CONFIG, ServerError(status=503), Reason.SERVER_ERROR, "503 Service Unavailable"),
        (ANY_HEAD, ServerError(status=408), Reason.TIMED_OUT, "answered 408"),
        (API, Reset(), Reason.UNREACHABLE, "no connection to 127.0.0.1"),
        (ANY_CONFIG, ShortBody(), Reason.BAD_RESPONSE, "broke off its answer"),
        (ANY_HEAD, HangUp(), Reason.BAD_RESPONSE, "broke off its answer"),
    ],
    ids=str,
)
def test_what_does_not_pass_is_tried_five_times(model, path, fault, reason, said):
    model.misbehave(path=path, fault=fault)
    refused(reason, said + r".*\(tried 5 times\)")
    assert sum(record.fault is not None for record in model.log) == 5 + early(path)


@pytest.mark.parametrize("seed", range(2))
def test_a_hub_that_fails_now_and_then_is_read_all_the_same(at_hub, seed):
    shards = [f"model-{n:05}-of-00020.safetensors" for n in range(1, 21)]
    index = json.dumps({"weight_map": {name: name for name in shards}}).encode()
    at_hub.add("org/name", {CONFIG: b"{}", INDEX: index, **dict.fromkeys(shards, large())})
    kinds = (TooMany(reset=0), ServerError(status=503), Reset(), Reset(after=1), ShortBody())
    at_hub.misbehave_at_random(rate=0.1, seed=seed, faults=kinds)
    snapshot = fetch("org/name")
    assert [head.name for head in snapshot.headers] == shards
    assert {head.prefix for head in snapshot.headers} == {large().head}
    assert snapshot.fetched.requests == len(at_hub.log)


def test_when_one_shard_fails_for_good_the_others_do_not_wait(at_hub, machine):
    machine.setattr("auditor.downloader.retry.FIRST_WAIT", 60.0)
    index = json.dumps({"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}).encode()
    at_hub.add("org/name", {INDEX: index, "a.safetensors": large(), "b.safetensors": large()})
    at_hub.misbehave(path="*resolve*a.safetensors", fault=ServerError(status=503))
    at_hub.misbehave(path="*resolve*b.safetensors", fault=RedirectTo(location="ftp://x/y"))
    refused(Reason.BAD_RESPONSE, "redirects from http to 'ftp'")  # and not after a minute


# Rate limits


def test_a_wait_within_the_window_is_obeyed_and_reported(model):
    model.misbehave(path=API, fault=TooMany(reset=3), times=1)
    told = []
    whole(say=told.append)
    assert told == ["127.0.0.1 answered 429, too many requests; waiting 3 s"]


def test_a_wait_of_more_than_a_window_is_not_begun(model):
    model.misbehave(path=ANY_HEAD, fault=TooMany(retry_after=86_400))
    refused(Reason.RATE_LIMITED, "try again in")
    assert sum(record.fault is not None for record in model.log) == 1 + early(ANY_HEAD)


# Answers that are not what sent 'bytes 0-40959/many', expected


def test_a_server_that_ignores_ranges_is_left_at_the_headers_end(model):
    model.misbehave(origin=Origin.STORAGE, fault=WholeFile())
    snapshot = whole()
    asked = [record for record in model.log if record.origin is Origin.STORAGE]
    assert len(asked) == 1  # it reads on, where a second range would begin anew
    assert snapshot.fetched.bytes < 2 * LENGTH
    assert asked[0].sent < ENOUGH < GIGABYTES


def test_a_full_file_without_a_header_is_abandoned_at_once(at_hub):
    at_hub.add("org/name", {ONE: Sparse(b"PK\x03\x04" * 9, GIGABYTES)})
    at_hub.misbehave(origin=Origin.STORAGE, fault=WholeFile())
    assert len(fetch("org/name").headers[0].prefix) == FIRST_READ


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (WrongRange(shift=1), "sent 'bytes 1-40960/"),
        (WrongRange(total=999_999), "disagree on the size of 'model.safetensors'"),
        (WrongRange(total="many"), "sent 'bytes 0-40959/many', expected"),
        (Header(name="Content-Range", value=None), "sent '', expected bytes"),
    ],
    ids=str,
)
def test_a_range_must_be_the_requested_one(model, fault, said):
    model.misbehave(origin=Origin.STORAGE, fault=fault)
    refused(Reason.BAD_RESPONSE, said)


def test_a_range_may_leave_the_total_open_and_be_wrong_once(model):
    model.misbehave(origin=Origin.STORAGE, fault=WrongRange(shift=1), times=1)
    model.misbehave(origin=Origin.STORAGE, fault=WrongRange(total="*"))
    whole()


def test_the_size_before_the_redirect_must_agree_with_the_listing(model):
    fault = Header(name="X-Linked-Size", value="5000100009")
    model.misbehave(path="*resolve*model.safetensors", fault=fault)
    refused(Reason.BAD_RESPONSE, "disagree on the size")


@pytest.mark.parametrize("path", [ANY_CONFIG, "*resolve*model.safetensors"])
def test_another_commit_half_way_is_reported(model, path):
    model.misbehave(path=path, fault=Header(name="X-Repo-Commit", value="cd" * 20))
    refused(Reason.COMMIT_MOVED, "answered with commit 'cdcdcd.*, expected ")
    assert sum(record.fault is not None for record in model.log) == 1 + early(path)


def test_an_answer_must_name_its_commit(model):
    model.misbehave(path=ANY_CONFIG, fault=Header(name="X-Repo-Commit", value=None))
    refused(Reason.BAD_RESPONSE, r"names no commit \(X-Repo-Commit\)")


@pytest.mark.parametrize("path", [API, "*resolve*model.safetensors"])
def test_a_page_is_not_an_answer(model, path):
    model.misbehave(path=path, fault=HtmlPage())
    refused(Reason.BAD_RESPONSE, "is 'http://127.0.0.1:.*' a Hub|is a proxy in the way")


@pytest.mark.parametrize("value", [None, [], {"id": 1}])
def test_json_of_another_shape_is_not_a_listing(model, value):
    model.misbehave(path=API, fault=WrongJson(value=value))
    refused(Reason.BAD_RESPONSE, "the Hub's listing")


@pytest.mark.parametrize("path", [API, ANY_CONFIG])
def test_a_packed_body_is_refused(model, path):
    model.misbehave(path=path, fault=Gzipped())
    refused(Reason.BAD_RESPONSE, r"the encoding 'gzip', expected identity")


# Redirects


@pytest.mark.parametrize("path", [API, ANY_HEAD])
def test_a_loop_of_redirects_ends(model, path):
    model.misbehave(path=path, fault=RedirectLoop())
    refused(Reason.BAD_RESPONSE, "redirects more than 5 times")
    assert sum(record.fault is not None for record in model.log) == 6 * (1 + early(path))


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("file:///etc/passwd", "redirects from http to 'file'"),
        ("javascript:alert(1)", "redirects from http to 'javascript'"),
        ("http://[::1", "does not have an address"),
    ],
)
def test_a_redirect_leads_to_http_or_nowhere(model, location, said):
    model.misbehave(path="*resolve*", fault=RedirectTo(location=location))
    refused(Reason.BAD_RESPONSE, said)


def test_a_redirect_with_a_huge_body_is_followed_and_the_body_left(model):
    model.misbehave(path="*resolve*model.safetensors", fault=RedirectTo(size=10**9))
    snapshot = fetch("org/name")
    assert snapshot.headers[0].prefix == large().head
    assert snapshot.fetched.bytes < 2 * LENGTH
    assert all(record.sent < ENOUGH for record in model.log)


def test_a_token_does_not_follow_a_redirect_to_another_port(model):
    model.grant(TOKEN)
    model.misbehave(
        path="*resolve*config.json", fault=RedirectTo(location=model.storage_url + "/x")
    )
    refused(Reason.BAD_RESPONSE, "127.0.0.1, to which the Hub redirects, answered 403", token=TOKEN)
    elsewhere = [record for record in model.log if record.origin is Origin.STORAGE]
    assert elsewhere
    assert {record.authorization for record in elsewhere} == {None}


def test_a_token_does_not_come_back_from_another_port(model):
    model.grant(TOKEN)
    model.misbehave(
        path="/org/name/resolve/*config.json",
        fault=RedirectTo(location=f"{model.storage_url}/there", status=302),
    )
    model.misbehave(path="/there", fault=RedirectTo(location=f"{model.url}/back"))
    refused(Reason.BAD_RESPONSE, "the Hub answered 404", token=TOKEN)
    back = [record for record in model.log if record.path == "/back"]
    assert {record.authorization for record in back} == {None}


# Answers without end


@pytest.mark.parametrize("chunked", [False, True])
def test_a_config_without_end_is_left(model, machine, chunked):
    machine.setattr("auditor.downloader.assemble.MAX_CONFIG", 100_000)
    model.misbehave(path=ANY_CONFIG, fault=EndlessBody(chunked=chunked))
    refused(Reason.TOO_LARGE, "'config.json' has more bytes")
    assert all(record.sent < ENOUGH for record in model.log)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_range_without_end_is_read_as_far_as_it_goes(model, chunked):
    model.misbehave(origin=Origin.STORAGE, fault=EndlessBody(chunked=chunked), times=2)
    head = fetch("org/name").headers[0]
    assert head.prefix == b" " * FIRST_READ  # what the server says is what is audited
    assert all(record.sent < ENOUGH for record in model.log)


def test_headers_without_end_are_left(model):
    model.misbehave(path=API, fault=EndlessHeaders())
    refused(Reason.BAD_RESPONSE, "broke off its answer")


# Silence


@pytest.mark.parametrize(("path", "after"), [(API, None), (ANY_CONFIG, 0), (ANY_HEAD, 3)])
def test_silence_ends_in_a_time_out(model, hurried, path, after):  # noqa: ARG001 - see hurried
    model.misbehave(path=path, fault=Stall(after=after))
    refused(Reason.TIMED_OUT, r"did not answer in time \(tried 5 times\)")


def test_a_silence_that_ends_is_borne(model, hurried):  # noqa: ARG001 - see hurried
    model.misbehave(path=ANY_HEAD, fault=Stall(), times=1)
    whole()


def test_a_drip_that_never_pauses_ends_too(model, hurried):  # noqa: ARG001 - see hurried
    model.misbehave(path=ANY_CONFIG, fault=Drip(piece=1, seconds=0.08))
    refused(Reason.TIMED_OUT, "sends too slowly")


def test_a_slow_but_steady_body_is_read(model):
    model.misbehave(path=ANY_CONFIG, fault=Drip(piece=4, seconds=0.001))
    whole()


def test_what_is_read_of_one_model_is_bounded_in_all(at_hub):
    shards = {f"model-{number:05}-of-00009.safetensors": large() for number in range(9)}
    index = {"weight_map": {f"a{number}": shard for number, shard in enumerate(shards)}}
    at_hub.add("org/name", {CONFIG: b"{}", INDEX: json.dumps(index).encode(), **shards})
    name, most = HubModel(id="org/name"), 3 * LENGTH
    session = Session(name, None, ignore_message, budget=RequestBudget(most))
    with pytest.raises(SourceError, match="expected at most 300,000 of one model") as raised:
        hub.read_from_listing(name, hub.fetch_listing(name, session), session)
    assert raised.value.reason is Reason.TOO_LARGE

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


# Faults that pass


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


def test_a_fault_that_passes_is_tried_again(model, subtests):
    for fault in PASSING:
        with subtests.test(fault=fault):
            sound_again(model)
            for path in (API, ANY_CONFIG, ANY_HEAD):
                model.misbehave(path=path, fault=fault, times=2)
            whole()
            assert sum(record.fault is not None for record in model.log) == 6


def test_the_storage_is_requested_again_through_the_hub(model, subtests):
    for fault in PASSING[::3]:
        with subtests.test(fault=fault):
            sound_again(model)
            model.misbehave(origin=Origin.STORAGE, fault=fault, times=1)
            whole()
            resolved = sum("/resolve/" in record.path for record in model.log)
            assert resolved == 4  # config, head, head, rest
            assert sum(record.origin is Origin.STORAGE for record in model.log) == 3


def sound_again(model) -> None:
    model.behave()
    model.reset_log()


# Faults that persist: where they are met, the reason, the message, and how often they are met. A
# file of the repository is requested once in vain, beside the listing.

IN_STORAGE = "storage"
RESOLVED = "*resolve*model.safetensors"
FIVE_TIMES = r".*\(tried 5 times\)"
OTHER_COMMIT = Header(name="X-Repo-Commit", value="cd" * 20)
BAD = Reason.BAD_RESPONSE
PERSISTENT = (
    (API, TooMany(), Reason.RATE_LIMITED, "429, too many requests" + FIVE_TIMES, 5),
    (ANY_CONFIG, ServerError(status=503), Reason.SERVER_ERROR, "503 Service Un" + FIVE_TIMES, 6),
    (ANY_HEAD, ServerError(status=408), Reason.TIMED_OUT, "answered 408" + FIVE_TIMES, 6),
    (API, Reset(), Reason.UNREACHABLE, "no connection to 127.0.0.1" + FIVE_TIMES, 5),
    (ANY_CONFIG, ShortBody(), BAD, "broke off its answer" + FIVE_TIMES, 6),
    (ANY_HEAD, HangUp(), BAD, "broke off its answer" + FIVE_TIMES, 6),
    (ANY_HEAD, TooMany(retry_after=86_400), Reason.RATE_LIMITED, "try again in", 2),
    (IN_STORAGE, WrongRange(shift=1), BAD, "sent 'bytes 1-40960/", None),
    (IN_STORAGE, WrongRange(total=999_999), BAD, "disagree on the size of 'model.safet", None),
    (IN_STORAGE, WrongRange(total="many"), BAD, "sent 'bytes 0-40959/many', expected", None),
    (IN_STORAGE, Header(name="Content-Range", value=None), BAD, "sent '', expected bytes", None),
    (RESOLVED, Header(name="X-Linked-Size", value="5000100009"), BAD, "disagree on the size", None),
    (ANY_CONFIG, OTHER_COMMIT, Reason.COMMIT_MOVED, "with commit 'cdcdcd.*, expected ", 2),
    (RESOLVED, OTHER_COMMIT, Reason.COMMIT_MOVED, "with commit 'cdcdcd.*, expected ", 2),
    (API, HtmlPage(), BAD, "is 'http://127.0.0.1:.*' a Hub", None),
    (RESOLVED, HtmlPage(), BAD, "disagree on the size|bytes of 'config.json', expected", None),
    (API, WrongJson(value=[]), BAD, "the Hub's listing", None),
    (API, WrongJson(value={"id": 1}), BAD, "the Hub's listing", None),
    (API, Gzipped(), BAD, "the encoding 'gzip', expected identity", None),
    (ANY_CONFIG, Gzipped(), BAD, "the encoding 'gzip', expected identity", None),
    (API, RedirectLoop(), BAD, "redirects more than 5 times", 6),
    (ANY_HEAD, RedirectLoop(), BAD, "redirects more than 5 times", 12),
    ("*resolve*", RedirectTo(location="file:///etc"), BAD, "redirects from http to 'file'", None),
    ("*resolve*", RedirectTo(location="http://[::1"), BAD, "does not have an address", None),
    (API, EndlessHeaders(), BAD, "broke off its answer", None),
)


def test_a_fault_that_persists_ends_with_its_reason(model, subtests):
    for path, fault, reason, said, met in PERSISTENT:
        with subtests.test(path=path, fault=fault):
            sound_again(model)
            where = {"origin": Origin.STORAGE} if path == IN_STORAGE else {"path": path}
            model.misbehave(**where, fault=fault)
            refused(reason, said)
            if met is not None:
                assert sum(record.fault is not None for record in model.log) == met


def test_a_hub_that_fails_now_and_then_is_read_all_the_same(at_hub):
    shards = [f"model-{n:05}-of-00020.safetensors" for n in range(1, 21)]
    index = json.dumps({"weight_map": {name: name for name in shards}}).encode()
    at_hub.add("org/name", {CONFIG: b"{}", INDEX: index, **dict.fromkeys(shards, large())})
    kinds = (TooMany(reset=0), ServerError(status=503), Reset(), Reset(after=1), ShortBody())
    at_hub.misbehave_at_random(rate=0.1, seed=0, faults=kinds)
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


def test_a_range_may_leave_the_total_open_and_be_wrong_once(model):
    model.misbehave(origin=Origin.STORAGE, fault=WrongRange(shift=1), times=1)
    model.misbehave(origin=Origin.STORAGE, fault=WrongRange(total="*"))
    whole()


# Redirects


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


def test_a_config_without_end_is_left_and_a_range_is_read_as_far_as_it_goes(model, machine):
    machine.setattr("auditor.downloader.assemble.MAX_CONFIG", 100_000)
    for chunked in (False, True):
        sound_again(model)
        model.misbehave(path=ANY_CONFIG, fault=EndlessBody(chunked=chunked))
        refused(Reason.TOO_LARGE, "'config.json' has more bytes")
        sound_again(model)
        model.misbehave(origin=Origin.STORAGE, fault=EndlessBody(chunked=chunked), times=2)
        head = fetch("org/name").headers[0]
        assert head.prefix == b" " * FIRST_READ  # what the server says is what is audited
        assert all(record.sent < ENOUGH for record in model.log)


# Silence


def test_silence_ends_in_a_time_out(model, hurried):  # noqa: ARG001 - see hurried
    for path, after in ((API, None), (ANY_HEAD, 3)):
        sound_again(model)
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

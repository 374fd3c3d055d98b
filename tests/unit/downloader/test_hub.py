"""A model on the Hub: what is asked for, and what comes back."""

import json
import re
from collections import Counter

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes
from support.hub import Hub, Origin, RedirectTo, Sparse
from support.hub_models import CONFIG, FILES, HEAD, INDEX, ONE, WEIGHTS, large

from auditor.checkpoint.selecting import other_weight_files
from auditor.checkpoint.snapshot import RepoFile, Source, TextFile
from auditor.downloader.fetching import fetch
from auditor.downloader.headers import FIRST_READ
from auditor.errors import Reason, SourceError

TOKEN = "hf_secret"  # noqa: S105 - opens nothing
PUSHED = 4 * 1024 * 1024  # bytes that a server may push into buffers before it is left
BUDGET = 64 * 1024  # bytes of bodies, for a checkpoint of one file with a small header


def index_of(*shards: str) -> bytes:
    return json.dumps({"weight_map": {f"t{n}": name for n, name in enumerate(shards)}}).encode()


def asked(hub: Hub) -> Counter[str]:
    return Counter("api" if "/api/models/" in record.path else record.origin for record in hub.log)


@pytest.fixture(params=[False, True], ids=["plain", "resolve-cache"])
def any_hub(request, machine):
    """Both ways of the Hub: small files served at once, or by way of a redirect."""
    with Hub(resolve_cache=request.param) as hub:
        machine.setattr(constants, "ENDPOINT", hub.url)
        yield hub


def test_a_model_of_one_file_is_read(at_hub):
    sha = at_hub.add("org/name", {**FILES, "README.md": b"hello"})
    snapshot = fetch("org/name")
    assert (snapshot.model, snapshot.commit, snapshot.source) == ("org/name", sha, Source.HUB)
    assert (snapshot.origin, snapshot.partial) == (f"read from {at_hub.url}", False)
    assert snapshot.config == TextFile(name=CONFIG, content=b"{}")
    assert [(head.name, head.size, head.prefix) for head in snapshot.headers] == [
        (ONE, len(WEIGHTS), HEAD)
    ]
    assert RepoFile(name="README.md", size=5) in snapshot.files


# Budgets


def test_one_file_costs_one_api_request_and_two_resolver_requests(at_hub):
    at_hub.add("org/name", {CONFIG: b"{}", ONE: large()})
    snapshot = fetch("org/name")
    assert asked(at_hub) == {"api": 1, Origin.HUB: 2, Origin.STORAGE: 1}
    assert sum(record.sent for record in at_hub.log) <= BUDGET
    assert all(record.method == "GET" for record in at_hub.log)
    assert snapshot.headers[0].size == 5 * 10**9 + 8 + 24_012
    assert snapshot.fetched.requests == len(at_hub.log) == 4
    assert snapshot.fetched.bytes == sum(record.sent for record in at_hub.log)


def test_an_old_name_costs_one_redirect_a_request_and_no_more(at_hub):
    at_hub.add("google-bert/bert-base-chinese", FILES, aliases=["bert-base-chinese"])
    snapshot = fetch("bert-base-chinese")
    assert snapshot.model == "google-bert/bert-base-chinese"
    assert snapshot.origin.endswith("; bert-base-chinese is now google-bert/bert-base-chinese")
    assert asked(at_hub) == {"api": 2, Origin.HUB: 4, Origin.STORAGE: 1}
    paths = [record.path for record in at_hub.log if record.origin is Origin.HUB]
    assert {path for path in paths if "google-bert/" not in path} == {
        "/api/models/bert-base-chinese/revision/main",
        "/bert-base-chinese/resolve/main/config.json",
        "/bert-base-chinese/resolve/main/model.safetensors",
    }


def test_a_long_header_costs_one_more_range_through_the_resolver(at_hub):
    at_hub.add("org/name", {CONFIG: b"{}", ONE: large(100_000)})
    assert len(fetch("org/name").headers[0].prefix) == 100_008
    assert asked(at_hub) == {"api": 1, Origin.HUB: 3, Origin.STORAGE: 2}
    ranges = [record.range for record in at_hub.log if record.origin is Origin.STORAGE]
    assert ranges == [f"bytes=0-{FIRST_READ - 1}", f"bytes={FIRST_READ}-100007"]


def test_shards_are_read_once_each(at_hub):
    shards = [f"model-{n:05}-of-00030.safetensors" for n in range(1, 31)]
    files = dict.fromkeys(shards, large(4_000))
    at_hub.add("org/name", {CONFIG: b"{}", INDEX: index_of(*shards), **files, "old.bin": b"x"})
    snapshot = fetch("org/name")
    assert [head.name for head in snapshot.headers] == shards
    assert (snapshot.unopened, other_weight_files(snapshot)) == ((), ("old.bin",))
    # The file that there would be of a plain model costs one, which is refused.
    assert asked(at_hub) == {"api": 1, Origin.HUB: 33, Origin.STORAGE: 30}


def test_the_first_read_of_a_shard_is_as_long_as_its_tensors_names_ask(at_hub):
    names = [f"encoder.layer.{n}.attention.self.query.weight" for n in range(2_000)]
    spec = dict.fromkeys(names, ("BF16", (151_936, 4_096)))
    content = safetensors_bytes(spec, data=False)
    assert len(content) > 4 * FIRST_READ
    shard = Sparse(content, len(content) + 2_000 * 2 * 151_936 * 4_096)
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    files = {INDEX: json.dumps(index).encode(), "model-00001-of-00001.safetensors": shard}
    at_hub.add("org/name", files)
    assert fetch("org/name").headers[0].prefix == content
    assert asked(at_hub)[Origin.STORAGE] == 1


def test_connections_are_used_again(at_hub):
    shards = [f"model-{n:05}-of-00030.safetensors" for n in range(1, 31)]
    at_hub.add("org/name", {INDEX: index_of(*shards), **dict.fromkeys(shards, large())})
    for _ in range(4):
        fetch("org/name")
    connections = {record.connection for record in at_hub.log if record.origin is Origin.HUB}
    assert len(connections) <= 64  # as many as are under way at a time; there are 128 requests


def test_missing_shards_are_named_and_not_requested(at_hub):
    at_hub.add(
        "org/name", {INDEX: index_of("a.safetensors", "b.safetensors"), "b.safetensors": WEIGHTS}
    )
    snapshot = fetch("org/name")
    assert (snapshot.unopened, [head.name for head in snapshot.headers]) == (
        ("a.safetensors",),
        ["b.safetensors"],
    )
    assert not any("a.safetensors" in record.path for record in at_hub.log)


def test_every_file_is_requested_at_one_commit(any_hub):
    sha = any_hub.add("org/name", {CONFIG: b"{}", ONE: large(100_000)})
    fetch("org/name")
    files = [record.path for record in any_hub.log if f"/resolve/{sha}/" in record.path]
    others = [record.path for record in any_hub.log if "/resolve/main/" in record.path]
    assert len(files) == 1  # the rest of the header
    assert sorted(others) == ["/org/name/resolve/main/config.json", f"/org/name/resolve/main/{ONE}"]


def test_an_early_request_counts_only_at_the_listed_commit(at_hub):
    older = {CONFIG: b"{}", ONE: large()}
    sha = at_hub.add("org/name", {CONFIG: b'{"a": 1}', ONE: large(5_000)}, refs={"before": older})
    for name in older:
        before = RedirectTo(location=f"/org/name/resolve/before/{name}", status=307)
        at_hub.misbehave(path=f"/org/name/resolve/main/{name}", fault=before)
    snapshot = fetch("org/name")
    assert (snapshot.commit, snapshot.config.content) == (sha, b'{"a": 1}')
    assert snapshot.headers[0].prefix == large(5_000).head
    assert fetch("org/name@before").headers[0].prefix == large().head


def test_the_request_has_a_user_agent_and_no_compression(at_hub):
    at_hub.add("org/name", FILES)
    fetch("org/name")
    for record in at_hub.log:
        headers = {name.lower(): value for name, value in record.headers}
        assert re.fullmatch(r"hf-audit/\S+; hf_hub/\S+; python/\S+", headers["user-agent"])
        assert headers["accept-encoding"] == "identity"


# Revisions


def test_a_revision_is_read_as_such(subtests, at_hub):
    for revision in ["refs/pr/1", "a/branch", "commit"]:
        with subtests.test(revision=revision):
            at_hub.clear()
            at_hub.add("org/name", FILES)
            name = "side" if revision == "commit" else revision
            sha = at_hub.push("org/name", {**FILES, CONFIG: b"[1]"}, revision=name)
            snapshot = fetch(f"org/name@{sha if revision == 'commit' else revision}")
            assert (snapshot.commit, snapshot.config.content) == (sha, b"[1]")


# Files that are not what they should be


def test_a_weight_file_without_a_header_is_handed_on(subtests, at_hub):
    for content in [b"", b"abc"]:
        with subtests.test(content=content):
            at_hub.clear()
            at_hub.add("org/name", {CONFIG: b"{}", ONE: content})
            head = fetch("org/name").headers[0]
            assert (head.prefix, head.size) == (content, len(content))


def test_an_absurd_header_length_is_not_followed(at_hub):
    at_hub.add("org/name", {ONE: Sparse((10**15).to_bytes(8, "little") + b"{}", 10**10)})
    assert len(fetch("org/name").headers[0].prefix) == FIRST_READ
    assert asked(at_hub)[Origin.STORAGE] == 1


def test_a_small_weight_file_may_lie_in_git_itself(any_hub):
    any_hub.add("org/name", FILES, lfs=[])
    assert fetch("org/name").headers[0].prefix == HEAD
    assert asked(any_hub)[Origin.STORAGE] == 0


def test_a_name_that_must_be_quoted_is(at_hub):
    shard = "sub folder/ä#1?.safetensors"
    at_hub.add("org/name", {INDEX: index_of(shard), shard: WEIGHTS})
    assert fetch("org/name").headers[0].name == shard


def test_a_config_beyond_all_bounds_is_not_fetched(at_hub):
    at_hub.add("org/name", {CONFIG: Sparse(b"{", 20_000_000), ONE: WEIGHTS}, lfs=[CONFIG, ONE])
    with pytest.raises(
        SourceError, match="20,000,000 bytes, expected at most 16,777,216"
    ) as raised:
        fetch("org/name")
    assert raised.value.reason is Reason.TOO_LARGE
    assert sum(record.sent for record in at_hub.log) <= PUSHED


# What a repository may lack


def test_what_cannot_be_audited_is_known_by_its_listing(subtests, at_hub):
    for files, reason in [
        ({".gitattributes": b"x"}, Reason.EMPTY_REPO),
        ({CONFIG: b"{}"}, Reason.NO_WEIGHTS),
        ({"unet/diffusion_pytorch_model.safetensors": WEIGHTS}, Reason.NO_SAFETENSORS),
    ]:
        with subtests.test(files=files, reason=reason):
            at_hub.clear()
            at_hub.add("org/name", files)
            with pytest.raises(SourceError, match="org/name") as raised:
                fetch("org/name")
            assert raised.value.reason is reason
            assert asked(at_hub)["api"] == 1
            assert asked(at_hub)[Origin.HUB] <= 2  # beside the listing, and for nothing
